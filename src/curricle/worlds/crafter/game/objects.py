"""Objects on the map: a list without holes, who stands where, and how many of each kind live in each chunk.

The reference keeps a list with holes that is never compacted; only its order matters, so dead objects are swept out
at the end of a step and the order is kept. An object that dies in a step keeps its slot until then, because it finishes
its update. Slot 0 is the player. Chunks remember the order in which they first held an object: they are balanced in it.
"""

from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import CHUNKS_A_SIDE, OVERFLOW, SLOTS

_FULL_HEALTH = np.array([0, 0, 3, 5, 3, 0, 1], np.int8)
"""By kind: cow 3, zombie 5, skeleton 3, plant 1; the player's is in the inventory."""


@kernel
def chunk_of(x: int, y: int) -> int:
    """Number of the chunk a cell lies in."""
    return (x // r.CHUNK) * CHUNKS_A_SIDE + y // r.CHUNK


@kernel
def _enter(s: Any, kind: int, chunk: int) -> None:
    """Count an object into a chunk."""
    s.creatures[chunk, kind] += 1
    if not s.chunk_touched[chunk]:
        s.chunk_touched[chunk] = 1
        s.chunk_order[s.touched] = chunk
        s.touched += 1


@kernel
def add(s: Any, kind: int, x: int, y: int) -> int:
    """Put a new object on an empty cell; returns its slot."""
    slot = s.count
    if slot == SLOTS:  # more than one object a cell within one step: cannot happen in a world that moves
        s.fault = OVERFLOW
        return 0
    s.kind[slot] = kind
    s.x[slot] = x
    s.y[slot] = y
    s.health[slot] = _FULL_HEALTH[kind]
    s.timer[slot] = 0
    s.grown[slot] = 0
    s.who[x, y] = slot + 1
    s.count += 1
    _enter(s, kind, chunk_of(x, y))
    return slot


@kernel
def remove(s: Any, slot: int) -> None:
    """Take an object off the map; its slot is swept at the end of the step."""
    x = s.x[slot]
    y = s.y[slot]
    s.who[x, y] = 0
    s.creatures[chunk_of(x, y), s.kind[slot]] -= 1
    s.kind[slot] = r.NOTHING
    s.removed += 1


@kernel
def sweep(s: Any) -> None:
    """Close the holes that removed objects left."""
    kept = 0
    for slot in range(s.count):
        if s.kind[slot] == r.NOTHING:
            continue
        if kept != slot:
            s.kind[kept] = s.kind[slot]
            s.x[kept] = s.x[slot]
            s.y[kept] = s.y[slot]
            s.health[kept] = s.health[slot]
            s.timer[kept] = s.timer[slot]
            s.grown[kept] = s.grown[slot]
            s.who[s.x[kept], s.y[kept]] = kept + 1
        kept += 1
    s.count = kept
    s.removed = 0


@kernel
def inside(s: Any, x: int, y: int) -> bool:
    """Whether a cell is on the map."""
    return 0 <= x < s.area and 0 <= y < s.area


@kernel
def is_free(s: Any, x: int, y: int, walkable: Any) -> bool:
    """Whether an object could step onto a cell."""
    return inside(s, x, y) and s.who[x, y] == 0 and walkable[s.material[x, y]]


@kernel
def move(s: Any, slot: int, dx: int, dy: int, walkable: Any) -> bool:
    """Step if the cell ahead is free. One that was removed in this step only learns whether it could have."""
    x = s.x[slot]
    y = s.y[slot]
    to_x = x + dx
    to_y = y + dy
    if not is_free(s, to_x, to_y, walkable):
        return False
    kind = s.kind[slot]
    if kind == r.NOTHING:
        return True
    s.who[to_x, to_y] = s.who[x, y]
    s.who[x, y] = 0
    s.x[slot] = to_x
    s.y[slot] = to_y
    old = chunk_of(x, y)
    new = chunk_of(to_x, to_y)
    if old != new:
        s.creatures[old, kind] -= 1
        _enter(s, kind, new)
    return True


@kernel
def set_material(s: Any, x: int, y: int, material: int) -> None:
    """Change a cell and its chunk's counts."""
    chunk = chunk_of(x, y)
    old = s.material[x, y]
    s.grass[chunk] += np.int16(material == r.GRASS) - np.int16(old == r.GRASS)
    s.paths[chunk] += np.int16(material == r.PATH) - np.int16(old == r.PATH)
    s.material[x, y] = material


@kernel
def direction(dx: int, dy: int) -> int:
    """Number of the direction of a step, as in `rules.DX` and `rules.DY`; x decides, if it is not 0."""
    if dx < 0:
        return 0
    if dx > 0:
        return 1
    if dy < 0:
        return 2
    return 3


@kernel
def distance(s: Any, slot: int) -> int:
    """Steps between an object and the player, walls aside."""
    return int(abs(np.int64(s.x[slot]) - np.int64(s.x[0])) + abs(np.int64(s.y[slot]) - np.int64(s.y[0])))
