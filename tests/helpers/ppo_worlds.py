"""Small worlds for the tests of PPO: continuous actions, dict and image observations, snapshots, a time limit."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from curricle import GymWorld, Setting, Skill, knob
from curricle.world import VectorWorld, WorldVector


class Plain(Setting):
    goal: float = knob(0.5, "Where the target is.", ge=-1.0, le=1.0)


class _OneStep(gymnasium.Env[Any, Any]):
    """Aim at a target that can be seen: the reward is minus the distance."""

    observation_space: Any = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = gymnasium.spaces.Box(np.array([-3, 0], np.float32), np.array([1, 2], np.float32))

    def __init__(self, goal):
        self.goal = goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.target, {}

    def step(self, action):
        wanted = np.array([self.target[0] * 2 - 1, self.target[1] + 1])
        return self.target, -float(np.abs(action - wanted).mean()), True, False, {}


class Armed(GymWorld):
    id, Setting, guide = "armed-v1", Plain, "Hit the target."
    skills = (Skill(name="hit"),)

    def make(self, setting):
        return _OneStep(setting.goal)

    def shown(self, info):
        return []


class _Mixed(_OneStep):
    observation_space: Any = gymnasium.spaces.Dict(
        a=gymnasium.spaces.Box(0, 255, (16, 16, 3), np.uint8),
        b=gymnasium.spaces.Dict(c=gymnasium.spaces.MultiDiscrete([3, 4]), d=gymnasium.spaces.Discrete(2)),
        e=gymnasium.spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self._observe(), {}

    def _observe(self):
        seen = self.observation_space.sample()
        seen["e"] = np.full((2, 2), 1000.0)
        return seen

    def step(self, action):
        return (
            self._observe(),
            float(action),
            bool(self.np_random.random() < 0.2),
            bool(self.np_random.random() < 0.5),
            {},
        )


class Mixed(Armed):
    id = "mixed-v1"

    def make(self, setting):
        return _Mixed(setting.goal)


class _Image(_Mixed):
    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def _observe(self):
        return self.observation_space.sample()


class World64(Armed):
    id = "image-v1"

    def make(self, setting):
        return _Image(setting.goal)


class _Odd(_OneStep):
    observation_space = gymnasium.spaces.Text(8)


class Odd(Armed):
    id = "odd-v1"

    def make(self, setting):
        return _Odd(setting.goal)


class SlotVector(WorldVector):
    """Reward 1 a step, cut every few steps; its whole state is two numbers an environment, so it takes snapshots."""

    limit = 4

    def __init__(self, count: int) -> None:
        self.num_envs = count
        self.single_observation_space, self.single_action_space = (
            gymnasium.spaces.Discrete(2),
            gymnasium.spaces.Discrete(2),
        )
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.clock, self.luck = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def reset(self, *, seed=None, options=None):
        self.luck = np.array(seed, np.int64)
        self.clock[:] = self.luck % self.limit
        return np.zeros(self.num_envs, np.int64), {"skills": np.zeros((self.num_envs, 2), bool)}

    def step(self, actions):
        self.clock += 1
        self.luck = (self.luck * 1103515245 + 12345 + np.asarray(actions)) % 2**31
        cut, never = self.clock >= self.limit, np.zeros(self.num_envs, bool)
        self.clock[cut] = 0
        seen = np.zeros(self.num_envs, np.int64)
        skills = np.stack([np.asarray(actions) == 1, self.luck % 3 == 0], axis=1)
        return seen, np.ones(self.num_envs), never, cut, {"skills": skills, "final_obs": seen.copy()}

    def assign(self, index: int, setting: Any) -> None:
        pass

    def snapshot(self) -> dict[str, Any]:
        return {"clock": self.clock.copy(), "luck": self.luck.copy()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.clock[:], self.luck[:] = snapshot["clock"], snapshot["luck"]


class Slots(VectorWorld):
    id, Setting, guide = "slots-v1", Plain, "Wait."
    skills = (Skill(name="one"), Skill(name="lucky"))

    def vector(self, settings: Any) -> WorldVector:
        return SlotVector(len(settings))


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def saved(agent, folder):
    folder.mkdir()
    agent.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
