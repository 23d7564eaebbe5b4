"""The config of a small run."""

from helpers import paths

PLAIN = {
    "world": {"id": paths.VAULT},
    "schedule": {"cycles": 2, "designs": 2, "per_cycle": 400, "final": 400, "save_every": 100, "test_seeds": 2},
    "log": {"tensorboard": False},
}
