"""What cows, zombies, skeletons, arrows and plants do in one step.

Each function updates one slot of a record. Random numbers are drawn in the reference's order. A creature that
is removed at the start of its update still draws them, and a dead zombie can still hit.
"""

from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import add, direction, distance, inside, is_free, move, remove, set_material
from curricle.worlds.crafter.game.rng import below, uniform


@kernel
def hurt(s: Any, slot: int, damage: int) -> None:
    """Take health from an object; it never falls below zero."""
    if slot == 0:
        s.inventory[r.HEALTH] = max(0, s.inventory[r.HEALTH] - damage)
    else:
        s.health[slot] = max(0, s.health[slot] - damage)


@kernel
def _toward(s: Any, slot: int, long_axis: bool) -> tuple[int, int]:
    """One step towards the player along the longer (or shorter) axis; (0, 0) where that axis is level."""
    off_x = np.int64(s.x[0]) - np.int64(s.x[slot])
    off_y = np.int64(s.y[0]) - np.int64(s.y[slot])
    if (abs(off_x) > abs(off_y)) == long_axis:
        return np.sign(off_x), 0
    return 0, np.sign(off_y)


@kernel
def _wander(s: Any, slot: int) -> None:
    """Step in a random direction."""
    way = below(s, 4)
    move(s, slot, r.DX[way], r.DY[way], r.WALKABLE)


@kernel
def update_cow(s: Any, slot: int) -> None:
    """Cows wander half of the time."""
    if s.health[slot] <= 0:
        remove(s, slot)
    if uniform(s) < 0.5:
        _wander(s, slot)


@kernel
def update_zombie(s: Any, slot: int) -> None:
    """Zombies chase a player within eight steps and hit one beside them, a sleeper harder."""
    if s.health[slot] <= 0:
        remove(s, slot)
    if distance(s, slot) <= 8 and uniform(s) < 0.9:
        dx, dy = _toward(s, slot, uniform(s) < 0.8)
        move(s, slot, dx, dy, r.WALKABLE)
    else:
        _wander(s, slot)
    if distance(s, slot) <= 1:
        if s.timer[slot]:
            s.timer[slot] -= 1
        else:
            hurt(s, 0, 7 if s.sleeping else 2)
            s.timer[slot] = 5


@kernel
def update_skeleton(s: Any, slot: int) -> None:
    """Skeletons back away from a player close by, shoot one in range and wander otherwise."""
    if s.health[slot] <= 0:
        remove(s, slot)
    s.timer[slot] = max(0, s.timer[slot] - 1)
    far = distance(s, slot)
    if far <= 3:
        dx, dy = _toward(s, slot, uniform(s) < 0.6)
        if move(s, slot, -dx, -dy, r.WALKABLE):
            return
    if far <= 5 and uniform(s) < 0.5:
        _shoot(s, slot)
    elif far <= 8 and uniform(s) < 0.3:
        dx, dy = _toward(s, slot, uniform(s) < 0.6)
        move(s, slot, dx, dy, r.WALKABLE)
    elif uniform(s) < 0.2:
        _wander(s, slot)


@kernel
def _shoot(s: Any, slot: int) -> None:
    """Send an arrow towards the player, if reloaded and the cell ahead is free for it."""
    dx, dy = _toward(s, slot, True)
    if s.timer[slot] > 0 or (dx == 0 and dy == 0):
        return
    x = s.x[slot] + dx
    y = s.y[slot] + dy
    if is_free(s, x, y, r.ARROW_WALKABLE):
        arrow = add(s, r.ARROW, x, y)
        s.timer[arrow] = direction(dx, dy)
        s.timer[slot] = 4


@kernel
def update_arrow(s: Any, slot: int) -> None:
    """Arrows fly straight until they hit; they break tables and furnaces."""
    way = s.timer[slot]
    x = s.x[slot] + r.DX[way]
    y = s.y[slot] + r.DY[way]
    if not inside(s, x, y):
        remove(s, slot)
    elif s.who[x, y]:
        hurt(s, s.who[x, y] - 1, 2)
        remove(s, slot)
    elif not r.ARROW_WALKABLE[s.material[x, y]]:
        remove(s, slot)
        if s.material[x, y] == r.TABLE or s.material[x, y] == r.FURNACE:
            set_material(s, x, y, r.PATH)
    else:
        move(s, slot, r.DX[way], r.DY[way], r.ARROW_WALKABLE)


@kernel
def update_plant(s: Any, slot: int) -> None:
    """Plants grow; a creature beside one eats at it, unless the setting makes plants safe."""
    s.grown[slot] += 1
    if s.knobs.plant_safe:
        return
    for way in range(4):
        x = s.x[slot] + r.DX[way]
        y = s.y[slot] + r.DY[way]
        if inside(s, x, y) and s.who[x, y]:
            kind = s.kind[s.who[x, y] - 1]
            if kind == r.ZOMBIE or kind == r.SKELETON or kind == r.COW:
                hurt(s, slot, 1)
                break
    if s.health[slot] <= 0:
        remove(s, slot)
