"""Text worlds: tasks in words with verifiers that no generator can talk to. `docs/text.md` is their page."""

from collections.abc import Mapping
from typing import Any

PLAYERS: Mapping[str, Mapping[str, Any]] = {
    "agent": {"id": "grpo", "lora": 16, "rate": 1e-4, "most_tokens": 48, "tasks": 2, "micro": 2},
    "designer": {
        "id": "language",
        "lora": 16,
        "rate": 1e-4,
        "aim": "task",
        "n": 5,
        "text": "off",
        "micro": 1,  # a request holds the whole guide, and training keeps about a megabyte for each of its tokens
    },
    "schedule": {
        "cycles": 2,
        "designs": 2,
        "per_cycle": 32,  # 16 attempts a design: of 8 only p = 1/2 itself would lie in the band
        "ratio": "1:0",
        "final": 0,
        "test_seeds": 1,
        "test_episodes": 7,  # one of each kind of tool task
    },
}
"""Two language models that co-evolve, at toy length for two cores; `configs/genenv-small.toml` is for a GPU."""
