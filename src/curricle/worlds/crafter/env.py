"""Crafter for Gymnasium: a vector environment in which each environment has its own setting, and a single environment.

`CrafterVector` is a `curricle.world.WorldVector`: autoreset in the same step, a seed and a setting a sub-environment.
`CrafterEnv` is registered as `curricle/Crafter-v1`. With a seed, an environment plays the episodes that
`crafter.Env(seed=seed)` would play. Observations are `pixels`, `symbols` (see symbols.py) or `text`.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.world import WorldVector
from curricle.worlds.crafter.engine.batch import ALIVE, DIED, TIMED_OUT, Engine, View, engines
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.observe import symbols
from curricle.worlds.crafter.observe.description import LONGEST, describe
from curricle.worlds.crafter.observe.pictures import chart_of, frame_of
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of

Observation = Literal["pixels", "symbols", "text"]


def space_of(observation: Observation, size: int) -> gymnasium.Space[Any]:
    """The space of one environment's observations."""
    if observation == "pixels":
        return gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
    if observation == "symbols":
        return gymnasium.spaces.Box(np.zeros(symbols.WIDTH, np.uint8), symbols.HIGHEST, dtype=np.uint8)
    return gymnasium.spaces.Text(LONGEST, charset="".join(map(chr, range(32, 127))) + "\n")


def _view(observation: Observation) -> View:
    return "state" if observation == "text" else observation


class CrafterVector(WorldVector):
    """Many environments in one engine; `several` makes vectors that share their threads."""

    def __init__(
        self,
        settings: Sequence[CrafterSetting],
        observation: Observation = "symbols",
        *,
        exact: bool = True,
        size: int = 64,
        threads: int = 1,
        autoreset: bool = True,
        engine: Engine | None = None,
    ) -> None:
        self.num_envs = len(settings)
        self.observation = observation
        self.autoreset = autoreset
        if engine is None:
            (engine,) = engines([len(settings)], _view(observation), exact=exact, size=size, threads=threads)
        self.engine = engine
        self.single_observation_space = space_of(observation, size)
        self.single_action_space = gymnasium.spaces.Discrete(len(r.ACTIONS))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seeded = False
        for index, setting in enumerate(settings):
            self.assign(index, setting)

    @classmethod
    def several(
        cls,
        groups: Sequence[Sequence[CrafterSetting]],
        observation: Observation,
        *,
        exact: bool,
        size: int,
        threads: int,
    ) -> list["CrafterVector"]:
        """A vector for each group of settings; all threads work for the one that is stepped."""
        counts = [len(group) for group in groups]
        own = engines(counts, _view(observation), exact=exact, size=size, threads=threads)
        return [cls(group, observation, size=size, engine=e) for group, e in zip(groups, own, strict=True)]

    @functools.cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The space of all environments. It is made on demand: for many pictures that takes as long as a rollout."""
        return batch_space(self.single_observation_space, self.num_envs)

    def assign(self, index: int, setting: Setting) -> None:
        """Give a sub-environment another setting, from its next reset on."""
        if not isinstance(setting, CrafterSetting):
            raise UsageError(f"environment {index} needs a CrafterSetting, not {setting!r}")
        self.engine.states["upcoming"][index] = knobs_of(setting)[0]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes: the first one of a seed, or without a seed the environment's next one."""
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
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= len(r.ACTIONS):
            raise UsageError(f"{self.num_envs} actions from 0 to {len(r.ACTIONS) - 1} are needed, not {actions!r}")
        as_text = self.observation == "text"  # texts are written from the record, before the next episode replaces it
        engine.step(actions, reset_ended=self.autoreset and not as_text)
        info: dict[str, Any] = {"skills": engine.skills.copy()}
        ended = engine.ends != ALIVE
        if self.autoreset and ended.any():
            info["final_obs"] = self._texts() if as_text else self._given(engine.final)
            info["_final_obs"] = ended
            if as_text:
                engine.reset_ended()
        return self._observed(), engine.rewards.copy(), engine.ends == DIED, engine.ends == TIMED_OUT, info

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """The whole state, as bytes."""
        return {"states": self.engine.states.view(np.uint8).copy()}

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        self.engine.states[:] = np.ascontiguousarray(snapshot["states"]).view(STATE)
        self._seeded = True

    def picture(self, index: int, size: tuple[int, int], whole: bool = False) -> NDArray[np.uint8]:
        """What one player sees now, or its whole map."""
        draw = chart_of if whole else frame_of
        return draw(self.engine.states[index], size)

    def text(self, index: int) -> str:
        """What one player sees now, in words."""
        return describe(self.engine.states[index])

    def observation_arrays(self) -> Any | None:
        """The array that observations are written into, if it has memory pages of its own."""
        if self.observation == "text" or not self.engine.owns_its_pages:
            return None
        return self.engine.observed

    def close(self, **kwargs: Any) -> None:
        """End the threads."""
        self.engine.close()

    def _seed(self, seed: int | Sequence[int | None] | None, mask: NDArray[np.bool_]) -> None:
        """Set the seeds of the masked sub-environments."""
        if seed is None and not self._seeded:
            seed = int(np.random.default_rng().integers(2**31 - self.num_envs))
        if seed is not None:
            if isinstance(seed, int | np.integer):
                seeds: list[int | None] = [seed + i for i in range(self.num_envs)]
            else:
                seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise UsageError(f"{len(seeds)} seeds for {self.num_envs} environments; give one each")
            for index in np.flatnonzero(mask):
                if seeds[index] is not None:
                    self.engine.states["seed"][index] = seeds[index]
                    self.engine.states["episode"][index] = 0
        self._seeded = True

    def _observed(self) -> Any:
        return self._texts() if self.observation == "text" else self._given(self.engine.observed)

    def _given(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array as the caller gets it; see `WorldVector.copies`."""
        return array.copy() if self.copies else array

    def _texts(self) -> tuple[str, ...]:
        return tuple(describe(state) for state in self.engine.states)


class CrafterEnv(gymnasium.Env[Any, Any]):
    """One environment; `setting` is a CrafterSetting or its values."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's form

    def __init__(
        self,
        setting: CrafterSetting | Mapping[str, Any] | None = None,
        observation: Observation = "pixels",
        *,
        exact: bool = True,
        size: int = 64,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (576, 576),
    ) -> None:
        self.setting = setting if isinstance(setting, CrafterSetting) else CrafterSetting.of(setting or {})
        self.vector = CrafterVector([self.setting], observation, exact=exact, size=size, autoreset=False)
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space
        self.render_mode = render_mode
        self.render_size = render_size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: the first one of a seed, or the next one."""
        super().reset(seed=seed)
        if options and "setting" in options:
            self.vector.assign(0, options["setting"])
        observed, info = self.vector.reset(seed=seed)
        return observed[0], {"skills": info["skills"][0]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one step."""
        observed, rewards, died, over, info = self.vector.step([action])
        return observed[0], float(rewards[0]), bool(died[0]), bool(over[0]), {"skills": info["skills"][0]}

    def render(self) -> Any:
        """What the player sees: a picture, or text."""
        state = self.vector.engine.states[0]
        return describe(state) if self.render_mode == "ansi" else frame_of(state, self.render_size)

    def close(self) -> None:
        """Close the vector."""
        self.vector.close()
