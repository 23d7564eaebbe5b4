"""What a thread does with environments: reset them, step them, and prefetch their next episodes.

`run_command` carries out a command for some neighbouring environments in one go of compiled code. In: the records of
the environments and `Buffers`, the arrays they share. Out: the records, results and observations.

Generating a world takes as long as fifty steps or more. So that no step has to wait for it, idle threads begin the next
episode of each environment in a second record (`prefetch`). When the environment is reset, the used parts of that
record are copied into its own. This happens only if seed, episode number and setting are still the wanted ones
(`_is_next`). Otherwise, or while a thread still works on the record, the episode begins in place, with the same bytes.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.atomics import exchange, store
from curricle.worlds.crafter.engine.compile import inlined, kernel
from curricle.worlds.crafter.engine.simd import move32
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.game.step import is_dead, is_over, pass_night, reset, step
from curricle.worlds.crafter.observe.frames import DrawBuffers, draw
from curricle.worlds.crafter.observe.symbols import write_symbols

ALIVE: Final = 0
DIED: Final = 1
TIMED_OUT: Final = 2
"""Values of `end` in a result."""

RESET: Final = 0
STEP: Final = 1
RESET_ENDED: Final = 2
STEP_AND_RESET_ENDED: Final = 3
"""Commands: begin an episode where the mask says; play a step; begin the next episode where one ended; the last two."""

RESULT: Final = np.dtype(
    {
        "names": ["reward", "end", "fault", "skills"],
        "formats": ["f8", "u1", "u1", ("u1", len(r.ACHIEVEMENTS))],
        "offsets": [0, 8, 9, 10],
        "itemsize": 64,
    }
)
"""The result of a step. Each fills a cache line, because neighbours may be written by different threads at once."""
PAGE: Final = 4096


def page_aligned(*shape: int) -> NDArray[np.uint8]:
    """Bytes on memory pages that hold nothing else.

    A GPU driver pins whole pages. And what all threads poll must not share a cache line with what one of them writes.
    """
    size = math.prod(shape)
    pages = -(-size // PAGE)
    memory = np.zeros((pages + 1) * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + size].reshape(shape)


class Prefetched(NamedTuple):
    """A second record for each environment, for its next episode; none where no thread is there to fill them."""

    records: NDArray[Any]
    locks: NDArray[np.int64]
    """1 while a thread fills or copies the record."""
    own_bytes: NDArray[np.uint8]
    """The environments' own records, as bytes."""
    next_bytes: NDArray[np.uint8]
    """The second records, as bytes."""


def prefetch_buffers(states: NDArray[Any], used: bool) -> Prefetched:
    """Second records for some environments, or none."""
    records = np.zeros(len(states) if used else 0, STATE)
    locks = np.zeros(len(records), np.int64)
    return Prefetched(records, locks, states.view(np.uint8), records.view(np.uint8))


class Buffers(NamedTuple):
    """The arrays that the environments of a batch share: inputs, results, and memory to work in."""

    mask: NDArray[Any]
    actions: NDArray[Any]
    results: NDArray[Any]
    """Apart from the records, which are far from each other in memory."""
    observed: NDArray[Any]
    final: NDArray[Any]
    """The last observations of episodes that ended."""
    symbols: bool
    daylight: NDArray[Any]
    tables: NDArray[Any]
    work: NDArray[Any]
    """Memory for world generation, a record a thread."""
    drawing: DrawBuffers | None
    """Memory to draw in; None where observations are no pixels."""
    prefetched: Prefetched


# -- prefetching -------------------------------------------------------------------------------------------------------


def _places(*names: str) -> NDArray[np.int64]:
    """Rows of (first byte in a record, length in bytes, bytes of one number), for some fields."""
    assert STATE.fields is not None
    fields = [STATE.fields[name] for name in names]
    return np.array([(start, kind.itemsize, kind.base.itemsize) for kind, start, *_ in fields], np.int64)


_LISTED: Final = ("kind", "x", "y", "health", "timer", "grown")
_PARTLY_COPIED: Final = {*_LISTED, "chunk_order", "mt"}
_OBJECTS: Final = _places(*_LISTED)
_CHUNKS: Final = _places("chunk_order")
_TWISTER: Final = _places("mt")
_REST: Final = _places(*(name for name in STATE.names or () if name not in _PARTLY_COPIED))
_SETTING: Final = _places("upcoming")
_SIZE: Final = STATE.itemsize


@kernel
def _copy(source: Any, target: Any, i: int, start: int, size: int) -> None:
    """Copy some bytes of record i, 32 at a time."""
    first = i * _SIZE + start
    for k in range(first, first + size - 31, 32):
        move32(target, k, source, k)
    for k in range(first + size // 32 * 32, first + size):
        target[k] = source[k]


@kernel
def _is_next(p: Any, s: Any, i: int) -> bool:
    """Whether the prefetched record of environment i is its next episode."""
    if p.records[i].seed != s.seed or p.records[i].episode != s.episode + 1:
        return False
    for k in range(_SETTING[0, 0], _SETTING[0, 0] + _SETTING[0, 1]):  # byte by byte, so that no knob is forgotten
        if p.own_bytes[i * _SIZE + k] != p.next_bytes[i * _SIZE + k]:
            return False
    return bool(p.records[i].exact == s.exact)


@kernel
def _begin_next(p: Any, s: Any, i: int, daylight: NDArray[np.float64], tables: Any, work: Any) -> None:
    """Begin the next episode of environment i in its second record."""
    record = p.records[i]
    _copy(p.own_bytes, p.next_bytes, i, _SETTING[0, 0], _SETTING[0, 1])
    record.exact = s.exact
    record.night_words = s.night_words
    record.seed = s.seed
    record.episode = s.episode
    record.fault = 0
    reset(record, daylight, tables, work)


@kernel
def _take_next(p: Any, s: Any, i: int) -> None:
    """Copy the prefetched episode: of lists the entries in use, of the random stream what its mode reads, the rest."""
    for k in range(len(_REST)):
        _copy(p.next_bytes, p.own_bytes, i, _REST[k, 0], _REST[k, 1])
    for k in range(len(_OBJECTS)):
        _copy(p.next_bytes, p.own_bytes, i, _OBJECTS[k, 0], _OBJECTS[k, 2] * s.count)
    _copy(p.next_bytes, p.own_bytes, i, _CHUNKS[0, 0], _CHUNKS[0, 2] * s.touched)
    if s.exact:
        _copy(p.next_bytes, p.own_bytes, i, _TWISTER[0, 0], _TWISTER[0, 1])


@inlined
def prefetch(states: Any, i: int, thread: int, b: Any) -> None:
    """Prefetch the next episode of environment i, unless it is there or another thread is at it."""
    if len(b.prefetched.records) > 0 and exchange(b.prefetched.locks, i, 1) == 0:
        if not _is_next(b.prefetched, states[i], i):
            _begin_next(b.prefetched, states[i], i, b.daylight, b.tables[0], b.work[thread])
        store(b.prefetched.locks, i, 0)


# -- commands ----------------------------------------------------------------------------------------------------------


@inlined
def _observe(s: Any, out: Any, thread: int, b: Any, p: Any) -> None:
    """Draw or write what a player sees; in exact mode this moves the random stream as the reference's drawing does."""
    if p is not None:
        draw(s, out, b.drawing, thread, p.unit, p.tiles, p.dusk, p.cells, p.items, p.vignette, p.night)
    else:
        if b.symbols:
            write_symbols(s, out)
        pass_night(s)


@inlined
def _reset(s: Any, i: int, thread: int, b: Any, p: Any) -> None:
    """Begin the next episode of environment i: the prefetched one if it fits."""
    was_prefetched = False
    if len(b.prefetched.records) > 0 and exchange(b.prefetched.locks, i, 1) == 0:
        was_prefetched = _is_next(b.prefetched, s, i)
        if was_prefetched:
            _take_next(b.prefetched, s, i)
        store(b.prefetched.locks, i, 0)
    if not was_prefetched:
        reset(s, b.daylight, b.tables[0], b.work[thread])
    b.results[i].fault = s.fault
    _observe(s, b.observed[i], thread, b, p)


@inlined
def _step(s: Any, i: int, b: Any) -> None:
    """Play one step in environment i, and write its result."""
    result = b.results[i]
    result.reward = step(s, b.actions[i], b.daylight)
    if is_dead(s):
        result.end = DIED
    elif is_over(s):
        result.end = TIMED_OUT
    else:
        result.end = ALIVE
    result.fault = s.fault
    for k in range(len(r.ACHIEVEMENTS)):
        result.skills[k] = s.unlocked[k]


@inlined
def run_command(command: int, states: Any, first: int, last: int, thread: int, b: Any, p: Any) -> None:
    """Carry out a command for environments first..last - 1; `p` holds the pictures to draw with, or None."""
    if command in (STEP, STEP_AND_RESET_ENDED):
        for i in range(first, last):
            _step(states[i], i, b)
        for i in range(first, last):
            _observe(states[i], b.observed[i], thread, b, p)
    if command != STEP:
        for i in range(first, last):
            if command == RESET and b.mask[i]:
                _reset(states[i], i, thread, b, p)
            if command != RESET and b.results[i].end != ALIVE:
                b.final[i] = b.observed[i]
                _reset(states[i], i, thread, b, p)
