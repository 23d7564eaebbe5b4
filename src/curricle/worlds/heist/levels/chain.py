"""Doors, keys and the gem of a maze: key 0, door 0, key 1, ... gem, each behind the door before it.

The draws and their order are Procgen's. A setting may leave out draws' results (a fixed number of keys), but what the
original setting makes is Procgen's level to the last word. `lay_out` works on a maze of `maze.carve`.
"""

from typing import Any

import numpy as np

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game.rng import draw
from curricle.worlds.heist.game.state import ANYWHERE
from curricle.worlds.heist.levels.maze import BORDER, DOOR, NUMBERED, SPACE, START, WALL


@kernel
def _beside(w: Any, cell: int, way: int) -> int:
    """A cell's neighbour, in Procgen's order: left, below, above, right."""
    across = w.side + 2
    if way == 0:
        return cell - 1
    if way == 1:
        return cell - across
    if way == 2:
        return cell + across
    return cell + 1


@kernel
def _neighbours(w: Any, cell: int, what: int) -> int:
    """How many neighbours of a cell are of a sort."""
    count = 0
    for way in range(4):
        count += w.grid[_beside(w, cell, way)] == what
    return count


@kernel
def _find(w: Any, what: int) -> int:
    """List all cells of a sort, in the order of their numbers; returns how many."""
    count = 0
    for cell in range((w.side + 2) * (w.side + 2)):
        if w.grid[cell] == what:
            w.list[count] = cell
            count += 1
    return count


@kernel
def _place_doors(w: Any, wanted: int) -> None:
    """Put doors on forks; where there are too few, all of them get one and nothing is drawn."""
    count = 0
    for cell in range((w.side + 2) * (w.side + 2)):
        if w.grid[cell] == SPACE and _neighbours(w, cell, SPACE) > 2:
            w.list[count] = cell
            count += 1
    if wanted > count:
        w.count = count
        for k in range(count):
            w.grid[w.list[k]] = DOOR
        return
    w.count = wanted
    for _ in range(wanted):
        n = draw(w.stream, count)
        w.grid[w.list[n]] = DOOR
        count -= 1
        for k in range(n, count):
            w.list[k] = w.list[k + 1]


@kernel
def _place_start(w: Any) -> None:
    """Choose where the player starts: not beside a door."""
    count = _find(w, SPACE)
    cell = w.list[draw(w.stream, count)]
    while _neighbours(w, cell, DOOR) > 0:
        cell = w.list[draw(w.stream, count)]
    w.start = cell
    w.grid[cell] = START


@kernel
def _sort(cells: Any, count: int) -> None:
    """Put a short list in order."""
    for i in range(1, count):
        cell = cells[i]
        k = i
        while k > 0 and cells[k - 1] > cell:
            cells[k] = cells[k - 1]
            k -= 1
        cells[k] = cell


@kernel
def _nearest_door(w: Any) -> int:
    """The first door that a search from all known cells meets; it stops there, and knows the cells it has passed."""
    count = 0
    for cell in range((w.side + 2) * (w.side + 2)):
        if w.known[cell]:
            w.layer[count] = cell
            count += 1
    while count > 0:
        found = 0
        for k in range(count):
            door = -1
            for way in range(4):
                beside = _beside(w, w.layer[k], way)
                if door < 0 and w.grid[beside] == DOOR:
                    door = beside
                if w.grid[beside] == SPACE and not w.known[beside]:
                    w.known[beside] = 2
                    w.next[found] = beside
                    found += 1
            if door >= 0:
                return door
        _sort(w.next, found)
        count = found
        for k in range(count):
            w.layer[k] = w.next[k]
    return -1


@kernel
def _flood(w: Any) -> int:
    """Get to know all cells that are reached without passing a door; lists the fresh ones and returns how many."""
    count = 0
    for cell in range((w.side + 2) * (w.side + 2)):
        if w.known[cell]:
            w.layer[count] = cell
            count += 1
    k = 0
    while k < count:
        for way in range(4):
            beside = _beside(w, w.layer[k], way)
            if w.grid[beside] == SPACE and not w.known[beside]:
                w.known[beside] = 2
                w.layer[count] = beside
                count += 1
        k += 1
    fresh = 0
    for cell in range((w.side + 2) * (w.side + 2)):
        if w.known[cell] == 2:
            w.known[cell] = 1
            w.list[fresh] = cell
            fresh += 1
    return fresh


@kernel
def _measure(w: Any) -> None:
    """Measure how far each cell is from the start, through doors."""
    w.distance[:] = -1
    w.distance[w.start] = 0
    w.layer[0] = w.start
    count = 1
    k = 0
    while k < count:
        cell = w.layer[k]
        for way in range(4):
            beside = _beside(w, cell, way)
            if w.grid[beside] != WALL and w.grid[beside] != BORDER and w.distance[beside] < 0:
                w.distance[beside] = w.distance[cell] + 1
                w.layer[count] = beside
                count += 1
        k += 1


@kernel
def _choose(w: Any, count: int, within: int) -> int:
    """Draw one of the listed cells: of those not too far from the start, or of the nearest ones if all are too far."""
    if within < ANYWHERE:
        farthest = np.int64(w.distance[w.list[0]])
        for k in range(1, count):
            farthest = min(farthest, np.int64(w.distance[w.list[k]]))
        farthest = max(farthest, np.int64(within))
        kept = 0
        for k in range(count):
            if w.distance[w.list[k]] <= farthest:
                w.list[kept] = w.list[k]
                kept += 1
        count = kept
    return w.list[draw(w.stream, count)]


@kernel
def _without(w: Any, count: int, cell: int) -> int:
    """Strike a cell from the list; returns how many are left."""
    kept = 0
    for k in range(count):
        if w.list[k] != cell:
            w.list[kept] = w.list[k]
            kept += 1
    return kept


@kernel
def lay_out(w: Any, k: Any, keys: int, behind: int) -> bool:
    """Put doors, the start, keys and the gem into a maze, the gem behind so many doors; returns whether it had room."""
    _place_doors(w, keys)
    _place_start(w)
    if k.key_within < ANYWHERE or k.gem_within < ANYWHERE:
        _measure(w)
    behind = min(behind, w.count)
    w.gem = -1
    w.known[:] = 0
    w.known[w.start] = 1
    for region in range(w.count + 1):
        door = -1
        if region < w.count:
            door = _nearest_door(w)
            w.grid[door] = NUMBERED
            w.doors[region] = door
        count = _flood(w)
        if region < w.count:
            key = _choose(w, count, k.key_within if region == k.held else ANYWHERE)
            w.grid[key] = NUMBERED
            w.keys[region] = key
            w.known[door] = 1
            if region == behind:
                count = _without(w, count, key)
        if region == behind and count > 0:
            w.gem = _choose(w, count, k.gem_within)
            w.grid[w.gem] = NUMBERED
    return w.gem >= 0
