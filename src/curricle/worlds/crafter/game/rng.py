"""Random numbers on an environment's record: numpy's `RandomState` to the bit, or a cheap generator.

With `s.exact` the words come from a Mersenne twister seeded as `numpy.random.RandomState(seed)`; `uniform` takes two
words, `below` one word an attempt and none for a single choice. Otherwise they come from SplitMix64: the same
distributions, other numbers. `skip` moves the twister on without looking at its words. (numba widens the arithmetic of
32-bit words to 64 bits: the casts keep the values right and the vector lanes narrow.)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel

_N = 624
_M = 397
_UPPER = np.uint32(0x80000000)
_LOWER = np.uint32(0x7FFFFFFF)
_MATRIX = np.uint32(0x9908B0DF)
_ONE = np.uint32(1)
LAST_FOUR = _N - 3
"""Before this place in the twister, four words are left."""
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
    """Turn a word of the state into a random number, as the Mersenne twister does."""
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
def _raw(s: Any) -> np.uint32:
    """The twister's next word, not yet tempered."""
    if s.mt_at == _N:
        twist(s.mt)
        s.mt_at = 0
    s.mt_at += 1
    return np.uint32(s.mt[s.mt_at - 1])


@kernel
def _word(s: Any) -> np.uint32:
    """The twister's next word."""
    return temper(_raw(s))


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
def uniform_of(first: np.uint32, second: np.uint32) -> float:
    """The number from [0, 1) that two untempered words stand for."""
    high = temper(first) >> np.uint32(5)
    low = temper(second) >> np.uint32(6)
    return (high * 67108864.0 + low) / 9007199254740992.0


@kernel
def uniform(s: Any) -> float:
    """Draw from [0, 1)."""
    if s.exact:
        first = _raw(s)
        return uniform_of(first, _raw(s))
    return (_mixed(s) >> np.uint64(11)) / 9007199254740992.0


@kernel
def temper_all(s: Any, tempered: NDArray[np.uint32]) -> None:
    """Temper the twister's words ahead of `exceeds`."""
    if s.exact:
        for i in range(_N):
            tempered[i] = temper(s.mt[i])


@kernel
def exceeds(s: Any, tempered: NDArray[np.uint32], bar: float) -> bool:
    """Whether a draw from [0, 1) is above a bar: `uniform(s) > bar`, mostly decided by the first of its two words."""
    if not s.exact:
        return uniform(s) > bar
    if s.mt_at > _N - 2:
        above = uniform(s) > bar
        temper_all(s, tempered)
        return above
    high = np.int64(tempered[s.mt_at] >> np.uint32(5))
    edge = np.int64(bar * 134217728.0)
    if high == edge:
        return uniform(s) > bar
    s.mt_at += 2
    return bool(high > edge)


@kernel
def calm(s: Any, bar: float) -> int:
    """A draw whose first word is below this is below the bar; 0 with the cheap generator, where words do not say so."""
    return int(np.int64(bar * 134217728.0)) << 5 if s.exact else 0


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
def draw_words(s: Any, out: NDArray[np.uint32], count: int) -> None:
    """Take many words at once, not yet tempered: two make a number, see `uniform_of`."""
    if not s.exact:
        counter = s.cheap
        pairs = out.view(np.uint64)
        for i in range(count // 2):
            pairs[i] = _mix(counter + np.uint64(i + 1) * _GOLDEN)
        s.cheap = counter + np.uint64(count // 2) * _GOLDEN
        return
    done = 0
    while done < count:
        if s.mt_at == _N:
            twist(s.mt)
            s.mt_at = 0
        batch = min(_N - s.mt_at, count - done)
        source = s.mt[s.mt_at : s.mt_at + batch]
        target = out[done : done + batch]
        for i in range(batch):
            target[i] = source[i]
        s.mt_at += batch
        done += batch
