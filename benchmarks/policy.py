"""Policy: how long the designer `policy` takes, compared with the practice that it designs for.

    python benchmarks/policy.py [WORLD] [--cycles 12] [--set schedule.per_cycle=24000] [--json]

A short run of the policy in a world (default: crafter, the budgets of `configs/policy-crafter.toml`). Prints
milliseconds a design and an update take (medians over cycles), and their share of the practice in the same run.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curricle import config


def timed(owner: type, method: str, seconds: list[float]) -> None:
    """Note how long each call of a method takes from now on."""
    inner: Callable[..., Any] = getattr(owner, method)

    def call(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*given, **named)
        finally:
            seconds.append(time.perf_counter() - start)

    setattr(owner, method, call)


def measure(world: str, cycles: int, pairs: list[str]) -> dict[str, float]:
    """Make a run and measure its parts."""
    plain = {"world": {"id": world}, "designer": {"id": "policy"}}
    plain["schedule"] = {"cycles": cycles, "designs": 4, "per_cycle": 24_000, "final": 0, "test_seeds": 2}  # type: ignore[dict-item]
    chosen = config.resolve(config.override(plain, pairs))
    took = {"propose": list[float](), "learn": list[float](), "practise": list[float]()}
    for name, owner in (("propose", chosen.designer), ("learn", chosen.designer), ("practise", chosen.agent)):
        timed(owner, name, took[name])
    with tempfile.TemporaryDirectory() as folder:
        config.start(chosen, Path(folder) / "run")
    spent = sum(took["propose"]) + sum(took["learn"])
    return {
        "ms_a_design": round(1000 * statistics.median(took["propose"]) / chosen.schedule.designs, 1),
        "ms_an_update": round(1000 * statistics.median(took["learn"]), 1),
        "share_of_practice": round(spent / sum(took["practise"]), 4),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", nargs="?", default="crafter")
    parser.add_argument("--cycles", type=int, default=12)
    parser.add_argument("--set", nargs="*", action="extend", default=[], dest="pairs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.world, given.cycles, given.pairs)
    print(json.dumps(found) if given.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
