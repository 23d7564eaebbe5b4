"""The tables of `experiments/README.md`, made from the data beside it: `python experiments/tables.py`.

With `--headlines`: the short one of the project's README.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAPERS = {
    "ppo-crafter": "15.5 ± 0.6 / 10.5 ± 0.6",
    "ad-crafter": "21.8 ± 1.4 / 12.6 ± 0.3",
    "envgen-crafter": "32.2 ± 0.6 / 12.6 ± 0.6",
    "envgen-crafter-none": "26.4 ± 2.1 / 12.1 ± 1.0",
}
"""As published, where there is anything: score over training episodes, and their reward near the end."""


def spread(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "-"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


HEADLINES = {
    "PPO, pixels, 1M steps": "ppo-crafter",
    "Achievement distillation, pixels, 1M steps": "ad-crafter",
    "PPO, pixels, EnvGen's 1.96M steps, `tutor` designs 4 times (published: GPT-4)": "envgen-crafter",
    "the same steps from pixels without designs": "envgen-crafter-none",
    "PPO of three passes, symbols, 1.96M steps, `policy` designs 40 times": "policy, 40 cycles",
    "the same, `tutor`": "tutor, 40 cycles",
    "the same, `random`": "random, 40 cycles",
    "the same steps without designs": "none",
}
"""What the README shows: a folder here, or a condition of the designers' contest."""


def read(path: Path) -> list[dict[str, Any]]:
    """The runs of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def row(folder: Path) -> str:
    """One experiment: score and reward over its seeds, by both protocols."""
    runs = read(folder / "results.jsonl")
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
        str(len(set(seeds))),
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


def headlines() -> str:
    """The score over training episodes of the main runs, ours beside the papers'."""
    contest = read(HERE / "designers" / "runs.jsonl")
    lines = ["| Crafter, score over training episodes | seeds | Curricle | published |", "|---|---|---|---|"]
    for what, name in HEADLINES.items():
        file = HERE / name / "results.jsonl"
        runs = read(file) if file.exists() else [run for run in contest if run["condition"] == name]
        seeds, scores = {run["config"]["seed"] for run in runs}, spread([run["trained"]["headline"] for run in runs])
        published = PAPERS.get(name, "-").partition(" / ")[0]
        lines.append(f"| {what} | {len(seeds)} | {scores} | {published} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(headlines() if "--headlines" in sys.argv else table())
