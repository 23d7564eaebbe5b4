"""Any Gymnasium environment as a world: subclass `GymWorld`, declare knobs and skills, say how to make the environment.

In: one `gymnasium.Env` a setting, and a function from `info` to the skills it shows. Out: a `WorldVector` whose
sub-environments each have a setting of their own. `examples/vault.py` shows the whole of it.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from curricle.errors import DeclarationError, UsageError, WorldError, nearest
from curricle.setting import Setting
from curricle.world import VectorWorld, WorldVector


class GymWorld(VectorWorld):
    """The base for worlds made of single Gymnasium environments."""

    @abstractmethod
    def make(self, setting: Any) -> gymnasium.Env[Any, Any]:
        """Make an environment of a setting."""

    @abstractmethod
    def shown(self, info: Mapping[str, Any]) -> Iterable[str]:
        """Name the skills that a step's `info` shows; a skill shown once counts for the rest of the episode."""

    def vector(self, settings: Sequence[Setting]) -> WorldVector:
        """Step the environments one after the other in this process."""
        return GymVector(self, settings)


class _Slot(gymnasium.Env[Any, Any]):
    """One sub-environment: makes its environment anew when its setting has changed, and keeps book of its skills."""

    def __init__(self, world: GymWorld, setting: Setting) -> None:
        self.world, self.setting, self.wanted = world, setting, setting
        self.env = world.make(setting)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.names = [skill.name for skill in world.skills]
        self.skills = np.zeros(len(self.names), np.bool_)
        self.ended = self.skills  # skills of the episode before

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.wanted != self.setting:
            self.env.close()
            self.setting, self.env = self.wanted, self.world.make(self.wanted)
            if self.env.observation_space != self.observation_space or self.env.action_space != self.action_space:
                raise DeclarationError(f"{self.world.id}: its spaces change with the setting; they must stay the same")
            if seed is None:  # a new environment must not fall back on the operating system's entropy
                seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._np_random = np.random.default_rng(seed)
        self.ended, self.skills = self.skills, np.zeros(len(self.names), np.bool_)
        with self._blame("reset"):
            observation, _ = self.env.reset(seed=seed, options=options)
        return observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._blame("step"):
            observation, reward, terminated, truncated, info = self.env.step(action)
        if not np.isfinite(float(reward)):
            raise WorldError(f"{self.world.id} gave the reward {reward} in {self.setting!r}")
        for name in self.world.shown(info):
            if name not in self.names:
                raise DeclarationError(f"{self.world.id}.shown() names {name!r}, {nearest(name, self.names)}")
            self.skills[self.names.index(name)] = True
        return observation, reward, terminated, truncated, {}  # infos of any form do not stack; skills are what counts

    def close(self) -> None:
        self.env.close()

    @contextmanager
    def _blame(self, what: str) -> Iterator[None]:
        """A user's environment may raise anything: say which one, and in which setting."""
        try:
            yield
        except Exception as error:
            where = f"{self.world.id} broke down in {what}() with {self.setting!r}"
            raise WorldError(f"{where}: {type(error).__name__}: {error}") from error


class GymVector(WorldVector):
    """Gymnasium's own synchronous vector over slots."""

    def __init__(self, world: GymWorld, settings: Sequence[Setting]) -> None:
        self.slots = [_Slot(world, setting) for setting in settings]
        self.inner = SyncVectorEnv([_handing(slot) for slot in self.slots], autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs = self.inner.num_envs
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space

    def assign(self, index: int, setting: Setting) -> None:
        """Give a sub-environment another setting, from its next reset on."""
        self.slots[index].wanted = setting

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the masked sub-environments (default: all), each from its own seed and with its own setting."""
        options = dict(options or {})
        settings = options.pop("settings", None)
        if settings is not None:
            if len(settings) != self.num_envs:
                raise UsageError(f"{len(settings)} settings for {self.num_envs} environments; give one each")
            for index, setting in enumerate(settings):
                self.assign(index, setting)
        observations, info = self.inner.reset(
            seed=list(seed) if isinstance(seed, Sequence) else seed, options=options or None
        )
        return observations, {**info, "skills": self._skills(np.zeros(self.num_envs, np.bool_))}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all; what ends is started again at once."""
        observations, rewards, terminated, truncated, info = self.inner.step(actions)
        ended = terminated | truncated
        return observations, rewards, terminated, truncated, {**info, "skills": self._skills(ended)}

    def close(self, **kwargs: Any) -> None:
        """Close all sub-environments."""
        self.inner.close(**kwargs)

    def _skills(self, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.stack([slot.ended if over else slot.skills for slot, over in zip(self.slots, ended, strict=True)])


def _handing(slot: _Slot) -> Callable[[], _Slot]:
    return lambda: slot
