"""A Gymnasium environment made into a world: a vault with three doors, one behind the other, each with a combination.

    curricle run examples/vault.py:Vault

The environment, `VaultEnv`, is an ordinary one; `VaultSetting` and `Vault` are what you would write around yours.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from curricle import GymWorld, Setting, Skill, knob

DOORS, DIALS, DIGITS = 3, 5, 4
SECRET = np.random.default_rng(7).integers(DIGITS, size=(DOORS, DIALS))


class VaultEnv(gymnasium.Env[Any, Any]):
    """Each step enters a digit: a right one leads to the next dial, a wrong one raises the alarm. A door pays 1."""

    observation_space = gymnasium.spaces.MultiDiscrete([DOORS, DIALS])  # the door, and which of its dials comes next
    action_space = gymnasium.spaces.Discrete(DIGITS)

    def __init__(self, dials: int, open_doors: int, alarm: float) -> None:
        self.dials, self.open_doors, self.alarm = dials, open_doors, alarm

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.door, self.dial, self.clock = self.open_doors, 0, 0
        return np.array([self.door, self.dial]), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.clock += 1
        right = action == SECRET[self.door, self.dial]
        caught = not right and self.np_random.random() < self.alarm
        self.dial = self.dial + 1 if right else 0
        opened = self.door if self.dial == self.dials else None
        done = opened == DOORS - 1 or caught
        if opened is not None:
            self.door, self.dial = min(self.door + 1, DOORS - 1), 0
        return np.array([self.door, self.dial]), float(opened is not None), done, self.clock >= 50, {"opened": opened}


class VaultSetting(Setting):
    """What can be changed about the vault; the defaults are the world that counts."""

    dials: int = knob(5, "Dials of each combination.", ge=1, le=DIALS, harder="up")
    open_doors: int = knob(0, "Doors that stand open at the start.", ge=0, le=DOORS - 1)
    alarm: float = knob(1.0, "Chance that a wrong digit ends the attempt.", ge=0.0, le=1.0, harder="up")


class Vault(GymWorld):
    """A vault with three doors behind each other."""

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
