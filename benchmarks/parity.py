"""Parity: play a world of ours and its reference side by side, and stop at the first difference.

    python benchmarks/parity.py crafter --steps 20000 --seed 0
    python benchmarks/parity.py heist --steps 20000 --seed 0 --reference-python PATH

In Crafter four kinds of players take turns: random, often asleep, cheating (it fills its inventory), and crafting (it
follows a plan through all 22 achievements). Heist's reference is `procgen2` or `envpool` of the interpreter that is
named, or recorded levels where it has neither (`heist_measures.py`). Prints what was compared and reached. Exit
status 1 at a difference.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from curricle.worlds.crafter.game import rules as r

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the twin is a helper of the tests, too
from helpers.crafter_twin import Difference, Twin

STEP = {(-1, 0): r.LEFT, (1, 0): r.RIGHT, (0, -1): r.UP, (0, 1): r.DOWN}
HITS = {"collect_wood": r.TREE, "collect_stone": r.STONE, "collect_coal": r.COAL, "collect_iron": r.IRON}
HITS |= {"collect_diamond": r.DIAMOND, "collect_drink": r.WATER, "collect_sapling": r.GRASS}
HUNTS = {"eat_cow": r.COW, "defeat_zombie": r.ZOMBIE, "defeat_skeleton": r.SKELETON, "eat_plant": r.PLANT}
PLAN = (
    *("collect_sapling", "place_plant", "eat_plant", "collect_drink", "eat_cow", "collect_wood", "place_table"),
    *("make_wood_pickaxe", "make_wood_sword", "collect_wood", "collect_stone", "place_stone", "collect_stone"),
    *("place_table", "make_stone_pickaxe", "make_stone_sword", "collect_coal", "collect_iron", "place_furnace"),
    *("make_iron_pickaxe", "make_iron_sword", "defeat_skeleton", "collect_diamond", "defeat_zombie", "wake_up"),
)
STOCK = {"collect_wood": 9, "collect_stone": 9, "collect_coal": 2, "collect_iron": 2}
MAX_STEPS_A_GOAL = 250


def random_player(twin: Twin, rng: np.random.Generator) -> Iterator[int]:
    """Take random actions."""
    while True:
        yield int(rng.integers(len(r.ACTIONS)))


def sleepy_player(twin: Twin, rng: np.random.Generator) -> Iterator[int]:
    """Be tired, and asleep half of the time."""
    while True:
        if rng.random() < 0.02:
            twin.give("energy", int(rng.integers(1, 9)))
        yield r.SLEEP if rng.random() < 0.6 else int(rng.integers(len(r.ACTIONS)))


def cheating_player(twin: Twin, rng: np.random.Generator) -> Iterator[int]:
    """Now and then its inventory is set at random, or its plants ripen."""
    while True:
        if rng.random() < 0.05:
            for item in r.ITEMS:
                twin.give(item, int(rng.integers(1, 10)))
        if rng.random() < 0.01:
            twin.ripen()
        yield r.DO if rng.random() < 0.3 else int(rng.integers(len(r.ACTIONS)))


def crafting_player(twin: Twin, rng: np.random.Generator) -> Iterator[int]:
    """Follow PLAN, goal by goal, and keep alive; give up on a goal after a while."""
    for goal in PLAN:
        before = _count(twin, goal)
        for _ in range(MAX_STEPS_A_GOAL):
            for vital in ("food", "drink", "health"):
                if twin.s["inventory"][r.ITEMS.index(vital)] < 4:
                    twin.give(vital, 9)
            if _count(twin, goal) > before and twin.s["inventory"][_item(goal)] >= STOCK.get(goal, 0):
                break
            yield _toward_goal(twin, goal, rng)
    yield from random_player(twin, rng)


PLAYERS = (random_player, crafting_player, sleepy_player, cheating_player)


def _count(twin: Twin, goal: str) -> int:
    return int(twin.s["achievements"][r.ACHIEVEMENTS.index(goal)])


def _item(goal: str) -> int:
    name = goal.partition("_")[2]
    return r.ITEMS.index(name) if name in r.ITEMS else 0


def _toward_goal(twin: Twin, goal: str, rng: np.random.Generator) -> int:
    """The next action of a crafter."""
    if goal == "wake_up":
        if not twin.s["sleeping"]:
            twin.give("energy", 7)
        return r.SLEEP
    if goal.startswith(("make_", "place_")):
        action = r.ACTIONS.index(goal)
        for item in ("wood", "stone", "coal", "iron", "sapling"):  # what was not found
            if twin.s["inventory"][r.ITEMS.index(item)] < 2 and rng.random() < 0.2:
                twin.give(item, 4)
        return action if rng.random() < 0.6 else int(rng.integers(r.LEFT, r.DOWN + 1))
    if goal == "eat_plant":
        twin.ripen()
    target = _cells(twin.s, goal)
    return _walk_to(twin.s, target) if target.any() else int(rng.integers(r.LEFT, r.DOWN + 1))


def _cells(s: Any, goal: str) -> np.ndarray:
    """The cells where a goal can be reached."""
    area = s["area"]
    if goal in HITS:
        return (s["material"][:area, :area] == HITS[goal]) & (s["who"][:area, :area] == 0)
    cells = np.zeros((area, area), bool)
    for slot in range(1, s["count"]):
        if s["kind"][slot] == HUNTS[goal]:
            cells[s["x"][slot], s["y"][slot]] = True
    return cells


def _walk_to(s: Any, target: np.ndarray) -> int:
    """One step on the shortest way to a target, through rock if need be; DO when facing it."""
    area = s["area"]
    home = (int(s["x"][0]), int(s["y"][0]))
    open_to = (r.GRASS, r.SAND, r.PATH, r.STONE, r.TREE)
    came: dict[tuple[int, int], tuple[int, int]] = {home: home}
    queue = deque([home])
    while queue:
        here = queue.popleft()
        for dx, dy in STEP:
            cell = here[0] + dx, here[1] + dy
            if cell in came or not (0 <= cell[0] < area and 0 <= cell[1] < area):
                continue
            came[cell] = here
            if target[cell]:
                while came[cell] != home:
                    cell = came[cell]
                return _face(s, cell[0] - home[0], cell[1] - home[1], bool(target[cell]))
            if s["material"][cell] in open_to:
                queue.append(cell)
    return r.NOOP


def _face(s: Any, dx: int, dy: int, arrived: bool) -> int:
    """Turn to a neighbour and use it, or walk onto it."""
    x = int(s["x"][0]) + dx
    y = int(s["y"][0]) + dy
    blocked = arrived or s["who"][x, y] or s["material"][x, y] in (r.STONE, r.TREE)
    if blocked and (s["face_x"], s["face_y"]) == (dx, dy):
        return r.DO
    return STEP[dx, dy]


def crafter(steps: int, seed: int) -> int:
    """Compare Crafter for at least so many steps; returns the exit status."""
    rng = np.random.default_rng(seed)
    done = 0
    episode = 0
    began = time.perf_counter()
    reached: dict[str, int] = {}
    while done < steps:
        twin = Twin(seed=int(rng.integers(2**31 - 1)))
        player = PLAYERS[episode % len(PLAYERS)]
        try:
            for _ in range(2):  # successive episodes of one environment
                twin.reset()
                acts = player(twin, rng)
                while done + twin.steps < steps and not twin.step(next(acts)):
                    pass
                for name, count in zip(r.ACHIEVEMENTS, twin.s["achievements"], strict=True):
                    reached[name] = reached.get(name, 0) + int(count > 0)
        except Difference as difference:
            print(f"{done + twin.steps} steps compared, then with a {player.__name__}: {difference}")
            return 1
        done = done + twin.steps
        episode = episode + 1
    missing = [name for name in r.ACHIEVEMENTS if not reached.get(name)]
    print(
        f"crafter: {done} steps compared over {2 * episode} episodes in {time.perf_counter() - began:.0f} s, all equal"
    )
    print(f"achievements reached: {len(r.ACHIEVEMENTS) - len(missing)} of {len(r.ACHIEVEMENTS)}", *missing)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["crafter", "heist"])
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference-python", default=sys.executable, help="interpreter with procgen2 or envpool")
    options = parser.parse_args()
    if options.world == "heist":
        import heist_measures

        sys.exit(heist_measures.parity(options.steps, options.seed, options.reference_python))
    sys.exit(crafter(options.steps, options.seed))
