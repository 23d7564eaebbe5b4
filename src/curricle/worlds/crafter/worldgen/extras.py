"""What settings add to a generated world: water within reach, and things that stand near the start.

Stock Crafter has none of it: without such a knob no random number is drawn here. Nothing that is placed here counts as
an achievement. To be credited for a table, the player has to place one.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import add, inside, set_material
from curricle.worlds.crafter.game.rng import below
from curricle.worlds.crafter.game.state import SIDE

REACH: Final = 16
"""Water counts as within reach if so many steps lead to it."""
_POND_FROM = 4
_POND_TO = 7


@kernel
def _walks(s: Any) -> Any:
    """Steps from the start to every cell within reach, -1 where there is no way; water ends a way."""
    steps = np.full((SIDE, SIDE), -1, np.int8)
    queue = np.empty((SIDE * SIDE, 2), np.int64)
    queue[0, 0] = s.x[0]
    queue[0, 1] = s.y[0]
    head = 0
    tail = 1
    steps[s.x[0], s.y[0]] = 0
    while head < tail:
        x, y = queue[head]
        head += 1
        if steps[x, y] == REACH or s.material[x, y] == r.WATER:
            continue
        for way in range(4):
            i = x + r.DX[way]
            j = y + r.DY[way]
            if not inside(s, i, j) or steps[i, j] >= 0:
                continue
            if r.WALKABLE[s.material[i, j]] or s.material[i, j] == r.WATER:
                steps[i, j] = steps[x, y] + 1
                queue[tail, 0] = i
                queue[tail, 1] = j
                tail += 1
    return steps


@kernel
def has_water(s: Any) -> bool:
    """Whether the player can walk to water."""
    steps = _walks(s)
    for x in range(s.area):
        for y in range(s.area):
            if steps[x, y] >= 0 and s.material[x, y] == r.WATER:
                return True
    return False


@kernel
def _dig_pond(s: Any) -> None:
    """Turn a spot a few steps from the start into water, 2 x 2 where there is room."""
    steps = _walks(s)
    spots = 0
    for x in range(s.area):
        for y in range(s.area):
            spots += _POND_FROM <= steps[x, y] <= _POND_TO
    pick = below(s, spots)
    for x in range(s.area):
        for y in range(s.area):
            if not _POND_FROM <= steps[x, y] <= _POND_TO:
                continue
            if pick == 0:
                for i in range(x, min(x + 2, s.area)):
                    for j in range(y, min(y + 2, s.area)):
                        if s.who[i, j] == 0 and steps[i, j] != 0:
                            set_material(s, i, j, r.WATER)
                if s.material[x, y] == r.WATER:
                    return
                pick = 1  # a creature stands there: take the next spot
            pick -= 1
    _put(s, 0, 2, r.WATER)  # shut in: right beside the start


@kernel
def _put(s: Any, dx: int, dy: int, material: int) -> None:
    """Set a cell beside the start; creatures are born farther away."""
    set_material(s, s.x[0] + dx, s.y[0] + dy, material)


@kernel
def add_extras(s: Any) -> None:
    """Carry out the knobs that change a finished world; the player stands at the start."""
    k = s.knobs
    if k.near_table:
        _put(s, 2, -1, r.TABLE)
    if k.near_furnace:
        _put(s, 2, 1, r.FURNACE)
    if k.near_plant:
        _put(s, -2, 0, r.GRASS)
        plant = add(s, r.PLANT, s.x[0] - 2, s.y[0])
        s.grown[plant] = r.RIPE_AFTER + 1
    if k.pond and not has_water(s):
        _dig_pond(s)
