"""Frames: what the player sees, in pixels, equal to the reference's to the last bit.

`draw(s, frame, buffers, thread, *pictures)` paints one record into a uint8 array (row, column, channel) of any size. It
works in the buffers of its thread. By day a cell's pixels depend on the cell alone, so each kind of cell is lit once a
frame and copied. `night.py` draws the dark. A frame is first composed without its border, in memory order: runs are
copied in words of eight bytes, and what a word writes beyond its run is overwritten by the next one.
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


class DrawBuffers(NamedTuple):
    """Memory to draw in, a row a thread: if each frame allocated its own, threads would wait for the allocator."""

    canvas: NDArray[np.uint8]
    """A frame without its border."""
    lit: NDArray[np.uint8]
    """Each kind of cell of the view, lit by the time of day,"""
    known: NDArray[np.int8]
    """and where it stands there, by tile; -1 while it was not met."""
    chosen: NDArray[np.int64]
    """The pictures of a row of cells."""
    words: NDArray[np.uint32]
    """At night: random words, two a pixel,"""
    unlit: NDArray[np.uint32]
    """the local view without light, column by column,"""
    pixels: NDArray[np.uint32]
    """and the same darkened."""


def draw_buffers(width: int, height: int, threads: int = 1) -> DrawBuffers:
    """Buffers for cells of width x height pixels; a gap after each row keeps threads from sharing a cache line."""
    cells = r.VIEW_X * r.VIEW_Y
    cell = width * height
    gap = 128
    view = cells * cell + PIXELS
    return DrawBuffers(
        canvas=np.zeros((threads, 3 * r.VIEW_X * (r.VIEW_Y + 2) * cell + PAD + gap), np.uint8),
        lit=np.zeros((threads, cells + 1, 3 * cell + PAD), np.uint8),
        known=np.zeros((threads, OUTSIDE + 1 + gap), np.int8),
        chosen=np.zeros((threads, r.VIEW_X + gap), np.int64),
        words=np.zeros((threads, 2 * view + gap), np.uint32),
        unlit=np.zeros((threads, view + gap), np.uint32),
        pixels=np.zeros((threads, view + gap), np.uint32),
    )


@kernel
def _copy_run(target: Any, at: int, source: Any, start: int, length: int) -> None:
    """Copy a run of bytes, and up to seven more."""
    for offset in range(0, length, 8):
        move8(target, at + offset, source, start + offset)


@kernel
def _copy_row(canvas: Any, row: int, tiles: Any, chosen: Any, width: int, height: int) -> None:
    """Copy the chosen tiles of one row of cells, line by line."""
    run = 3 * width
    for line in range(height):
        at = (row * height + line) * r.VIEW_X * run
        for column in range(r.VIEW_X):
            _copy_run(canvas, at + column * run, tiles[chosen[column]], line * run, run)


@kernel
def _day(s: Any, canvas: Any, tiles: Any, dusk: Any, width: int, height: int, b: Any, thread: int) -> None:
    """Paint the local view by daylight."""
    size = 3 * width * height
    lit = b.lit[thread]
    known = b.known[thread]
    chosen = b.chosen[thread]
    known[:] = -1
    light = s.daylight
    dark = 1 - s.daylight
    kinds = 0
    for row in range(r.VIEW_Y):
        for column in range(r.VIEW_X):
            tile = tile_at(s, column, row)
            if known[tile] < 0:
                by_day = tiles[tile]
                by_night = dusk[tile]
                out = lit[kinds]
                for i in range(size):
                    out[i] = np.int32(light * by_day[i] + dark * by_night[i])
                known[tile] = kinds
                kinds += 1
            chosen[column] = known[tile]
        _copy_row(canvas, row, lit, chosen, width, height)


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
        _copy_row(canvas, r.VIEW_Y + row, items, chosen, width, height)


@kernel
def _copy_to_frame(frame: NDArray[np.uint8], canvas: Any, columns: int, rows: int) -> None:
    """Put a finished canvas into the middle of a frame, and not a byte beyond it."""
    top = (frame.shape[0] - rows) // 2
    left = (frame.shape[1] - columns) // 2
    flat = frame.reshape(-1)
    length = 3 * columns
    for row in range(rows):
        at = 3 * ((top + row) * frame.shape[1] + left)
        start = row * length
        _copy_run(flat, at, canvas, start, length - 7)
        move8(flat, at + length - 8, canvas, start + length - 8)


@kernel
def _paint(s: Any, canvas: Any, width: int, height: int, pictures: Any, b: Any, thread: int) -> None:
    """Paint a frame without its border."""
    tiles, dusk, cells, items, vignette, night = pictures
    if s.daylight < 0.5:
        memory = (b.chosen[thread], b.words[thread], b.unlit[thread], b.pixels[thread])
        paint_night(s, canvas, cells, night, vignette, width, height, memory)
    else:
        _day(s, canvas, tiles, dusk, width, height, b, thread)
    if s.sleeping:
        _asleep(canvas, r.VIEW_X * width * r.VIEW_Y * height)
    _inventory(s, canvas, items, width, height, b.chosen[thread])


@kernel
def draw(
    s: Any,
    frame: Any,
    b: Any,
    thread: int,
    unit: Any,
    tiles: Any,
    dusk: Any,
    cells: Any,
    items: Any,
    vignette: Any,
    night: Any,
) -> None:
    """Paint a frame; a border too narrow for a cell stays black."""
    width, height = unit
    columns = r.VIEW_X * width
    rows = (r.VIEW_Y + 2) * height
    canvas = b.canvas[thread]
    pictures = (tiles, dusk, cells, items, vignette, night)
    if width == _STOCK and height == _STOCK:  # the same call twice: constants let the compiler unroll the copying
        _paint(s, canvas, _STOCK, _STOCK, pictures, b, thread)
    else:
        _paint(s, canvas, width, height, pictures, b, thread)
    _copy_to_frame(frame, canvas, columns, rows)
