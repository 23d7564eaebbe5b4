"""Random words on a `STREAM` record: those of C++'s `std::mt19937`, which numpy's `RandomState` gives as well."""

from typing import Any

import numpy as np

from curricle.worlds.crafter.game.rng import seed_words, temper, twist
from curricle.worlds.heist.engine.compile import kernel

_WORDS = 624


@kernel
def seed_stream(stream: Any, seed: int) -> None:
    """Begin a stream from the lower 32 bits of a seed."""
    seed_words(stream.words, seed & 0xFFFFFFFF)
    stream.at = _WORDS


@kernel
def next_word(stream: Any) -> int:
    """Draw a word of 32 bits."""
    if stream.at == _WORDS:
        twist(stream.words)
        stream.at = 0
    word = temper(stream.words[stream.at])
    stream.at += 1
    return int(np.int64(word))


@kernel
def draw(stream: Any, n: int) -> int:
    """Draw a whole number from 0 to n - 1 as Procgen does."""
    return next_word(stream) % n


@kernel
def draw_share(stream: Any) -> np.float32:
    """Draw a float from 0 to 1 as Procgen does."""
    return np.float32(next_word(stream) / 4294967296.0)
