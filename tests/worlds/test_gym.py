"""Worlds of Gymnasium environments: resets, settings, and environments that break down or are declared wrongly."""

import sys

import gymnasium
import numpy as np
import pytest
from helpers.sweep import VAULT

from curricle.errors import DeclarationError, UsageError, WorldError


def test_a_setting_takes_effect_at_the_next_reset():
    world = VAULT()
    vector = world.vector([world.original])
    vector.reset(seed=[0])
    vector.assign(0, world.setting({"open_doors": 2}))
    wrong = (sys.modules[VAULT.__module__].COMBINATIONS[0, 0] + 1) % 4
    observations, _, terminated, *_ = vector.step(np.array([wrong]))
    assert terminated[0] and observations[0][0] == 2, (
        "the alarm ended the episode, and the next one has the new setting"
    )
    observations, info = vector.reset(options={"settings": [world.setting({"open_doors": 1})]})
    assert observations[0][0] == 1 and not info["skills"].any()
    with pytest.raises(UsageError, match="2 settings for 1 environments"):
        vector.reset(options={"settings": [world.original] * 2})


def test_a_mask_resets_some():
    world = VAULT()
    vector = world.vector([world.setting({"alarm": 0.0})] * 2)
    vector.reset(seed=[0, 0])
    from_vault = sys.modules[VAULT.__module__]
    vector.step(np.repeat(from_vault.COMBINATIONS[0, 0], 2))
    observations, _ = vector.reset(options={"reset_mask": np.array([True, False])})
    assert observations.tolist() == [[0, 0], [0, 1]]


def test_skills_belong_to_the_episode_that_ended():
    world = VAULT()
    from_vault = sys.modules[VAULT.__module__]
    vector = world.vector([world.setting({"open_doors": 2, "dials": 1})])
    vector.reset(seed=[0])
    _, reward, terminated, _, info = vector.step(np.array([from_vault.COMBINATIONS[2, 0]]))
    assert reward == [1.0] and terminated == [True]
    assert world.names(info["skills"][0]) == ["open_3"]
    wrong = (from_vault.COMBINATIONS[2, 0] + 1) % 4
    *_, info = vector.step(np.array([wrong]))
    assert not info["skills"].any()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda env: 1 / 0,
            r"vault-v1 broke down in step\(\) .*dials=5.*ZeroDivisionError.* \(test_gym.py, ",
        ),
        (lambda env: (np.array([0, 0]), float("nan"), False, False, {"opened": None}), r"vault-v1 gave the reward nan"),
        (lambda env: (np.array([0, 0]), "good", False, False, {"opened": None}), r"gave the reward 'good'"),
        (lambda env: (np.array([0, 0, 0]), 0.0, False, False, {"opened": None}), r"does not fit MultiDiscrete"),
        (lambda env: (np.array([0, 0]), 0.0, False, False, {}), r"broke down in shown\(\) .*KeyError: 'opened'"),
    ],
)
def test_a_world_that_breaks_down_is_named(fault, message, monkeypatch):
    monkeypatch.setattr(sys.modules[VAULT.__module__].VaultEnv, "step", lambda self, action: fault(self))
    vector = VAULT().vector([VAULT.Setting()])
    vector.reset(seed=[0])
    with pytest.raises(WorldError, match=message):
        vector.step(np.array([0]))


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda setting: None, WorldError, r"odd-v1 broke down in make\(\) .* it returned None, not a gymnasium.Env"),
        (lambda setting: 1 / 0, WorldError, r"broke down in make\(\) .*ZeroDivisionError.*model_validator"),
        (
            lambda setting: Wide(setting.dials),
            DeclarationError,
            r"observation_space changes .*Discrete\(5\) in ",
        ),
    ],
)
def test_environments_that_cannot_be_made_or_differ_are_named(made, error, message):
    class World(VAULT):
        id = "odd-v1"

        def make(self, setting):
            return made(setting)

    with pytest.raises(error, match=message):
        World().vector([World.Setting(), World.Setting(dials=3)])


class Wide(gymnasium.Env):
    """Its observations depend on a knob."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, states):
        self.observation_space = gymnasium.spaces.Discrete(states)


@pytest.mark.parametrize("said", [None, "open_1"])
def test_skills_that_are_no_list_are_refused(said):
    class World(VAULT):
        id = "odd-v1"

        def shown(self, info):
            return said

    vector = World().vector([World.Setting()])
    vector.reset(seed=[0])
    with pytest.raises(WorldError, match=r"broke down in shown\(\) .* not a list of skills"):
        vector.step(np.array([0]))


def test_pictures_are_what_an_environment_renders(monkeypatch):
    env = sys.modules[VAULT.__module__].VaultEnv
    vector = VAULT().vector([VAULT.Setting()])
    vector.reset(seed=[0])
    monkeypatch.setattr(env, "render", lambda self: None)
    with pytest.raises(UsageError, match=r"vault-v1 renders no pictures; .* render_mode='rgb_array'"):
        vector.picture(0, (8, 8))
    monkeypatch.setattr(env, "render", lambda self: np.full((2, 3, 3), self.door + 7, np.uint8))
    assert vector.picture(0, (8, 6)).shape == (6, 8, 3) and (vector.picture(0, (8, 6)) == 7).all()


def test_an_environment_that_names_an_unknown_skill_is_refused():
    class Misspelt(VAULT):
        id = "misspelt-v1"

        def shown(self, info):
            return ["open_one"]

    vector = Misspelt().vector([Misspelt.Setting()])
    vector.reset(seed=[0])
    with pytest.raises(DeclarationError, match=r"names 'open_one', did you mean 'open_"):
        vector.step(np.array([0]))
