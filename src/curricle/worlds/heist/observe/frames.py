"""Frames: what the player sees, in pixels; things have the places and sizes that they have in Procgen's frames.

A picture goes into a rectangle as Qt's QPainter puts it there without smoothing: the rectangle is rounded to whole
pixels, and each pixel takes the colour of the picture at its centre. A world that is seen as a whole changes little
from step to step: what does not move is kept (`Canvas`), and only the player and the keys on the ring are drawn anew.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD

STALE: Final = -1
_RIGHT: Final = 7
_DOWN: Final = 3
"""Actions; Procgen turns the keys on the ring downwards."""
_OVERLAP: Final = np.float32(0.02)
"""Cells by which walls reach over their edges, so that there are no gaps between them."""
_RING_ROWS: Final = 0.0225 + 0.06
_RING_COLUMN: Final = 0.7
"""The corner that holds the keys on the ring: parts of the picture, from the top and from the left."""
_HALF: Final = math.sqrt(0.5)
_COS: Final = np.array([-_HALF, -1, -_HALF, 0, 1, 0, _HALF, 1, _HALF])
_SIN: Final = np.array([-_HALF, 0, _HALF, -1, 0, 1, -_HALF, 0, _HALF])
"""The way the player faces after each action, x to the right and y up; REST stands for the start."""


class Pictures(NamedTuple):
    """What is drawn with: bytes (row, column, red-green-blue-alpha), colours multiplied by alpha."""

    floors: NDArray[np.uint8]
    """(which, row, column, 4); one or Procgen's nine."""
    floor_sides: NDArray[np.int64]
    """How many rows and columns of each are in use."""
    wall: NDArray[np.uint8]
    player: NDArray[np.uint8]
    gem: NDArray[np.uint8]
    keys: NDArray[np.uint8]
    """(number, row, column, 4)."""
    locks: NDArray[np.uint8]


class Canvas(NamedTuple):
    """What is kept of the frames of some environments."""

    still: NDArray[np.uint8]
    """Frames without the player."""
    drawn: NDArray[np.int64]
    """Which things were gone when that was drawn, as bits; or STALE."""
    moved: NDArray[np.int64]
    """Where the player was drawn last: rows and columns, first and behind the last."""


def canvas_of(count: int, size: int) -> Canvas:
    """Room for the frames of so many environments."""
    still = np.zeros((count, size, size, 3), np.uint8)
    return Canvas(still, np.full(count, STALE, np.int64), np.zeros((count, 4), np.int64))


@kernel
def _blend(frame: Any, row: int, column: int, picture: Any, y: int, x: int) -> None:
    """Put a pixel of a picture over a pixel of the frame, rounded as Qt does."""
    alpha = picture[y, x, 3]
    if alpha == 255:
        for c in range(3):
            frame[row, column, c] = picture[y, x, c]
    elif alpha > 0:
        for c in range(3):
            under = np.int32(frame[row, column, c]) * (255 - alpha)
            frame[row, column, c] = picture[y, x, c] + ((under + (under >> 8) + 128) >> 8)


@kernel
def _span(low: float, length: float, pixels: int, texels: int, limit: int) -> tuple[int, int, int, int]:
    """Which pixels a picture covers along one axis: first, how many, place in the picture, step (in 65,536ths)."""
    scale = texels / length
    step = int(65536 * scale)
    first = math.floor(low + 0.5)
    last = math.floor(low + length + 0.5)
    first = max(first, 0)
    last = min(last, limit)
    place = math.ceil((first + 0.5 - low) * scale * 65536) - 1
    count = max(0, last - first)
    while count > 0 and (place + step * (count - 1)) >> 16 >= texels:
        count -= 1
    return first, count, max(place, 0), step


@kernel
def _put(frame: Any, picture: Any, left: float, top: float, width: float, height: float) -> None:
    """Draw a picture into a rectangle."""
    x, columns, u, du = _span(left, width, 0, picture.shape[1], frame.shape[1])
    y, rows, v, dv = _span(top, height, 0, picture.shape[0], frame.shape[0])
    for row in range(rows):
        line = (v + row * dv) >> 16
        for column in range(columns):
            _blend(frame, y + row, x + column, picture, line, (u + column * du) >> 16)


@kernel
def _put_turned(frame: Any, picture: Any, x: float, y: float, width: float, height: float, way: int) -> None:
    """Draw a picture around a point, turned so that what points to the right in it points the way of an action."""
    cos = _COS[way]
    sin = _SIN[way]
    reach = 0.5 * (abs(width * cos) + abs(height * sin))
    rise = 0.5 * (abs(width * sin) + abs(height * cos))
    for row in range(max(0, int(y - rise)), min(frame.shape[0], int(y + rise) + 1)):
        down = row + 0.5 - y
        for column in range(max(0, int(x - reach)), min(frame.shape[1], int(x + reach) + 1)):
            right = column + 0.5 - x
            u = math.floor(((right * cos - down * sin) / width + 0.5) * picture.shape[1])
            v = math.floor(((right * sin + down * cos) / height + 0.5) * picture.shape[0])
            if 0 <= u < picture.shape[1] and 0 <= v < picture.shape[0]:
                _blend(frame, row, column, picture, int(v), int(u))


@kernel
def _view(s: Any, whole: bool, size: int) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Pixels a cell, what is left of the picture's left edge and above its top, and how many cells it shows.

    Like all places, in float32 as in Procgen, for a hair decides which pixel of a picture is met.
    """
    cells = np.float32(s.world)
    middle_x = cells * np.float32(0.5)
    middle_y = middle_x
    if s.knobs.centred and not whole:
        cells = np.float32(r.VIEW)
        middle_x = s.x
        middle_y = s.y
    raw = np.float32(64) / cells
    unit = raw * np.float32(size / 64)
    shown = np.float32(64.0 / raw)
    return unit, unit * (middle_x - shown / np.float32(2)), unit * (middle_y - shown / np.float32(2)), shown


@kernel
def _show(
    frame: Any, picture: Any, view: Any, x: np.float32, y: np.float32, wide: np.float32, high: np.float32
) -> None:
    """Draw a picture into a rectangle of the world, given by its upper left corner."""
    unit, off_x, off_y, shown = view
    left = x * unit - off_x
    top = (shown - y) * unit + off_y
    _put(frame, picture, np.float64(left), np.float64(top), np.float64(wide * unit), np.float64(high * unit))


@kernel
def _show_walls(s: Any, frame: Any, p: Any, view: Any, beyond: int) -> None:
    """Draw all walls, also those beyond the edge of the world that a view may reach."""
    unit, off_x, off_y, shown = view
    side = (np.float32(1) + np.float32(2) * _OVERLAP) * unit
    size = frame.shape[0]
    for x in range(-beyond, s.world + beyond):
        left = (np.float32(x) - _OVERLAP) * unit - off_x
        if left + side < 0 or left > size:
            continue
        for y in range(-beyond, s.world + beyond):
            if s.cells[y + PAD, x + PAD] == r.WALL:
                top = (shown - np.float32(y + 1) - _OVERLAP) * unit + off_y
                if top + side >= 0 and top <= size:
                    _put(frame, p.wall, np.float64(left), np.float64(top), np.float64(side), np.float64(side))


@kernel
def _draw_still(s: Any, frame: Any, p: Any, whole: bool) -> None:
    """Draw the floor, the walls, and what lies or stands around."""
    view = _view(s, whole, frame.shape[0])
    which = s.background % len(p.floors)
    edge = p.floor_sides[which]
    world = np.float32(s.world)
    _show(frame, p.floors[which, :edge, :edge], view, np.float32(0), world, world, world)
    _show_walls(s, frame, p, view, PAD if s.knobs.centred and not whole else 0)
    for i in range(s.items):
        if s.gone[i]:
            continue
        picture = p.gem
        if s.kind[i] == r.KEY:
            picture = p.keys[s.number[i]]
        elif s.kind[i] == r.DOOR:
            picture = p.locks[s.number[i]]
        wide = s.half_width[i]
        high = s.half_height[i]
        two = np.float32(2)
        _show(frame, picture, view, s.item_x[i] - wide, s.item_y[i] + high, two * wide, two * high)


@kernel
def _draw_moving(s: Any, frame: Any, p: Any, whole: bool) -> None:
    """Draw the player, and the keys on the ring."""
    size = frame.shape[0]
    view = _view(s, whole, size)
    unit, off_x, off_y, shown = view
    across = np.float32(2) * r.RADIUS
    if s.facing == _RIGHT or s.facing == r.REST:  # not turned, and so rounded like everything else
        _show(frame, p.player, view, s.x - r.RADIUS, s.y + r.RADIUS, across, across)
    else:
        side = float(across * unit)
        x = float(s.x * unit - off_x)
        y = float((shown - s.y) * unit + off_y)
        _put_turned(frame, p.player, x, y, side, side, s.facing)
    for number in range(r.MOST_KEYS):
        if s.held[number]:
            x = size * (1 - float(r.RING_RADIUS) * (2 * number + 1.25))
            y = size * float(2 * r.RING_HEIGHT + r.RING_Y)
            wide = 2 * size * float(r.RING_RADIUS)
            high = 2 * size * float(r.RING_HEIGHT)
            _put_turned(frame, p.keys[number], x, y, wide, high, _DOWN)


@kernel
def gone_things(s: Any) -> int:
    """Which things are gone, as bits."""
    bits = 0
    for i in range(s.items):
        bits |= int(s.gone[i]) << i
    return bits


@kernel
def draw(s: Any, frame: Any, p: Any, whole: bool) -> None:
    """Draw a frame; `whole` shows all of the world to a player whose view is partial."""
    _draw_still(s, frame, p, whole)
    _draw_moving(s, frame, p, whole)


@kernel
def _wipe(frame: Any, still: Any, top: int, bottom: int, left: int, right: int) -> None:
    """Put back what is behind a part of a frame."""
    for row in range(top, bottom):
        for column in range(left, right):
            for c in range(3):
                frame[row, column, c] = still[row, column, c]


@kernel
def _note_place(s: Any, place: Any, size: int) -> None:
    """Note where the player is drawn, and a pixel around it for what is rounded."""
    unit = size / s.world
    reach = math.sqrt(2.0) * r.RADIUS * unit + 1
    y = size - unit * s.y
    x = unit * s.x
    place[0] = max(0, int(y - reach))
    place[1] = min(size, int(y + reach) + 1)
    place[2] = max(0, int(x - reach))
    place[3] = min(size, int(x + reach) + 1)


@kernel
def draw_next(s: Any, frame: Any, p: Any, canvas: Any, i: int) -> None:
    """Draw environment i's frame over its last one; unless it is STALE, that must still be there."""
    if s.knobs.centred:
        draw(s, frame, p, False)
        return
    size = frame.shape[0]
    still = canvas.still[i]
    place = canvas.moved[i]
    gone = gone_things(s)
    if canvas.drawn[i] != gone:
        _draw_still(s, still, p, False)
        canvas.drawn[i] = gone
        frame[:] = still
    else:
        _wipe(frame, still, place[0], place[1], place[2], place[3])
        if s.held[0] or s.held[1] or s.held[2]:
            _wipe(frame, still, 0, int(_RING_ROWS * size) + 1, int(_RING_COLUMN * size), size)
    _draw_moving(s, frame, p, False)
    _note_place(s, place, size)
