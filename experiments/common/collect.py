"""Turn a finished run folder into a line of data.

A line has the run's config, its scores in training and in tests, and how long training took on which machine.
`late_reward` is the mean return of the training episodes that ended in the last 100,000 steps. Papers on Crafter print
it as the reward beside a score over all training episodes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curricle.records import Scores
from curricle.run import read_config, read_environment, read_metrics, read_records, read_timings

LATE = 100_000


def summary(folder: Path) -> dict[str, Any]:
    """The result of one run, as plain data."""
    _, scores = read_records(folder, Scores)[-1]
    practice = [timing["seconds"] for timing in read_timings(folder) if timing["phase"] in ("designed", "original")]
    machine = read_environment(folder)[0]
    return {
        "config": read_config(folder),
        "trained": scores.trained.model_dump(mode="json") if scores.trained else None,
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
    rows = [row for row in metrics if row.get("practice/episodes") is not None]
    total = 0.0
    count = 0.0
    before = 0.0
    for row in rows:
        episodes = row["practice/episodes"]  # counted from the start of this stretch of practice
        new = episodes - before if episodes >= before else episodes
        before = episodes
        if row["at"] > rows[-1]["at"] - LATE and row.get("practice/return") is not None:
            total += new * row["practice/return"]
            count += new
    return round(total / count, 3) if count else None
