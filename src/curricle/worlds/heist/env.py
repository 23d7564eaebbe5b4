"""Gymnasium's side of Heist: a vector environment whose environments each have a setting, and a single environment.

`HeistEnv` is registered as `curricle/Heist-v1`. Seeds are Procgen's: environment i of a vector that is reset with seed
S plays the levels of environment i of `ProcgenEnv(rand_seed=S)`, and one that gets a seed of its own those of the only
environment there is with that seed. Observations are `pixels`, `symbols` (see symbols.py) or `text`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.worlds.heist.engine.batch import Engine, View
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.observe import symbols
from curricle.worlds.heist.observe.description import LONGEST, describe
from curricle.worlds.heist.observe.frames import draw
from curricle.worlds.heist.observe.images import own_pictures, pictures_from
from curricle.worlds.heist.setting import HeistSetting, knobs_of
from curricle.worlds.simulation.vector import EngineEnv, EngineVector, Observation

_WORD = 2**32


def space_of(observation: Observation, size: int) -> gymnasium.Space[Any]:
    """The space of one environment's observations."""
    if observation == "pixels":
        return gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
    if observation == "symbols":
        return gymnasium.spaces.Box(np.zeros(symbols.WIDTH, np.uint8), symbols.highest(), dtype=np.uint8)
    return gymnasium.spaces.Text(LONGEST, charset="".join(map(chr, range(32, 127))) + "\n")


class HeistVector(EngineVector):
    """Many environments in one engine."""

    def __init__(
        self,
        settings: Sequence[HeistSetting],
        observation: Observation = "symbols",
        *,
        size: int = 64,
        pictures: Path | None = None,
        levels: int = 0,
        first_level: int = 0,
        autoreset: bool = True,
    ) -> None:
        view: View = "state" if observation == "text" else observation
        engine = Engine(len(settings), view, size=size, pictures=pictures, levels=levels, first_level=first_level)
        self.start(engine, observation, space_of(observation, size), r.ACTIONS, autoreset)
        self._pictures = pictures
        for index, setting in enumerate(settings):
            self.assign(index, setting)

    def knobs(self, index: int, setting: Setting) -> NDArray[Any]:
        """The numbers of a HeistSetting."""
        if not isinstance(setting, HeistSetting):
            raise UsageError(f"environment {index} needs a HeistSetting, not {setting!r}")
        return knobs_of(setting)

    def describe(self, state: Any) -> str:
        """What one record's player sees, in words."""
        return describe(state)

    def seeds(self, seed: int) -> list[int]:
        """Word i of the stream of Procgen's `rand_seed` seeds the levels of environment i."""
        words = np.random.RandomState(seed % _WORD).randint(_WORD, size=self.num_envs, dtype=np.uint32)
        return [int(word) for word in words]

    def seed_of(self, seed: int) -> int:
        """What `seeds` gives to the first environment."""
        return int(np.random.RandomState(seed % _WORD).randint(_WORD, dtype=np.uint32))

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        super().restore(snapshot)
        self.engine.forget_frames()

    def picture(self, index: int, size: tuple[int, int], whole: bool = False) -> NDArray[np.uint8]:
        """What one player sees now, or its whole world; a border that fits no square stays black."""
        side = min(size)
        drawn = np.zeros((side, side, 3), np.uint8)
        pictures = pictures_from(self._pictures) if self._pictures else own_pictures()
        draw(self.engine.states[index], drawn, pictures, whole)
        frame = np.zeros((*size, 3), np.uint8)
        top = (size[0] - side) // 2
        left = (size[1] - side) // 2
        frame[top : top + side, left : left + side] = drawn
        return frame


class HeistEnv(EngineEnv):
    """One environment; `setting` is a HeistSetting or its values."""

    def __init__(
        self,
        setting: HeistSetting | Mapping[str, Any] | None = None,
        observation: Observation = "pixels",
        *,
        size: int = 64,
        pictures: Path | None = None,
        levels: int = 0,
        first_level: int = 0,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (512, 512),
    ) -> None:
        self.setting = setting if isinstance(setting, HeistSetting) else HeistSetting.of(setting or {})
        vector = HeistVector(
            [self.setting],
            observation,
            size=size,
            pictures=pictures,
            levels=levels,
            first_level=first_level,
            autoreset=False,
        )
        super().__init__(vector, render_mode, render_size)
