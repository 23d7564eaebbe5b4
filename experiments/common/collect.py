"""Turn finished run folders into lines of data.

    python experiments/collect.py RUN... >> experiments/NAME/results.jsonl

One line a run: what was run, both protocols' figures, and how long practice took on which machine. `late_reward` is the
mean return of the training episodes that ended in the last 100,000 steps: what papers on Crafter print as reward beside
a score over all training episodes.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curricle.records import Scores
from curricle.run import read_config, read_environment, read_metrics, read_records, read_timings

LATE = 100_000


def summary(folder: Path) -> dict[str, Any]:
    """The result of one run, as plain data."""
    config, (_, scores) = read_config(folder), read_records(folder, Scores)[-1]
    practice = [t["seconds"] for t in read_timings(folder) if t["phase"] in ("designed", "original")]
    machine = read_environment(folder)[0]
    trained = scores.trained.model_dump(mode="json") if scores.trained else None
    return {
        "config": config,
        "trained": trained,
        "late_reward": late_reward(list(read_metrics(folder))),
        "tested": {
            "headline": scores.headline,
            "reward": scores.reward.mean,
            "skills": {name: score.mean for name, score in scores.skills.items()},
        },
        "practice_seconds": round(sum(practice), 1),
        "machine": {"gpu": machine["gpu"], "processor": machine["processor"], "packages": machine["packages"]},
    }


def late_reward(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean return of the training episodes that ended in the last steps of a run; None where none is known."""
    total, count, before = 0.0, 0.0, 0.0
    rows = [row for row in metrics if row.get("practice/episodes") is not None]
    for row in rows:
        episodes = row["practice/episodes"]  # so far in this part of the practice
        fresh, before = episodes - before if episodes >= before else episodes, episodes
        if row["at"] > rows[-1]["at"] - LATE and row.get("practice/return") is not None:
            total, count = total + fresh * row["practice/return"], count + fresh
    return round(total / count, 3) if count else None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(summary(Path(name))))
