"""Terrain: the material of every cell, from noise and random draws, in the order of the reference's draws.

A row of the map is decided in two passes. The first needs no random numbers: masks of 64 bits, one a cell, say which
cells are hill, wet or cave and which may hold coal. Noise is summed only in the blocks where a mask needs it. The
second pass paints the masks and visits one by one the cells that a random draw decides.

Noise is only ever compared with a bar. So it is estimated first, and computed exactly where the estimate comes too
close to the bar.
"""

import math
from typing import Any, Final

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.engine.simd import LANES, compare_lanes, lowest, paint
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.rng import exceeds
from curricle.worlds.crafter.game.state import SIDE
from curricle.worlds.crafter.worldgen import noise_tables as f

_MEADOW, _HILL, _SLOPE, _PEAK, _MOIST, _WET, _DEEP, _DOUBT = range(8)
"""Masks of heights: start above 0.5; hill above 0.15, 0.18, 0.3; water above 0.25, 0.3, 0.35; too close to tell."""
_HILLS: Final = np.array([0.15, 0.18, 0.3])
_WATERS: Final = np.array([0.25, 0.3, 0.35])
_NEAR: Final = 14 * 14
"""From this squared distance on, the start's share of a height is left out, and only its bound is used."""
_REST: Final = 1000
_START_REST: Final = (5 * np.exp(6 - np.sqrt(np.arange(_REST + 1.0)))).astype(np.float32)
"""That bound, by squared distance: noise is at most 1, and a start counts less than five times in a height."""
_ONE: Final = np.uint64(1)


@kernel
def _start_at(noise: float, x: int, y: int, s: Any) -> float:
    """How much a cell belongs to the meadow the player starts in, 0 to 1."""
    start = 4 - math.sqrt((x - s.area // 2) ** 2 + (y - s.area // 2) ** 2)
    start += 2 * noise
    return 1 / (1 + math.exp(-start))


@kernel
def _heights(water: float, hill: float, start: float, k: Any) -> tuple[float, float]:
    """Final height of water and mountain from their noise; gains of 1 and lifts of 0 change no bit."""
    water = water * k.water_gain + 0.1
    water -= 2 * start
    hill = hill * k.mountain_gain + k.mountain_lift
    hill -= 4 * start + 0.3 * water
    return water + k.water_lift, hill


@kernel
def _exact_heights(perm: Any, x: int, y: int, s: Any) -> tuple[float, float, float]:
    """(start, water, hill) of a cell to the last bit."""
    start = _start_at(f.exact(perm, f.START, x, y), x, y, s)
    water = f.exact(perm, f.WATER_WIDE, x, y) + 0.15 * f.exact(perm, f.WATER_FINE, x, y)
    hill = (f.exact(perm, f.HILL_WIDE, x, y) + 0.3 * f.exact(perm, f.HILL_FINE, x, y)) / 1.3
    water, hill = _heights(water, hill, start, s.knobs)
    return start, water, hill


@kernel
def _starts(s: Any, t: Any, w: Any, x: int) -> None:
    """The row's share in the start, and how far off the heights of a block may be."""
    middle = s.area // 2
    slack = f.MAX_ERROR * (1 + 1.5 * (s.knobs.mountain_gain + s.knobs.water_gain))
    noise = f.row_of(w, f.START)
    for block in range(f.BLOCKS):
        first = block * LANES
        gap = max(0, first - middle, middle - (first + LANES - 1))
        far = (x - middle) ** 2 + gap**2
        if far < _NEAR:
            f.sum_block(t, w, f.START, x, block)
            for y in range(first, first + LANES):
                w.start[y] = _start_at(noise[y], x, y, s)
            w.slack[block] = (
                slack + 4 * f.MAX_ERROR
            )  # a start is off by half as much as its noise, and counts five times
        else:
            w.start[first : first + LANES] = 0
            w.slack[block] = slack + _START_REST[min(far, _REST)]


@kernel
def _estimate(s: Any, t: Any, w: Any, x: int) -> None:
    """Estimate the heights of a row; `_heights` in vector loops that touch few arrays each."""
    _starts(s, t, w, x)
    for layer in range(f.WATER_WIDE, f.HILL_FINE + 1):
        f.sum_row(t, w, layer, x)
    k = s.knobs
    water = w.water
    hill = w.hill
    start = w.start
    gain = np.float32(k.water_gain)
    lift = np.float32(k.water_lift)
    wide = f.row_of(w, f.WATER_WIDE)
    fine = f.row_of(w, f.WATER_FINE)
    for y in range(SIDE):
        water[y] = (wide[y] + np.float32(0.15) * fine[y]) * gain + np.float32(0.1) - np.float32(2) * start[y]
    high = np.float32(k.mountain_gain / 1.3)
    raised = np.float32(k.mountain_lift)
    wide = f.row_of(w, f.HILL_WIDE)
    fine = f.row_of(w, f.HILL_FINE)
    for y in range(SIDE):
        hill[y] = (wide[y] + np.float32(0.3) * fine[y]) * high + raised - np.float32(4) * start[y]
    for y in range(SIDE):
        hill[y] -= np.float32(0.3) * water[y]
        water[y] += lift


@kernel
def _mark(w: Any, mask: int, values: Any, bar: float) -> None:
    """Set a mask where a row of values is above a bar, and mark what is too close to it."""
    above = np.uint64(0)
    near = np.uint64(0)
    for block in range(f.BLOCKS):
        bits = compare_lanes(values, block * LANES, np.float32(bar), w.slack[block])
        above |= np.uint64(bits & 255) << np.uint64(block * LANES)
        near |= np.uint64(bits >> 8) << np.uint64(block * LANES)
    w.masks[mask] = above
    w.masks[_DOUBT] |= near


@kernel
def _set(w: Any, mask: int, y: int, yes: bool) -> None:
    """Set one cell of a mask."""
    bit = _ONE << np.uint64(y)
    w.masks[mask] = (w.masks[mask] & ~bit) | (bit if yes else np.uint64(0))


@kernel
def _mark_heights(s: Any, t: Any, w: Any, x: int) -> None:
    """Fill the masks of a row's heights."""
    _estimate(s, t, w, x)
    w.masks[_DOUBT] = 0
    _mark(w, _MEADOW, w.start, 0.5)
    for i in range(3):
        _mark(w, _HILL + i, w.hill, _HILLS[i])
        _mark(w, _MOIST + i, w.water, _WATERS[i])
    doubt = w.masks[_DOUBT]
    for y in range(s.area):
        if doubt >> np.uint64(y) & _ONE:
            start, water, hill = _exact_heights(w.perm, x, y, s)
            _set(w, _MEADOW, y, start > 0.5)
            for i in range(3):
                _set(w, _HILL + i, y, hill > _HILLS[i])
                _set(w, _MOIST + i, y, water > _WATERS[i])


@kernel
def _above(t: Any, w: Any, x: int, layer: int, bar: float, cells: np.uint64) -> np.uint64:
    """Those of some cells of a row at which a layer is above a bar; never wrong."""
    above = np.uint64(0)
    near = np.uint64(0)
    for block in range(f.BLOCKS):
        if cells >> np.uint64(block * LANES) & np.uint64(255):
            f.sum_block(t, w, layer, x, block)
            bits = compare_lanes(w.sums, (layer * f.BLOCKS + block) * LANES, np.float32(bar), np.float32(f.MAX_ERROR))
            above |= np.uint64(bits & 255) << np.uint64(block * LANES)
            near |= np.uint64(bits >> 8) << np.uint64(block * LANES)
    near &= cells
    if near:
        for y in range(SIDE):
            bit = _ONE << np.uint64(y)
            if near & bit:
                above = (above & ~bit) | (bit if f.exact(w.perm, layer, x, y) > bar else np.uint64(0))
    return above & cells


@kernel
def _rock(s: Any, w: Any, y: np.uint64, coal: np.uint64, iron: np.uint64, gem: np.uint64, plain: int) -> int:
    """Draw what a rock is, given what it may be."""
    k = s.knobs
    if coal >> y & _ONE and exceeds(s, w.tempered, k.coal_bar):
        return r.COAL
    if iron >> y & _ONE and exceeds(s, w.tempered, k.iron_bar):
        return r.IRON
    if gem >> y & _ONE and exceeds(s, w.tempered, k.diamond_bar):
        return r.DIAMOND
    return plain


@kernel
def _lay_row(s: Any, t: Any, w: Any, x: int) -> None:
    """Decide a row with masks, in the reference's order, and draw what they leave open."""
    _mark_heights(s, t, w, x)
    k = s.knobs
    peak = w.masks[_PEAK]
    world = ~np.uint64(0) >> np.uint64(SIDE - s.area)
    rock = w.masks[_HILL] & ~w.masks[_MEADOW] & world
    cave = _above(t, w, x, f.CAVE, 0.15, rock & peak)
    rock &= ~cave
    tunnel = _above(t, w, x, f.TUNNEL_X, 0.4, rock)
    tunnel |= _above(t, w, x, f.TUNNEL_Y, 0.4, rock & ~tunnel)
    rock &= ~tunnel
    coal = _above(t, w, x, f.COAL_VEIN, k.coal_mask, rock)
    iron = _above(t, w, x, f.IRON_VEIN, k.iron_mask, rock)
    gem = rock & w.masks[_SLOPE]
    lava = _above(t, w, x, f.LAVA_POOL, 0.35, rock & peak)
    low = ~(w.masks[_MEADOW] | w.masks[_HILL]) & world
    sand = _above(t, w, x, f.SHORE, -0.2, low & w.masks[_MOIST] & ~w.masks[_DEEP])
    water = low & w.masks[_WET] & ~sand
    tree = _above(t, w, x, f.WOODS, k.tree_mask, low & ~water & ~sand)
    row = s.material[x]
    paint(row, world, r.GRASS)
    paint(row, sand, r.SAND)
    paint(row, water, r.WATER)
    paint(row, cave | tunnel, r.PATH)
    paint(row, rock, r.STONE)
    paint(row, lava, r.LAVA)
    bare = tree
    chances = tree | coal | iron | gem
    while chances:
        at = np.uint64(lowest(chances))
        chances &= chances - _ONE
        if rock >> at & _ONE:
            row[at] = _rock(s, w, at, coal, iron, gem, row[at])
        elif exceeds(s, w.tempered, k.tree_bar):
            row[at] = r.TREE
            bare ^= _ONE << at
    w.grass[x] = (world & ~(rock | tree | water | sand | cave | tunnel)) | bare
    w.path[x] = cave | tunnel
    w.sand[x] = sand
    w.tunnel[x] = tunnel


@kernel
def lay_terrain(s: Any, t: Any, w: Any) -> None:
    """Give every cell its material; `w` holds the seed's permutation, and afterwards where creatures may appear."""
    f.set_gradients(t, w)
    for x in range(s.area):
        _lay_row(s, t, w, x)
