"""Sprites: which picture an object or a cell of the map shows. Frames and symbols both use them.

A sprite is an index into SPRITES, whose names are those of the reference's textures; 0 stands for no object.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import direction

SPRITES: Final = (
    *("", "player-left", "player-right", "player-up", "player-down", "player-sleep", "cow", "zombie", "skeleton"),
    *("arrow-left", "arrow-right", "arrow-up", "arrow-down", "plant", "plant-ripe"),
)
_PLAYER = 1
_SLEEPER = 5
_COW = 6
_ARROW = 9
_PLANT = 13
_MATERIALS: Final = len(r.MATERIALS)
OUTSIDE: Final = _MATERIALS * len(SPRITES)
"""The tile of cells outside the map; the others are material + 13 * sprite."""


@kernel
def sprite_of(s: Any, slot: int) -> int:
    """The sprite of an object."""
    kind = s.kind[slot]
    if kind == r.PLAYER:
        if s.sleeping:
            return _SLEEPER
        return _PLAYER + direction(s.face_x, s.face_y)
    if kind == r.ARROW:
        return _ARROW + s.timer[slot]
    if kind == r.PLANT:
        return _PLANT + int(s.grown[slot] > r.RIPE_AFTER)
    return _COW + kind - r.COW  # cow, zombie, skeleton follow each other in both lists


@kernel
def tile_at(s: Any, column: int, row: int) -> int:
    """The tile that a cell of the local view shows."""
    x = s.x[0] + column - r.VIEW_X // 2
    y = s.y[0] + row - r.VIEW_Y // 2
    if x < 0 or x >= s.area or y < 0 or y >= s.area:
        return OUTSIDE
    tile = int(np.int64(s.material[x, y]))
    if s.who[x, y]:
        tile += _MATERIALS * sprite_of(s, s.who[x, y] - 1)
    return tile
