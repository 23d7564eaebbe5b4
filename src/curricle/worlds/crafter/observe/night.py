"""The local view in the dark, equal to the reference's to the last bit.

Every pixel gets noise from the world's random stream, column by column, so drawing moves the stream on (see
`step.pass_night`). `paint_night` estimates sixteen pixels at a time (`night_estimate.py`), computes exactly the few
that the estimate leaves in doubt, and writes the columns as rows.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import LANES, lowest, move32, transpose
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.rng import draw_words, uniform_of
from curricle.worlds.crafter.observe.night_estimate import BIAS, PIXELS, shade_lanes
from curricle.worlds.crafter.observe.sprites import tile_at
from curricle.worlds.crafter.observe.textures import NIGHT_TINT

_HALF_TINT: Final = 0.5 * NIGHT_TINT


@kernel
def _columns(s: Any, cells: Any, view: Any, width: int, height: int, chosen: Any) -> None:
    """Put together the local view without light, column by column; runs may spill into what is written next."""
    for column in range(r.VIEW_X):
        for row in range(r.VIEW_Y):
            chosen[row] = tile_at(s, column, row)
        for line in range(width):
            at = (column * width + line) * r.VIEW_Y * height
            start = line * height
            for row in range(r.VIEW_Y):
                cell = cells[chosen[row]]
                for i in range(0, height, 8):
                    move32(view, at + row * height + i, cell, start + i)


@kernel
def _exact_pixel(colours: int, draw: float, vignette: float, daylight: float) -> int:
    """One pixel in double precision, operation by operation as the reference."""
    mask = 2 * (0.5 - daylight) * vignette
    noise = mask * (32.0 + 95.0 * draw)
    red = colours & 255
    green = colours >> 8 & 255
    blue = colours >> 16 & 255
    a = int((1 - mask) * red + noise)
    b = int((1 - mask) * green + noise)
    c = int((1 - mask) * blue + noise)
    grey = (19595 * a + 38470 * b + 7471 * c + 32768) >> 16
    # PIL dulls colours to (6 * grey + 4 * colour) // 10
    dark = 1 - daylight
    base = 6 * grey
    a = int(daylight * red + dark * (0.5 * ((base + 4 * a) // 10) + _HALF_TINT[0]))
    b = int(daylight * green + dark * (0.5 * ((base + 4 * b) // 10) + _HALF_TINT[1]))
    c = int(daylight * blue + dark * (0.5 * ((base + 4 * c) // 10) + _HALF_TINT[2]))
    return a | b << 8 | c << 16


@kernel
def _shade(s: Any, view: Any, night: Any, vignette: Any, size: int, pixels: Any, words: Any) -> None:
    """Darken a view of so many pixels."""
    draw_words(s, words, 2 * size)
    dark = 1 - s.daylight
    rest = 256 - 128 * dark + BIAS  # takes the 256 of a dull colour off, and brings the sum's own 256 in
    scale = (
        np.float32(2 * (0.5 - s.daylight)),
        np.float32(s.daylight),
        np.float32(0.5 * dark),
        np.float32(rest + dark * _HALF_TINT[0]),
        np.float32(rest + dark * _HALF_TINT[1]),
        np.float32(rest + dark * _HALF_TINT[2]),
    )
    for at in range(0, size, PIXELS):
        doubt = shade_lanes(words, view, night, at, scale, pixels)
        while doubt:
            i = at + lowest(np.uint64(doubt))
            doubt &= doubt - 1
            if i < size:
                draw = uniform_of(words[2 * i], words[2 * i + 1])
                pixels[i] = _exact_pixel(int(view[i]), draw, vignette[i], s.daylight)


@kernel
def _to_rows(canvas: Any, pixels: Any, columns: int, rows: int) -> None:
    """Put columns of words into rows of bytes; the last blocks of eight overlap those before them.

    There are at least eight of both: cells of one pixel have no pictures.
    """
    for y in range(0, rows, LANES):
        row = min(y, rows - LANES)
        for x in range(0, columns, LANES):
            column = min(x, columns - LANES)
            transpose(canvas, 3 * (row * columns + column), 3 * columns, pixels, column * rows + row, rows)


@kernel
def paint_night(
    s: Any, canvas: Any, cells: Any, night: Any, vignette: Any, width: int, height: int, memory: Any
) -> None:
    """Paint the local view into a canvas of bytes; `memory` is four arrays of `frames.DrawBuffers` to work in."""
    columns = r.VIEW_X * width
    rows = r.VIEW_Y * height
    chosen, words, view, pixels = memory
    _columns(s, cells, view, width, height, chosen)
    _shade(s, view, night, vignette, columns * rows, pixels, words)
    _to_rows(canvas, pixels, columns, rows)
