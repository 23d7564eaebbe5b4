"""The knobs of Heist; the defaults are Procgen's hard mode, bit for bit.

`HeistSetting` is what designers choose from. `knobs_of(setting)` turns it into the numbers the kernels read
(`state.KNOBS`). Combinations in which a value could have no effect, or that no level can have, are refused by name.
"""

import functools
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from curricle.setting import Setting, knob
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import ALL_DOORS, ANYWHERE, KEYS_BY_MAZE, KEYS_DRAWN, KNOBS

_HARD: Final = 13


class HeistSetting(Setting):
    """How a level of Heist is made and what the player starts with."""

    world_size: int = knob(_HARD, "Side of the square world in cells.", ge=5, le=r.LARGEST, harder="up")
    maze_size: Literal["5", "7", "9", "any", "11", "13", "15", "17", "19", "21", "23"] = knob(
        "any", "Side of the maze in cells; any draws it anew for each level, up to the world's.", harder="up"
    )
    keys: Literal["0", "1", "any", "2", "by maze", "3"] = knob(
        "by maze",
        "Number of keys, each with its door; by maze: more in larger mazes; any: 0 to 3 at random.",
        harder="up",
    )
    doors_before_gem: Literal["0", "1", "2", "all"] = knob(
        "all", "How many doors have to be opened on the way to the gem.", harder="up"
    )
    keys_held: int = knob(0, "Keys held at the start, the first ones.", ge=0, le=r.MOST_KEYS, harder="down")
    doors_open: int = knob(0, "Doors open at the start, the first ones.", ge=0, le=r.MOST_KEYS, harder="down")
    key_within: int = knob(
        ANYWHERE,
        "Longest walk from the start to the first key that lies about, in cells; 100 is no limit.",
        ge=1,
        le=ANYWHERE,
        harder="up",
    )
    gem_within: int = knob(
        ANYWHERE, "Longest walk from the start to the gem, in cells; 100 is no limit.", ge=1, le=ANYWHERE, harder="up"
    )
    partial_view: bool = knob(False, "The player sees only the 8 x 8 cells around it.", harder="up")
    time_limit: int = knob(r.LENGTH, "Steps after which an episode ends.", ge=50, le=r.LENGTH, harder="down")
    speed: float = knob(1.0, "How fast the player is.", ge=0.5, le=2.0, harder="down")

    @field_validator("maze_size", "keys", "doors_before_gem", mode="before")
    @classmethod
    def _as_word(cls, value: Any) -> Any:
        """A number may be given as a number."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Refuse combinations that no level can have, or in which a value would do nothing."""
        if self.maze_size != "any" and int(self.maze_size) > self.world_size:
            raise ValueError(
                f"maze_size = {self.maze_size!r} does not fit into world_size = {self.world_size}; "
                f"use a maze of at most {self.world_size} or a larger world"
            )
        if self.keys in ("by maze", "any"):
            return self
        keys = int(self.keys)
        for name in ("keys_held", "doors_open"):
            if getattr(self, name) > keys:
                raise ValueError(
                    f"{name} = {getattr(self, name)} needs as many keys and doors, and keys = {self.keys!r}"
                )
        if self.doors_before_gem != "all" and int(self.doors_before_gem) > keys:
            raise ValueError(
                f"doors_before_gem = {self.doors_before_gem!r} needs as many doors, and keys = {self.keys!r}; use 'all'"
            )
        if self.key_within < ANYWHERE and self.keys_held >= keys:
            raise ValueError(f"key_within = {self.key_within} needs a key that lies about; use {ANYWHERE} or more keys")
        return self


_KEYS: Final = {"by maze": KEYS_BY_MAZE, "any": KEYS_DRAWN}


@functools.lru_cache(64)
def knobs_of(setting: HeistSetting) -> NDArray[np.void]:
    """The numbers of a setting, as an array of one KNOBS record, which is not to be written to."""
    numbers = np.zeros(1, KNOBS)
    k = numbers[0]
    k["world"] = setting.world_size
    k["maze"] = 0 if setting.maze_size == "any" else int(setting.maze_size)
    k["keys"] = _KEYS[setting.keys] if setting.keys in _KEYS else int(setting.keys)
    k["doors_before_gem"] = ALL_DOORS if setting.doors_before_gem == "all" else int(setting.doors_before_gem)
    k["held"] = setting.keys_held
    k["open"] = setting.doors_open
    k["key_within"] = setting.key_within
    k["gem_within"] = setting.gem_within
    k["centred"] = setting.partial_view
    k["length"] = setting.time_limit
    speed = r.SPEED * np.float32(setting.speed)
    k["push"] = r.KEPT * speed
    numbers.flags.writeable = False
    return numbers
