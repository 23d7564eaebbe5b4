"""What settings put near the start: a table, a furnace, a plant, water and blocks of ore.

A thing's distance is the number of steps that the player walks, creatures aside, until it stands beside the thing. A
thing stands on free ground around which a way leads, so that it cuts nothing off; ores stand in rock where there is
some. Which of the cells at that distance it is, is drawn from the environment's stream; if there is none, the nearest
one to it is taken. One shortest way to each thing is kept free of what is placed later.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import add, inside, set_material
from curricle.worlds.crafter.game.rng import below
from curricle.worlds.crafter.game.state import SIDE

REACH: Final = 16
"""Steps to which ways are followed; water counts as within reach if so many lead to it."""
_BEYOND: Final = 4
"""Steps beyond a thing to which ways are followed, to find where it is used together with another."""
_TABLE, _FURNACE, _PLANT = range(3)
_FIRST_ORE: Final = r.NEARBY.index("coal")
_MATERIAL = np.array([r.TABLE, r.FURNACE, r.GRASS, r.WATER, r.COAL, r.IRON, r.DIAMOND])
"""By thing; a plant is an object on grass."""
_HOME = np.array([[2, -1, 2], [2, 1, 2], [-2, 0, 1]])
"""Place of table, furnace and plant from the start when their knobs were a yes or no, and its distance: at that
distance they stand there still, and old designs make the same worlds."""
_AROUND_X = np.array([0, 1, 1, 1, 0, -1, -1, -1])
_AROUND_Y = np.array([-1, -1, 0, 1, 1, 1, 0, -1])


@kernel
def walks(s: Any, most: int) -> Any:
    """Steps from the start to every cell that at most so many lead to, otherwise -1; water ends a way."""
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
        if steps[x, y] == most or s.material[x, y] == r.WATER:
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
def _is_ground(s: Any, x: int, y: int) -> bool:
    """Whether a cell is on the map and can be walked on, creatures aside."""
    return inside(s, x, y) and r.WALKABLE[s.material[x, y]]


@kernel
def _is_spare(s: Any, x: int, y: int) -> bool:
    """Whether the ways from a cell meet right around it, so that nothing is cut off where a thing takes it."""
    ways = 0
    joined = 0
    for i in range(0, 8, 2):
        if not _is_ground(s, x + _AROUND_X[i], y + _AROUND_Y[i]):
            continue
        ways += 1
        corner = _is_ground(s, x + _AROUND_X[i + 1], y + _AROUND_Y[i + 1])
        after = (i + 2) % 8
        joined += corner and _is_ground(s, x + _AROUND_X[after], y + _AROUND_Y[after])
    return ways >= 2 and ways - joined <= 1


@kernel
def _steps_to(s: Any, steps: Any, x: int, y: int) -> int:
    """Steps from the start to the nearest cell beside this one, or -1."""
    least = -1
    for way in range(4):
        i = x + r.DX[way]
        j = y + r.DY[way]
        if _is_ground(s, i, j) and steps[i, j] >= 0 and (least < 0 or steps[i, j] < least):
            least = int(steps[i, j])
    return least


@kernel
def _keep_way(s: Any, kept: Any, steps: Any, x: int, y: int) -> None:
    """Keep a cell, and one shortest way to it, free of what is placed later."""
    kept[x, y] = True
    left = _steps_to(s, steps, x, y)
    while left > 0:
        for way in range(4):
            i = x + r.DX[way]
            j = y + r.DY[way]
            if _is_ground(s, i, j) and steps[i, j] == left:
                x = i
                y = j
                break
        kept[x, y] = True
        left -= 1


@kernel
def _meeting(s: Any, steps: Any, x: int, y: int, table_x: int, table_y: int) -> tuple[int, int]:
    """A cell from which the player can use a furnace here together with the table, or (-1, -1)."""
    for i in range(max(x, table_x) - 1, min(x, table_x) + 2):
        for j in range(max(y, table_y) - 1, min(y, table_y) + 2):
            if (i != x or j != y) and _is_ground(s, i, j) and steps[i, j] >= 0:
                return i, j
    return -1, -1


@kernel
def _fits(s: Any, kept: Any, steps: Any, x: int, y: int, distance: int, in_rock: bool) -> bool:
    """Whether a thing can stand on a cell, at exactly this distance."""
    if kept[x, y] or s.who[x, y]:
        return False
    if in_rock:
        return s.material[x, y] == r.STONE and _steps_to(s, steps, x, y) == distance
    return steps[x, y] == distance + 1 and _is_ground(s, x, y) and _is_spare(s, x, y)


@kernel
def _nth(
    s: Any, kept: Any, steps: Any, distance: int, in_rock: bool, table_x: int, table_y: int, n: int
) -> tuple[int, int, int]:
    """The n-th cell that suits and how many come before it; -1, -1 and the number of all if there are no more.

    With a table, only cells suit from where a furnace can be used together with it.
    """
    count = 0
    x0 = int(np.int64(s.x[0]))
    y0 = int(np.int64(s.y[0]))
    far = distance + 1
    for x in range(max(0, x0 - far), min(s.area, x0 + far + 1)):
        for y in range(max(0, y0 - far), min(s.area, y0 + far + 1)):
            if not _fits(s, kept, steps, x, y, distance, in_rock):
                continue
            if table_x >= 0 and _meeting(s, steps, x, y, table_x, table_y)[0] < 0:
                continue
            if count == n:
                return x, y, count
            count += 1
    return -1, -1, count


@kernel
def _pick(s: Any, kept: Any, steps: Any, thing: int, distance: int, table_x: int, table_y: int) -> tuple[int, int]:
    """Draw one of the cells at this distance that suit a thing best, or (-1, -1)."""
    for choice in range(4):
        in_rock = (choice % 2 == 0) == (thing >= _FIRST_ORE)
        if choice >= 2:  # away from the table
            table_x = -1
        elif thing != _FURNACE or table_x < 0:
            continue
        count = _nth(s, kept, steps, distance, in_rock, table_x, table_y, -1)[2]
        if count > 0:
            x, y, _ = _nth(s, kept, steps, distance, in_rock, table_x, table_y, below(s, count))
            return x, y
    return -1, -1


@kernel
def _at_home(s: Any, kept: Any, steps: Any, thing: int, wish: int, table_x: int, table_y: int) -> tuple[int, int]:
    """The place that a thing always had at this distance, if it is free; (-1, -1) at any other distance."""
    if thing >= len(_HOME) or wish != _HOME[thing, 2]:
        return -1, -1
    x = int(np.int64(s.x[0]) + _HOME[thing, 0])
    y = int(np.int64(s.y[0]) + _HOME[thing, 1])
    if kept[x, y] or s.who[x, y] or steps[x, y] != wish + 1 or not _is_ground(s, x, y):
        return -1, -1
    if thing == _FURNACE and table_x >= 0 and _meeting(s, steps, x, y, table_x, table_y)[0] < 0:
        return -1, -1
    return x, y


@kernel
def place(s: Any, kept: Any, thing: int, wish: int, table_x: int, table_y: int) -> tuple[int, int]:
    """Put a thing as near to a distance as there is room; returns its cell, or (-1, -1) if there is none at all."""
    steps = walks(s, wish + _BEYOND)
    x, y = _at_home(s, kept, steps, thing, wish, table_x, table_y)
    if x < 0:
        x, y = _pick(s, kept, steps, thing, wish, table_x, table_y)
    if x < 0:
        steps = walks(s, REACH)
    gap = 1
    while x < 0 and gap < REACH:
        x, y = _pick(s, kept, steps, thing, wish + gap, table_x, table_y)
        if x < 0 and gap <= wish:
            x, y = _pick(s, kept, steps, thing, wish - gap, table_x, table_y)
        gap += 1
    if x < 0:
        return -1, -1
    _keep_way(s, kept, steps, x, y)
    set_material(s, x, y, _MATERIAL[thing])
    if thing == _PLANT:
        s.grown[add(s, r.PLANT, x, y)] = s.knobs.plant_age
    if thing == _FURNACE and table_x >= 0:
        steps = walks(s, REACH)
        i, j = _meeting(s, steps, x, y, table_x, table_y)
        if i >= 0:
            _keep_way(s, kept, steps, i, j)
    return x, y


@kernel
def place_nearby(s: Any, kept: Any) -> None:
    """Put everything that the setting asks for near the start; `kept` marks what must stay as it is from then on."""
    k = s.knobs
    table_x = -1
    table_y = -1
    for thing in range(len(r.NEARBY)):
        if k.distances[thing] == r.OFF:
            continue
        x, y = place(s, kept, thing, int(k.distances[thing]), table_x, table_y)
        if thing == _TABLE:
            table_x = x
            table_y = y
    for _ in range(1, k.ore_count):  # one block of each ore first: each of them has its distance then
        for thing in range(_FIRST_ORE, len(r.NEARBY)):
            if k.distances[thing] != r.OFF:
                place(s, kept, thing, int(k.distances[thing]), table_x, table_y)
