"""Any Gymnasium environment as a world: subclass `GymWorld`, declare knobs and skills, say how to make the environment.

In: a function that makes a `gymnasium.Env` for a setting, and one from `info` to the skills it shows. Out: a
`WorldVector` in which each sub-environment has its own setting. `examples/vault.py` is a complete example.
"""

import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from PIL import Image

from curricle.errors import CurricleError, DeclarationError, UsageError, WorldError, nearest
from curricle.setting import Setting
from curricle.world import VectorWorld, WorldVector

RETURNS = {"reset": "observation, info", "step": "observation, reward, terminated, truncated, info"}


class GymWorld(VectorWorld):
    """The base for worlds made of single Gymnasium environments."""

    @abstractmethod
    def make(self, setting: Any) -> gymnasium.Env[Any, Any]:
        """Make the environment of a setting. Its spaces must not depend on the setting, and its episodes must end."""

    @abstractmethod
    def shown(self, info: Mapping[str, Any]) -> Iterable[str]:
        """Name the skills that a step's `info` shows; a skill shown once counts for the rest of the episode.

        It is called with the infos of steps, not with those of resets.
        """

    def vector(self, settings: Sequence[Setting]) -> WorldVector:
        """Step the environments one after the other in this process."""
        return GymVector(self, settings)


class _Slot(gymnasium.Env[Any, Any]):
    """One sub-environment. It makes a new environment if the setting has changed, and notes the skills shown."""

    def __init__(self, world: GymWorld, setting: Setting) -> None:
        self.world = world
        self.setting = setting
        self.next_setting = setting
        self.env = self._make()
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        self.names = [skill.name for skill in world.skills]
        self.skills = np.zeros(len(self.names), np.bool_)
        self.ended = self.skills  # skills of the episode before
        self.last: Any = None  # the latest observation as the environment gave it, for errors
        self.on_observation: Callable[[Any], None] | None = None  # called with every observation (`curricle check`)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.next_setting != self.setting:
            self.env.close()
            before = self.setting
            self.setting = self.next_setting
            self.env = self._make()
            _compare(self.world, before, self, self.setting, self.env)
            if seed is None:  # a new environment must not fall back on the operating system's entropy
                seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._np_random = np.random.default_rng(seed)
        self.ended = self.skills
        self.skills = np.zeros(len(self.names), np.bool_)
        with self._blame("reset"):
            observation, _ = self.env.reset(seed=seed, options=options)
        self._note(observation)
        return observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._blame("step"):
            observation, reward, terminated, truncated, info = self.env.step(action)
        self._note(observation)
        try:
            finite = bool(np.isfinite(float(reward)))
        except (TypeError, ValueError):
            finite = False
        if not finite:
            raise WorldError(
                f"{self.world.id} gave the reward {reward!r} in {self.setting!r}; it must be a finite number"
            )
        with self._blame("shown"):
            shown = self.world.shown(info)
            if shown is None or isinstance(shown, str):
                raise TypeError(f"it returned {shown!r}, not a list of skills")
            shown = list(shown)
        for name in shown:
            if name not in self.names:
                raise DeclarationError(f"{self.world.id}.shown() names {name!r}, {nearest(name, self.names)}")
            self.skills[self.names.index(name)] = True
        return observation, reward, terminated, truncated, {}  # infos of any form do not stack; skills are what counts

    def close(self) -> None:
        self.env.close()

    def _note(self, observation: Any) -> None:
        """Keep an observation as it is; in a batch its type may change."""
        self.last = observation
        if self.on_observation is not None:
            self.on_observation(observation)

    def _make(self) -> gymnasium.Env[Any, Any]:
        """The environment of the setting."""
        with self._blame("make", "; a setting that cannot be built is to be refused by a model_validator of its class"):
            env = self.world.make(self.setting)
            if not isinstance(env, gymnasium.Env):
                raise TypeError(f"it returned {env!r}, not a gymnasium.Env")
        return env

    @contextmanager
    def _blame(self, what: str, advice: str = "") -> Iterator[None]:
        """Turn any error of a user's environment into one that names the world, the place and the setting."""
        try:
            yield
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f" ({Path(last.filename).name}, line {last.lineno})" if last.filename != __file__ else ""
            if what in RETURNS and "unpack" in str(error) and (not place or "gymnasium" in Path(last.filename).parts):
                advice = f"; {what}() returns {RETURNS[what]}"  # unpacked here or by a wrapper, not by the user's code
            where = f"{self.world.id} broke down in {what}() with {self.setting!r}"
            raise WorldError(f"{where}: {type(error).__name__}: {error}{place}{advice}") from error


class GymVector(WorldVector):
    """Gymnasium's synchronous vector of such sub-environments."""

    def __init__(self, world: GymWorld, settings: Sequence[Setting]) -> None:
        self.world = world
        self.slots = [_Slot(world, setting) for setting in settings]
        for slot in self.slots[1:]:
            _compare(world, self.slots[0].setting, self.slots[0], slot.setting, slot)
        self.inner = SyncVectorEnv([_returning(slot) for slot in self.slots], autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs = self.inner.num_envs
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def assign(self, index: int, setting: Setting) -> None:
        """Give a sub-environment another setting, from its next reset on."""
        self.slots[index].next_setting = setting

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
        with self._fitting():
            observations, info = self.inner.reset(
                seed=list(seed) if isinstance(seed, Sequence) else seed, options=options or None
            )
        return observations, {**info, "skills": self._skills(np.zeros(self.num_envs, np.bool_))}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all; where an episode ends, the next one begins at once."""
        with self._fitting():
            observations, rewards, terminated, truncated, info = self.inner.step(actions)
        ended = terminated | truncated
        return observations, rewards, terminated, truncated, {**info, "skills": self._skills(ended)}

    def close(self, **kwargs: Any) -> None:
        """Close all sub-environments."""
        self.inner.close(**kwargs)

    def picture(self, index: int, size: tuple[int, int], whole: bool = False) -> NDArray[np.uint8]:
        """What the environment renders, scaled."""
        frame = self.slots[index].env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UsageError(f"{self.world.id} renders no pictures; make its environment with render_mode='rgb_array'")
        scaled = Image.fromarray(frame.astype(np.uint8)[..., :3]).resize(size, Image.Resampling.NEAREST)
        return np.asarray(scaled, np.uint8)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Name the observation that does not fit its space; other errors are named by the sub-environment."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AssertionError) as error:
            if isinstance(error, CurricleError):
                raise
            space = self.single_observation_space
            right = _shapes(space.sample())
            for slot in self.slots:
                if slot.last is not None and (shapes := _shapes(slot.last)) != right:
                    raise WorldError(
                        f"{self.world.id} gave an observation of the shape {shapes} in {slot.setting!r}, which does "
                        f"not fit {space}; it must be {right}"
                    ) from error
            raise WorldError(f"{self.world.id} gave an observation that does not fit {space}: {error}") from error

    def _skills(self, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows = [slot.ended if over else slot.skills for slot, over in zip(self.slots, ended, strict=True)]
        return np.stack(rows)


def _shapes(observation: Any) -> str:
    """The shape of an observation, or of each of its parts."""
    if isinstance(observation, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shapes(observation[key])}" for key in sorted(observation, key=str)) + "}"
    if isinstance(observation, tuple):
        return "(" + ", ".join(map(_shapes, observation)) + ")"
    try:
        return str(np.shape(observation))
    except ValueError:  # lists of different lengths
        return f"of {observation!r:.100}"


def _compare(world: GymWorld, before: Setting, one: gymnasium.Env[Any, Any], after: Setting, other: Any) -> None:
    """Refuse spaces that change with the setting, because one network handles all settings."""
    for name in ("observation_space", "action_space"):
        mine = getattr(one, name)
        its = getattr(other, name)
        if mine != its:
            raise DeclarationError(
                f"{world.id}: its {name} changes with the setting and must stay the same: {mine} in {before!r}, "
                f"{its} in {after!r}"
            )


def _returning(slot: _Slot) -> Callable[[], _Slot]:
    return lambda: slot
