"""A Gymnasium environment as a world: a vault with three doors, one behind another, each locked by a combination.

    curricle run examples/vault.py:Vault

`VaultEnv` is an ordinary Gymnasium environment. `VaultSetting` and `Vault` are what you would write around your own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from curricle import GymWorld, Setting, Skill, knob

DOORS = 3
DIALS = 5
DIGITS = 4
MAX_STEPS = 50
COMBINATIONS = np.random.default_rng(7).integers(DIGITS, size=(DOORS, DIALS))


class VaultEnv(gymnasium.Env[Any, Any]):
    """Each step enters one digit.

    A right digit moves on to the next dial. A wrong one resets the door, and may raise the alarm and end the episode.
    Each door that opens gives a reward of 1. The episode also ends with the last door.
    """

    observation_space = gymnasium.spaces.MultiDiscrete([DOORS, DIALS])  # the door, and the dial to set next
    action_space = gymnasium.spaces.Discrete(DIGITS)

    def __init__(self, dials: int, open_doors: int, alarm: float) -> None:
        self.dials = dials
        self.open_doors = open_doors
        self.alarm = alarm

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.door = self.open_doors
        self.dial = 0
        self.steps = 0
        return np.array([self.door, self.dial]), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        right = action == COMBINATIONS[self.door, self.dial]
        caught = not right and self.np_random.random() < self.alarm
        self.dial = self.dial + 1 if right else 0
        opened = self.door if self.dial == self.dials else None
        terminated = opened == DOORS - 1 or caught
        if opened is not None:
            self.door = min(self.door + 1, DOORS - 1)
            self.dial = 0
        reward = float(opened is not None)
        truncated = self.steps >= MAX_STEPS
        return np.array([self.door, self.dial]), reward, terminated, truncated, {"opened": opened}


class VaultSetting(Setting):
    """What a design can change about the vault. The defaults are the original world, in which agents are tested."""

    dials: int = knob(5, "Dials of each combination.", ge=1, le=DIALS, harder="up")
    open_doors: int = knob(0, "Doors that stand open at the start.", ge=0, le=DOORS - 1)
    alarm: float = knob(1.0, "Chance that a wrong digit ends the attempt.", ge=0.0, le=1.0, harder="up")


class Vault(GymWorld):
    """The vault, with one skill for each door. A door's skill is shown when the agent opens it."""

    id = "vault-v1"
    Setting = VaultSetting
    skills = (
        Skill(name="open_1", eased_by={"alarm": 0.1}),
        Skill(name="open_2", needs=("open_1",), eased_by={"alarm": 0.1, "open_doors": 1}),
        Skill(name="open_3", needs=("open_2",), eased_by={"alarm": 0.1, "open_doors": 2}),
    )
    guide = "Three doors, one behind the other. Each opens when the digits of its combination are entered in order."
    suggests = {
        "agent": {"id": "tabular"},
        "schedule": {"cycles": 4, "designs": 3, "per_cycle": 8_000, "final": 8_000, "save_every": 4_000},
    }

    def make(self, setting: VaultSetting) -> VaultEnv:
        return VaultEnv(setting.dials, setting.open_doors, setting.alarm)

    def shown(self, info: Mapping[str, Any]) -> Iterable[str]:
        return [] if info["opened"] is None else [f"open_{info['opened'] + 1}"]
