"""Symbols: what the player sees, as one row of bytes that a small network can learn from.

| bytes | what | values |
|---|---|---|
| 0-62 | material of each cell of the 9 x 7 view, row by row | 0-12 as `rules.MATERIALS`, 13 outside |
| 63-125 | object on each cell, with the way it faces | 0-14 as `sprites.SPRITES` |
| 126-141 | inventory | 0-9 as `rules.ITEMS` |
| 142 | facing | 0-3: left, right, up, down |
| 143 | sleeping | 0 or 1 |
| 144 | daylight | 0-255 |

The player is in the middle of the view. Unlike pixels, symbols are not dimmed at night.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import direction
from curricle.worlds.crafter.game.state import SIDE
from curricle.worlds.crafter.observe.sprites import SPRITES, sprite_of

CELLS: Final = r.VIEW_X * r.VIEW_Y
MATERIAL: Final = slice(0, CELLS)
OBJECT: Final = slice(CELLS, 2 * CELLS)
INVENTORY: Final = slice(2 * CELLS, 2 * CELLS + len(r.ITEMS))
FACING: Final = 2 * CELLS + len(r.ITEMS)
SLEEPING: Final = FACING + 1
DAYLIGHT: Final = FACING + 2
WIDTH: Final = FACING + 3
OUTSIDE: Final = len(r.MATERIALS)


def _highest() -> NDArray[np.uint8]:
    top = np.empty(WIDTH, np.uint8)
    top[MATERIAL] = OUTSIDE
    top[OBJECT] = len(SPRITES) - 1
    top[INVENTORY] = r.MOST
    top[FACING] = 3
    top[SLEEPING] = 1
    top[DAYLIGHT] = 255
    return top


HIGHEST: Final = _highest()
"""The largest value that each byte can take."""


@kernel
def write_symbols(s: Any, out: NDArray[np.uint8]) -> None:
    """Write one record's symbols."""
    left = np.int64(s.x[0]) - r.VIEW_X // 2
    top = np.int64(s.y[0]) - r.VIEW_Y // 2
    for row in range(r.VIEW_Y):
        y = top + row
        for column in range(r.VIEW_X):
            x = left + column
            at = row * r.VIEW_X + column
            if 0 <= x < s.area and 0 <= y < s.area:
                out[at] = s.material[x % SIDE, y % SIDE]
                who = s.who[x % SIDE, y % SIDE]
                out[CELLS + at] = sprite_of(s, who - 1) if who else 0
            else:
                out[at] = OUTSIDE
                out[CELLS + at] = 0
    for item in range(len(r.ITEMS)):
        out[2 * CELLS + item] = s.inventory[item]
    out[FACING] = direction(s.face_x, s.face_y)
    out[SLEEPING] = s.sleeping
    out[DAYLIGHT] = np.uint8(255 * s.daylight)


@kernel
def write_map(s: Any, out: NDArray[np.uint8]) -> None:
    """The whole map as the reference's semantic view: materials, and 12 + kind where an object stands; (x, y)."""
    for x in range(s.area):
        for y in range(s.area):
            out[x, y] = s.material[x, y]
    for slot in range(s.count):
        out[s.x[slot], s.y[slot]] = len(r.MATERIALS) - 1 + s.kind[slot]
