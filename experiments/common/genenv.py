"""GenEnv against its ablations, at an equal number of agent samples.

    python experiments/genenv.py run --out FILE [--world sums] [--seeds 0 1 2] [--arms A ...] [--minutes 9] [--set ...]
    python experiments/genenv.py run --out FILE --processes 5 ...      as many runs at a time, all on one GPU
    python experiments/genenv.py table FILE [--against agent_only]
    python experiments/genenv.py picture FILE --out PNG [--arms A ...]

Worlds: `tools`, tool calls of all kinds, of which the environment chooses kind and size; `written`, the same, but it
writes every task itself, after ten passes over seed tasks, and only those enter whose gold is named; `scarce`, that,
but practice in the original has 64 tasks and no more; `sums`, a family of reasoning-gym of which the environment
chooses the level; `small`, the config as it is, at full length.

Arms: `genenv`, `random` (the environment is frozen), `static` (written once), `static=6` (once, but six for each seed
task, which cycles take in turn), `agent_only` (the original world), `before` (no training at all), and `alpha=0.25` and
the like. Half of each cycle's rollouts are in tasks of the
original, the base data; of `sums` none are. With `--share` the others begin with the agent that `before` tested, so
that a seed's imitation is made once and all arms have the same start. Each run is a run folder under --work and is
resumed where it stood; when the minutes are over it stops between two steps of the loop, and the same command goes on.
A finished run appends one line: held-out score and success in the designs after every cycle, the config, the machine.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from intervals import interval

from curricle import config
from curricle.errors import RunError
from curricle.records import Outcome, Scores
from curricle.run import (
    CONFIG,
    read_checkpoint,
    read_config,
    read_environment,
    read_metrics,
    read_records,
    read_timings,
)
from curricle.tracking.watcher import Watcher

BASE = Path(__file__).parent.parent / "configs" / "genenv-small.toml"
COMMON = [
    "schedule.designs=16",
    "schedule.test_seeds=16",
    "agent.micro=64",
    "agent.sample_batch=512",
    "designer.warm=0",
    "designer.kl=0.01",
    "designer.near=0.8",
    "designer.epochs=4",
    "designer.micro=16",
    "log.tensorboard=false",
]
WORLDS: dict[str, list[str]] = {
    "tools": [
        "world.named=false",
        "world.examples=4",
        'designer.text="off"',
        "designer.temperature=1.0",
        "agent.tasks=32",
        "agent.warm=80",
        "agent.rate=5e-5",
        "agent.micro=32",
        "agent.sample_batch=128",
        "schedule.cycles=6",
        "schedule.per_cycle=1024",
        "schedule.save_every=1024",
        "schedule.test_episodes=21",
    ],
    "sums": [
        "world.id=reasoning",
        "original.family=chain_sum",
        "original.level=1",
        'designer.leave=["family"]',
        "designer.temperature=1.0",
        "agent.warm=20",
        "agent.warm_tasks=256",
        "agent.rate=1e-4",
        "agent.tasks=32",
        "agent.most_tokens=16",
        "schedule.cycles=10",
        "schedule.ratio=1:0",
        "schedule.per_cycle=2048",
        "schedule.save_every=2048",
        "schedule.test_episodes=64",
    ],
}
WORLDS["written"] = [
    *WORLDS["tools"],
    'designer.text="required"',
    "designer.warm=10",
    "designer.temperature=0.7",
    "designer.near=0.5",
    "designer.kl=0.3",
    "world.named=true",
    "world.examples=32",
    "schedule.designs=24",
    "agent.micro=16",
]
WORLDS["scarce"] = [*WORLDS["written"], "world.base=64"]
WORLDS = {name: [*COMMON, *changes] for name, changes in WORLDS.items()} | {"small": []}
"""What each world changes in the config. A small model solves nothing before it has seen some solutions (`warm`), and
the tool tasks it writes seldom ask for what their gold does (`written.py`): there it chooses their kind and size."""


class TimeUp(BaseException):
    """The minutes are over; watchers cannot stop a run by an ordinary error."""


class Clock(Watcher):
    """Stops a run before its next step once the time is up; what was done stays done."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def begin(self, title: str, total: int, unit: str) -> None:
        """Called before every step."""
        if time.monotonic() > self.end:
            raise TimeUp
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # runs beside this one may need what the last step needed


def arm(base: dict[str, Any], name: str) -> dict[str, Any]:
    """The config of one arm; the number of agent samples is the same in all but `before`."""
    designer = dict(base["designer"])
    of_options = {key: value for key, value in designer.items() if key != "id"}
    changed: dict[str, dict[str, Any]] = {
        "genenv": {"designer": designer},
        "random": {"designer": designer | {"learn": False}},
        "static": {"designer": {"id": "fixed", "of": "language", "of_options": of_options}},
        "agent_only": {"designer": {"id": "none"}},
        "before": {"designer": {"id": "none"}, "schedule": base["schedule"] | {"cycles": 0, "final": 0}},
    }
    name, _, value = name.partition("=")
    if name == "alpha":
        return base | {"designer": designer | {"alpha": float(value)}}
    if value:
        changed["static"]["designer"]["variations"] = int(value)
    return base | changed[name]


def line(folder: Path, name: str, seed: int, world: str) -> dict[str, Any]:
    """The result of one finished run, as plain data."""
    scores = [s for _, s in read_records(folder, Scores)]
    played, samples = defaultdict[int, list[Outcome]](list), 0
    for step, outcome in read_records(folder, Outcome):
        samples += outcome.spent * (step.phase in ("designed", "original"))
        if step.phase == "designed":
            played[step.cycle].append(outcome)
    rates = [sum(o.successes for o in p) / max(1, sum(o.attempts for o in p)) for _, p in sorted(played.items())]
    figures: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_metrics(folder):
        for key, value in row.items():
            if key.startswith(("practice/", "design/")) and value is not None:
                figures[key][row["cycle"]].append(value)
    machine = read_environment(folder)[0]
    return {
        "arm": name,
        "seed": seed,
        "world": world,
        "held_out": [s.headline for s in scores],
        "skills": {skill: score.mean for skill, score in scores[-1].skills.items()} if scores else {},
        "success": rates,
        "samples": samples,
        "figures": {key: [statistics.fmean(v) for _, v in sorted(by.items())] for key, by in sorted(figures.items())},
        "seconds": round(sum(t["seconds"] for t in read_timings(folder)), 1),
        "config": _portable(read_config(folder)),
        "machine": {"gpu": machine["gpu"], "processor": machine["processor"]},
    }


def _portable(values: Any) -> Any:
    """Plain data without the folders of this machine."""
    if isinstance(values, dict):
        return {key: _portable(value) for key, value in values.items()}
    return values.rpartition("/")[2] if isinstance(values, str) and values.startswith("/") else values


def run(args: argparse.Namespace) -> None:
    """Go through all arms and seeds that the file does not have yet."""
    if args.processes > 1:
        return side_by_side(args)
    base = config.override(config.load(str(BASE)), [*WORLDS[args.world], *args.set])
    clock, out, have = Clock(args.minutes), Path(args.out), _have(args)
    for seed in args.seeds:
        start = _folder(args, "before", seed)
        needs = ["before"] if args.share and not _finished(start) else []
        for name in [*needs, *(name for name in args.arms if name not in needs and (name, seed) not in have)]:
            folder, begin = _folder(args, name, seed), {"begin": str(start)} if args.share and name != "before" else {}
            print(f"{name}, seed {seed}: {folder}", flush=True)
            try:
                if (folder / CONFIG).exists():
                    if bool(begin) != ("begin" in read_config(folder)):
                        sys.exit(f"{folder} was begun {'without' if begin else 'with'} --share; go on as it was begun")
                    config.resume(folder, clock)
                else:
                    config.start(config.resolve(arm(base, name) | {"seed": seed} | begin), folder, clock)
            except TimeUp:
                print("the minutes are over; the same command goes on")
                return
            if (name, seed) not in have:
                with out.open("a") as file:
                    file.write(json.dumps(line(folder, name, seed, args.world)) + "\n")
    print("all runs are done")


def _have(args: argparse.Namespace) -> set[tuple[str, int]]:
    """Arms and seeds that the file has."""
    out = Path(args.out)
    known = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
    return {(row["arm"], row["seed"]) for row in known}


def _folder(args: argparse.Namespace, name: str, seed: int) -> Path:
    """Where a run lies."""
    return Path(args.work) / f"{Path(args.out).stem}-{name.replace('=', '-')}-{seed}"


def _finished(folder: Path) -> bool:
    """Whether a run has an agent to begin with."""
    try:
        return read_checkpoint(folder, "agent").is_dir()
    except RunError:
        return False


def side_by_side(args: argparse.Namespace) -> None:
    """Each arm and seed in a process of its own: a small model leaves most of a GPU idle."""
    same = ["--out", args.out, "--world", args.world, "--work", args.work, *(["--set", *args.set] if args.set else [])]
    end = time.monotonic() + 60 * args.minutes

    def one(job: tuple[int, str]) -> int:
        left = max(0.0, (end - time.monotonic()) / 60)
        of = ["--seeds", str(job[0]), "--arms", job[1], "--minutes", str(left), *(["--share"] if args.share else [])]
        return subprocess.run([sys.executable, __file__, "run", *same, *of]).returncode

    def together(pool: ThreadPoolExecutor, jobs: list[tuple[int, str]]) -> None:
        if failed := sum(code != 0 for code in pool.map(one, jobs)):
            sys.exit(f"{failed} runs failed; the same command tries them again")

    with ThreadPoolExecutor(args.processes) as pool:
        if args.share:  # what the others begin with
            together(pool, [(seed, "before") for seed in args.seeds if not _finished(_folder(args, "before", seed))])
        if time.monotonic() < end:
            have = _have(args)
            together(pool, [job for job in itertools.product(args.seeds, args.arms) if job[::-1] not in have])


def table(args: argparse.Namespace) -> None:
    """Means over seeds with a 95 % interval, also of what is gained on another arm; success in the designs."""
    rows = [json.loads(text) for text in Path(args.file).read_text().splitlines()]
    columns = (
        *("arm", "seeds", "agent samples", "held-out score", "mean of the last three"),
        *(f"that less `{args.against}`'s, by seed (pairs)", "success in the designs by cycle"),
    )
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    late = {(row["arm"], row["seed"]): statistics.fmean(row["held_out"][-3:]) for row in rows}
    for name in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == name]
        other = args.against + "".join(name.partition(",")[1:])  # what follows is how both were made
        gains = [late[name, row["seed"]] - late[key] for row in mine if (key := (other, row["seed"])) in late]
        courses = zip(*(row["success"] for row in mine), strict=False)
        cells = (
            name,
            len(mine),
            f"{mine[0]['samples']:,}",
            interval([row["held_out"][-1] for row in mine]),
            interval([late[name, row["seed"]] for row in mine]),
            f"{interval(gains)} ({len(gains)})" if gains and name != other else "-",
            " ".join(f"{statistics.fmean(rates):.2f}".lstrip("0") for rates in courses) or "-",
        )
        print("| " + " | ".join(map(str, cells)) + " |")


def picture(args: argparse.Namespace) -> None:
    """Success in the designs by cycle, every seed and the mean, beside the success that was aimed at."""
    from matplotlib.figure import Figure

    rows = [json.loads(text) for text in Path(args.file).read_text().splitlines()]
    figure = Figure(figsize=(3.4 * len(args.arms), 3.2), layout="constrained")
    for place, name in zip(figure.subplots(1, len(args.arms), sharey=True, squeeze=False)[0], args.arms, strict=True):
        mine = [row for row in rows if row["arm"] == name]
        if not mine:
            sys.exit(f"{args.file} has no arm {name!r}; it has: {', '.join(sorted({row['arm'] for row in rows}))}")
        designer = mine[0]["config"]["designer"]
        for row in mine:
            place.plot(range(1, len(row["success"]) + 1), row["success"], color="0.7", linewidth=1)
        means = [statistics.fmean(rates) for rates in zip(*(row["success"] for row in mine), strict=False)]
        place.plot(range(1, len(means) + 1), means, color="black", label="mean")
        if "alpha" in designer and designer.get("learn", True):
            low, high = designer["alpha"] - designer["k_min"], designer["alpha"] + designer["k_min"]
            place.axhspan(
                low, high, color="tab:green", alpha=0.2, label=f"band {designer['alpha']} ± {designer['k_min']}"
            )
        place.set(title=f"{name}, {len(mine)} seeds", xlabel="cycle", ylim=(0, 1))
        place.legend(fontsize="small")
    figure.axes[0].set_ylabel("success in the designs")
    figure.savefig(args.out, dpi=100)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    go = commands.add_parser("run")
    go.add_argument("--out", required=True)
    go.add_argument("--world", choices=WORLDS, default="tools")
    go.add_argument("--work", default="runs")
    go.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    go.add_argument("--arms", nargs="+", default=["before", "genenv", "random", "static", "agent_only"])
    go.add_argument("--minutes", type=float, default=1e9)
    go.add_argument("--processes", type=int, default=1, help="Runs at a time; one of tools takes some 20 GB of a GPU.")
    go.add_argument("--share", action="store_true", help="Begin with the agent of `before`, which is run first.")
    go.add_argument("--set", nargs="*", default=[], metavar="key=value")
    go.set_defaults(go=run)
    show = commands.add_parser("table")
    show.add_argument("file")
    show.add_argument("--against", default="agent_only", metavar="ARM", help="The arm that gains are measured from.")
    show.set_defaults(go=table)
    draw = commands.add_parser("picture")
    draw.add_argument("file")
    draw.add_argument("--out", required=True)
    draw.add_argument("--arms", nargs="+", default=["alpha=0.25", "genenv", "alpha=0.75", "random"])
    draw.set_defaults(go=picture)
    args = parser.parse_args()
    args.go(args)


if __name__ == "__main__":
    main()
