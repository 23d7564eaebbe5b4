"""A tiny world with continuous actions and a dict observation, so that `same_bytes.py` covers those paths of PPO."""

from typing import Any

import gymnasium
import numpy as np

from curricle import GymWorld, Setting, Skill, knob


class AimSetting(Setting):
    """Where the target may lie."""

    reach: float = knob(1.0, "How far from the centre targets lie.", ge=0.1, le=1.0, harder="up")


class AimEnv(gymnasium.Env[Any, Any]):
    """Move a point to a target; the episode ends near it, or after 20 steps."""

    observation_space = gymnasium.spaces.Dict(
        image=gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8),
        offset=gymnasium.spaces.Box(-2, 2, (2,), np.float32),
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, reach: float) -> None:
        self.reach = reach

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a target."""
        super().reset(seed=seed)
        self.point = np.zeros(2, np.float32)
        self.target = self.np_random.uniform(-self.reach, self.reach, 2).astype(np.float32)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move by a fifth of the action."""
        self.point = np.clip(self.point + 0.2 * np.asarray(action, np.float32), -1, 1)
        distance = float(np.abs(self.point - self.target).max())
        near = distance < 0.2
        return self._observe(), -distance, near, False, {"near": near}

    def _observe(self) -> dict[str, Any]:
        image = np.zeros((8, 8, 1), np.uint8)
        row, column = ((self.target + 1) * 3.99).astype(int)
        image[row, column] = 255
        return {"image": image, "offset": self.target - self.point}


class Aim(GymWorld):
    """Reach a target."""

    id = "aim-v1"
    Setting = AimSetting
    skills = (Skill(name="near", eased_by={"reach": 0.1}),)
    guide = "Move the point to the target."

    def make(self, setting: Any) -> gymnasium.Env[Any, Any]:
        """One environment with its own limit of steps."""
        return gymnasium.wrappers.TimeLimit(AimEnv(setting.reach), 20)

    def shown(self, info: Any) -> list[str]:
        """The one skill there is."""
        return ["near"] if info.get("near") else []
