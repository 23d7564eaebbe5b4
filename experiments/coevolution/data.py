"""One line of data from a finished run folder."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from genenv import has_agent, portable

from curricle.records import Outcome, Scores
from curricle.run import read_config, read_metrics, read_records, read_timings

__all__ = ["has_agent", "result"]
LEVELS = [f"level_{level}" for level in range(1, 7)]
WRITING = (
    "candidates",
    "refused",
    "duplicate",
    "fallback",
    "wider",
    "distinct_2",
    "near_duplicates",
    "success",
    "in_band",
    "updates",
    "kl_initial",
)
"""Metrics of the environment policy that the data keep, by cycle."""


def result(folder: Path) -> dict[str, Any]:
    """Success by level at every test, what was practised on, what the environment policy wrote, and what it cost."""
    tests = []
    for _, scores in read_records(folder, Scores):
        tests.append([round(scores.skills[level].mean, 3) if scores.skills[level].n else None for level in LEVELS])
    practised = defaultdict[int, list[Outcome]](list)
    for step, outcome in read_records(folder, Outcome):
        if step.phase in ("designed", "original"):
            practised[step.cycle].append(outcome)
    seconds: dict[str, float] = defaultdict(float)
    for timing in read_timings(folder):
        seconds[timing["phase"]] += timing["seconds"]
    return {
        "tests": tests,
        "rollouts": [sum(outcome.spent for outcome in outcomes) for _, outcomes in sorted(practised.items())],
        "shares": [level_shares(outcomes) for _, outcomes in sorted(practised.items())],
        "success": [success(outcomes) for _, outcomes in sorted(practised.items())],
        "written": [level_shares(written(outcomes)) for _, outcomes in sorted(practised.items())],
        "writing": writing(folder),
        "trials": sum(row.get("trial/spent", 0) for row in read_metrics(folder)),
        "seconds": {phase: round(value, 1) for phase, value in sorted(seconds.items())},
        "config": portable(read_config(folder)),
    }


def level_shares(outcomes: list[Outcome]) -> list[float]:
    """The share of a cycle's attempts at each level."""
    tried = {level: sum(outcome.tried.get(level, 0) for outcome in outcomes) for level in LEVELS}
    total = max(1, sum(tried.values()))
    return [round(tried[level] / total, 3) for level in LEVELS]


def written(outcomes: list[Outcome]) -> list[Outcome]:
    """Those in designs that the environment policy wrote: no fallback, and not the original."""
    return [outcome for outcome in outcomes if outcome.design.by.startswith("language") and not outcome.design.changed]


def success(outcomes: list[Outcome]) -> float:
    """Success in a cycle's practice."""
    attempts = sum(outcome.attempts for outcome in outcomes)
    shown = sum(sum(outcome.skills.values()) for outcome in outcomes)
    return round(shown / max(1, attempts), 3)


def writing(folder: Path) -> dict[str, list[float]]:
    """The environment policy's metrics by cycle; empty where no model writes."""
    found: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in WRITING}
    for row in read_metrics(folder):
        for name in WRITING:
            value = row.get(f"design/{name}")
            if value is not None:
                found[name][row["cycle"]].append(value)
    means: dict[str, list[float]] = {}
    for name, cycles in found.items():
        if cycles:
            means[name] = [round(statistics.fmean(values), 3) for _, values in sorted(cycles.items())]
    return means
