"""A level: a maze somewhere in a world of walls, with doors, keys, a gem and the player in it.

`generate(s, w)` makes the level with the seed `s.level`. In Procgen's modes nothing is tried twice. Where a setting
asks for what a maze may have no room for, mazes are drawn until one fits. After TRIES the last one is taken, with fewer
doors than asked for or with the gem behind all of them.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.rng import draw, draw_share, next_word, seed_stream
from curricle.worlds.heist.game.state import ALL_DOORS, KEYS_BY_MAZE, KEYS_DRAWN, PAD
from curricle.worlds.heist.levels.chain import lay_out
from curricle.worlds.heist.levels.maze import WALL, carve

TRIES: Final = 100


@kernel
def _try_level(s: Any, w: Any, last: bool) -> bool:
    """Draw a maze and what is in it; returns whether it is as the setting wants it."""
    k = s.knobs
    difficulty = draw(w.stream, (k.world - r.SMALLEST_MAZE) // 2 + 1)
    keys = draw(w.stream, r.MOST_KEYS + 1) if k.keys == KEYS_DRAWN else draw(w.stream, 2)
    if k.maze > 0:
        difficulty = (k.maze - r.SMALLEST_MAZE) // 2
    if k.keys == KEYS_BY_MAZE:
        keys = min(difficulty + keys, r.MOST_KEYS)
    elif k.keys != KEYS_DRAWN:
        keys = k.keys
    s.keys = keys
    carve(w, 2 * difficulty + r.SMALLEST_MAZE)
    behind = r.MOST_KEYS if k.doors_before_gem == ALL_DOORS or last else k.doors_before_gem
    had_room = lay_out(w, k, keys, behind)
    return had_room and (k.keys < 0 or w.count == keys) and w.count >= min(keys, k.doors_before_gem)


@kernel
def _collides(s: Any, x: np.float32, y: np.float32) -> bool:
    """Whether something of the player's size would touch the player or another thing."""
    both = r.RADIUS + r.RADIUS
    if abs(x - s.x) < both and abs(y - s.y) < both:
        return True
    for i in range(s.items - 1, -1, -1):
        if abs(x - s.item_x[i]) < r.RADIUS + s.half_width[i] and abs(y - s.item_y[i]) < r.RADIUS + s.half_height[i]:
            return True
    return False


@kernel
def _somewhere(w: Any, cell: int) -> np.float32:
    """Draw where in its cell a thing lies, along one axis."""
    low = np.float32(cell)
    span = np.float32(low + np.float32(1)) - low
    return (span - np.float32(2) * r.RADIUS) * draw_share(w.stream) + r.RADIUS + low


@kernel
def _add(s: Any, kind: int, number: int, half_width: np.float32, half_height: np.float32) -> int:
    i = s.items
    s.kind[i] = kind
    s.number[i] = number
    s.gone[i] = 0
    s.half_width[i] = half_width
    s.half_height[i] = half_height
    return i


@kernel
def _lay(s: Any, w: Any, kind: int, number: int, x: int, y: int) -> None:
    """Lay a key or the gem into a cell: somewhere, but not so that it touches anything."""
    i = _add(s, kind, number, r.RADIUS, r.KEY_HEIGHT if kind == r.KEY else r.GEM_HEIGHT)
    item_x = _somewhere(w, x)
    item_y = _somewhere(w, y)
    for _ in range(100):
        if not _collides(s, item_x, item_y):
            break
        item_x = _somewhere(w, x)
        item_y = _somewhere(w, y)
    s.item_x[i] = item_x
    s.item_y[i] = item_y
    s.items += 1
    s.cells[y + PAD, x + PAD] = r.GEM_CELL if kind == r.GEM else r.FIRST_KEY + number


@kernel
def _stand(s: Any, number: int, x: int, y: int) -> None:
    """Put a closed door into a cell."""
    i = _add(s, r.DOOR, number, r.DOOR_RADIUS, r.DOOR_RADIUS)
    s.item_x[i] = np.float32(x) + np.float32(0.5)
    s.item_y[i] = np.float32(y) + np.float32(0.5)
    s.items += 1
    s.cells[y + PAD, x + PAD] = r.FIRST_DOOR + number


@kernel
def _fill_cell(s: Any, w: Any, cell: int, x: int, y: int) -> None:
    """Put into a cell of the world what is in a cell of the maze, if it is no wall."""
    s.cells[y + PAD, x + PAD] = r.FREE
    if cell == w.start:
        s.x = np.float32(x) + np.float32(0.5)
        s.y = np.float32(y) + np.float32(0.5)
    elif cell == w.gem:
        _lay(s, w, r.GEM, 0, x, y)
    for number in range(w.count):
        if cell == w.keys[number] and number >= s.knobs.held:
            _lay(s, w, r.KEY, number, x, y)
        if cell == w.doors[number] and number >= s.knobs.open:
            _stand(s, number, x, y)


@kernel
def _furnish(s: Any, w: Any) -> None:
    """Put the maze somewhere into the world, column by column."""
    left = draw(w.stream, s.world - w.side + 1)
    bottom = draw(w.stream, s.world - w.side + 1)
    s.maze = w.side
    s.cells[:] = r.WALL
    s.items = 0
    s.x = np.float32(-1)  # out of the way of keys and gem, until its own cell has its turn
    s.y = np.float32(-1)
    for i in range(w.side):
        for j in range(w.side):
            cell = (j + 1) * (w.side + 2) + i + 1
            if w.grid[cell] != WALL:
                _fill_cell(s, w, cell, left + i, bottom + j)


@kernel
def generate(s: Any, w: Any) -> None:
    """Make the level of `s.level`."""
    seed_stream(w.stream, s.level)
    s.world = s.knobs.world
    next_word(w.stream)  # which part of a floor is seen, which matters for pictures that are not square
    s.background = draw(w.stream, r.BACKGROUNDS)
    next_word(w.stream)  # a place for the player, which Heist does not use
    next_word(w.stream)
    for attempt in range(TRIES):
        if _try_level(s, w, attempt == TRIES - 1):
            break
    _furnish(s, w)
    for byte in range(len(s.ties)):
        bits = 0
        for bit in range(8):
            bits |= (next_word(w.stream) & 1) << bit
        s.ties[byte] = bits
