"""Pictures of cells, read from the installed `crafter` package and prepared for one unit size.

A cell shows a material with at most one object on it, so each picture that a frame can need is blended once: `tiles[t]`
with t = material + 13 * sprite (see SPRITES); the last one is for cells outside the map. `dusk` is what `tiles` fade to
as daylight goes (PIL's colour enhancer, then a blue tint). `items` are the pictures of the inventory. Pictures are flat
rows of bytes, so that drawing is copying.
"""

import functools
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from curricle.worlds.crafter.game.rules import ITEMS, MATERIALS, MOST, VIEW_X, VIEW_Y
from curricle.worlds.crafter.observe.night_estimate import PIXELS
from curricle.worlds.crafter.observe.sprites import OUTSIDE, SPRITES

NIGHT_TINT: Final = np.array([0.0, 16.0, 64.0])
PAD: Final = 8
"""Elements that copying eight at a time may read or write beyond the end."""


class Pictures(NamedTuple):
    """Everything drawing needs, for one unit size; flat arrays, one row a picture."""

    unit: tuple[int, int]
    """Width and height of a cell in pixels."""
    tiles: NDArray[np.uint8]
    """(tile, row x column x channel)"""
    dusk: NDArray[np.float32]
    """The same cells without daylight; multiples of a half, so float32 holds them exactly."""
    cells: NDArray[np.uint32]
    """(tile, column x row), the order the reference draws its noise in; red, green and blue in the bytes of a word."""
    items: NDArray[np.uint8]
    """(10 x item + amount, row x column x channel); the last is black."""
    vignette: NDArray[np.float64]
    """(column x row): how dark each pixel of the local view gets at night."""
    night: NDArray[np.float32]
    """The vignette in single precision, with room to read beyond its end."""


def _blend(canvas: NDArray[np.uint8], at: tuple[int, int], texture: NDArray[np.uint8]) -> None:
    """Draw a texture over a canvas (both column first), as float32 with truncation."""
    (x, y) = at
    (w, h) = texture.shape[:2]
    under = canvas[x : x + w, y : y + h]
    if texture.shape[-1] == 4:
        alpha = texture[..., 3:].astype(np.float32) / 255
        mixed = alpha * (texture[..., :3].astype(np.float32) / 255) + (1 - alpha) * (under.astype(np.float32) / 255)
        texture = (255 * mixed).astype(np.uint8)
    canvas[x : x + w, y : y + h] = texture


def _tiles(textures: Any, unit: tuple[int, int]) -> NDArray[np.uint8]:
    """Blend every sprite over every material."""
    tiles = np.full((OUTSIDE + 1, *unit, 3), 127, np.uint8)
    for index in range(OUTSIDE):
        sprite, material = divmod(index, len(MATERIALS))
        ground = textures.get(MATERIALS[material] if material else None, unit)
        tiles[index] = ground[..., :3]
        if SPRITES[sprite]:
            _blend(tiles[index], (0, 0), textures.get(SPRITES[sprite], unit))
    return tiles


def _items(textures: Any, unit: tuple[int, int]) -> NDArray[np.uint8]:
    """Draw every amount of every item on black."""
    items = np.zeros((len(ITEMS), MOST + 1, *unit, 3), np.uint8)
    size = np.array(unit)
    for index, name in enumerate(ITEMS):
        for amount in range(1, MOST + 1):
            for texture, offset, scale in ((name, 0.1, 0.8), (str(amount), 0.4, 0.6)):
                x, y = (offset * size).astype(np.int32)
                _blend(items[index, amount], (x, y), textures.get(texture, scale * size))
    return items


def _vignette(unit: tuple[int, int]) -> NDArray[np.float64]:
    """Zero in the middle of the view, near one in its corners; numpy's exp, as the reference."""
    width = VIEW_X * unit[0]
    height = VIEW_Y * unit[1]
    xs, ys = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    return np.asarray(1 - np.exp(-0.5 * (xs**2 + ys**2) / (0.5**2)).T).ravel()


@functools.lru_cache(maxsize=8)
def pictures(width: int, height: int) -> Pictures:
    """Prepare the pictures for cells of width x height pixels."""
    import crafter  # late: it carries the textures, and takes a moment to import

    textures = crafter.engine.Textures(crafter.constants.root / "assets")
    unit = (width, height)
    tiles = _tiles(textures, unit)
    strip = Image.fromarray(tiles.reshape(-1, height, 3))
    dull = np.asarray(ImageEnhance.Color(strip).enhance(0.4)).reshape(tiles.shape)
    dusk = (0.5 * dull + 0.5 * NIGHT_TINT).astype(np.float32)
    rows = (0, 2, 1, 3)
    items = _items(textures, unit).reshape(-1, *unit, 3)
    items = np.concatenate([items, np.zeros_like(items[:1])])
    vignette = _vignette(unit)
    return Pictures(
        unit,
        _flat(tiles.transpose(rows)),
        _flat(dusk.transpose(rows)),
        _flat(tiles.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)),
        _flat(items.transpose(rows)),
        vignette,
        np.concatenate([vignette, np.zeros(PIXELS)]).astype(np.float32),
    )


def _flat(pictures: NDArray[Any]) -> NDArray[Any]:
    """One row a picture, with room behind the last for reading in words."""
    flat = pictures.reshape(len(pictures), -1)
    return np.concatenate([flat, np.zeros((len(flat), PAD), flat.dtype)], 1)
