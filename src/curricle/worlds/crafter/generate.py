"""World generation: terrain, then creatures; the same draws in the same order as the reference.

Comes in: a record with its knobs, its random stream already seeded and the player in the middle of an empty map. Goes
out: map, objects and chunks filled. Terrain is made in `terrain.py`, what settings
add to a finished world in `extras.py`.
"""

from typing import Any

from curricle.worlds.crafter import rules as r
from curricle.worlds.crafter.extras import add_extras
from curricle.worlds.crafter.kernel import kernel
from curricle.worlds.crafter.noise import permute
from curricle.worlds.crafter.objects import add, chunk_of
from curricle.worlds.crafter.rng import below, exceeds
from curricle.worlds.crafter.terrain import TUNNEL, lay_terrain


@kernel
def _creature(material: int, far: int, s: Any) -> int:
    """What is born on a cell; `far` is the squared distance from the start."""
    if not r.WALKABLE[material & 127]:
        return r.NOTHING
    if far > 9 and material == r.GRASS and exceeds(s, s.knobs.cow_bar):
        return r.COW
    if far > 100 and exceeds(s, s.knobs.zombie_bar):
        return r.ZOMBIE
    if material == TUNNEL and exceeds(s, s.knobs.skeleton_bar):
        return r.SKELETON
    return r.NOTHING


@kernel
def _populate(s: Any) -> None:
    """Put creatures on the map, and count each chunk's grass and path."""
    middle = s.area // 2
    s.grass[:] = 0
    s.paths[:] = 0
    for x in range(s.area):
        for y0 in range(0, s.area, r.CHUNK):
            chunk, grass, paths = chunk_of(x, y0), 0, 0
            for y in range(y0, min(y0 + r.CHUNK, s.area)):
                material = s.material[x, y]
                kind = _creature(material, (x - middle) ** 2 + (y - middle) ** 2, s)
                material &= 127
                s.material[x, y] = material
                grass += material == r.GRASS
                paths += material == r.PATH
                if kind != r.NOTHING:
                    add(s, kind, x, y)
            s.grass[chunk] += grass
            s.paths[chunk] += paths


@kernel
def generate(s: Any, t: Any, w: Any) -> None:
    """Fill the map; the player already stands in its middle."""
    permute(below(s, 2**31 - 1), w.perm, w.source)
    lay_terrain(s, t, w)
    _populate(s)
    add_extras(s)
