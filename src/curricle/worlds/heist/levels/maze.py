"""A maze by Kruskal's algorithm, with the same draws in the same order as Procgen's.

`carve(w, side)` fills `w.grid`, (side + 2) cells a side with a border of INVALID: cells with both coordinates even are
nodes, and walls between two nodes that are not connected yet are taken away in random order.
"""

from typing import Any, Final

import numpy as np

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.rng import draw
from curricle.worlds.heist.game.state import STREAM

BORDER, WALL, SPACE, DOOR, NUMBERED, START = range(6)
"""What a cell of a maze is: a door has no number yet; keys, the gem and doors with a number are NUMBERED."""
ARRAY_SIDE: Final = r.LARGEST + 2
CELLS: Final = ARRAY_SIDE**2
_NODES: Final = ((r.LARGEST + 1) // 2) ** 2
_WALLS: Final = 2 * (r.LARGEST // 2) * ((r.LARGEST + 1) // 2)

SCRATCH: Final = np.dtype(
    [
        ("stream", STREAM),
        ("grid", "u1", CELLS),
        ("walls", "i2", _WALLS),
        ("root", "i2", _NODES),
        ("list", "i2", CELLS),  # cells to choose from
        ("layer", "i2", CELLS),
        ("next", "i2", CELLS),
        ("known", "u1", CELLS),  # reached by an earlier search, or by this one
        ("distance", "i2", CELLS),  # cells' walk from the start
        ("doors", "i2", r.MOST_KEYS),
        ("keys", "i2", r.MOST_KEYS),
        ("start", "i4"),
        ("gem", "i4"),
        ("side", "i4"),
        ("count", "i4"),  # of doors
    ],
    align=True,
)
"""Memory to make a level in."""


@kernel
def _root(w: Any, node: int) -> int:
    """The node that stands for all that a node is connected with."""
    while w.root[node] != node:
        w.root[node] = w.root[w.root[node]]
        node = w.root[node]
    return node


@kernel
def _list_walls(w: Any, side: int) -> int:
    """Write down all walls between two nodes, in Procgen's order, as the cells they stand on; returns how many."""
    count = 0
    for x in range(1, side, 2):
        for y in range(0, side, 2):
            w.walls[count] = y * side + x
            count += 1
    for x in range(0, side, 2):
        for y in range(1, side, 2):
            w.walls[count] = y * side + x
            count += 1
    return count


@kernel
def carve(w: Any, side: int) -> None:
    """Make a maze of an odd number of cells a side."""
    w.side = side
    array_side = side + 2
    w.grid[: array_side * array_side] = BORDER
    for y in range(1, side + 1):
        w.grid[y * array_side + 1 : y * array_side + 1 + side] = WALL
    nodes = (side + 1) // 2
    for node in range(nodes * nodes):
        w.root[node] = node
    count = _list_walls(w, side)
    while count > 0:
        n = draw(w.stream, count)
        x = w.walls[n] % side
        y = w.walls[n] // side
        count -= 1
        for k in range(n, count):
            w.walls[k] = w.walls[k + 1]
        dx = x % 2
        dy = y % 2
        one = _root(w, (y - dy) // 2 * nodes + (x - dx) // 2)
        other = _root(w, (y + dy) // 2 * nodes + (x + dx) // 2)
        if one != other:
            w.root[one] = other
            middle = (y + 1) * array_side + x + 1
            step = dy * array_side + dx
            w.grid[middle] = SPACE
            w.grid[middle - step] = SPACE
            w.grid[middle + step] = SPACE
