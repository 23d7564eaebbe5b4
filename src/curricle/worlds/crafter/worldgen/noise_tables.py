"""Noise over a whole map, fast: tables that do not depend on the seed, and sums of eight cells at a time.

World generation never uses a noise value itself, it only compares it with bars. So a map is summed here from weights of
sixteen bits, which takes about as long as reading the tables, with a known bound on the error (`MAX_ERROR`). Where a
value comes that close to its bar, `terrain.py` asks for the `exact` one: the terrain is exactly the reference's, at a
fraction of the cost. What depends on coordinates alone is in the tables (`fields`): which lattice vertices reach a
cell, and with what weight. An entry is one vertex and one block of eight cells along y. Only the vertices' gradients
change with the seed.
"""

import functools
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import LANES, move16, sum_lanes
from curricle.worlds.crafter.game.state import SIDE
from curricle.worlds.crafter.worldgen.noise import (
    EARLY,
    GRADIENTS,
    LATE,
    NORM,
    REACH,
    SQUISH,
    STRETCH,
    hash_of,
    noise3,
    region_of,
)

MAX_ERROR: Final = 8e-5
"""Bound on the error of a sum of rounded weights; `fields` checks it when it builds the tables."""
_UNIT: Final = 1.4e-6
"""The value of one step of a weight."""

(START, WATER_WIDE, WATER_FINE, HILL_WIDE, HILL_FINE, CAVE, TUNNEL_X, TUNNEL_Y, COAL_VEIN, IRON_VEIN, LAVA_POOL) = (
    range(11)
)
SHORE = 11
WOODS = 12
LAYERS = 13
_DEPTH: Final = np.array([8, 3, 3, 0, 0, 6, 7, 7, 1, 2, 6, 4, 5], np.float64)
_SIZE: Final = np.array([3, 15, 5, 15, 5, 7, 3, 3, 8, 6, 5, 9, 7], np.float64)


_GRADIENTS_BY_HASH: Final = np.zeros((256, 4), np.int32)
"""Gradients by the hash of a vertex."""
_GRADIENTS_BY_HASH[:, :3] = GRADIENTS[np.arange(256) % len(GRADIENTS)]
_ENTRIES = 76000
_VERTICES = 3600
BLOCKS: Final = SIDE // LANES
"""Blocks a row of the map."""
FIELDS: Final = np.dtype(
    [
        ("first", "i4", (LAYERS, SIDE * BLOCKS + 1)),  # where a block's entries begin
        ("vertex", "i4", _ENTRIES),
        ("weight", "i2", (_ENTRIES, 3, LANES)),  # what each component of the vertex's gradient adds to each cell
        ("vertices", "i4"),
        ("lattice", "u1", (_VERTICES, 3)),  # lattice coordinates modulo 256
    ],
    align=True,
)
SCRATCH: Final = np.dtype(
    [
        ("perm", "u1", 256),
        ("source", "u1", 256),
        ("tempered", "u4", 624),  # the twister's words, see rng.py
        ("gradient", "i4", (_VERTICES, 4)),  # three components, and one that makes rows easy to copy
        ("sums", "f4", (LAYERS * BLOCKS, LANES)),  # one row of the map, layer by layer
        ("start", "f4", SIDE),  # of that row, see terrain.py
        ("water", "f4", SIDE),
        ("hill", "f4", SIDE),
        ("slack", "f4", BLOCKS),
        ("masks", "u8", 8),
        ("grass", "u8", SIDE),  # by row, a bit a cell: what creatures are born on
        ("path", "u8", SIDE),
        ("sand", "u8", SIDE),
        ("tunnel", "u8", SIDE),
    ],
    align=True,
)
"""The memory that one generation works in."""


@kernel
def place(layer: int, x: int, y: int) -> tuple[float, float, float]:
    """Where a cell of the map lies in a layer's noise; divisions stay as the reference writes them."""
    size = _SIZE[layer]
    if layer == TUNNEL_X:
        return (2 * x) / size, (y / 5) / size, _DEPTH[layer]
    if layer == TUNNEL_Y:
        return (x / 5) / size, (2 * y) / size, _DEPTH[layer]
    return x / size, y / size, _DEPTH[layer]


@kernel
def exact(perm: NDArray[np.uint8], layer: int, x: int, y: int) -> float:
    """A layer's noise at a cell, to the last bit."""
    a, b, c = place(layer, x, y)
    return noise3(perm, a, b, c)


@kernel
def _contributions_to(
    layer: int, x: int, y: int, vertices: NDArray[np.int64], contributions: NDArray[np.float64]
) -> int:
    """List the lattice vertices that reach a cell, and their weighted distances; see `noise3` for the geometry."""
    a, b, c = place(layer, x, y)
    stretch = (a + b + c) * STRETCH
    i = math.floor(a + stretch)
    j = math.floor(b + stretch)
    k = math.floor(c + stretch)
    squish = (i + j + k) * SQUISH
    region = region_of(a + stretch - i, b + stretch - j, c + stretch - k)
    found = 0
    for v in range(REACH[region]):
        offset = EARLY[region, v] + LATE[region, v]
        shift = squish + offset.sum() * SQUISH
        d = np.array([a - i - offset[0] - shift, b - j - offset[1] - shift, c - k - offset[2] - shift])
        weight = 2 - (d * d).sum()
        if weight > 0:
            vertices[found] = np.array([i, j, k]) + offset
            contributions[found] = d * weight**4 / NORM
            found += 1
    return found


@kernel
def _all_contributions(layer: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All contributions to a layer: rows of (block, lane, vertex i j k), and what each gradient component adds."""
    rows = np.zeros((SIDE * SIDE * 8, 5), np.int64)
    contributions = np.zeros((SIDE * SIDE * 8, 3))
    vertices = np.zeros((8, 3), np.int64)
    contribution = np.zeros((8, 3))
    n = 0
    for x in range(SIDE):
        for y in range(SIDE):
            for v in range(_contributions_to(layer, x, y, vertices, contribution)):
                rows[n, 0] = x * BLOCKS + y // LANES
                rows[n, 1] = y % LANES
                rows[n, 2:] = vertices[v]
                contributions[n] = contribution[v]
                n += 1
    return rows[:n], contributions[:n]


@functools.lru_cache(maxsize=1)
def fields() -> NDArray[np.void]:
    """Build the tables, an array of one FIELDS record; worlds smaller than 64 use a corner of them."""
    table = np.zeros(1, FIELDS)
    t = table[0]
    entries = 0
    vertices = 0
    for layer in range(LAYERS):
        rows, contributions = _all_contributions(layer)
        corners, corner = np.unique(rows[:, 2:], axis=0, return_inverse=True)
        keys, entry = np.unique(rows[:, 0] * len(corners) + corner.ravel(), return_inverse=True)
        _check_bound(rows[:, 0] * LANES + rows[:, 1], contributions)
        t["weight"][entries + entry, :, rows[:, 1]] = np.rint(contributions / _UNIT)
        t["first"][layer] = np.searchsorted(keys // len(corners), np.arange(SIDE * BLOCKS + 1)) + entries
        t["vertex"][entries : entries + len(keys)] = keys % len(corners) + vertices
        t["lattice"][vertices : vertices + len(corners)] = corners % 256
        entries = entries + len(keys)
        vertices = vertices + len(corners)
    t["vertices"] = vertices
    return table


def _check_bound(cells: NDArray[np.int64], contributions: NDArray[np.float64]) -> None:
    """No weight may overflow, and a cell's errors stay below MAX_ERROR, whichever component of a gradient is 11."""
    error = np.abs(contributions - _UNIT * np.rint(contributions / _UNIT))
    largest = np.bincount(cells, 4 * error.sum(1) + 7 * error.max(1)).max()
    rounding = 2.0**-22  # of the float that comes out
    highest = np.abs(contributions).max()
    if largest + rounding > MAX_ERROR or highest > 32767 * _UNIT:
        raise ArithmeticError(f"noise sums may be off by {largest}, weights up to {highest}")


@kernel
def set_gradients(t: Any, w: Any) -> None:
    """Give every lattice vertex its gradient under the permutation in `w`."""
    for v in range(t.vertices):
        g = hash_of(w.perm, t.lattice[v, 0], t.lattice[v, 1], t.lattice[v, 2])
        move16(w.gradient, np.int64(4 * v), _GRADIENTS_BY_HASH, np.int64(4 * g))


@kernel
def sum_block(t: Any, w: Any, layer: int, x: int, block: int) -> None:
    """Sum a layer over one block of row x of the map."""
    at = x * BLOCKS + block
    first = np.int64(t.first[layer, at])
    last = np.int64(t.first[layer, at + 1])
    row = np.int64(layer * BLOCKS + block)
    unit = np.float32(_UNIT)
    sum_lanes(t.weight, t.vertex, w.gradient, first, last, w.sums, unit, row)


@kernel
def sum_row(t: Any, w: Any, layer: int, x: int) -> None:
    """Sum a layer over row x of the map."""
    for block in range(BLOCKS):
        sum_block(t, w, layer, x, block)


@kernel
def row_of(w: Any, layer: int) -> NDArray[np.float32]:
    """The sums of a layer, one a cell of the row."""
    return w.sums[layer * BLOCKS : (layer + 1) * BLOCKS].reshape(SIDE)
