"""The seed of an episode: Python's `hash((seed, episode)) % (2**31 - 1)`, written out.

The reference seeds each episode with the hash of a tuple of two integers. CPython mixes the hashes of the members
(for integers, the value modulo 2**61 - 1) with the xxHash scheme below, the same on every 64-bit machine.
"""

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel

_PRIME_1 = np.uint64(11400714785074694791)
_PRIME_2 = np.uint64(14029467366897019727)
_PRIME_5 = np.uint64(2870177450012600261)
_LENGTH = np.uint64(2) ^ (_PRIME_5 ^ np.uint64(3527539))
_MERSENNE = (1 << 61) - 1
LARGEST = (1 << 31) - 1


@kernel
def _hash_of_integer(value: int) -> np.uint64:
    """Python's hash of an integer of 64 bits, as an unsigned word."""
    rest = abs(value) % _MERSENNE
    if value < 0:
        rest = -2 if rest == 1 else -rest  # -1 is reserved for errors
    return np.uint64(np.int64(rest))


@kernel
def episode_seed(seed: int, episode: int) -> int:
    """The 31-bit seed of one episode of an environment."""
    mix = _PRIME_5
    for value in (seed, episode):
        mix += _hash_of_integer(value) * _PRIME_2
        mix = (mix << np.uint64(31)) | (mix >> np.uint64(33))
        mix *= _PRIME_1
    mix += _LENGTH
    if mix == np.uint64(0xFFFFFFFFFFFFFFFF):
        return 1546275796 % LARGEST
    return int(np.int64(mix) % LARGEST)
