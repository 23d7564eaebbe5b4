"""Gymnasium's side of a compiled engine: a vector environment whose environments each have a setting, and a single one.

`EngineVector` keeps the contract of `curricle.world.WorldVector` (autoreset in the same step, own seeds and settings).
A world subclasses it and says what its settings, observations and pictures are; `EngineEnv` wraps a vector of one.
"""

import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.world import WorldVector

Observation = Literal["pixels", "symbols", "text"]
PLAYING, TERMINATED, TRUNCATED = range(3)
"""How an episode stands after a step: `Engine.ends`."""


class Engine(Protocol):
    """A batch of environments in compiled code; `states` is an array of records with `seed`, `episode`, `upcoming`."""

    states: NDArray[Any]
    rewards: NDArray[Any]
    ends: NDArray[Any]
    skills: NDArray[Any]
    observed: NDArray[Any]
    final: NDArray[Any]

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""

    def step(self, actions: NDArray[np.int64], reset_ended: bool = False) -> None:
        """Play one step; with `reset_ended`, the next episode begins at once where one ended."""

    def reset_ended(self) -> None:
        """Begin the next episode where one ended; `final` keeps the last observation of the one before."""

    def close(self) -> None:
        """End the threads, if there are any."""


class EngineVector(WorldVector):
    """Many environments in one engine."""

    engine: Any
    observation: Observation
    autoreset: bool

    def start(
        self, engine: Engine, observation: Observation, space: gymnasium.Space[Any], actions: int, autoreset: bool
    ) -> None:
        """Set up what all methods use."""
        self.num_envs = len(engine.states)
        self.engine = engine
        self.observation = observation
        self.autoreset = autoreset
        self.single_observation_space = space
        self.single_action_space = gymnasium.spaces.Discrete(actions)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seeded = False

    @abstractmethod
    def knobs(self, index: int, setting: Setting) -> NDArray[Any]:
        """A setting as one record of numbers, as an array of one; one of another world is refused."""

    @abstractmethod
    def describe(self, state: Any) -> str:
        """What one record's player sees, in words."""

    def seeds(self, seed: int) -> list[int]:
        """What a vector's single seed gives to each environment."""
        return [seed + i for i in range(self.num_envs)]

    def seed_of(self, seed: int) -> int:
        """What an environment's own seed writes into its record."""
        return seed

    @functools.cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """Of all environments; made when it is asked for, since of many pictures it takes as long as a rollout."""
        return batch_space(self.single_observation_space, self.num_envs)

    def assign(self, index: int, setting: Setting) -> None:
        """Give a sub-environment another setting, from its next reset on."""
        self.engine.states["upcoming"][index] = self.knobs(index, setting)[0]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes: with a seed its first one, without a seed the next one of the sub-environment."""
        options = options or {}
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise UsageError(f"reset_mask must be {self.num_envs} booleans, not {mask!r}")
        settings = options.get("settings")
        if settings is not None:
            if len(settings) != self.num_envs:
                raise UsageError(f"{len(settings)} settings for {self.num_envs} environments; give one each")
            for index, setting in enumerate(settings):
                self.assign(index, setting)
        self._seed(seed, mask)
        self.engine.reset(mask)
        self.engine.skills[mask] = False
        return self._observed(), {"skills": self.engine.skills.copy()}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one step everywhere; where an episode ends, the next one begins at once."""
        engine = self.engine
        actions = np.asarray(actions, np.int64)
        most = int(self.single_action_space.n) - 1  # type: ignore[attr-defined]
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() > most:
            raise UsageError(f"{self.num_envs} actions from 0 to {most} are needed, not {actions!r}")
        as_text = self.observation == "text"  # written from the record, so before the next episode takes its place
        engine.step(actions, reset_ended=self.autoreset and not as_text)
        info: dict[str, Any] = {"skills": engine.skills.copy()}
        ended = engine.ends != PLAYING
        if self.autoreset and ended.any():
            info["final_obs"] = self._texts() if as_text else self._given(engine.final)
            info["_final_obs"] = ended
            if as_text:
                engine.reset_ended()
        terminated = engine.ends == TERMINATED
        return self._observed(), engine.rewards.copy(), terminated, engine.ends == TRUNCATED, info

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """The whole state, as bytes."""
        return {"states": self.engine.states.view(np.uint8).copy()}

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        self.engine.states[:] = np.ascontiguousarray(snapshot["states"]).view(self.engine.states.dtype)
        self._seeded = True

    def text(self, index: int) -> str:
        """What one player sees now, in words."""
        return self.describe(self.engine.states[index])

    def close(self, **kwargs: Any) -> None:
        """End the threads."""
        self.engine.close()

    def _seed(self, seed: int | Sequence[int | None] | None, mask: NDArray[np.bool_]) -> None:
        """Set the seeds of the masked sub-environments."""
        if seed is None and not self._seeded:
            seed = int(np.random.default_rng().integers(2**31 - self.num_envs))
        if isinstance(seed, int | np.integer):
            self._write_seeds(self.seeds(int(seed)), mask)
        elif seed is not None:
            own = [None if one is None else self.seed_of(one) for one in seed]
            if len(own) != self.num_envs:
                raise UsageError(f"{len(own)} seeds for {self.num_envs} environments; give one each")
            self._write_seeds(own, mask)
        self._seeded = True

    def _write_seeds(self, seeds: Sequence[int | None], mask: NDArray[np.bool_]) -> None:
        for index, seed in enumerate(seeds):
            if mask[index] and seed is not None:
                self.engine.states["seed"][index] = seed
                self.engine.states["episode"][index] = 0

    def _observed(self) -> Any:
        return self._texts() if self.observation == "text" else self._given(self.engine.observed)

    def _given(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.copy() if self.copies else array

    def _texts(self) -> tuple[str, ...]:
        return tuple(self.describe(state) for state in self.engine.states)


class EngineEnv(gymnasium.Env[Any, Any]):
    """One environment, on a vector of one that does not start again by itself."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's form

    def __init__(self, vector: EngineVector, render_mode: str | None, render_size: tuple[int, int]) -> None:
        self.vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.render_mode = render_mode
        self.render_size = render_size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: the first one of a seed, or the next one."""
        super().reset(seed=seed)
        if options and "setting" in options:
            self.vector.assign(0, options["setting"])
        observed, info = self.vector.reset(seed=None if seed is None else [seed])
        return observed[0], {"skills": info["skills"][0]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one step."""
        observed, rewards, terminated, truncated, info = self.vector.step([action])
        skills = {"skills": info["skills"][0]}
        return observed[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), skills

    def render(self) -> Any:
        """What the player sees: a picture, or text."""
        return self.vector.text(0) if self.render_mode == "ansi" else self.vector.picture(0, self.render_size)

    def close(self) -> None:
        """End the threads."""
        self.vector.close()
