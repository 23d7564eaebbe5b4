"""OpenSimplex noise in three dimensions, equal to the last bit to `opensimplex` 0.4.5's `noise3`.

A point lies in one of 27 regions of its lattice cell (`region_of`). Up to eight lattice vertices reach a region
(`EARLY + LATE` are their offsets), and each adds a gradient times a falling weight. In: a permutation made from a seed
(`permute`) and coordinates. Out: a float64. No fastmath: the order of every addition is part of the result.
`noise_tables.py` evaluates whole maps from the same region table.
"""

import math

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.engine.compile import kernel

STRETCH = -1.0 / 6
SQUISH = 1.0 / 3
NORM = 103
_LCG_FACTOR = np.int64(6364136223846793005)
_LCG_TERM = np.int64(1442695040888963407)

_CORNERS = np.array([(-11, 4, 4), (-4, 11, 4), (-4, 4, 11)])
_SIGNS = np.array([(1, 1, 1), (-1, 1, 1), (1, -1, 1), (-1, -1, 1), (1, 1, -1), (-1, 1, -1), (1, -1, -1), (-1, -1, -1)])
GRADIENTS = (_SIGNS[:, None, :] * _CORNERS[None, :, :]).reshape(24, 3).astype(np.float64)
"""The 24 gradient directions: every sign of (11, 4, 4) and its rotations."""

_AXES = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
_NEAR = [(0, 0, 0), *_AXES]
_FAR = [(1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
_MIDDLE = [*_AXES, (1, 1, 0), (1, 0, 1), (0, 1, 1)]
_ZERO = (0, 0, 0)


def _minus(axis: int) -> tuple[int, int, int]:
    """(1, 1, 1) with -1 on one axis."""
    x, y, z = (-1 if a == axis else 1 for a in range(3))
    return x, y, z


def _twice(axis: int) -> tuple[int, int, int]:
    """2 on one axis, 0 elsewhere."""
    x, y, z = (2 if a == axis else 0 for a in range(3))
    return x, y, z


def _regions() -> list[list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """List each region's vertices as (offset subtracted before the squish, offset subtracted after it)."""

    def plain(vertices: list[tuple[int, int, int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [(v, _ZERO) for v in vertices]

    regions = []
    for a in range(3):  # 0-2: origin and one axis point are closest
        steps = [tuple(p - q for p, q in zip(_AXES[a], _AXES[b], strict=True)) for b in range(3) if b != a]
        regions.append([*plain(_NEAR), (steps[0], _ZERO), (steps[1], _ZERO)])
    for a in range(3):  # 3-5: two axis points are closest, axis a is the third
        pair = tuple(1 - n for n in _AXES[a])
        regions.append([*plain(_NEAR), (pair, _ZERO), (_minus(a), _ZERO)])
    # 6-8: (1,1,1) and the face point without axis a are closest. The reference reaches 2 on the y axis in two
    # subtractions around the squish, and the rounding follows.
    regions.append([*plain(_FAR), ((0, 1, 1), (0, 1, 0)), ((0, 1, 2), _ZERO)])
    regions.append([*plain(_FAR), ((2, 0, 1), _ZERO), ((1, 0, 2), _ZERO)])
    regions.append([*plain(_FAR), ((2, 1, 0), _ZERO), ((1, 1, 0), (0, 1, 0))])
    for a in range(3):  # 9-11: two face points are closest, axis a is shared
        regions.append([*plain(_FAR), (_AXES[a], _ZERO), (_twice(a), _ZERO)])
    for a in range(3):  # 12-14: octahedron, two face points that share axis a
        regions.append([*plain(_MIDDLE), ((1, 1, 1), _ZERO), (_twice(a), _ZERO)])
    for a in range(3):  # 15-17: octahedron, two axis points, a is the third axis
        regions.append([*plain(_MIDDLE), (_ZERO, _ZERO), (_minus(a), _ZERO)])
    for a in range(3):  # 18-26: octahedron, the face point without axis a and the axis point b
        for b in range(3):
            regions.append([*plain(_MIDDLE), (_minus(a), _ZERO), (_ZERO, _twice(b))])
    return regions


_REGIONS = _regions()
REACH = np.array([len(r) for r in _REGIONS])
EARLY = np.array([[v[0] for v in r] + [_ZERO] * (8 - len(r)) for r in _REGIONS])
LATE = np.array([[v[1] for v in r] + [_ZERO] * (8 - len(r)) for r in _REGIONS])


@kernel
def permute(seed: int, perm: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
    """Fill `perm` with the permutation of 0..255 that a seed stands for; `source` is scratch."""
    state = np.int64(seed)
    for i in range(256):
        source[i] = i
    for _ in range(3):
        state = state * _LCG_FACTOR + _LCG_TERM
    for i in range(255, -1, -1):
        state = state * _LCG_FACTOR + _LCG_TERM
        # Python's modulo: never negative. The sum is below 2**63 + 31 in Python, so wrap-around must not happen here.
        pick = (state % (i + 1) + 31 % (i + 1)) % (i + 1)
        perm[i] = source[pick]
        source[pick] = source[i]


@kernel
def hash_of(perm: NDArray[np.uint8], i: int, j: int, k: int) -> int:
    """A lattice vertex's number under a permutation; modulo 24, its row of GRADIENTS."""
    return perm[(perm[(perm[i & 0xFF] + j) & 0xFF] + k) & 0xFF]


@kernel
def _corner(x: float, y: float, z: float) -> int:
    """Region inside the tetrahedron at the origin."""
    a = 0
    b = 1
    first = x
    second = y
    if first >= second and z > second:
        b = 2
        second = z
    elif first < second and z > first:
        a = 2
        first = z
    rest = 1 - (x + y + z)
    if rest > first or rest > second:
        return b if second > first else a
    return 3 + (3 - a - b)


@kernel
def _far_corner(x: float, y: float, z: float) -> int:
    """Region inside the tetrahedron at (1, 1, 1)."""
    a = 0
    b = 1
    first = x
    second = y
    if first <= second and z < second:
        b = 2
        second = z
    elif first > second and z < first:
        a = 2
        first = z
    rest = 3 - (x + y + z)
    if rest < first or rest < second:
        return 6 + (b if second < first else a)
    return 9 + (3 - a - b)


@kernel
def _octahedron(x: float, y: float, z: float) -> int:
    """Region inside the octahedron between the two tetrahedra."""
    a = 2
    a_far = x + y > 1
    first = abs(x + y - 1) if x + y > 1 else 1 - (x + y)
    b = 1
    b_far = x + z > 1
    second = abs(x + z - 1) if x + z > 1 else 1 - (x + z)
    third = y + z - 1 if y + z > 1 else 1 - (y + z)
    if first <= second and first < third:
        a = 0
        a_far = y + z > 1
    elif first > second and second < third:
        b = 0
        b_far = y + z > 1
    if a_far and b_far:
        return 12 + (3 - a - b)
    if not a_far and not b_far:
        return 15 + (3 - a - b)
    if a_far:
        return 18 + 3 * a + b
    return 18 + 3 * b + a


@kernel
def region_of(x: float, y: float, z: float) -> int:
    """Which of the 27 regions a point inside the unit cell lies in."""
    total = x + y + z
    if total <= 1:
        return _corner(x, y, z)
    if total >= 2:
        return _far_corner(x, y, z)
    return _octahedron(x, y, z)


@kernel
def noise3(perm: NDArray[np.uint8], x: float, y: float, z: float) -> float:
    """Noise at a point, in [-1, 1]."""
    stretch = (x + y + z) * STRETCH
    xs = x + stretch
    ys = y + stretch
    zs = z + stretch
    i = math.floor(xs)
    j = math.floor(ys)
    k = math.floor(zs)
    squish = (i + j + k) * SQUISH
    x0 = x - (i + squish)
    y0 = y - (j + squish)
    z0 = z - (k + squish)
    region = region_of(xs - i, ys - j, zs - k)
    value = 0.0
    for v in range(REACH[region]):
        early = EARLY[region, v]
        late = LATE[region, v]
        shift = (early[0] + early[1] + early[2] + late[0] + late[1] + late[2]) * SQUISH
        dx = x0 - early[0] - shift - late[0]
        dy = y0 - early[1] - shift - late[1]
        dz = z0 - early[2] - shift - late[2]
        weight = 2 - dx * dx - dy * dy - dz * dz
        if weight > 0:
            weight *= weight
            g = GRADIENTS[hash_of(perm, i + early[0] + late[0], j + early[1] + late[1], k + early[2] + late[2]) % 24]
            value += weight * weight * (g[0] * dx + g[1] * dy + g[2] * dz)
    return value / NORM
