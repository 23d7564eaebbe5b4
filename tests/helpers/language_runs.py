"""Configs of small runs with two language models."""

from helpers import paths
from helpers.tiny_model import tiny


def run(designer, **more):
    return {
        "world": {"id": paths.PICK},
        "agent": {
            "id": "grpo",
            "model": tiny(),
            "device": "cpu",
            "learning_rate": 1e-3,
            "max_tokens": 4,
            "tasks_per_update": 2,
            "group_size": 2,
            "replay_share": 0.3,
        },
        "designer": designer,
        "schedule": {
            "cycles": 2,
            "designs": 2,
            "per_cycle": 8,
            "ratio": "1:1",
            "final": 4,
            "save_every": 4,
            "test_seeds": 2,
        },
        "log": {"tensorboard": False},
        **more,
    }
