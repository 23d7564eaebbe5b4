"""The config of a small run."""

from typing import Any

from helpers import paths

PLAIN: dict[str, Any] = {
    "world": {"id": paths.VAULT},
    "schedule": {"cycles": 2, "designs": 2, "per_cycle": 400, "final": 400, "save_every": 100, "test_seeds": 2},
    "log": {"tensorboard": False},
}
