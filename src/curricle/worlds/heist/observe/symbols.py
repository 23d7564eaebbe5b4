"""Symbols: what the player sees, as one row of bytes that a small network can learn from.

| bytes | what | values |
|---|---|---|
| 0-120 | 11 x 11 cells around the player, row by row from the top | 0 wall, 1 free, 2-4 closed door 1-3, 5-7 key 1-3, 8 gem, 9 out of sight |
| 121-134 | where keys 1-3, closed doors 1-3 and the gem are: cells to the right, then cells up | 0 not in sight or gone, else 23 more than the number of cells |
| 135-137 | keys 1-3 held | 0 or 1 |
| 138-139 | place in the cell, to the right and up | 0-15 |
| 140-141 | velocity, to the right and up | 0-14, 7 at rest |

A player whose view is partial sees what lies within 4 cells of it, as in its pixels.
"""  # noqa: E501 - a table

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.simd import move8
from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD, SIDE

SPAN: Final = 2 * PAD + 1
CELLS: Final = SPAN * SPAN
PLACES: Final = CELLS
HELD: Final = PLACES + 2 * r.MOST_ITEMS
WITHIN: Final = HELD + r.MOST_KEYS
VELOCITY: Final = WITHIN + 2
WIDTH: Final = VELOCITY + 2
OUT_OF_SIGHT: Final = 9
HERE: Final = 23
"""The symbol of a thing that is no cells away."""
_FINEST: Final = 16
_STILL: Final = 7
_FASTEST: Final = 0.6
"""Cells a step; a player of the usual speed comes close to it."""


def highest() -> NDArray[np.uint8]:
    """The largest value each byte can take."""
    top = np.empty(WIDTH, np.uint8)
    top[:CELLS] = OUT_OF_SIGHT
    top[PLACES:HELD] = 2 * HERE - 1
    top[HELD:WITHIN] = 1
    top[WITHIN:VELOCITY] = _FINEST - 1
    top[VELOCITY:] = 2 * _STILL
    return top


@kernel
def in_sight(s: Any, x: int, y: int) -> bool:
    """Whether any of a cell is within a partial view."""
    half = np.float32(r.VIEW // 2)
    return bool(abs(x + np.float32(0.5) - s.x) < half + 0.5 and abs(y + np.float32(0.5) - s.y) < half + 0.5)


@kernel
def _write_cells(s: Any, out: Any, home_x: int, home_y: int) -> None:
    cells = s.cells.reshape(-1)
    for row in range(SPAN):
        start = (home_y + 2 * PAD - row) * SIDE + home_x
        move8(out, row * SPAN, cells, start)
        for column in range(8, SPAN):
            out[row * SPAN + column] = cells[start + column]


@kernel
def _hide_cells(s: Any, out: Any, home_x: int, home_y: int) -> None:
    """Write over what a partial view leaves out."""
    for row in range(SPAN):
        for column in range(SPAN):
            if not in_sight(s, home_x - PAD + column, home_y + PAD - row):
                out[row * SPAN + column] = OUT_OF_SIGHT


@kernel
def _write_places(s: Any, out: Any, home_x: int, home_y: int) -> None:
    """Where things are, with the first byte of a thing's pair by its kind and number."""
    for at in range(PLACES, HELD):
        out[at] = 0
    for i in range(s.items):
        x = int(s.item_x[i])
        y = int(s.item_y[i])
        if s.gone[i] or (s.knobs.centred and not in_sight(s, x, y)):
            continue
        which = 2 * r.MOST_KEYS
        if s.kind[i] == r.KEY:
            which = s.number[i]
        elif s.kind[i] == r.DOOR:
            which = r.MOST_KEYS + s.number[i]
        out[PLACES + 2 * which] = x - home_x + HERE
        out[PLACES + 2 * which + 1] = y - home_y + HERE


@kernel
def _speed(velocity: np.float32) -> int:
    steps = int(np.rint(velocity * (_STILL / _FASTEST)))
    return _STILL + max(-_STILL, min(_STILL, steps))


@kernel
def write_symbols(s: Any, out: NDArray[np.uint8]) -> None:
    """Write one record's symbols."""
    home_x = int(s.x)
    home_y = int(s.y)
    _write_cells(s, out, home_x, home_y)
    if s.knobs.centred:
        _hide_cells(s, out, home_x, home_y)
    _write_places(s, out, home_x, home_y)
    for number in range(r.MOST_KEYS):
        out[HELD + number] = s.held[number]
    out[WITHIN] = int((s.x - home_x) * _FINEST)
    out[WITHIN + 1] = int((s.y - home_y) * _FINEST)
    out[VELOCITY] = _speed(s.vx)
    out[VELOCITY + 1] = _speed(s.vy)
