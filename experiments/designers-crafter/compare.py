"""Designers against each other in Crafter from symbols: EnvGen's number of steps, the same for all, several seeds.

    python experiments/designers-crafter/compare.py run --jobs 8 --minutes 9     # what is missing, for nine minutes
    python experiments/designers-crafter/compare.py run --group alpha --seeds 3  # a sweep
    python experiments/designers-crafter/compare.py scores                       # a table of what is there
    python experiments/designers-crafter/compare.py gains --of "policy, 40 cycles"
    python experiments/designers-crafter/compare.py designs --of "policy, 40 cycles" --span 4

`run` appends a line to `runs.jsonl` when a run is finished. It skips what is there, and resumes a run that was cut off
as long as its folder (`--runs`) is still there. A job takes two cores. `scores` has the scores of every condition,
`gains` what a condition gains over the others seed by seed, `designs` what a condition's designs were like over time.
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
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from collect import summary
from reporting import append_line, interval, markdown, option, read_lines

from curricle.records import Outcome
from curricle.run import read_records
from curricle.worlds.crafter import Crafter

DATA = Path(__file__).parent / "runs.jsonl"
WORLD = "crafter"
BASE = (
    "agent.device=cpu",
    "agent.epochs=3",
    "agent.learning_rate=3e-4",
    "log.tensorboard=false",
    "schedule.cycles=16",
    "schedule.per_cycle=60_000",
)
STEPS_PER_CYCLE = {4: 240_000, 40: 24_000}
"""The same steps in other numbers of cycles. EnvGen has 4."""
NOT_HANDED_OUT = [
    knob.name
    for knob in Crafter.Setting.knobs()
    if not knob.name.startswith("start_") and not knob.name.endswith("_nearby")
]
"""All knobs but those that hand something out."""


def policy(*pairs: str) -> tuple[str, ...]:
    """The policy with other options."""
    return ("designer.id=policy", *pairs)


def policy_in_40(*pairs: str) -> tuple[str, ...]:
    """The policy in 40 cycles, with other options."""
    return policy("schedule.cycles=40", f"schedule.per_cycle={STEPS_PER_CYCLE[40]}", *pairs)


DESIGNERS = ("policy", "tutor", "random", "fixed", "easy_to_hard", "adversarial")
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "main": {name: (f"designer.id={name}",) for name in (*DESIGNERS, "none")},
    "cycles": {
        f"{name}, {count} cycles": (
            f"designer.id={name}",
            f"schedule.cycles={count}",
            f"schedule.per_cycle={steps}",
        )
        for count, steps in STEPS_PER_CYCLE.items()
        for name in DESIGNERS
    },
    "alpha": {f"policy, 40 cycles, alpha {a}": policy_in_40(f"designer.alpha={a}") for a in (0.3, 0.7)},
    "beta": {f"policy, 40 cycles, beta {b:g}": policy_in_40(f"designer.beta={b}") for b in (0.5, 8.0)},
    "k_min": {f"policy, 40 cycles, k_min {k}": policy_in_40(f"designer.k_min={k}") for k in (0.05, 0.3)},
    "ratio": {
        f"{name}, {ratio}": (f"designer.id={name}", f"schedule.ratio={ratio}")
        for name in ("policy", "tutor")
        for ratio in ("10:90", "90:10")
    },
    "why": {  # what makes random designs strong
        "random, energy left": ("designer.id=random", 'designer.leave=["energy"]'),
        "random, inventory alone": ("designer.id=random", f"designer.leave={json.dumps(NOT_HANDED_OUT)}"),
    },
    "variants": {  # to choose defaults by, on seeds that the comparison does not use: --first 100
        "policy, again 0.8": policy("designer.repeat_discount=0.8"),
        "policy, again 1": policy("designer.repeat_discount=1.0"),
        "policy, others 1, again 0.8": policy("designer.other_skills_weight=1.0", "designer.repeat_discount=0.8"),
        "policy, reach 0.5, again 0.8": policy("designer.blocked_skill_weight=0.5", "designer.repeat_discount=0.8"),
        "policy, beta 8": policy("designer.beta=8"),
        "policy, beta 8, again 0.8": policy("designer.beta=8", "designer.repeat_discount=0.8"),
    },
    "parts": {
        "policy, no search": policy("designer.search_rounds=0"),
        "policy, learnability": policy("designer.shape=learnability"),
        "policy, aim alone": policy("designer.other_skills_weight=0.0"),
        "policy of tutor": policy("designer.of=tutor"),
    },
}


class Job(NamedTuple):
    """A run that is wanted."""

    condition: str
    seed: int
    pairs: tuple[str, ...]

    def folder(self, runs: Path) -> Path:
        """Its run folder."""
        name = self.condition.replace(", ", "--").replace(" ", "_").replace(":", "-")
        return runs / f"{name}--s{self.seed}"


def result(condition: str, folder: Path) -> dict[str, Any]:
    """A finished run as data: its scores, and the outcome of each design."""
    parts: dict[tuple[int, int], list[Outcome]] = {}
    counts = Counter[tuple[int, int]]()
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed" and outcome.design.by != "original":
            part = (step.cycle, step.part)
            parts.setdefault((step.cycle, counts[part]), []).append(outcome)
            counts[part] += 1
    designs = []
    for (cycle, _), outcomes in parts.items():
        merged = Outcome.merge(outcomes)
        designs.append(
            {
                "cycle": cycle,
                "aim": merged.design.aim,
                "attempts": merged.attempts,
                "successes": merged.successes,
                "skills": dict(merged.skills),
            }
        )
    return {"condition": condition, **summary(folder), "designs": designs}


def command(folder: Path, job: Job) -> list[str]:
    """Start a run, or resume it."""
    curricle = [sys.executable, "-m", "curricle"]
    if (folder / "config.toml").exists():
        return [*curricle, "resume", str(folder)]
    pairs: list[str] = []
    for pair in (*BASE, *job.pairs):
        pairs += ["--set", pair]
    return [*curricle, "run", WORLD, "--seed", str(job.seed), "--out", str(folder), *pairs]


def start(job: Job, folder: Path) -> subprocess.Popen[bytes]:
    """Start or resume a run in a process of its own, on the CPU."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "CUDA_VISIBLE_DEVICES": "",  # torch forks workers only where it has no GPU
    }
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command(folder, job), stdout=log, stderr=log, env=environment)


def work(jobs: list[Job], out: Path, runs: Path, count: int, seconds: float) -> None:
    """Keep `count` runs going until all are done, or until no other would be done in time."""
    begin = time.monotonic()
    longest = 60.0
    going: dict[subprocess.Popen[bytes], tuple[Job, float]] = {}
    while jobs or going:
        now = time.monotonic()
        while jobs and len(going) < count and now - begin + longest < seconds:
            job = jobs.pop(0)
            going[start(job, job.folder(runs))] = (job, now)
        if not going:
            break
        time.sleep(0.5)
        for process in [process for process in going if process.poll() is not None]:
            job, began = going.pop(process)
            folder = job.folder(runs)
            longest = max(longest, time.monotonic() - began)
            if process.returncode:
                print(f"{folder} failed; see {folder.with_suffix('.log')}", flush=True)
                continue
            line = result(job.condition, folder)
            append_line(out, line)
            scores = f"trained {line['trained']['headline']:.1f}, tested {line['tested']['headline']:.1f}"
            print(f"{time.monotonic() - begin:5.0f} s  {folder.name}: {scores}", flush=True)
    print(f"{len(jobs)} runs left", flush=True)


def run(arguments: argparse.Namespace) -> None:
    """Run what the file does not have yet."""
    done = {(line["condition"], line["config"]["seed"]) for line in read_lines(arguments.out)}
    jobs = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for condition, pairs in conditions(arguments.group).items():
            wanted = not arguments.only or condition in arguments.only
            if wanted and (condition, seed) not in done:
                jobs.append(Job(condition, seed, (*pairs, *arguments.set)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    work(jobs, arguments.out, arguments.runs, arguments.jobs, 60 * arguments.minutes)


def conditions(groups: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The conditions of some groups, with what each changes in the config."""
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        found |= GROUPS[group]
    return found


def lines_by_condition(arguments: argparse.Namespace) -> dict[str, dict[int, dict[str, Any]]]:
    """The runs of the groups that are asked for: condition, then seed."""
    wanted = conditions(arguments.group)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in read_lines(arguments.out):
        if line["condition"] in wanted:
            found.setdefault(line["condition"], {})[line["config"]["seed"]] = line
    return found


FIGURES = (("trained", "headline"), ("trained", "reward"), ("tested", "headline"), ("tested", "reward"))
COLUMNS = ("training score", "training reward", "test score", "test reward")


def in_band(line: dict[str, Any]) -> list[bool]:
    """For each design that was tried: whether it lay in the designer's band, or in the policy's where it has none."""
    alpha = option(line, "designer", "alpha", 0.5)
    k_min = option(line, "designer", "k_min", 0.1)
    rates = [design["successes"] / design["attempts"] for design in line["designs"] if design["attempts"]]
    return [abs(rate - alpha) <= k_min + 1e-9 for rate in rates]


def share(values: Sequence[bool]) -> str:
    """How many of some values are true, in percent."""
    return f"{statistics.fmean(values):.0%}" if values else "-"


def scores(arguments: argparse.Namespace) -> None:
    """Scores in training and in tests, and how many designs were of use."""
    rows = []
    for condition, runs in lines_by_condition(arguments).items():
        row = [condition, str(len(runs))]
        for part, name in FIGURES:
            row.append(interval([line[part][name] for line in runs.values()]))
        row.append(share([inside for line in runs.values() for inside in in_band(line)]))
        row.append(share([design["attempts"] == 0 for line in runs.values() for design in line["designs"]]))
        rows.append(row)
    columns = ("condition", "seeds", *COLUMNS, "designs in the band", "no attempt ended")
    print(markdown(columns, rows))


def gains(arguments: argparse.Namespace) -> None:
    """What one condition gains over each other, on the seeds that both have."""
    found = lines_by_condition(arguments)
    first = found[arguments.of]
    rows = []
    for condition, runs in found.items():
        seeds = sorted(set(runs) & set(first))
        if condition == arguments.of or len(seeds) < 2:
            continue
        row = [condition, str(len(seeds))]
        for part, name in FIGURES:
            row.append(interval([first[seed][part][name] - runs[seed][part][name] for seed in seeds], 2))
        rows.append(row)
    print(markdown((f"{arguments.of} minus", "seeds", *COLUMNS), rows))


def designs(arguments: argparse.Namespace) -> None:
    """Some cycles a row: success at the aim, share in the band, skills neither mastered nor out of reach, aims."""
    tried = []
    for line in read_lines(arguments.out):
        if line["condition"] == arguments.of:
            tried += [design for design in line["designs"] if design["attempts"]]
    span = arguments.span
    rows = []
    for index in sorted({(design["cycle"] - 1) // span for design in tried}):
        mine = [design for design in tried if (design["cycle"] - 1) // span == index]
        rates = [design["successes"] / design["attempts"] for design in mine]
        at_edge = []
        for design in mine:
            at_edge.append(sum(0.1 < count / design["attempts"] < 0.9 for count in design["skills"].values()))
        aims = Counter(design["aim"] for design in mine).most_common(6)
        rows.append(
            (
                f"{index * span + 1} to {(index + 1) * span}",
                f"{statistics.fmean(rates):.2f}",
                share([abs(rate - 0.5) <= 0.1 + 1e-9 for rate in rates]),
                f"{statistics.fmean(at_edge):.1f}",
                ", ".join(f"{aim} {count / len(mine):.0%}" for aim, count in aims),
            )
        )
    columns = ("cycle", "success at the aim", "in the band", "skills between 0.1 and 0.9", "aims")
    print(markdown(columns, rows))


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    parts = {
        "run": (run, ["main"]),
        "scores": (scores, list(GROUPS)),
        "gains": (gains, list(GROUPS)),
        "designs": (designs, list(GROUPS)),
    }
    parsers = {}
    for name, (function, groups) in parts.items():
        parsers[name] = commands.add_parser(name, help=function.__doc__)
        parsers[name].set_defaults(command=function)
        parsers[name].add_argument("--out", type=Path, default=DATA, help="the file of results")
        parsers[name].add_argument("--group", nargs="+", choices=GROUPS, default=groups)
    go = parsers["run"]
    go.add_argument("--runs", type=Path, default=Path("runs/designers"), help="the folder of the run folders")
    go.add_argument("--only", nargs="*", help="only these conditions of the group")
    go.add_argument("--seeds", type=int, default=5)
    go.add_argument("--first", type=int, default=0, help="the first seed")
    go.add_argument("--jobs", type=int, default=1, help="runs at a time")
    go.add_argument("--minutes", type=float, default=1e9)
    go.add_argument("--set", action="append", default=[], help="a config key for all runs: schedule.final=200000")
    for name in ("gains", "designs"):
        parsers[name].add_argument("--of", default="policy, 40 cycles", help="the condition")
    parsers["designs"].add_argument("--span", type=int, default=4, help="cycles a row")
    arguments = parser.parse_args(words)
    arguments.command(arguments)


if __name__ == "__main__":
    main()
