"""Whole episodes against the reference: everything a world holds, after every step."""

import importlib.util
from types import ModuleType

import numpy as np
import pytest
from helpers.paths import ROOT

from curricle.worlds.crafter.engine.batch import ALIVE, engines
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of
from curricle.worlds.crafter.twin import Difference, OrderedEnv, Twin


def _script(name: str) -> ModuleType:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAYERS = _script("parity").PLAYERS


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2])
def test_worlds_are_the_reference_s(seed: int) -> None:
    twin = Twin(seed)
    for _ in range(2):
        twin.reset()


@pytest.mark.parametrize("player", PLAYERS, ids=lambda p: p.__name__)
def test_steps_are_the_reference_s(player: object) -> None:
    rng = np.random.default_rng(11)
    for seed in (5, 6):
        twin = Twin(seed)
        twin.reset()
        acts = player(twin, rng)
        while twin.steps < 500 and not twin.step(next(acts)):
            pass


@pytest.mark.parametrize(("area", "size"), [(33, 64), (40, 100)])
def test_other_areas_and_sizes_are_the_reference_s(area: int, size: int) -> None:
    twin, rng = Twin(4, CrafterSetting(area=area, episode_length=260), size), np.random.default_rng(4)
    twin.reset()
    acts = PLAYERS[3](twin, rng)
    while not twin.step(next(acts)):
        pass


def test_a_difference_is_named() -> None:
    twin = Twin(3)
    twin.reset()
    twin.s["inventory"][r.WOOD] = 5
    with pytest.raises(Difference, match="inventory differs at seed 3, episode 1, step 1"):
        twin.step(r.NOOP)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["pixels", "symbols", "state"])
def test_the_engine_plays_successive_episodes_of_the_reference(view: str) -> None:
    env, rng = OrderedEnv(seed=21), np.random.default_rng(2)
    engine = engines([2], view)[0]  # type: ignore[arg-type]
    engine.states["upcoming"], engine.states["seed"] = knobs_of(CrafterSetting())[0], (21, 22)
    engine.reset()
    pixels, ended = env.reset(), 0
    while ended < 3:
        action = int(rng.integers(len(r.ACTIONS)))
        last, reward, done, info = env.step(action)
        engine.step(np.array([action, 0]))
        assert engine.rewards[0] == reward and (engine.ends[0] != ALIVE) == done
        assert engine.skills[0].tolist() == [count > 0 for count in info["achievements"].values()]
        engine.reset_ended()
        pixels = env.reset() if done else last
        ended += done
        _, words, at, *_ = env._world.random.get_state()
        assert at == engine.states["mt_at"][0] and np.array_equal(words, engine.states["mt"][0])
        if view == "pixels":
            assert np.array_equal(engine.observed[0], pixels)
            assert not done or np.array_equal(engine.final[0], last)
