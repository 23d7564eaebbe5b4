"""Balance of creatures: every tenth step some appear in chunks with too few and vanish from chunks with too many.

Chunks are visited in the order in which they first held an object. The creature that vanishes is drawn from those of
the chunk in the order of their age. The reference draws it from a Python set, whose order depends on memory addresses:
the one place where the reference is not deterministic.
"""

from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import add, chunk_of, distance, remove
from curricle.worlds.crafter.game.rng import below, uniform
from curricle.worlds.crafter.game.state import CHUNKS_A_SIDE


@kernel
def _scaled(target: float, rate: float) -> float:
    """A number of creatures times a rate; few are never rounded down to none. A rate of 1 changes no bit."""
    if 0 < rate < 1:
        return max(target * rate, min(target, 1.0))
    return target * rate


@kernel
def balance(s: Any) -> None:
    """Balance zombies, skeletons and cows of every chunk."""
    k = s.knobs
    for i in range(s.touched):
        chunk = s.chunk_order[i]
        grass = s.grass[chunk]
        paths = s.paths[chunk]
        most = _scaled(3.5 - 3 * s.daylight, k.zombie_rate)
        _balance_kind(s, chunk, r.ZOMBIE, 0.0 if grass < 50 else most, most, 6, 0, 0.3 * k.zombie_rate, 0.4)
        least = _scaled(1.0, k.skeleton_rate)
        most = _scaled(2.0, k.skeleton_rate)
        _balance_kind(s, chunk, r.SKELETON, 0.0 if paths < 6 else least, most, 7, 7, 0.1 * k.skeleton_rate, 0.1)
        least = _scaled(1.0, k.cow_rate)
        most = _scaled(1.5 + s.daylight, k.cow_rate)
        _balance_kind(s, chunk, r.COW, 0.0 if grass < 30 else least, most, 5, 5, 0.01 * k.cow_rate, 0.1)


@kernel
def _balance_kind(
    s: Any,
    chunk: int,
    kind: int,
    least: float,
    most: float,
    min_birth_distance: int,
    min_death_distance: int,
    birth: float,
    death: float,
) -> None:
    """Let one creature appear or vanish, at least some steps away from the player."""
    living = s.creatures[chunk, kind]
    if living < int(least) and uniform(s) < birth:
        material, cells = (r.PATH, s.paths[chunk]) if kind == r.SKELETON else (r.GRASS, s.grass[chunk])
        x, y = _nth_cell(s, chunk, material, below(s, cells))
        away = abs(x - np.int64(s.x[0])) + abs(y - np.int64(s.y[0]))
        if s.who[x, y] == 0 and away >= min_birth_distance:
            add(s, kind, x, y)
    elif living > int(most) and uniform(s) < death:
        slot = _nth_creature(s, chunk, kind, below(s, living))
        if distance(s, slot) >= min_death_distance:
            remove(s, slot)


@kernel
def _nth_cell(s: Any, chunk: int, material: int, n: int) -> tuple[int, int]:
    """The n-th cell of a material in a chunk, column by column."""
    x0 = chunk // CHUNKS_A_SIDE * r.CHUNK
    y0 = chunk % CHUNKS_A_SIDE * r.CHUNK
    for x in range(x0, min(x0 + r.CHUNK, s.area)):
        for y in range(y0, min(y0 + r.CHUNK, s.area)):
            if s.material[x, y] == material:
                if n == 0:
                    return x, y
                n -= 1
    return x0, y0


@kernel
def _nth_creature(s: Any, chunk: int, kind: int, n: int) -> int:
    """The n-th oldest creature of a kind in a chunk."""
    for slot in range(1, s.count):
        if s.kind[slot] == kind and chunk_of(s.x[slot], s.y[slot]) == chunk:
            if n == 0:
                return slot
            n -= 1
    return 0
