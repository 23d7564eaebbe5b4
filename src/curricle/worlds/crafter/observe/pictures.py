"""Pictures for people: what the player sees at any size, and the whole map as a chart.

In: one environment's record. It is not changed: drawing at night moves the random stream, so a copy is drawn. Out:
uint8 arrays (row, column, channel).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.observe.frames import draw, draw_buffers
from curricle.worlds.crafter.observe.sprites import sprite_of
from curricle.worlds.crafter.observe.textures import pictures


def frame_of(state: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """What the player sees; a border that fits no whole cell stays black."""
    height, width = _cell(size, r.VIEW_X)
    copy = np.array([state], STATE)
    frame = np.zeros((*size, 3), np.uint8)
    draw(copy[0], frame, draw_buffers(width, height), 0, *pictures(width, height))
    return frame


def chart_of(state: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The whole map by daylight, x to the right and y down."""
    area = int(state["area"])
    height, width = _cell(size, area)
    s = np.array([state], STATE)[0]
    tiles = s["material"][:area, :area].astype(np.int64)  # (x, y)
    for slot in range(int(s["count"])):
        if s["kind"][slot] != r.NOTHING:
            tiles[s["x"][slot], s["y"][slot]] += len(r.MATERIALS) * sprite_of(s, slot)
    cells = pictures(width, height).tiles[:, : height * width * 3].reshape(-1, height, width, 3)
    drawn = cells[tiles.T].transpose(0, 2, 1, 3, 4).reshape(area * height, area * width, 3)
    chart = np.zeros((*size, 3), np.uint8)
    top = (size[0] - len(drawn)) // 2
    left = (size[1] - drawn.shape[1]) // 2
    chart[top : top + len(drawn), left : left + drawn.shape[1]] = drawn
    return chart


def _cell(size: tuple[int, int], cells: int) -> tuple[int, int]:
    """Height and width of a cell in a picture."""
    height = size[0] // cells
    width = size[1] // cells
    if min(height, width) < 1:
        raise UsageError(f"a picture of {size[0]} x {size[1]} has no room for {cells} x {cells} cells")
    return height, width
