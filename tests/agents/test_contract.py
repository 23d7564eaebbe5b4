"""Contract of every registered agent: outcomes that add up, tests without learning, checkpoints, determinism."""

import gymnasium
import numpy as np
import pytest
from helpers.sweep import AGENTS, LADDER, VAULT, quiet

from curricle.agents.random import RandomAgent
from curricle.agents.tabular import Tabular
from curricle.errors import AgentError, RunDamaged
from curricle.records import Design


def home(cls):
    """The world that suits an agent."""
    return (LADDER if cls.unit == "rollouts" else VAULT)()


def pair(world):
    skill = world.skills[0]
    return [world.unaltered(), Design(setting=world.setting(skill.eased_by).values, aim=skill.name)]


@pytest.fixture(params=AGENTS, ids=lambda cls: cls.id)
def cls(request):
    return request.param


def test_practice_is_counted_from_its_own_attempts(cls):
    world = home(cls)
    reports = []
    outcomes = cls(world).practise(
        pair(world), 400, seed=1, report=lambda done, metrics: reports.append((done, metrics))
    )
    assert [o.design for o in outcomes] == pair(world)
    assert 400 <= sum(o.spent for o in outcomes) < 800
    for outcome in outcomes:
        assert 0 <= outcome.successes <= outcome.attempts
        assert all(0 <= n <= outcome.attempts for n in outcome.skills.values())
        if outcome.design.aim:
            assert outcome.successes == outcome.skills.get(outcome.design.aim, 0)
    assert reports[-1][0] == 400
    assert all(isinstance(value, float) for _, metrics in reports for value in metrics.values())


def test_measuring_changes_nothing(cls, tmp_path):
    world = home(cls)
    agent = cls(world)
    agent.practise(pair(world), 400, seed=1, report=quiet)
    before = saved(agent, tmp_path / "before")
    outcomes = agent.measure([world.unaltered()] * 3, [5, 5, 6], 2)
    assert saved(agent, tmp_path / "after") == before
    assert [o.attempts for o in outcomes] == [2, 2, 2]
    assert outcomes == agent.measure([world.unaltered()] * 3, [5, 5, 6], 2)
    assert outcomes[2] == agent.measure([world.unaltered()], [6], 2)[0], "a seed decides, not its place in the list"


def test_the_same_seed_learns_the_same(cls, tmp_path):
    world = home(cls)
    twice = [cls(world, seed=3) for _ in range(2)]
    first, second = (a.practise(pair(world), 400, seed=9, report=quiet) for a in twice)
    assert first == second
    assert saved(twice[0], tmp_path / "a") == saved(twice[1], tmp_path / "b")


def test_a_loaded_agent_goes_on_like_the_saved_one(cls, tmp_path):
    world = home(cls)
    agent, other = cls(world), cls(world)
    agent.practise(pair(world), 400, seed=1, report=quiet)
    saved(agent, tmp_path / "one")
    other.load(tmp_path / "one")
    a, b = (x.practise(pair(world), 400, seed=2, report=quiet) for x in (agent, other))
    assert a == b
    assert saved(agent, tmp_path / "a") == saved(other, tmp_path / "b")


def saved(agent, folder):
    folder.mkdir()
    agent.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_tabular_learns_where_chance_does_not():
    world = VAULT()
    learnt, chance = Tabular(world), RandomAgent(world)
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    for agent in (learnt, chance):
        agent.practise([design], 6000, seed=0, report=quiet)
    (good,), (bad,) = (agent.measure([design], [1], 50) for agent in (learnt, chance))
    assert good.share("open_1") == 1.0
    assert bad.share("open_1") < 0.8


def test_a_world_without_end_is_named(caplog, monkeypatch):
    monkeypatch.setattr("curricle.agents.episodes.MAX_STEPS", 50)
    monkeypatch.setattr("curricle.agents.episodes.WARN_STEPS", 20)
    endless = type("Endless", (VAULT,), {"id": "endless-v1", "make": lambda self, setting: Endless()})
    with pytest.raises(AgentError, match="endless-v1: no episode ended within 50 steps"):
        RandomAgent(endless()).measure([endless().unaltered()], [0], 1)
    assert [record.getMessage() for record in caplog.records] == [
        "endless-v1: no test episode has ended in 20 steps; does the world have a limit?"
    ]


class Endless(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(5, start=-2), gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return -2, {}

    def step(self, action):
        assert action in (1, 2)
        return 2, 0.0, False, False, {"opened": None}


def test_tabular_counts_from_where_the_spaces_start():
    offset = type("Offset", (VAULT,), {"id": "offset-v1", "make": lambda self, setting: Endless()})
    Tabular(offset()).practise([offset().unaltered()], 80, seed=0, report=quiet)


def test_damaged_checkpoints_are_named(tmp_path):
    agent = Tabular(VAULT())
    saved(agent, tmp_path / "agent")
    for name, content in (("arrays.safetensors", b"junk"), ("state.json", b"{"), ("state.json", None)):
        path = tmp_path / "agent" / name
        before = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(RunDamaged, match=str(tmp_path)):
            agent.load(tmp_path / "agent")
        path.write_bytes(before)
    agent.load(tmp_path / "agent")
    agent.values = np.zeros((2, 2))
    with pytest.raises(RunDamaged, match="does not fit"):
        agent.load(tmp_path / "agent")


@pytest.mark.parametrize("cls", [Tabular, RandomAgent])
def test_a_world_of_the_wrong_kind_is_refused(cls):
    with pytest.raises(AgentError, match=f"{cls.id} acts step by step, but ladder-v1 is a world of text tasks"):
        cls(LADDER())
