"""Frames: what the player sees, in pixels, equal to the reference's to the last bit.

`draw(s, frame, *pictures)` paints one record into a uint8 array (row, column, channel) of any size. By day the look of
a cell depends on the cell alone, so each kind of cell is lit once a frame and copied. In the dark every pixel
gets noise from the world's random stream: drawing then moves the stream on (see `step.pass_night`).
A frame is composed without its border first, in memory order: runs are copied in words of eight bytes, and what a
word writes beyond its run is overwritten by the next one.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter import rules as r
from curricle.worlds.crafter.kernel import kernel
from curricle.worlds.crafter.lanes import move4, move8
from curricle.worlds.crafter.looks import look
from curricle.worlds.crafter.rng import fill_uniform
from curricle.worlds.crafter.textures import NIGHT_TINT, OUTSIDE, PAD

_MATERIALS: Final = len(r.MATERIALS)
_STOCK: Final = 7
"""Pixels a cell in a frame of 64 x 64."""
_DULL: Final = np.float32(0.4)
_HALF_TINT: Final = 0.5 * NIGHT_TINT


@kernel
def tile_at(s: Any, column: int, row: int) -> int:
    """Which tile a cell of the local view shows."""
    x, y = s.x[0] + column - r.VIEW_X // 2, s.y[0] + row - r.VIEW_Y // 2
    if x < 0 or x >= s.area or y < 0 or y >= s.area:
        return OUTSIDE
    tile = int(np.int64(s.material[x, y]))
    if s.who[x, y]:
        tile += _MATERIALS * look(s, s.who[x, y] - 1)
    return tile


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
def _day(s: Any, canvas: Any, tiles: Any, dusk: Any, width: int, height: int) -> None:
    """Paint the local view by daylight."""
    size = 3 * width * height
    lit = np.empty((r.VIEW_X * r.VIEW_Y, size + PAD), np.uint8)
    known, chosen = np.full(OUTSIDE + 1, -1, np.int8), np.empty(r.VIEW_X, np.int64)
    light, dark, kinds = s.daylight, 1 - s.daylight, 0
    for row in range(r.VIEW_Y):
        for column in range(r.VIEW_X):
            tile = tile_at(s, column, row)
            if known[tile] < 0:
                bright, dull, out = tiles[tile], dusk[tile], lit[kinds]
                for i in range(size):
                    out[i] = np.int32(light * bright[i] + dark * dull[i])
                known[tile] = kinds
                kinds += 1
            chosen[column] = known[tile]
        _lay(canvas, row, lit, chosen, width, height)


@kernel
def _planes(s: Any, planes: Any, width: int, height: int) -> Any:
    """The local view without light, one plane a channel, column by column."""
    size = r.VIEW_X * width * r.VIEW_Y * height
    view = np.empty((3, size + PAD), np.uint8)
    chosen = np.empty(r.VIEW_Y, np.int64)
    for column in range(r.VIEW_X):
        for row in range(r.VIEW_Y):
            chosen[row] = tile_at(s, column, row)
        for channel in range(3):
            plane = view[channel]
            for line in range(width):
                at, start = (column * width + line) * r.VIEW_Y * height, (channel * width + line) * height
                for row in range(r.VIEW_Y):
                    _run(plane, at + row * height, planes[chosen[row]], start, height)
    return view


@kernel
def _mask(noise: Any, vignette: Any, amount: float, clear: Any) -> None:
    """Turn draws into grain, and say how much of each pixel stays clear of it."""
    for i in range(clear.size):
        mask = amount * vignette[i]
        clear[i] = 1 - mask
        noise[i] = mask * (32.0 + 95.0 * noise[i])


@kernel
def _grain(plane: Any, clear: Any, noise: Any, mixed: Any) -> None:
    """Lay grain over a plane."""
    for i in range(mixed.size):
        mixed[i] = np.float32(np.int32(clear[i] * plane[i] + noise[i]))


@kernel
def _luma(red: Any, green: Any, blue: Any, grey: Any) -> None:
    """PIL's grey; exact in float32, as all its sums are whole numbers below 2**24."""
    for i in range(grey.size):
        luma = red[i] * np.float32(19595) + green[i] * np.float32(38470) + blue[i] * np.float32(7471)
        grey[i] = np.float32(np.int32((luma + np.float32(32768)) * np.float32(1 / 65536)))


@kernel
def _fade(plane: Any, mixed: Any, grey: Any, daylight: float, channel: int, pixels: Any) -> None:
    """Blend a plane with its dull and tinted night, and put it into its byte of the pixels."""
    dark, tint, shift = 1 - daylight, _HALF_TINT[channel], np.int32(8 * channel)
    for i in range(grey.size):
        dull = np.int32(grey[i] + _DULL * (mixed[i] - grey[i]))
        value = np.int32(daylight * plane[i] + dark * (0.5 * dull + tint))
        pixels[i] = np.int32(pixels[i] | np.int32(value << shift))


@kernel
def _shade(view: Any, noise: Any, vignette: Any, daylight: float, pixels: Any) -> None:
    """Darken three planes; loops touch few arrays each, so that LLVM turns every one into vector code."""
    clear, grey = np.empty(noise.size), np.empty(noise.size, np.float32)
    mixed = np.empty((3, noise.size), np.float32)
    _mask(noise, vignette, 2 * (0.5 - daylight), clear)
    for channel in range(3):
        _grain(view[channel], clear, noise, mixed[channel])
    _luma(mixed[0], mixed[1], mixed[2], grey)
    for channel in range(3):
        _fade(view[channel], mixed[channel], grey, daylight, channel, pixels)


@kernel
def _night(s: Any, canvas: Any, planes: Any, vignette: Any, width: int, height: int) -> None:
    """Paint the local view in the dark."""
    columns, rows = r.VIEW_X * width, r.VIEW_Y * height
    drawn, pixels = np.empty(rows * columns), np.zeros(rows * columns, np.int32)
    fill_uniform(s, drawn)
    _shade(_planes(s, planes, width, height), drawn, vignette, s.daylight, pixels)
    packed = pixels.view(np.uint8)
    for row in range(rows):  # a pixel's fourth byte is overwritten by the next pixel
        for column in range(columns):
            move4(canvas, 3 * (row * columns + column), packed, 4 * (column * rows + row))


@kernel
def _asleep(canvas: Any, pixels: int) -> None:
    """Grey the local view, with a touch of blue."""
    for at in range(0, 3 * pixels, 3):
        red, green, blue = np.int32(canvas[at]), np.int32(canvas[at + 1]), np.int32(canvas[at + 2])
        grey = (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
        canvas[at] = canvas[at + 1] = grey >> 1
        canvas[at + 2] = (grey + 16) >> 1


@kernel
def _inventory(s: Any, canvas: Any, items: Any, width: int, height: int) -> None:
    """Paint the two rows of items."""
    chosen = np.empty(r.VIEW_X, np.int64)
    for row in range(2):
        for column in range(r.VIEW_X):
            item = row * r.VIEW_X + column
            chosen[column] = 10 * item + s.inventory[item] if item < len(r.ITEMS) else len(items) - 1
        _lay(canvas, r.VIEW_Y + row, items, chosen, width, height)


@kernel
def _blit(frame: NDArray[np.uint8], canvas: Any, columns: int, rows: int) -> None:
    """Put a finished canvas into the middle of a frame, and not a byte beyond it."""
    top, left, flat = (frame.shape[0] - rows) // 2, (frame.shape[1] - columns) // 2, frame.reshape(-1)
    length = 3 * columns
    for row in range(rows):
        at, start = 3 * ((top + row) * frame.shape[1] + left), row * length
        _run(flat, at, canvas, start, length - 7)
        move8(flat, at + length - 8, canvas, start + length - 8)


@kernel
def _paint(s: Any, canvas: Any, width: int, height: int, pictures: Any) -> None:
    """Paint a frame without its border."""
    tiles, dusk, planes, items, vignette = pictures
    if s.daylight < 0.5:
        _night(s, canvas, planes, vignette, width, height)
    else:
        _day(s, canvas, tiles, dusk, width, height)
    if s.sleeping:
        _asleep(canvas, r.VIEW_X * width * r.VIEW_Y * height)
    _inventory(s, canvas, items, width, height)


@kernel
def draw(
    s: Any, frame: NDArray[np.uint8], unit: Any, tiles: Any, dusk: Any, planes: Any, items: Any, vignette: Any
) -> None:
    """Paint a frame; a border that fits no unit stays black."""
    width, height = unit
    columns, rows = r.VIEW_X * width, (r.VIEW_Y + 2) * height
    canvas = np.empty(3 * columns * rows + PAD, np.uint8)
    pictures = (tiles, dusk, planes, items, vignette)
    if width == _STOCK and height == _STOCK:  # the same call twice: known numbers let the compiler unroll the copying
        _paint(s, canvas, _STOCK, _STOCK, pictures)
    else:
        _paint(s, canvas, width, height, pictures)
    _blit(frame, canvas, columns, rows)
