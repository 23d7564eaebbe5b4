"""The pictures that frames are drawn with: our own, made here of simple shapes, or Procgen's from a folder.

In: nothing, or a folder with Procgen's picture files (`curricle data heist` fetches them). Out: `frames.Pictures`.
Our own have the shapes, sizes and colours that matter in Procgen's, so that things look alike at a few pixels a cell.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from curricle.errors import UsageError
from curricle.worlds.heist.observe.frames import Pictures

WALL_FILE: Final = "kenney/Ground/Dirt/dirtCenter.png"
PLAYER_FILE: Final = "misc_assets/spaceAstronauts_008.png"
GEM_FILE: Final = "misc_assets/gemYellow.png"
KEY_FILES: Final = tuple(f"misc_assets/key{colour}.png" for colour in ("Blue", "Green", "Red"))
LOCK_FILES: Final = tuple(f"misc_assets/lock_{colour}.png" for colour in ("blue", "green", "red"))
FLOOR_FILES: Final = (
    "topdown_backgrounds/floortiles.png",
    *(f"topdown_backgrounds/backgrounddetailed{number}.png" for number in range(1, 9)),
)
FILES: Final = (WALL_FILE, PLAYER_FILE, GEM_FILE, *KEY_FILES, *LOCK_FILES, *FLOOR_FILES)
"""Where the pictures lie in Procgen's folder of assets."""

_COLOURS: Final = ((30, 167, 225), (115, 205, 75), (232, 106, 23))
_DARK: Final = (50, 50, 50)


@functools.cache
def own_pictures() -> Pictures:
    """Our own pictures."""
    return Pictures(
        floors=_bytes([_floor()]),
        floor_sides=np.array([_floor().width]),
        wall=_bytes([_wall()])[0],
        player=_bytes([_player()])[0],
        gem=_bytes([_gem()])[0],
        keys=_bytes([_key(colour) for colour in _COLOURS]),
        locks=_bytes([_lock(colour) for colour in _COLOURS]),
    )


@functools.cache
def pictures_from(folder: Path) -> Pictures:
    """Procgen's pictures from a folder that has its assets."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"{folder} lacks {missing[0]}; `curricle data heist` fetches Procgen's pictures")
    found = {name: Image.open(folder / name).convert("RGBA") for name in FILES}
    sides = np.array([found[name].width for name in FLOOR_FILES])
    floors = [found[name].crop((0, 0, sides.max(), sides.max())) for name in FLOOR_FILES]
    return Pictures(
        floors=_bytes(floors),
        floor_sides=sides,
        wall=_bytes([found[WALL_FILE]])[0],
        player=_bytes([found[PLAYER_FILE]])[0],
        gem=_bytes([found[GEM_FILE]])[0],
        keys=_bytes([found[name] for name in KEY_FILES]),
        locks=_bytes([found[name] for name in LOCK_FILES]),
    )


def _bytes(images: Sequence[Image.Image]) -> NDArray[np.uint8]:
    """Pictures of one size, colours multiplied by alpha with Qt's rounding."""
    raw = np.stack([np.asarray(image.convert("RGBA")) for image in images]).astype(np.int32)
    product = raw[..., :3] * raw[..., 3:]
    raw[..., :3] = (product + (product >> 8) + 128) >> 8
    return np.ascontiguousarray(raw, np.uint8)


def _floor() -> Image.Image:
    """A dark floor with a little grain, the same everywhere."""
    rng = np.random.default_rng(0)
    grain = rng.integers(-8, 9, size=(128, 128, 1))
    return Image.fromarray((np.array([76, 62, 48]) + grain).astype(np.uint8))


def _wall() -> Image.Image:
    """Light stone with a faint zigzag."""
    image = Image.new("RGB", (128, 128), (186, 201, 202))
    draw = ImageDraw.Draw(image)
    for row in range(-16, 128, 32):
        points = [(column * 16, row + 10 * (column % 2)) for column in range(9)]
        draw.line(points, fill=(174, 190, 190), width=10)
    return image


def _player() -> Image.Image:
    """Somebody seen from above who looks to the right: shoulders, a head, and two hands in front."""
    image = Image.new("RGBA", (37, 44))
    draw = ImageDraw.Draw(image)
    draw.ellipse((1, 7, 16, 37), fill=(235, 235, 235, 255))
    draw.rounded_rectangle((8, 0, 28, 43), 8, fill=(255, 153, 0, 255))
    draw.ellipse((26, 3, 36, 14), fill=(126, 144, 150, 255))
    draw.ellipse((26, 30, 36, 41), fill=(126, 144, 150, 255))
    draw.ellipse((8, 10, 30, 33), fill=(144, 164, 170, 255))
    draw.ellipse((8, 11, 24, 32), fill=(255, 255, 255, 255))
    return image


def _gem() -> Image.Image:
    image = Image.new("RGBA", (70, 48))
    draw = ImageDraw.Draw(image)
    draw.polygon([(13, 0), (57, 0), (69, 22), (35, 47), (0, 22)], fill=(255, 213, 61, 255))
    draw.polygon([(13, 0), (57, 0), (69, 20), (0, 20)], fill=(253, 227, 128, 255))
    draw.polygon([(35, 20), (69, 20), (35, 47)], fill=(255, 204, 0, 255))
    return image


def _key(colour: tuple[int, int, int]) -> Image.Image:
    image = Image.new("RGBA", (84, 52))
    draw = ImageDraw.Draw(image)
    draw.ellipse((0, 0, 38, 51), fill=(*colour, 255))
    draw.ellipse((13, 15, 25, 39), fill=(0, 0, 0, 0))
    draw.rectangle((34, 18, 83, 33), fill=(*colour, 255))
    draw.rectangle((52, 33, 79, 51), fill=(*colour, 255))
    draw.rectangle((61, 47, 69, 51), fill=(0, 0, 0, 0))
    return image


def _lock(colour: tuple[int, int, int]) -> Image.Image:
    image = Image.new("RGBA", (70, 70))
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((0, 0, 69, 69), 6, fill=(*colour, 255))
    draw.ellipse((27, 23, 43, 39), fill=(*_DARK, 255))
    draw.polygon([(32, 36), (38, 36), (43, 49), (27, 49)], fill=(*_DARK, 255))
    return image
