"""World generation: terrain, then creatures; the same draws in the same order as the reference.

In: a record with its knobs, its random stream already seeded and the player in the middle of an empty map. Out: map,
objects and chunks. `terrain.py` makes the terrain, `extras.py` adds what settings ask for.
"""

import math
from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import count_bits, lowest
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import add, chunk_of
from curricle.worlds.crafter.game.rng import LAST_FOUR, below, calm, exceeds, temper_all
from curricle.worlds.crafter.game.state import SIDE
from curricle.worlds.crafter.worldgen.extras import add_extras
from curricle.worlds.crafter.worldgen.noise import permute
from curricle.worlds.crafter.worldgen.terrain import lay_terrain

_ONE = np.uint64(1)
_ALL = ~np.uint64(0)
_IN_CHUNK = np.uint64(2**r.CHUNK - 1)


@kernel
def _outside(middle: int, dx: int, radius: int) -> np.uint64:
    """The cells of a row, dx away from the middle, that are further from it than a radius."""
    if abs(dx) > radius:
        return _ALL
    half = int(math.sqrt(radius * radius - dx * dx))
    low = max(0, middle - half)
    high = min(SIDE - 1, middle + half)
    return ~((_ALL >> np.uint64(SIDE - 1 - (high - low))) << np.uint64(low))


@kernel
def _add_creatures(s: Any, w: Any, x: int) -> None:
    """Draw the creatures of a row; a cell where none may appear draws no number."""
    k = s.knobs
    middle = s.area // 2
    beyond = _outside(middle, x - middle, 3)
    far = _outside(middle, x - middle, 10)
    pasture = w.grass[x] & beyond
    tunnel = w.tunnel[x]
    haunted = (w.grass[x] | w.sand[x] | w.path[x]) & far
    cells = pasture | haunted | tunnel
    usual = pasture & haunted
    at = s.mt_at
    calm_cow = calm(s, k.cow_bar)
    calm_zombie = calm(s, k.zombie_bar)
    while cells:
        bit = cells & (~cells + _ONE)
        y = lowest(cells)
        cells ^= bit
        if usual & bit and at < LAST_FOUR and w.tempered[at] < calm_cow and w.tempered[at + 2] < calm_zombie:
            at += 4  # most cells: neither cow nor zombie
            continue
        s.mt_at = at
        if pasture & bit and exceeds(s, w.tempered, k.cow_bar):
            add(s, r.COW, x, y)
        elif haunted & bit and exceeds(s, w.tempered, k.zombie_bar):
            add(s, r.ZOMBIE, x, y)
        elif tunnel & bit and exceeds(s, w.tempered, k.skeleton_bar):
            add(s, r.SKELETON, x, y)
        at = s.mt_at
    s.mt_at = at


@kernel
def _populate(s: Any, w: Any) -> None:
    """Put creatures on the map, and count each chunk's grass and path."""
    s.grass[:] = 0
    s.paths[:] = 0
    for x in range(s.area):
        _add_creatures(s, w, x)
        for y in range(0, s.area, r.CHUNK):
            chunk = chunk_of(x, y)
            s.grass[chunk] += count_bits(w.grass[x] >> np.uint64(y) & _IN_CHUNK)
            s.paths[chunk] += count_bits(w.path[x] >> np.uint64(y) & _IN_CHUNK)


@kernel
def generate(s: Any, t: Any, w: Any) -> None:
    """Fill the map; the player already stands in its middle."""
    permute(below(s, 2**31 - 1), w.perm, w.source)
    temper_all(s, w.tempered)
    lay_terrain(s, t, w)
    _populate(s, w)
    add_extras(s)
