"""Slices: what is done to some neighbouring environments of a batch, in one go of compiled code."""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.atomics import swap, write
from curricle.worlds.crafter.engine.compile import part
from curricle.worlds.crafter.engine.prefetch import Spares, fits, make, take
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.step import is_dead, is_over, pass_night, reset, step
from curricle.worlds.crafter.observe.frames import Easel, draw
from curricle.worlds.crafter.observe.symbols import write_symbols

ALIVE = 0
DIED = 1
TIMED_OUT = 2
BEGIN, PLAY, RENEW, GO_ON = range(4)
"""Orders: begin an episode where the mask says, play a step, follow what ended by its next episode, both of these."""


RESULT: Final = np.dtype(
    {
        "names": ["reward", "end", "fault", "skills"],
        "formats": ["f8", "u1", "u1", ("u1", len(r.ACHIEVEMENTS))],
        "offsets": [0, 8, 9, 10],
        "itemsize": 64,
    }
)
"""What came of a step; a line of the cache each, for neighbours may be written by different threads at once."""
PAGE: Final = 4096


def on_pages(*shape: int) -> NDArray[np.uint8]:
    """Bytes on pages of memory that hold nothing else.

    A driver lends a GPU whole pages; and what all threads watch must not lie beside what one of them keeps writing.
    """
    size = -(-math.prod(shape) // PAGE) * PAGE
    room = np.zeros(size + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    return room[start : start + math.prod(shape)].reshape(shape)


class Board(NamedTuple):
    """What the environments of an engine share: what they are told, what came of it, and where they work."""

    mask: NDArray[Any]
    actions: NDArray[Any]
    results: NDArray[Any]
    """Beside the records, which are far apart in memory."""
    observed: NDArray[Any]
    final: NDArray[Any]
    symbols: bool
    daylight: NDArray[Any]
    tables: NDArray[Any]
    work: NDArray[Any]
    easel: Easel
    spares: Spares


@part
def _observe(s: Any, out: Any, me: int, b: Any, p: Any) -> None:
    """Draw or write what a player sees; in exact mode this moves the random stream as the reference's drawing does."""
    if p is not None:
        draw(s, out, b.easel, me, p.unit, p.tiles, p.dusk, p.cells, p.items, p.vignette, p.night)
    else:
        if b.symbols:
            write_symbols(s, out)
        pass_night(s)


@part
def _begin(s: Any, i: int, me: int, b: Any, p: Any) -> None:
    waits = False
    if len(b.spares.records) > 0 and swap(b.spares.held, i, 1) == 0:
        waits = fits(b.spares, s, i)
        if waits:
            take(b.spares, s, i)
        write(b.spares.held, i, 0)
    if not waits:
        reset(s, b.daylight, b.tables[0], b.work[me])
    b.results[i].fault = s.fault
    _observe(s, b.observed[i], me, b, p)


@part
def _play(s: Any, i: int, b: Any) -> None:
    result = b.results[i]
    result.reward = step(s, b.actions[i], b.daylight)
    result.end = DIED if is_dead(s) else TIMED_OUT if is_over(s) else ALIVE
    result.fault = s.fault
    for k in range(len(r.ACHIEVEMENTS)):
        result.skills[k] = s.unlocked[k]


@part
def prepare(states: Any, i: int, me: int, b: Any) -> None:
    """See to it that environment i has a spare."""
    if len(b.spares.records) > 0 and swap(b.spares.held, i, 1) == 0:
        if not fits(b.spares, states[i], i):
            make(b.spares, states[i], i, b.daylight, b.tables[0], b.work[me])
        write(b.spares.held, i, 0)


@part
def follow(order: int, states: Any, lo: int, hi: int, me: int, b: Any, p: Any) -> None:
    """Carry out an order; `me` is the scratch memory to use, `p` the pictures to draw with, or None."""
    if order in (PLAY, GO_ON):
        for i in range(lo, hi):
            _play(states[i], i, b)
        for i in range(lo, hi):
            _observe(states[i], b.observed[i], me, b, p)
    if order != PLAY:
        for i in range(lo, hi):
            if order == BEGIN and b.mask[i]:
                _begin(states[i], i, me, b, p)
            if order != BEGIN and b.results[i].end != ALIVE:
                b.final[i] = b.observed[i]
                _begin(states[i], i, me, b, p)
