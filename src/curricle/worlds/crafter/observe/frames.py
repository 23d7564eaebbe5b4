"""Frames: what the player sees, in pixels, equal to the reference's to the last bit.

`draw(s, frame, easel, me, *pictures)` paints one record into a uint8 array (row, column, channel) of any size, with the
memory of thread `me`. By day the look of a cell depends on the cell alone, so each kind of cell is lit once a frame and
copied. The dark is in `night.py`.
A frame is composed without its border first, in memory order: runs are copied in words of eight bytes, and what a
word writes beyond its run is overwritten by the next one.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import move8
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.observe.night import paint_night
from curricle.worlds.crafter.observe.night_estimate import PIXELS
from curricle.worlds.crafter.observe.sprites import OUTSIDE, tile_at
from curricle.worlds.crafter.observe.textures import PAD

_STOCK: Final = 7
"""Pixels a cell in a frame of 64 x 64."""


class Easel(NamedTuple):
    """Memory to draw with, a row a thread: if each frame asked for its own, threads would wait for the allocator."""

    canvas: NDArray[np.uint8]
    lit: NDArray[np.uint8]
    known: NDArray[np.int8]
    chosen: NDArray[np.int64]
    words: NDArray[np.uint32]
    scene: NDArray[np.uint32]
    pixels: NDArray[np.uint32]


def easel_of(width: int, height: int, threads: int = 1) -> Easel:
    """Room for frames of cells of width x height pixels; rows are so far apart that no line of the cache holds two."""
    cells = r.VIEW_X * r.VIEW_Y
    cell = width * height
    apart = 128
    view = cells * cell + PIXELS
    return Easel(
        np.zeros((threads, 3 * r.VIEW_X * (r.VIEW_Y + 2) * cell + PAD + apart), np.uint8),
        np.zeros((threads, cells + 1, 3 * cell + PAD), np.uint8),
        np.zeros((threads, OUTSIDE + 1 + apart), np.int8),
        np.zeros((threads, r.VIEW_X + apart), np.int64),
        np.zeros((threads, 2 * view + apart), np.uint32),
        np.zeros((threads, view + apart), np.uint32),
        np.zeros((threads, view + apart), np.uint32),
    )


@kernel
def _run(target: Any, at: int, source: Any, start: int, length: int) -> None:
    """Copy a run of bytes, and up to seven more."""
    for offset in range(0, length, 8):
        move8(target, at + offset, source, start + offset)


@kernel
def _lay(canvas: Any, row: int, tiles: Any, chosen: Any, width: int, height: int) -> None:
    """Lay one row of chosen tiles, line by line."""
    run = 3 * width
    for line in range(height):
        at = (row * height + line) * r.VIEW_X * run
        for column in range(r.VIEW_X):
            _run(canvas, at + column * run, tiles[chosen[column]], line * run, run)


@kernel
def _day(s: Any, canvas: Any, tiles: Any, dusk: Any, width: int, height: int, e: Any, me: int) -> None:
    """Paint the local view by daylight."""
    size = 3 * width * height
    lit = e.lit[me]
    known = e.known[me]
    chosen = e.chosen[me]
    known[:] = -1
    light = s.daylight
    dark = 1 - s.daylight
    kinds = 0
    for row in range(r.VIEW_Y):
        for column in range(r.VIEW_X):
            tile = tile_at(s, column, row)
            if known[tile] < 0:
                bright = tiles[tile]
                dull = dusk[tile]
                out = lit[kinds]
                for i in range(size):
                    out[i] = np.int32(light * bright[i] + dark * dull[i])
                known[tile] = kinds
                kinds += 1
            chosen[column] = known[tile]
        _lay(canvas, row, lit, chosen, width, height)


@kernel
def _asleep(canvas: Any, pixels: int) -> None:
    """Grey the local view, with a touch of blue."""
    for at in range(0, 3 * pixels, 3):
        red = np.int32(canvas[at])
        green = np.int32(canvas[at + 1])
        blue = np.int32(canvas[at + 2])
        grey = (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
        canvas[at] = canvas[at + 1] = grey >> 1
        canvas[at + 2] = (grey + 16) >> 1


@kernel
def _inventory(s: Any, canvas: Any, items: Any, width: int, height: int, chosen: Any) -> None:
    """Paint the two rows of items."""
    for row in range(2):
        for column in range(r.VIEW_X):
            item = row * r.VIEW_X + column
            chosen[column] = 10 * item + s.inventory[item] if item < len(r.ITEMS) else len(items) - 1
        _lay(canvas, r.VIEW_Y + row, items, chosen, width, height)


@kernel
def _blit(frame: NDArray[np.uint8], canvas: Any, columns: int, rows: int) -> None:
    """Put a finished canvas into the middle of a frame, and not a byte beyond it."""
    top = (frame.shape[0] - rows) // 2
    left = (frame.shape[1] - columns) // 2
    flat = frame.reshape(-1)
    length = 3 * columns
    for row in range(rows):
        at = 3 * ((top + row) * frame.shape[1] + left)
        start = row * length
        _run(flat, at, canvas, start, length - 7)
        move8(flat, at + length - 8, canvas, start + length - 8)


@kernel
def _paint(s: Any, canvas: Any, width: int, height: int, pictures: Any, e: Any, me: int) -> None:
    """Paint a frame without its border."""
    tiles, dusk, cells, items, vignette, night = pictures
    if s.daylight < 0.5:
        room = (e.chosen[me], e.words[me], e.scene[me], e.pixels[me])
        paint_night(s, canvas, cells, night, vignette, width, height, room)
    else:
        _day(s, canvas, tiles, dusk, width, height, e, me)
    if s.sleeping:
        _asleep(canvas, r.VIEW_X * width * r.VIEW_Y * height)
    _inventory(s, canvas, items, width, height, e.chosen[me])


@kernel
def draw(
    s: Any,
    frame: Any,
    e: Any,
    me: int,
    unit: Any,
    tiles: Any,
    dusk: Any,
    cells: Any,
    items: Any,
    vignette: Any,
    night: Any,
) -> None:
    """Paint a frame; a border that fits no unit stays black."""
    width, height = unit
    columns = r.VIEW_X * width
    rows = (r.VIEW_Y + 2) * height
    canvas = e.canvas[me]
    pictures = (tiles, dusk, cells, items, vignette, night)
    if width == _STOCK and height == _STOCK:  # the same call twice: known numbers let the compiler unroll the copying
        _paint(s, canvas, _STOCK, _STOCK, pictures, e, me)
    else:
        _paint(s, canvas, width, height, pictures, e, me)
    _blit(frame, canvas, columns, rows)
