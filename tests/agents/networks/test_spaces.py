"""Observations: spaces that a network takes as they are meant, and what is refused and named."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from helpers.ppo_worlds import Armed
from helpers.sweep import quiet

from curricle.agents.networks.spaces import input_specs, split_observations
from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.errors import AgentError, WorldError

SMALL = {"environments": 4, "steps": 8, "minibatches": 2, "hidden": 8, "channels": (4,), "blocks": 0}


def world_of(space, show=None):
    """A world that shows what it is told to, by default anything its space allows."""

    class Env(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observe(), {}

        def observe(self):
            return show() if show else self.observation_space.sample()

        def step(self, action):
            return self.observe(), float(action), bool(self.np_random.random() < 0.3), False, {}

    class World(Armed):
        id = "shows-v1"

        def make(self, setting):
            return Env()

    return World()


def practise(world, budget=64, **changes):
    agent = PPO(world, PPOOptions(**{**SMALL, **changes}))
    return agent, agent.practise([world.unaltered()], budget, seed=0, report=quiet)


def byte(*shape, high=255):
    return spaces.Box(0, high, shape, np.uint8)


@pytest.mark.parametrize(
    "space, kind, shape",
    [
        (byte(64, 64, 3), "image", (64, 64, 3)),
        (byte(84, 84), "image", (84, 84, 1)),
        (byte(84, 84, 12), "image", (84, 84, 12)),
        (byte(9, 9, 3, high=10), "image", (9, 9, 3)),
        (byte(9, 7, high=18), "symbols", (9, 7)),
        (byte(high=9), "symbols", (1,)),
        (spaces.Box(-1, 1, (), np.float32), "numbers", (1,)),
        (spaces.Box(-1, 1, (7, 7, 10), np.float32), "numbers", (7, 7, 10)),
        (spaces.Discrete(500), "symbols", (1,)),
        (spaces.MultiDiscrete([[3, 100], [2, 2]]), "symbols", (2, 2)),
        (spaces.MultiBinary(3), "symbols", (3,)),
    ],
)
def test_what_spaces_are_taken_for(space, kind, shape):
    ((name, part),) = input_specs(space, "test").items()
    assert (name, part.kind, part.shape) == ("all", kind, shape)
    agent, _ = practise(world_of(space))
    assert agent.rollouts == 2


def test_keys_may_be_called_anything():
    space = spaces.Dict({"a.b": spaces.Discrete(3), "c/d": byte(2, high=4), "e": spaces.Tuple([spaces.Discrete(2)])})
    assert list(input_specs(space, "test")) == ["a.b", "c/d", "e/0"]
    practise(world_of(space))


@pytest.mark.parametrize(
    "space, said",
    [
        (spaces.Dict({}), "nothing to see"),
        (spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(2))}), "two observations .* 'a/b'"),
        (spaces.Discrete(5000), "more than 4,096 values"),
        (spaces.Discrete(3, start=1), "must begin at 0"),
        (byte(3, 84, 84), "colours first"),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), "must be bytes"),
        (spaces.Text(8), "cannot take observations"),
    ],
)
def test_spaces_that_no_network_takes_are_named(space, said):
    with pytest.raises(AgentError, match=said):
        input_specs(space, "test")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "space, shown, said",
    [
        (
            byte(2, high=9),
            np.array([0, 10], np.uint8),
            r"shows 10 in its observation at \[1\], but declares it as 0 to 9",
        ),
        (spaces.Dict(a=spaces.Discrete(3)), {"a": -1}, r"shows -1 .* 'a' at \[0\], .* 0 to 2"),
        (spaces.Box(-9, 9, (2,), np.float32), np.array([0, np.inf], np.float32), r"shows inf .* must be finite"),
        (spaces.Box(-9, 9, (2,), np.float32), np.array([np.nan, 0], np.float32), "shows nan"),
    ],
)
def test_a_world_that_shows_what_it_did_not_declare_is_named(space, shown, said, workers):
    """Symbols are looked up in tables without a check of their own, and what is no number would spoil the scale."""
    with pytest.raises(WorldError, match=said):
        practise(world_of(space, lambda: shown), workers=workers)


@pytest.mark.slow
def test_many_states_can_be_told_apart():
    """A bandit of a hundred states: which action is right follows no order."""
    right = np.random.default_rng(0).integers(2, size=100)

    class Env(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(100), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = int(self.np_random.integers(100))
            return self.state, {}

        def step(self, action):
            return self.state, float(action == right[self.state]), True, False, {}

    class World(Armed):
        id = "bandit-v1"

        def make(self, setting):
            return Env()

    returns = []
    agent = PPO(World(), PPOOptions(environments=16, steps=32, minibatches=4, gamma=0.0, learning_rate=1e-3))
    agent.practise(
        [World().unaltered()], 12_000, seed=0, report=lambda done, said: returns.append(said["practice/return"])
    )
    assert np.mean(returns[-3:]) > 0.9, "one number for all states stays at chance"


def test_a_batch_is_split_into_parts():
    parts = input_specs(spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([byte(2, high=4)])), "test")
    found = split_observations({"a": np.array([1, 2]), "b": (np.zeros((2, 2), np.uint8),)}, parts, 2)
    assert found["a"].shape == (2, 1) and found["b/0"].shape == (2, 2)
