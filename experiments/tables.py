"""The tables of `experiments/README.md`, made from the data beside it: `python experiments/tables.py`."""

import json
import statistics
from pathlib import Path

HERE = Path(__file__).parent
PAPERS = {"ppo-crafter": "15.5 ± 0.6 / 10.5 ± 0.6", "ad-crafter": "21.8 ± 1.4 / 12.6 ± 0.3"}
"""As published, where there is anything: score over training episodes, and their reward near the end."""


def spread(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "-"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


def row(folder: Path) -> str:
    """One experiment: score and reward over its seeds, by both protocols."""
    runs = [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    seeds = sorted(run["config"]["seed"] for run in runs)
    cells = [
        f"{spread([run[protocol]['headline'] for run in runs])} / {spread([run[protocol]['reward'] for run in runs])}"
        for protocol in ("trained", "tested")
    ]
    late = [run["late_reward"] for run in runs if run.get("late_reward") is not None]
    minutes = statistics.mean(run["practice_seconds"] for run in runs) / 60
    where = runs[0]["machine"]["gpu"] or runs[0]["machine"]["processor"]
    near_the_end = f"{spread(late)} ({len(late)})" if late else "-"
    figures = [
        folder.name,
        str(len(seeds)),
        cells[0],
        near_the_end,
        cells[1],
        PAPERS.get(folder.name, "-"),
        f"{minutes:.1f}",
        where,
    ]
    return f"| {' | '.join(figures)} |"


def table() -> str:
    """All experiments that have data."""
    columns = ("experiment", "seeds", "training episodes: score / reward", "late reward (seeds)")
    columns += ("test episodes: score / reward", "published: score / late reward", "minutes a run", "machine")
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    return "\n".join([head, *(row(path.parent) for path in sorted(HERE.glob("*/results.jsonl")))])


if __name__ == "__main__":
    print(table())
