"""What to watch in a run of text tasks: success in the designs against the band, signs of trouble, both updates.

Success is counted from the records, so that runs of every designer have it; the rest is as the players reported it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from curricle.designers import reward
from curricle.records import Outcome, Scores
from curricle.run import read_config, read_metrics, read_records

COLUMNS = 6
"""Cycles that are shown, the last ones."""
REPORTED = (
    "design/near_duplicates",
    "design/distinct_2",
    "design/length",
    "design/fallback",
    "design/stuck",
    "design/kl_initial",
    "practice/success",
    "practice/endless",
    "practice/unverified",
    "practice/tokens",
    "practice/kl",
)


def watched(folder: Path) -> list[Table]:
    """The metrics of the last cycles; nothing for agents that are not trained on text tasks."""
    reported = _reported(read_metrics(folder))
    if not any("practice/kl" in metrics for metrics in reported.values()):
        return []
    config = read_config(folder)
    of = config["designer"].get("of_options", config["designer"])
    counted = _counted(folder, float(of.get("alpha", 0.5)), float(of.get("k_min", 0.1)))
    cycles = [cycle for cycle in sorted(counted | reported) if cycle <= config["schedule"]["cycles"]][-COLUMNS:]
    metrics = {cycle: counted.get(cycle, {}) | reported.get(cycle, {}) for cycle in cycles}
    shown = Table(title="what to watch", caption="means over a cycle; success in designs without fallbacks")
    shown.add_column("figure")
    for cycle in cycles:
        shown.add_column(f"cycle {cycle}", justify="right")
    first = dict.fromkeys(name for cycle in cycles for name in counted.get(cycle, {}))
    for name in (*first, *(name for name in REPORTED if any(name in metrics[cycle] for cycle in cycles))):
        cells = (metrics[cycle].get(name) for cycle in cycles)
        shown.add_row(name, *("" if value is None else f"{value:.3g}" for value in cells))
    return [shown]


def _reported(lines: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """Of each cycle, the means of what was reported."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name in (name for name in REPORTED if line.get(name) is not None):
            found[line["cycle"]][name].append(line[name])
    return {
        cycle: {name: sum(metrics[name]) / len(metrics[name]) for name in REPORTED if name in metrics}
        for cycle, metrics in found.items()
    }


def _counted(folder: Path, alpha: float, k_min: float) -> dict[int, dict[str, float]]:
    """Of each cycle, where success in its designs lay (in the original, where nobody designed), and what that means."""
    tried: dict[int, dict[int, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[tuple[int, int], int] = defaultdict(int)
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed":
            place = seen[step.cycle, step.part] = seen[step.cycle, step.part] + 1
            if outcome.attempts and not outcome.design.by.endswith(" fallback"):
                tried[step.cycle][place].append(outcome)
    headlines = {step.cycle: scores.headline for step, scores in read_records(folder, Scores)}
    found = dict[int, dict[str, float]]()
    history = list[reward.Point]()
    for cycle in sorted(tried.keys() & headlines):
        rates = [Outcome.merge(parts).rate or 0.0 for parts in tried[cycle].values()]
        history.append((sum(rates) / len(rates), headlines[cycle]))
        signs = {"oscillation": reward.oscillation(history), "alarm": float(reward.alarm(history))}
        found[cycle] = {f"design/{name}": value for name, value in (reward.band(rates, alpha, k_min) | signs).items()}
    return found
