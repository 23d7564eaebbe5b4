"""What each knob of Heist does, and which combinations are refused."""

from typing import Any

import numpy as np
import pytest

from curricle.errors import ValueRefused
from curricle.worlds.heist.engine.batch import SOLVED, Engine
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD
from curricle.worlds.heist.setting import HeistSetting, knobs_of
from curricle.worlds.heist.solver import next_action


def begun(count: int = 64, **values: Any) -> Engine:
    """Environments of one setting at the start of an episode."""
    engine = Engine(count, "state")
    engine.states["upcoming"] = knobs_of(HeistSetting.of(values))[0]
    engine.states["seed"] = np.arange(count)
    engine.reset()
    return engine


def numbers(state: Any, kind: int) -> list[int]:
    """The numbers of all doors, or of all keys, in order."""
    return sorted(int(state["number"][i]) for i in range(state["items"]) if state["kind"][i] == kind)


def distances(state: Any) -> dict[tuple[int, int], int]:
    """How far each cell is from the player, through doors."""
    home = (int(state["x"]), int(state["y"]))
    found = {home: 0}
    queue = [home]
    for here in queue:
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            cell = (here[0] + dx, here[1] + dy)
            if cell not in found and state["cells"][cell[1] + PAD, cell[0] + PAD] != r.WALL:
                found[cell] = found[here] + 1
                queue.append(cell)
    return found


def walk_to(state: Any, kind: int, number: int = 0) -> int:
    """How far a thing is from the player."""
    for i in range(state["items"]):
        if state["kind"][i] == kind and state["number"][i] == number:
            return distances(state)[int(state["item_x"][i]), int(state["item_y"][i])]
    raise AssertionError(f"no thing of kind {kind} with number {number}")


def solve(engine: Engine, most: int = 1000) -> np.ndarray:
    """Let the solver play; returns in which environments it reached the gem."""
    solved = np.zeros(len(engine.states), np.bool_)
    for _ in range(most):
        engine.step(np.array([next_action(s) for s in engine.states]))
        solved |= engine.ends == SOLVED
        if solved.all():
            break
    return solved


def test_the_original_is_hard_mode() -> None:
    engine = begun(256)
    states = engine.states
    assert set(states["maze"].tolist()) == {5, 7, 9, 11, 13}
    assert (states["world"] == 13).all() and set(states["keys"].tolist()) == {0, 1, 2, 3}
    for s in states:
        assert numbers(s, r.KEY) == numbers(s, r.DOOR) == list(range(len(numbers(s, r.KEY))))
        assert len(numbers(s, r.KEY)) <= s["keys"] <= (s["maze"] - 5) // 2 + 1


@pytest.mark.parametrize("world", [5, 6, 9, 14, 23])
def test_world_and_maze_size(world: int) -> None:
    states = begun(world_size=world).states
    assert (states["world"] == world).all()
    assert set(states["maze"].tolist()) <= set(range(5, world + 1, 2))
    states = begun(world_size=world, maze_size="5").states
    assert (states["maze"] == 5).all()
    inside = states["cells"] != r.WALL
    assert (inside.sum((1, 2)) == 17).all(), "nodes and the openings between them"
    inside[:, PAD : PAD + world, PAD : PAD + world] = False
    assert not inside.any()


@pytest.mark.parametrize("keys", [0, 1, 2, 3])
def test_number_of_keys(keys: int) -> None:
    for s in begun(keys=str(keys)).states:
        assert numbers(s, r.KEY) == numbers(s, r.DOOR) == list(range(keys))
    small = [len(numbers(s, r.DOOR)) for s in begun(maze_size="5", keys=str(keys)).states]
    assert set(small) == {keys}, "mazes are drawn until there are forks enough"


def test_numbers_may_be_given_as_numbers() -> None:
    assert HeistSetting.of({"keys": 2, "maze_size": 9}) == HeistSetting(keys="2", maze_size="9")


def test_keys_may_be_drawn() -> None:
    states = begun(keys="any", world_size=23).states
    assert set(states["keys"].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("doors", [0, 1, 2])
def test_doors_before_the_gem(doors: int) -> None:
    """With other doors closed for ever, the gem is reached by so many openings."""
    engine = begun(32, keys="3", doors_before_gem=str(doors), maze_size="11")
    opened = np.zeros(32, int)
    for _ in range(1000):
        engine.step(np.array([next_action(s) for s in engine.states]))
        for which in np.flatnonzero(engine.ends == SOLVED):
            opened[which] = max(opened[which], 1 + engine.skills[which, r.OPEN : r.REACH].sum())
        for s in engine.states:
            s["held"][doors:] = 0
            for i in range(s["items"]):
                s["gone"][i] |= s["kind"][i] == r.KEY and s["number"][i] >= doors
    assert (opened == doors + 1).all()


def test_keys_held_and_doors_open() -> None:
    for s in begun(keys="3", keys_held=2, doors_open=1).states:
        assert numbers(s, r.KEY) == [2] and numbers(s, r.DOOR) == [1, 2]
        assert s["held"].tolist() == [1, 1, 0] and not s["skills"].any()
    for s in begun(keys_held=3, doors_open=3).states:
        assert numbers(s, r.KEY) == numbers(s, r.DOOR) == [], "as many as the level has"
        assert s["held"].sum() == s["keys"]


def test_distances() -> None:
    far = begun(keys="1", maze_size="13")
    near = begun(keys="1", maze_size="13", key_within=4, gem_within=20)
    assert max(walk_to(s, r.KEY) for s in far.states) > 12
    assert max(walk_to(s, r.KEY) for s in near.states) <= 4
    assert np.mean([walk_to(s, r.GEM) for s in near.states]) < np.mean([walk_to(s, r.GEM) for s in far.states])
    close = begun(keys="0", gem_within=3)
    assert max(walk_to(s, r.GEM) for s in close.states) <= 3
    later = begun(keys="2", keys_held=1, key_within=5, maze_size="13")
    free = begun(keys="2", keys_held=1, maze_size="13")
    assert np.mean([walk_to(s, r.KEY, 1) for s in later.states]) < np.mean([walk_to(s, r.KEY, 1) for s in free.states])


def test_time_limit_and_speed() -> None:
    engine = begun(4, time_limit=50)
    for step in range(1, 51):
        engine.step(np.full(4, r.REST))
        assert ((engine.ends != 0) == (step == 50)).all()
    went = []
    for speed in (0.5, 1.0, 2.0):
        engine = begun(64, speed=speed, world_size=23, maze_size="23", keys="0")
        before = engine.states["x"].copy()
        for _ in range(3):
            engine.step(np.full(64, 7))
        went.append(float((engine.states["x"] - before).max()))
    assert went[0] * 1.9 < went[1] < went[2] / 1.9


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"world_size": 9},
        {"world_size": 23, "keys": "any", "partial_view": True},
        {"keys": "3", "doors_before_gem": "1", "key_within": 5, "gem_within": 10},
        {"maze_size": "5", "keys": "3", "keys_held": 1, "doors_open": 2},
        {"speed": 0.5},
        {"speed": 2.0},
    ],
)
def test_levels_can_be_solved(values: dict[str, Any]) -> None:
    assert solve(begun(24, **values)).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"maze_size": "15"}, "maze_size = '15' does not fit into world_size = 13"),
        ({"keys": "1", "keys_held": 2}, "keys_held = 2 needs as many keys"),
        ({"keys": "1", "doors_open": 2}, "doors_open = 2 needs as many keys and doors"),
        ({"keys": "1", "doors_before_gem": "2"}, "doors_before_gem = '2' needs as many doors"),
        ({"keys": "0", "key_within": 5}, "key_within = 5 needs a key that lies about"),
        ({"keys": "2", "keys_held": 2, "key_within": 5}, "key_within = 5 needs a key that lies about"),
        ({"maze_size": "6"}, "maze_size = '6' is not allowed"),
        ({"world_size": 24}, "world_size = 24 is not allowed"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueRefused, match=message):
        HeistSetting.of(values)
