"""Randomness: one seed a run, and every draw from a generator derived from (seed, purpose, index).

No generator outlives the call that made it, so no generator state has to be saved. A resumed run draws the same numbers
as the uninterrupted one, and results do not depend on the number of workers.
"""

import functools
import hashlib
import json

import numpy as np

TESTS = 1000
"""The number of test seeds."""


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that only this seed and purpose give."""
    digest = hashlib.sha256(json.dumps([seed, *purpose]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a fresh generator for one purpose."""
    return np.random.default_rng(derive(seed, *purpose))


def for_test(index: int) -> int:
    """The seed of one test, the same for every run."""
    return derive(0, "test", index)


def is_for_test(seed: int) -> bool:
    """Whether a seed is one of the test seeds; a world of tasks then draws tasks that practice never sees."""
    return seed in _for_tests()


@functools.cache
def _for_tests() -> frozenset[int]:
    return frozenset(for_test(index) for index in range(TESTS))
