"""One level step by step with its whole inner state in plain data, to compare with records of the real game.

`trace_player(mode)` plays Procgen's `easy`, `hard`, `memory` or `exploration`. Floats are the 8 hex digits of their
float32 bits, so that two states are equal only if every bit is. `tests/worlds/heist/` has such records.
"""

from typing import Any, Final, Literal

import numpy as np

from curricle.errors import UsageError, nearest
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD, STATE
from curricle.worlds.heist.game.step import is_over, is_solved, reset, step
from curricle.worlds.heist.levels.maze import SCRATCH
from curricle.worlds.heist.setting import HeistSetting, knobs_of

Mode = Literal["easy", "hard", "memory", "exploration"]
MODES: Final[dict[str, HeistSetting]] = {
    "easy": HeistSetting(world_size=9),
    "hard": HeistSetting(),
    "memory": HeistSetting(world_size=23, keys="any", partial_view=True),
    "exploration": HeistSetting(),
}
"""Procgen's modes as settings."""
EXPLORATION_LEVEL: Final = 876640971
"""The one level of the mode `exploration`."""


class TracePlayer:
    """A level of one of Procgen's modes; `reset` and `step` return its state as plain data."""

    def __init__(self, setting: HeistSetting) -> None:
        self._states = np.zeros(1, STATE)
        self._s: Any = self._states[0]
        self._s["upcoming"] = knobs_of(setting)[0]
        self._s["level_count"] = 1
        self._scratch: Any = np.zeros(1, SCRATCH)[0]
        self._doors = list[int]()

    @property
    def state(self) -> Any:
        """The environment's record, as kernels know it."""
        return self._s

    def reset(self, level_seed: int) -> dict[str, Any]:
        """Begin a level; returns its first state."""
        if not 0 <= level_seed < 2**31:
            raise UsageError(f"level_seed = {level_seed!r} is out of range; use 0 to {2**31 - 1}")
        self._s["first_level"] = level_seed
        reset(self._s, self._scratch)
        self._doors = self._doors_left()
        return self._state()

    def step(self, action: int) -> tuple[float, bool, dict[str, Any]]:
        """Play one step; returns the reward, whether the episode ended, and the state."""
        if not 0 <= action < r.ACTIONS:
            raise UsageError(f"action = {action!r} does not exist; use 0 to {r.ACTIONS - 1}")
        reward = step(self._s, action)
        return float(reward), bool(is_solved(self._s) or is_over(self._s)), self._state()

    def _doors_left(self) -> list[int]:
        """The numbers of the closed doors."""
        s = self._s
        return [int(s["number"][i]) for i in range(s["items"]) if s["kind"][i] == r.DOOR and not s["gone"][i]]

    def _state(self) -> dict[str, Any]:
        s = self._s
        rows = s["cells"][PAD : PAD + s["world"], PAD : PAD + s["world"]]
        return {
            "agent": [_hex(s[name]) for name in ("x", "y", "vx", "vy")],
            "keys_held": [number for number in range(s["keys"]) if s["held"][number]],
            "doors_open": sorted(set(self._doors) - set(self._doors_left())),
            "entities": [*self._items(), *self._ring()],
            "grid": ["".join("#" if cell == r.WALL else "." for cell in row) for row in rows],
        }

    def _items(self) -> list[list[Any]]:
        s = self._s
        found = list[list[Any]]()
        for i in range(s["items"]):
            if not s["gone"][i]:
                floats = [_hex(s[name][i]) for name in ("item_x", "item_y", "half_width", "half_height")]
                found.append([int(s["kind"][i]), int(s["number"][i]), *floats])
        return found

    def _ring(self) -> list[list[Any]]:
        """The pictures in the corner; Procgen keeps one for each key, held or not."""
        same = [_hex(value) for value in (r.RING_Y, r.RING_RADIUS, r.RING_HEIGHT)]
        return [[r.RING, number, _hex(r.RING_X[number]), *same] for number in range(self._s["keys"])]


def trace_player(mode: Mode) -> TracePlayer:
    """A player of Procgen's levels in one of its modes."""
    if mode not in MODES:
        raise UsageError(f"there is no mode {mode!r} of Heist; {nearest(mode, MODES)}")
    return TracePlayer(MODES[mode])


def _hex(value: Any) -> str:
    """The bits of a float32, most significant digit first."""
    return np.array(value, ">f4").tobytes().hex()
