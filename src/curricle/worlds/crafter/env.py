"""Crafter for Gymnasium: a vector environment in which each environment has its own setting, and a single environment.

`CrafterVector` is a `curricle.world.WorldVector`: autoreset in the same step, a seed and a setting a sub-environment.
`CrafterEnv` is registered as `curricle/Crafter-v1`. With a seed, an environment plays the episodes that
`crafter.Env(seed=seed)` would play. Observations are `pixels`, `symbols` (see symbols.py) or `text`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.worlds.crafter.engine.batch import Engine, View, engines
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.observe import symbols
from curricle.worlds.crafter.observe.description import LONGEST, describe
from curricle.worlds.crafter.observe.pictures import chart_of, frame_of
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of
from curricle.worlds.simulation.vector import EngineEnv, EngineVector, Observation


def space_of(observation: Observation, size: int) -> gymnasium.Space[Any]:
    """The space of one environment's observations."""
    if observation == "pixels":
        return gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
    if observation == "symbols":
        return gymnasium.spaces.Box(np.zeros(symbols.WIDTH, np.uint8), symbols.HIGHEST, dtype=np.uint8)
    return gymnasium.spaces.Text(LONGEST, charset="".join(map(chr, range(32, 127))) + "\n")


def _view(observation: Observation) -> View:
    return "state" if observation == "text" else observation


class CrafterVector(EngineVector):
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
        if engine is None:
            (engine,) = engines([len(settings)], _view(observation), exact=exact, size=size, threads=threads)
        self.start(engine, observation, space_of(observation, size), len(r.ACTIONS), autoreset)
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

    def knobs(self, index: int, setting: Setting) -> NDArray[Any]:
        """The numbers of a CrafterSetting."""
        if not isinstance(setting, CrafterSetting):
            raise UsageError(f"environment {index} needs a CrafterSetting, not {setting!r}")
        return knobs_of(setting)

    def describe(self, state: Any) -> str:
        """What one record's player sees, in words."""
        return describe(state)

    def picture(self, index: int, size: tuple[int, int], whole: bool = False) -> NDArray[np.uint8]:
        """What one player sees now, or its whole map."""
        draw = chart_of if whole else frame_of
        return draw(self.engine.states[index], size)

    def observation_arrays(self) -> Any | None:
        """The array that observations are written into, if it has memory pages of its own."""
        if self.observation == "text" or not self.engine.owns_its_pages:
            return None
        return self.engine.observed


class CrafterEnv(EngineEnv):
    """One environment; `setting` is a CrafterSetting or its values."""

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
        vector = CrafterVector([self.setting], observation, exact=exact, size=size, autoreset=False)
        super().__init__(vector, render_mode, render_size)
