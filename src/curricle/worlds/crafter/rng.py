"""Random numbers on an environment's record: numpy's `RandomState` to the bit, or a cheap generator.

With `s.exact` the words come from a Mersenne twister seeded as `numpy.random.RandomState(seed)`; `uniform` takes two
words, `below` one word an attempt and none for a single choice. Otherwise they come from SplitMix64: the same
distributions, other numbers. `skip` moves the twister on without looking at its words. (numba widens the arithmetic of
32-bit words to 64 bits: the casts keep the values right and the vector lanes narrow.)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.kernel import kernel

_N, _M = 624, 397
_UPPER, _LOWER, _MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_ONE = np.uint32(1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def seed_words(mt: NDArray[np.uint32], seed: int) -> None:
    """Fill the twister's state from one 32-bit seed."""
    word = np.uint32(seed)
    for i in range(_N):
        mt[i] = word
        word = np.uint32(np.uint32(1812433253) * (word ^ (word >> np.uint32(30))) + np.uint32(i + 1))


@kernel
def _half(word: np.uint32, after: np.uint32) -> np.uint32:
    """What a word and its neighbour add to the word 397 places on."""
    both = np.uint32((word & _UPPER) | (after & _LOWER))
    return np.uint32(np.uint32(both >> _ONE) ^ np.uint32(np.uint32(np.uint32(0) - np.uint32(both & _ONE)) & _MATRIX))


@kernel
def twist(mt: NDArray[np.uint32]) -> None:
    """Make the next 624 words; three loops, so that the compiler can take several words at a time."""
    for i in range(_N - _M):
        mt[i] = mt[i + _M] ^ _half(mt[i], mt[i + 1])
    for i in range(_N - _M, _N - 1):
        mt[i] = mt[i + _M - _N] ^ _half(mt[i], mt[i + 1])
    mt[_N - 1] = mt[_M - 1] ^ _half(mt[_N - 1], mt[0])


@kernel
def temper(word: np.uint32) -> np.uint32:
    """Scramble a word of the state into the word that is handed out."""
    a = np.uint32(word ^ (word >> np.uint32(11)))
    b = np.uint32(a ^ ((a << np.uint32(7)) & np.uint32(0x9D2C5680)))
    c = np.uint32(b ^ ((b << np.uint32(15)) & np.uint32(0xEFC60000)))
    return np.uint32(c ^ (c >> np.uint32(18)))


@kernel
def seed_stream(s: Any, seed: int) -> None:
    """Start both generators from one seed."""
    s.cheap = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(1)
    s.mt_at = _N
    if s.exact:
        seed_words(s.mt, seed)


@kernel
def _word(s: Any) -> np.uint32:
    """The twister's next word."""
    if s.mt_at == _N:
        twist(s.mt)
        s.mt_at = 0
    word = temper(s.mt[s.mt_at])
    s.mt_at += 1
    return word


@kernel
def _mix(z: np.uint64) -> np.uint64:
    """SplitMix64's scrambling of its counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _mixed(s: Any) -> np.uint64:
    """SplitMix64's next word."""
    s.cheap += _GOLDEN
    return _mix(s.cheap)


@kernel
def uniform(s: Any) -> float:
    """Draw from [0, 1)."""
    if s.exact:
        high, low = _word(s) >> np.uint32(5), _word(s) >> np.uint32(6)
        return (high * 67108864.0 + low) / 9007199254740992.0
    return (_mixed(s) >> np.uint64(11)) / 9007199254740992.0


@kernel
def exceeds(s: Any, bar: float) -> bool:
    """Whether a draw from [0, 1) is above a bar: `uniform(s) > bar`, mostly decided by the first of its two words."""
    if not s.exact or s.mt_at > _N - 2:
        return uniform(s) > bar
    high, edge = np.int64(temper(s.mt[s.mt_at]) >> np.uint32(5)), np.int64(bar * 134217728.0)
    if high == edge:
        return uniform(s) > bar
    s.mt_at += 2
    return bool(high > edge)


@kernel
def below(s: Any, n: int) -> int:
    """Draw a whole number from 0 to n - 1."""
    if n <= 1:
        return 0
    if not s.exact:
        return int(np.int64(((_mixed(s) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)))
    most = np.uint32(n - 1)
    mask = most
    for shift in (1, 2, 4, 8, 16):
        mask |= mask >> np.uint32(shift)
    pick = _word(s) & mask
    while pick > most:
        pick = _word(s) & mask
    return int(np.int64(pick))


@kernel
def skip(s: Any, words: int) -> None:
    """Pass over words of the twister."""
    s.mt_at += words
    while s.mt_at > _N:
        twist(s.mt)
        s.mt_at -= _N


@kernel
def fill_uniform(s: Any, out: NDArray[np.float64]) -> None:
    """Draw many numbers from [0, 1) at once: the same ones that `uniform` would give."""
    if not s.exact:
        counter = s.cheap
        for i in range(out.size):
            out[i] = np.int64(_mix(counter + np.uint64(i + 1) * _GOLDEN) >> np.uint64(11)) / 9007199254740992.0
        s.cheap = counter + np.uint64(out.size) * _GOLDEN
        return
    words, done = np.empty(2 * out.size, np.uint32), 0
    while done < words.size:
        if s.mt_at == _N:
            twist(s.mt)
            s.mt_at = 0
        batch = min(_N - s.mt_at, words.size - done)
        source, target = s.mt[s.mt_at : s.mt_at + batch], words[done : done + batch]
        for i in range(batch):
            target[i] = temper(source[i])
        s.mt_at += batch
        done += batch
    for i in range(out.size):
        high, low = words[2 * i] >> np.uint32(5), words[2 * i + 1] >> np.uint32(6)
        out[i] = (np.float64(np.int32(high)) * 67108864.0 + np.float64(np.int32(low))) / 9007199254740992.0
