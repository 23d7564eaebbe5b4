"""Contract of every registered world."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from helpers import paths
from helpers.skips import skip_without
from helpers.sweep import LADDER, VAULT, WORLDS

from curricle import config
from curricle.errors import DeclarationError, UsageError, ValueRefused, WorldError
from curricle.records import Brief, Message, Skill
from curricle.setting import Setting, knob
from curricle.world import TaskWorld, VectorWorld, WorldVector
from curricle.worlds.gym import GymWorld

VECTORS = [cls for cls in WORLDS if issubclass(cls, VectorWorld)]
TASKS = [cls for cls in WORLDS if issubclass(cls, TaskWorld) and cls.id != "textworld-v1"]  # swept with fewer games
by_id: dict[str, Any] = {"ids": lambda cls: cls.id}


@pytest.mark.parametrize("cls", WORLDS, **by_id)
def test_declaration(cls):
    world = cls()
    assert world.setting({}) == world.original == cls.Setting()
    assert world.guide.strip() and cls.__doc__
    brief = world.brief(1, 4)
    assert Brief.from_json(brief.to_json()) == brief
    assert 0 == world.headline({}) < world.headline({s.name: 0.5 for s in world.skills}) < 100.1
    assert world.headline({s.name: 1.0 for s in world.skills}) == pytest.approx(100)
    with pytest.raises(ValueRefused, match=f"setting of {cls.id}: unknown knob"):
        world.setting({"no such knob": 1})


@pytest.mark.parametrize("cls", WORLDS, **by_id)
def test_original_can_be_another_setting(cls):
    other = cls.Setting.sample(np.random.default_rng(3))
    world = cls(original=other)
    assert world.setting({}) == other
    assert world.unaltered().setting == other.values


def rollout(world, settings, steps, seed=5):
    """Everything a vector returns over some steps of random actions, as bytes."""
    vector = world.vector(settings)
    vector.action_space.seed(seed)
    observations, info = vector.reset(seed=list(range(len(settings))))
    seen = [flat(observations), info["skills"].tobytes()]
    for _ in range(steps):
        observations, rewards, terminated, truncated, info = vector.step(vector.action_space.sample())
        assert info["skills"].shape == (len(settings), len(world.skills)) and info["skills"].dtype == np.bool_
        assert np.isfinite(rewards).all()
        if (terminated | truncated).any():
            assert "final_obs" in info
        seen += [
            flat(observations),
            rewards.tobytes(),
            terminated.tobytes(),
            truncated.tobytes(),
            info["skills"].tobytes(),
        ]
    vector.close()
    return seen


def flat(observations):
    if isinstance(observations, dict):
        return b"".join(np.asarray(observations[key]).tobytes() for key in sorted(observations))
    return np.asarray(observations).tobytes()


@pytest.mark.parametrize("cls", VECTORS, **by_id)
def test_vectors_are_deterministic_and_well_formed(cls):
    world, rng = cls(), np.random.default_rng(0)
    settings = [world.original, *(cls.Setting.sample(rng) for _ in range(3))]
    vector = world.vector(settings)
    assert isinstance(vector, WorldVector) and vector.num_envs == 4
    assert vector.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    vector.close()
    assert rollout(world, settings, 60) == rollout(world, settings, 60)


@pytest.mark.parametrize("cls", VECTORS, **by_id)
def test_sub_environments_do_not_see_each_other(cls):
    """The first sub-environment does the same alone and in company."""
    world = cls()
    company = world.vector([world.original, cls.Setting.sample(np.random.default_rng(1))])
    alone = world.vector([world.original])
    alone.action_space.seed(2)
    company.reset(seed=[3, 4])
    alone.reset(seed=[3])
    for _ in range(40):
        action = alone.action_space.sample()
        together, *rest, _ = company.step(np.concatenate([action, action]))
        single, *others, _ = alone.step(action)
        assert flat(take(together)) == flat(take(single))
        assert [part[0] for part in rest] == [part[0] for part in others]
    company.close()
    alone.close()


def take(observations):
    """The first sub-environment's part of a batch."""
    return {k: v[:1] for k, v in observations.items()} if isinstance(observations, dict) else observations[:1]


@pytest.mark.parametrize("cls", TASKS, **by_id)
def test_tasks_are_deterministic_and_junk_scores_nothing(cls):
    if cls.id in ("reasoning-v1", "textworld-v1"):
        skip_without("text")
    world = cls()
    tasks = world.tasks(world.original, 6, 11)
    assert tasks == world.tasks(world.original, 6, 11) != world.tasks(world.original, 6, 12)
    assert len({task.id for task in tasks}) == 6
    for task in tasks:
        assert task.skill in {skill.name for skill in world.skills}
        for junk in ("", "junk", task.prompt[-1].content):
            transcript = [Message(role="assistant", content=junk)]
            assert world.reply(task, transcript) is None
            assert world.score(task, transcript).reward == 0


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


def test_success_needs_the_aim_or_else_everything():
    world = LADDER()
    assert world.succeeded("sums", ["sums"])
    assert not world.succeeded("words", ["sums"])
    assert world.succeeded(None, ["sums"]) and not world.succeeded(None, [])
    assert not VAULT().succeeded(None, ["open_1"])
    assert VAULT().succeeded(None, ["open_1", "open_2", "open_3"])


class Knobs(Setting):
    x: int = knob(0, "A knob.", ge=0, le=3)


def world_like(**parts):
    whole = {"id": "bad-v1", "Setting": Knobs, "skills": (Skill(name="a"),), "guide": "g"} | parts
    return type("Bad", (GymWorld,), {k: v for k, v in whole.items() if v is not None})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"id": "Bad"}, "lower-case name with a version"),
        ({"skills": ()}, "at least one skill"),
        ({"guide": None}, "lacks 'guide'"),
        ({"skills": (Skill(name="a"), Skill(name="a"))}, "share the name 'a'"),
        ({"skills": (Skill(name="a", needs=("z",)),)}, "needs 'z'"),
        ({"skills": (Skill(name="a", needs=("b",)), Skill(name="b", needs=("a",)))}, "in a circle"),
        ({"skills": (Skill(name="a", eased_by={"x": 9}),)}, "eased by a bad setting: x = 9"),
    ],
)
def test_bad_declarations_are_refused(parts, message):
    with pytest.raises(DeclarationError, match=message):
        world_like(**parts)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda env: 1 / 0,
            r"vault-v1 broke down in step\(\) .*dials=5.*ZeroDivisionError.* \(test_contract.py, ",
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


def test_a_world_of_tasks_that_suggests_nothing_gets_two_small_players():
    """Else it would get the budget of simulators, and an agent that cannot answer."""
    found = config.resolve({"world": {"id": paths.PICK}})
    assert (found.agent.id, found.designer.id) == ("grpo-v1", "language-v1")
    assert found.schedule.per_cycle * found.schedule.cycles < 100 and found.schedule.save_every <= 16
