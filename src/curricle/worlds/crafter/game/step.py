"""One step and one reset of an environment's record.

`reset(s, ...)` begins the next episode from the record's seed, episode number and knobs; `step(s, action, ...)` returns
the reward. Nothing is drawn here. `pass_night` skips the random numbers that the reference uses to draw a dark frame.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.balance import balance
from curricle.worlds.crafter.game.creatures import (
    update_arrow,
    update_cow,
    update_plant,
    update_skeleton,
    update_zombie,
)
from curricle.worlds.crafter.game.objects import add, distance, sweep
from curricle.worlds.crafter.game.player import update_player
from curricle.worlds.crafter.game.rng import seed_stream, skip
from curricle.worlds.crafter.game.seeding import episode_seed
from curricle.worlds.crafter.worldgen.generate import generate


@functools.lru_cache(maxsize=1)
def stock_daylight() -> NDArray[np.float64]:
    """Daylight by step, computed with numpy's scalars as the reference does: their last bits decide pixels."""
    table = np.empty(r.LENGTH + 1)
    for step in range(len(table)):
        progress = (step / r.DAY) % 1 + 0.3
        table[step] = 1 - np.abs(np.cos(np.pi * progress)) ** 3
    return table


@kernel
def _set_daylight(s: Any, daylight: NDArray[np.float64]) -> None:
    """Daylight of the current step; the table holds for the stock day only."""
    if s.knobs.day == r.DAY and s.step < len(daylight):
        s.daylight = daylight[s.step]
    else:
        s.daylight = 1 - abs(math.cos(math.pi * ((s.step / s.knobs.day) % 1 + 0.3))) ** 3


@kernel
def _clear(s: Any) -> None:
    """Empty the map and put the player in its middle."""
    s.step = 0
    s.count = 0
    s.removed = 0
    s.touched = 0
    s.who[:] = 0
    s.material[:] = 0  # a larger world may have been here before
    s.creatures[:] = 0
    s.chunk_touched[:] = 0
    s.achievements[:] = 0
    s.unlocked[:] = 0
    for item in range(len(r.ITEMS)):
        s.inventory[item] = s.knobs.start_items[item]
    s.sleeping = False
    s.hunger = 0
    s.thirst = 0
    s.fatigue = 0
    s.recover = 0
    s.face_x = 0
    s.face_y = 1
    s.last_health = s.hurt_from = s.inventory[r.HEALTH]
    add(s, r.PLAYER, s.area // 2, s.area // 2)


@kernel
def reset(s: Any, daylight: NDArray[np.float64], t: Any, w: Any) -> None:
    """Begin the next episode."""
    s.knobs = s.upcoming
    s.area = s.knobs.area
    s.episode += 1
    seed_stream(s, episode_seed(s.seed, s.episode))
    _clear(s)
    _set_daylight(s, daylight)
    generate(s, t, w)


@kernel
def _update(s: Any, slot: int) -> None:
    """Let one creature act."""
    kind = s.kind[slot]
    if kind == r.COW:
        update_cow(s, slot)
    elif kind == r.ZOMBIE:
        update_zombie(s, slot)
    elif kind == r.SKELETON:
        update_skeleton(s, slot)
    elif kind == r.ARROW:
        update_arrow(s, slot)
    elif kind == r.PLANT:
        update_plant(s, slot)


@kernel
def step(s: Any, action: int, daylight: NDArray[np.float64]) -> float:
    """Play one step; returns the reward."""
    s.step += 1
    _set_daylight(s, daylight)
    present = s.count  # what is added in this step acts from the next one on
    update_player(s, action)
    for slot in range(1, present):
        if distance(s, slot) < r.NEAR:
            _update(s, slot)
    if s.step % r.BALANCE_EVERY == 0:
        balance(s)
    if s.removed:
        sweep(s)
    reward = (s.inventory[r.HEALTH] - s.last_health) / 10
    s.last_health = s.inventory[r.HEALTH]
    unlocked = False
    for i in range(len(r.ACHIEVEMENTS)):
        if s.achievements[i] > 0 and not s.unlocked[i] and not s.knobs.done[i]:
            s.unlocked[i] = 1
            unlocked = True
    return reward + 1.0 if unlocked else reward


@kernel
def pass_night(s: Any) -> None:
    """Skip the random numbers that drawing a dark frame would use."""
    if s.exact and s.daylight < 0.5:
        skip(s, s.night_words)


@kernel
def is_dead(s: Any) -> bool:
    """Whether the player has died."""
    return s.inventory[r.HEALTH] <= 0


@kernel
def is_over(s: Any) -> bool:
    """Whether the episode has reached its length."""
    return s.step >= s.knobs.length > 0
