"""Spares: the next episode of an environment, made beforehand by a thread that has nothing else to do.

A new world takes as long as fifty steps or more, and the others wait for it. Between two orders a thread of the crew
therefore begins the next episode of each of its environments in another record; when it is time, what counts of that
record is taken over. A spare fits if seed, number and setting are those that are wanted; where it does not, or is not
made yet, the episode begins in place: with the same bytes, for all that `take` leaves alone is left alone there too.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.kernel import kernel
from curricle.worlds.crafter.state import STATE
from curricle.worlds.crafter.step import reset


class Spares(NamedTuple):
    """One record an environment, or none; and the settings for the next episode, of environments and of spares."""

    records: NDArray[Any]
    wanted: NDArray[np.uint8]
    given: NDArray[np.uint8]


def spares_of(states: NDArray[Any], used: bool) -> Spares:
    """Room for the spares of some environments, or, where there is no thread to make them, none."""
    records = np.zeros(len(states) if used else 0, STATE)
    return Spares(records, _settings(states), _settings(records))


def _settings(records: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of `upcoming`: comparing them forgets no knob."""
    kind, start = STATE.fields["upcoming"][:2]  # type: ignore[index]
    return records.view(np.uint8).reshape(len(records), STATE.itemsize)[:, start : start + kind.itemsize]


@kernel
def fits(p: Any, s: Any, i: int) -> bool:
    """Whether there is a spare that is the next episode of environment i."""
    if len(p.records) == 0 or p.records[i].seed != s.seed or p.records[i].episode != s.episode + 1:
        return False
    for at in range(p.wanted.shape[1]):
        if p.wanted[i, at] != p.given[i, at]:
            return False
    return bool(p.records[i].exact == s.exact)


@kernel
def make(p: Any, s: Any, i: int, daylight: NDArray[np.float64], tables: Any, work: Any) -> None:
    """Begin the next episode of environment i in its spare."""
    spare = p.records[i]
    for at in range(p.wanted.shape[1]):
        p.given[i, at] = p.wanted[i, at]
    spare.exact, spare.night_words = s.exact, s.night_words
    spare.seed, spare.episode, spare.fault = s.seed, s.episode, 0
    reset(spare, daylight, tables, work)


@kernel
def take(s: Any, spare: Any) -> None:
    """Go on in the spare's episode: all that `reset` sets, and nothing that it does not."""
    s.knobs, s.area, s.episode, s.fault = spare.knobs, spare.area, spare.episode, spare.fault
    s.cheap, s.mt_at = spare.cheap, spare.mt_at
    if s.exact:
        s.mt[:] = spare.mt
    s.step, s.daylight, s.last_health, s.hurt_from = 0, spare.daylight, spare.last_health, spare.hurt_from
    s.face_x, s.face_y, s.sleeping = spare.face_x, spare.face_y, spare.sleeping
    s.inventory[:] = spare.inventory
    s.achievements[:] = spare.achievements
    s.unlocked[:] = spare.unlocked
    s.hunger, s.thirst, s.fatigue, s.recover = spare.hunger, spare.thirst, spare.fatigue, spare.recover
    s.touched = spare.touched
    s.chunk_order[: s.touched] = spare.chunk_order[: s.touched]
    s.chunk_touched[:] = spare.chunk_touched
    s.grass[:] = spare.grass
    s.paths[:] = spare.paths
    s.creatures[:] = spare.creatures
    s.count, s.removed = spare.count, spare.removed
    s.kind[: s.count] = spare.kind[: s.count]
    s.x[: s.count] = spare.x[: s.count]
    s.y[: s.count] = spare.y[: s.count]
    s.health[: s.count] = spare.health[: s.count]
    s.timer[: s.count] = spare.timer[: s.count]
    s.grown[: s.count] = spare.grown[: s.count]
    s.material[:] = spare.material
    s.who[:] = spare.who
