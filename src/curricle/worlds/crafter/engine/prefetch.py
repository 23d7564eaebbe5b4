"""Spares: the next episode of an environment, made beforehand by a thread that has nothing else to do.

A new world takes as long as fifty steps or more, and the others wait for it. Between two orders threads of the crew
therefore begin the next episode of each environment in another record; when it is time, what counts of that record is
taken over. A spare fits if seed, number and setting are those that are wanted; where it does not, is not made yet or is
just being made, the episode begins in place: with the same bytes, for all that `reset` leaves alone is left alone here
too. A spare is a function of what it is compared by, so one made of a record that changes meanwhile fits nowhere.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import move32
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.game.step import reset


def _places(*names: str) -> NDArray[np.int64]:
    """Where fields begin in a record, how long they are, and one number of them."""
    assert STATE.fields is not None
    fields = [STATE.fields[name] for name in names]
    return np.array([(at, kind.itemsize, kind.base.itemsize) for kind, at, *_ in fields], np.int64)


_LISTED: Final = ("kind", "x", "y", "health", "timer", "grown")
_OBJECTS: Final = _places(*_LISTED)
_CHUNKS: Final = _places("chunk_order")
_TWISTER: Final = _places("mt")
_WHOLE: Final = _places(*(name for name in STATE.names or () if name not in {*_LISTED, "chunk_order", "mt"}))
_SETTING: Final = _places("upcoming")
_SIZE: Final = STATE.itemsize


class Spares(NamedTuple):
    """One record an environment, or none; and the bytes of both."""

    records: NDArray[Any]
    held: NDArray[np.int64]
    """1 while a thread makes or takes a spare."""
    here: NDArray[np.uint8]
    there: NDArray[np.uint8]


def spares_of(states: NDArray[Any], used: bool) -> Spares:
    """Room for the spares of some environments, or, where there is no thread to make them, none."""
    records = np.zeros(len(states) if used else 0, STATE)
    return Spares(records, np.zeros(len(records), np.int64), states.view(np.uint8), records.view(np.uint8))


@kernel
def _copy(source: Any, target: Any, i: int, at: int, size: int) -> None:
    """Some bytes of record i, 32 at a time."""
    start = i * _SIZE + at
    for k in range(start, start + size - 31, 32):
        move32(target, k, source, k)
    for k in range(start + size // 32 * 32, start + size):
        target[k] = source[k]


@kernel
def fits(p: Any, s: Any, i: int) -> bool:
    """Whether the spare of environment i is its next episode."""
    if p.records[i].seed != s.seed or p.records[i].episode != s.episode + 1:
        return False
    for k in range(_SETTING[0, 0], _SETTING[0, 0] + _SETTING[0, 1]):  # by bytes, which forgets no knob
        if p.here[i * _SIZE + k] != p.there[i * _SIZE + k]:
            return False
    return bool(p.records[i].exact == s.exact)


@kernel
def make(p: Any, s: Any, i: int, daylight: NDArray[np.float64], tables: Any, work: Any) -> None:
    """Begin the next episode of environment i in its spare."""
    spare = p.records[i]
    _copy(p.here, p.there, i, _SETTING[0, 0], _SETTING[0, 1])
    spare.exact = s.exact
    spare.night_words = s.night_words
    spare.seed = s.seed
    spare.episode = s.episode
    spare.fault = 0
    reset(spare, daylight, tables, work)


@kernel
def take(p: Any, s: Any, i: int) -> None:
    """Go on in the spare's episode: of lists what is in use, all else as a whole."""
    for k in range(len(_WHOLE)):
        _copy(p.there, p.here, i, _WHOLE[k, 0], _WHOLE[k, 1])
    for k in range(len(_OBJECTS)):
        _copy(p.there, p.here, i, _OBJECTS[k, 0], _OBJECTS[k, 2] * s.count)
    _copy(p.there, p.here, i, _CHUNKS[0, 0], _CHUNKS[0, 2] * s.touched)
    if s.exact:
        _copy(p.there, p.here, i, _TWISTER[0, 0], _TWISTER[0, 1])
