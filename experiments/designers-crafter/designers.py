"""Designers against each other in Crafter from symbols: EnvGen's steps in 16 cycles, equal for all, several seeds.

    python experiments/designers.py --jobs 8 --minutes 9           # go on with what is missing, for nine minutes
    python experiments/designers.py --group alpha --seeds 3        # one of the sweeps
    python experiments/designers.py --summary                      # the tables of the data that is there

Each finished run becomes a line of `designers/runs.jsonl` at once. What is there is not run again, and a run that was
cut off goes on where it stopped, as long as its folder (`--runs`) is still there. One job takes two cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collect import summary
from intervals import interval

from curricle.records import Outcome
from curricle.run import read_records
from curricle.worlds.crafter import Crafter

HERE = Path(__file__).parent / "designers"
WORLD = "crafter"
BASE = (
    "agent.device=cpu",
    "agent.epochs=3",
    "agent.rate=3e-4",
    "log.tensorboard=false",
    "schedule.cycles=16",
    "schedule.per_cycle=60_000",
)
CYCLES = {4: 240_000, 40: 24_000}
"""The same steps in other numbers of cycles: how many, and steps a cycle. EnvGen has 4."""


OUTSIDE = [
    k.name for k in Crafter.Setting.knobs() if not k.name.startswith("start_") and not k.name.endswith("_nearby")
]
"""All knobs but those that hand something out."""


def _policy(*pairs: str) -> tuple[str, ...]:
    return ("designer.id=policy", *pairs)


def _often(*pairs: str) -> tuple[str, ...]:
    """The policy in 40 cycles."""
    return _policy("schedule.cycles=40", f"schedule.per_cycle={CYCLES[40]}", *pairs)


GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "main": {
        name: (f"designer.id={name}",)
        for name in ("policy", "tutor", "none", "random", "fixed", "easy_to_hard", "adversarial")
    },
    "cycles": {
        f"{name}, {count} cycles": (
            f"designer.id={name}",
            f"schedule.cycles={count}",
            f"schedule.per_cycle={steps}",
        )
        for count, steps in CYCLES.items()
        for name in ("policy", "tutor", "random", "fixed", "easy_to_hard", "adversarial")
    },
    "alpha": {f"policy, 40 cycles, alpha {a}": _often(f"designer.alpha={a}") for a in (0.3, 0.7)},
    "beta": {f"policy, 40 cycles, beta {b:g}": _often(f"designer.beta={b}") for b in (0.5, 8.0)},
    "k_min": {f"policy, 40 cycles, k_min {k}": _often(f"designer.k_min={k}") for k in (0.05, 0.3)},
    "ratio": {
        f"{name}, {ratio}": (f"designer.id={name}", f"schedule.ratio={ratio}")
        for name in ("policy", "tutor")
        for ratio in ("10:90", "90:10")
    },
    "why": {  # what makes random designs strong
        "random, energy left": ("designer.id=random", 'designer.leave=["energy"]'),
        "random, inventory alone": ("designer.id=random", f"designer.leave={json.dumps(OUTSIDE)}"),
    },
    "variants": {  # to choose defaults by, on seeds that the comparison does not use: --first 100
        "policy, again 0.8": _policy("designer.again=0.8"),
        "policy, again 1": _policy("designer.again=1.0"),
        "policy, others 1, again 0.8": _policy("designer.others=1.0", "designer.again=0.8"),
        "policy, reach 0.5, again 0.8": _policy("designer.reach=0.5", "designer.again=0.8"),
        "policy, beta 8": _policy("designer.beta=8"),
        "policy, beta 8, again 0.8": _policy("designer.beta=8", "designer.again=0.8"),
    },
    "parts": {
        "policy, no search": _policy("designer.search=0"),
        "policy, learnability": _policy("designer.shape=learnability"),
        "policy, aim alone": _policy("designer.others=0.0"),
        "policy of tutor": _policy("designer.of=tutor"),
    },
}


def result(condition: str, folder: Path) -> dict[str, Any]:
    """A finished run as data: its scores, and what became of each design."""
    parts: dict[tuple[int, int], list[Outcome]] = {}
    seen = Counter[tuple[int, int]]()
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed" and outcome.design.by != "original":
            at = (step.cycle, step.part)
            parts.setdefault((step.cycle, seen[at]), []).append(outcome)
            seen[at] += 1
    merged = [(cycle, Outcome.merge(outcomes)) for (cycle, _), outcomes in parts.items()]
    designs = [
        {"cycle": c, "aim": o.design.aim, "attempts": o.attempts, "successes": o.successes, "skills": dict(o.skills)}
        for c, o in merged
    ]
    return {"condition": condition, **summary(folder), "designs": designs}


def command(folder: Path, seed: int, pairs: Sequence[str]) -> list[str]:
    """Begin a run, or go on with it."""
    head = [sys.executable, "-m", "curricle"]
    if (folder / "config.toml").exists():
        return [*head, "resume", str(folder)]
    pairs = [word for pair in (*BASE, *pairs) for word in ("--set", pair)]
    return [*head, "run", WORLD, "--seed", str(seed), "--out", str(folder), *pairs]


def work(todo: list[tuple[str, int, tuple[str, ...]]], out: Path, runs: Path, jobs: int, seconds: float) -> None:
    """Keep `jobs` runs going until all are done, or until no other would be done in time."""
    start, longest = time.monotonic(), 60.0
    going: dict[subprocess.Popen[bytes], tuple[str, Path, float]] = {}
    quiet = {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "CUDA_VISIBLE_DEVICES": "",
    }  # torch forks beside no GPU
    environment = {**os.environ, **quiet}
    while todo or going:
        now = time.monotonic()
        while todo and len(going) < jobs and now - start + longest < seconds:
            condition, seed, pairs = todo.pop(0)
            folder = runs / f"{condition.replace(', ', '--').replace(' ', '_').replace(':', '-')}--s{seed}"
            folder.parent.mkdir(parents=True, exist_ok=True)
            log = folder.with_suffix(".log").open("ab")
            process = subprocess.Popen(command(folder, seed, pairs), stdout=log, stderr=log, env=environment)
            going[process] = (condition, folder, now)
        if not going:
            break
        time.sleep(0.5)
        for process in [p for p in going if p.poll() is not None]:
            condition, folder, began = going.pop(process)
            longest = max(longest, time.monotonic() - began)
            if process.returncode:
                print(f"{folder} failed; see {folder.with_suffix('.log')}", flush=True)
                continue
            line = result(condition, folder)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            figures = f"trained {line['trained']['headline']:.1f}, tested {line['tested']['headline']:.1f}"
            print(f"{time.monotonic() - start:5.0f} s  {folder.name}: {figures}", flush=True)
    print(f"{len(todo)} runs left", flush=True)


def in_band(run: dict[str, Any]) -> list[bool]:
    """Of each design that was tried, whether it lay in the designer's own band; in the policy's where it has none."""
    alpha, k_min = (run["config"]["designer"].get(name, usual) for name, usual in (("alpha", 0.5), ("k_min", 0.1)))
    rates = [d["successes"] / d["attempts"] for d in run["designs"] if d["attempts"]]
    return [abs(rate - alpha) <= k_min + 1e-9 for rate in rates]


def tables(lines: Sequence[dict[str, Any]], firsts: Sequence[str] = ("policy", "policy, 40 cycles")) -> str:
    """Scores by both protocols, and what the policy gains over each other condition, seed by seed."""
    head = "condition | seeds | training score | reward | test score | reward | designs in the band | no attempt ended"
    rows, by = [head, "|".join(["---"] * 8)], dict[str, dict[int, dict[str, Any]]]()
    for line in lines:
        by.setdefault(line["condition"], {})[line["config"]["seed"]] = line
    for condition, runs in by.items():
        cells = [
            interval([run[protocol][figure] for run in runs.values()])
            for protocol in ("trained", "tested")
            for figure in ("headline", "reward")
        ]
        inside = [one for run in runs.values() for one in in_band(run)]
        band = f"{statistics.mean(inside):.0%}" if inside else "-"
        made = [d["attempts"] == 0 for run in runs.values() for d in run["designs"]]
        idle = f"{statistics.mean(made):.0%}" if made else "-"
        rows.append(" | ".join([condition, str(len(runs)), *cells, band, idle]))
    text = "\n".join(f"| {row} |" if "---" not in row else f"|{row}|" for row in rows)
    for first in firsts:
        gains = [
            f"| {first} minus | seeds | training score | reward | test score | reward |",
            "|---|---|---|---|---|---|",
        ]
        for condition, runs in by.items():
            shared = sorted(set(runs) & set(by.get(first, {})))
            many = condition in GROUPS["main"] | GROUPS["cycles"] or condition.startswith(f"{first},")
            fits = "cycles" not in condition if first == "policy" else many
            if condition != first and len(shared) > 1 and fits:
                cells = [
                    interval([by[first][s][protocol][figure] - runs[s][protocol][figure] for s in shared], 2)
                    for protocol in ("trained", "tested")
                    for figure in ("headline", "reward")
                ]
                gains.append(f"| {condition} | {len(shared)} | {' | '.join(cells)} |")
        text += "\n\n" + "\n".join(gains) if len(gains) > 2 else ""
    return text


def designs_table(lines: Sequence[dict[str, Any]], condition: str, span: int) -> str:
    """What became of a condition's designs, `span` cycles a row: success at the aim, band, skills at the edge, aims."""
    rows = [
        f"| {condition}: cycle | success at the aim | in the band | skills between 0.1 and 0.9 | aims |",
        "|---|---|---|---|---|",
    ]
    designs = [d for line in lines if line["condition"] == condition for d in line["designs"] if d["attempts"]]
    for row in sorted({(d["cycle"] - 1) // span for d in designs}):
        mine = [d for d in designs if (d["cycle"] - 1) // span == row]
        rates = [d["successes"] / d["attempts"] for d in mine]
        edge = statistics.mean(sum(0.1 < k / d["attempts"] < 0.9 for k in d["skills"].values()) for d in mine)
        aims = ", ".join(f"{aim} {n / len(mine):.0%}" for aim, n in Counter(d["aim"] for d in mine).most_common(6))
        band = statistics.mean(abs(rate - 0.5) <= 0.1 + 1e-9 for rate in rates)
        name = f"{row * span + 1} to {(row + 1) * span}" if span > 1 else f"{row + 1}"
        rows.append(f"| {name} | {statistics.mean(rates):.2f} | {band:.0%} | {edge:.1f} | {aims} |")
    return "\n".join(rows)


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, or print what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "runs.jsonl")
    parser.add_argument("--runs", type=Path, default=Path("runs/designers"), help="where run folders lie")
    parser.add_argument("--group", choices=[*GROUPS, "all"], default="main")
    parser.add_argument("--only", nargs="*", help="only these conditions of the group")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument(
        "--set", action="append", default=[], help="a config key for all runs, as schedule.final=200000"
    )
    parser.add_argument("--summary", action="store_true", help="only print the tables")
    a = parser.parse_args(words)
    text = a.out.read_text(encoding="utf-8") if a.out.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if not a.summary:
        groups = GROUPS.values() if a.group == "all" else [GROUPS[a.group]]
        conditions = {name: pairs for group in groups for name, pairs in group.items() if not a.only or name in a.only}
        done = {(line["condition"], line["config"]["seed"]) for line in lines}
        wanted = [(n, s, (*p, *a.set)) for s in range(a.first, a.first + a.seeds) for n, p in conditions.items()]
        a.out.parent.mkdir(parents=True, exist_ok=True)
        work([w for w in wanted if w[:2] not in done], a.out, a.runs, a.jobs, 60 * a.minutes)
        lines = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()] if a.out.exists() else []
    print(tables(lines))
    for condition, span in (("policy", 2), ("policy, 40 cycles", 4)):
        if any(line["condition"] == condition for line in lines):
            print(f"\n{designs_table(lines, condition, span)}")


if __name__ == "__main__":
    main()
