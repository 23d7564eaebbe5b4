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
def _copy(source: Any, target: Any, env: int, start: int, size: int) -> None:
    """Copy some bytes of the record of an environment, 32 at a time."""
    first = env * _SIZE + start
    for k in range(first, first + size - 31, 32):
        move32(target, k, source, k)
    for k in range(first + size // 32 * 32, first + size):
        target[k] = source[k]


@kernel
def _is_next(prefetched: Any, state: Any, env: int) -> bool:
    """Whether the prefetched record of environment `env` is its next episode."""
    if prefetched.records[env].seed != state.seed or prefetched.records[env].episode != state.episode + 1:
        return False
    for k in range(_SETTING[0, 0], _SETTING[0, 0] + _SETTING[0, 1]):  # byte by byte, so that no knob is forgotten
        if prefetched.own_bytes[env * _SIZE + k] != prefetched.next_bytes[env * _SIZE + k]:
            return False
    return bool(prefetched.records[env].exact == state.exact)


@kernel
def _begin_next(prefetched: Any, state: Any, env: int, daylight: NDArray[np.float64], tables: Any, work: Any) -> None:
    """Begin the next episode of environment `env` in its second record."""
    record = prefetched.records[env]
    _copy(prefetched.own_bytes, prefetched.next_bytes, env, _SETTING[0, 0], _SETTING[0, 1])
    record.exact = state.exact
    record.night_words = state.night_words
    record.seed = state.seed
    record.episode = state.episode
    record.fault = 0
    reset(record, daylight, tables, work)


@kernel
def _take_next(prefetched: Any, state: Any, env: int) -> None:
    """Copy the prefetched episode: of lists the entries in use, of the random stream what its mode reads, the rest."""
    for k in range(len(_REST)):
        _copy(prefetched.next_bytes, prefetched.own_bytes, env, _REST[k, 0], _REST[k, 1])
    for k in range(len(_OBJECTS)):
        _copy(prefetched.next_bytes, prefetched.own_bytes, env, _OBJECTS[k, 0], _OBJECTS[k, 2] * state.count)
    _copy(prefetched.next_bytes, prefetched.own_bytes, env, _CHUNKS[0, 0], _CHUNKS[0, 2] * state.touched)
    if state.exact:
        _copy(prefetched.next_bytes, prefetched.own_bytes, env, _TWISTER[0, 0], _TWISTER[0, 1])


@inlined
def prefetch(states: Any, env: int, thread: int, buffers: Any) -> None:
    """Prefetch the next episode of environment `env`, unless it is there or another thread is at it."""
    if len(buffers.prefetched.records) > 0 and exchange(buffers.prefetched.locks, env, 1) == 0:
        if not _is_next(buffers.prefetched, states[env], env):
            _begin_next(buffers.prefetched, states[env], env, buffers.daylight, buffers.tables[0], buffers.work[thread])
        store(buffers.prefetched.locks, env, 0)


# -- commands ----------------------------------------------------------------------------------------------------------


@inlined
def _observe(state: Any, out: Any, thread: int, buffers: Any, pictures: Any) -> None:
    """Draw or write what a player sees; in exact mode this moves the random stream as the reference's drawing does."""
    if pictures is not None:
        draw(
            state,
            out,
            buffers.drawing,
            thread,
            pictures.unit,
            pictures.tiles,
            pictures.dusk,
            pictures.cells,
            pictures.items,
            pictures.vignette,
            pictures.night,
        )
    else:
        if buffers.symbols:
            write_symbols(state, out)
        pass_night(state)


@inlined
def _reset(state: Any, env: int, thread: int, buffers: Any, pictures: Any) -> None:
    """Begin the next episode of environment `env`: the prefetched one if it fits."""
    was_prefetched = False
    if len(buffers.prefetched.records) > 0 and exchange(buffers.prefetched.locks, env, 1) == 0:
        was_prefetched = _is_next(buffers.prefetched, state, env)
        if was_prefetched:
            _take_next(buffers.prefetched, state, env)
        store(buffers.prefetched.locks, env, 0)
    if not was_prefetched:
        reset(state, buffers.daylight, buffers.tables[0], buffers.work[thread])
    buffers.results[env].fault = state.fault
    _observe(state, buffers.observed[env], thread, buffers, pictures)


@inlined
def _step(state: Any, env: int, buffers: Any) -> None:
    """Play one step in environment `env`, and write its result."""
    result = buffers.results[env]
    result.reward = step(state, buffers.actions[env], buffers.daylight)
    if is_dead(state):
        result.end = DIED
    elif is_over(state):
        result.end = TIMED_OUT
    else:
        result.end = ALIVE
    result.fault = state.fault
    for k in range(len(r.ACHIEVEMENTS)):
        result.skills[k] = state.unlocked[k]


@inlined
def run_command(command: int, states: Any, first: int, last: int, thread: int, buffers: Any, pictures: Any) -> None:
    """Carry out a command for environments first..last - 1; `pictures` is None where nothing is drawn."""
    if command in (STEP, STEP_AND_RESET_ENDED):
        for env in range(first, last):
            _step(states[env], env, buffers)
        for env in range(first, last):
            _observe(states[env], buffers.observed[env], thread, buffers, pictures)
    if command != STEP:
        for env in range(first, last):
            if command == RESET and buffers.mask[env]:
                _reset(states[env], env, thread, buffers, pictures)
            if command != RESET and buffers.results[env].end != ALIVE:
                buffers.final[env] = buffers.observed[env]
                _reset(states[env], env, thread, buffers, pictures)
