"""GenEnv against its ablations, at an equal number of rollouts.

    python experiments/common/genenv.py --out FILE [--world sums] [--seeds 0 1 2] [--arms A ...] [--set key=value ...]
    python experiments/common/genenv.py --out FILE --processes 5 ...      # five runs at a time, all on one GPU

Worlds: `sums`, sums of which the environment policy chooses the level; `tools`, tool calls of all kinds, of which it
chooses kind and size; `written`, the same, but it writes every task itself, after ten passes over seed tasks; `scarce`,
as `written`, but practice in the original world has only 64 tasks; `small`, `configs/genenv-small.toml` as it is.

Arms: `genenv`; `random` (the environment policy does not learn); `static` (its first designs are kept); `static=6` (six
designs for each seed task, used in turn); `agent_only` (no designs); `before` (no training at all); `alpha=0.25` and
other targets. Half of each cycle's rollouts are in tasks of the original, except in `sums`, where none are.

With `--share` all arms of a seed begin with the agent that `before` tested, so that each seed imitates only once. Each
run has a run folder under `--work` and is resumed where it stopped. When the minutes are over, the run stops between
two steps of the loop; the same command goes on. A finished run appends one line to the file: the held-out score and the
success in the designs after every cycle, the config and the machine. `genenv_tables.py` makes tables of such files.
"""

import argparse
import itertools
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from reporting import append_line, read_lines

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

BASE = Path(__file__).parents[2] / "configs" / "genenv-small.toml"
COMMON = [
    "schedule.designs=16",
    "schedule.test_seeds=16",
    "agent.microbatch_size=64",
    "agent.sample_batch=512",
    "designer.imitation_passes=0",
    "designer.kl_coef=0.01",
    "designer.copy_threshold=0.8",
    "designer.epochs=4",
    "designer.microbatch_size=16",
    "log.tensorboard=false",
]
WORLDS: dict[str, list[str]] = {
    "tools": [
        "world.named=false",
        "world.examples=4",
        'designer.text="off"',
        "designer.temperature=1.0",
        "agent.tasks_per_update=32",
        "agent.imitation_updates=80",
        "agent.learning_rate=5e-5",
        "agent.microbatch_size=32",
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
        "agent.imitation_updates=20",
        "agent.imitation_tasks=256",
        "agent.learning_rate=1e-4",
        "agent.tasks_per_update=32",
        "agent.max_tokens=16",
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
    "designer.imitation_passes=10",
    "designer.temperature=0.7",
    "designer.copy_threshold=0.5",
    "designer.kl_coef=0.3",
    "world.named=true",
    "world.examples=32",
    "schedule.designs=24",
    "agent.microbatch_size=16",
]
WORLDS["scarce"] = [*WORLDS["written"], "world.base=64"]
WORLDS = {name: [*COMMON, *changes] for name, changes in WORLDS.items()} | {"small": []}
"""What each world changes in `configs/genenv-small.toml`."""


class TimeUp(BaseException):
    """The minutes are over. No ordinary error, for the loop goes on after those of a watcher."""


class Clock(Watcher):
    """Stops a run before its next step once the time is up. What was finished is kept."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def begin(self, title: str, total: int, unit: str) -> None:
        """Called before every step."""
        if time.monotonic() > self.end:
            raise TimeUp
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other runs on this GPU may need what the last step needed


def arm(base: dict[str, Any], name: str) -> dict[str, Any]:
    """The config of one arm."""
    designer = dict(base["designer"])
    kind, _, value = name.partition("=")
    if kind == "genenv":
        return base
    if kind == "alpha":
        return base | {"designer": designer | {"alpha": float(value)}}
    if kind == "random":
        return base | {"designer": designer | {"learn": False}}
    if kind == "static":
        options = {key: option for key, option in designer.items() if key != "id"}
        fixed: dict[str, Any] = {"id": "fixed", "of": "language", "of_options": options}
        if value:
            fixed["variations"] = int(value)
        return base | {"designer": fixed}
    if kind == "agent_only":
        return base | {"designer": {"id": "none"}}
    if kind == "before":
        return base | {"designer": {"id": "none"}, "schedule": base["schedule"] | {"cycles": 0, "final": 0}}
    sys.exit(f"there is no arm {name!r}; see --help")


def result(folder: Path, name: str, seed: int, world: str) -> dict[str, Any]:
    """The result of one finished run, as plain data."""
    scores = [record for _, record in read_records(folder, Scores)]
    samples = 0
    played = defaultdict[int, list[Outcome]](list)
    for step, outcome in read_records(folder, Outcome):
        if step.phase in ("designed", "original"):
            samples += outcome.spent
        if step.phase == "designed":
            played[step.cycle].append(outcome)
    success = []
    for _, outcomes in sorted(played.items()):
        attempts = sum(outcome.attempts for outcome in outcomes)
        success.append(sum(outcome.successes for outcome in outcomes) / max(1, attempts))
    machine = read_environment(folder)[0]
    return {
        "arm": name,
        "seed": seed,
        "world": world,
        "held_out": [score.headline for score in scores],
        "skills": {skill: score.mean for skill, score in scores[-1].skills.items()} if scores else {},
        "success": success,
        "samples": samples,
        "figures": mean_metrics(folder),
        "seconds": round(sum(timing["seconds"] for timing in read_timings(folder)), 1),
        "config": portable(read_config(folder)),
        "machine": {"gpu": machine["gpu"], "processor": machine["processor"]},
    }


def mean_metrics(folder: Path) -> dict[str, list[float]]:
    """The metrics of both players: for each a list, the mean of every cycle."""
    metrics: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_metrics(folder):
        for key, value in row.items():
            if key.startswith(("practice/", "design/")) and value is not None:
                metrics[key][row["cycle"]].append(value)
    means = {}
    for key, cycles in sorted(metrics.items()):
        means[key] = [statistics.fmean(values) for _, values in sorted(cycles.items())]
    return means


def portable(values: Any) -> Any:
    """A config without the folders of this machine."""
    if isinstance(values, dict):
        return {key: portable(value) for key, value in values.items()}
    if isinstance(values, str) and values.startswith("/"):
        return values.rpartition("/")[2]
    return values


def run_all(arguments: argparse.Namespace) -> None:
    """Go through all arms and seeds that the file does not have yet."""
    base = config.override(config.load(str(BASE)), [*WORLDS[arguments.world], *arguments.set])
    clock = Clock(arguments.minutes)
    done = finished_arms(arguments)
    for seed in arguments.seeds:
        names = [name for name in arguments.arms if (name, seed) not in done]
        if arguments.share and not has_agent(folder_of(arguments, "before", seed)):
            names = ["before", *(name for name in names if name != "before")]
        for name in names:
            folder = folder_of(arguments, name, seed)
            print(f"{name}, seed {seed}: {folder}", flush=True)
            try:
                run_one(arguments, arm(base, name) | {"seed": seed}, name, clock)
            except TimeUp:
                print("the minutes are over; the same command goes on")
                return
            if (name, seed) not in done:
                append_line(Path(arguments.out), result(folder, name, seed, arguments.world))
    print("all runs are done")


def run_one(arguments: argparse.Namespace, plain: dict[str, Any], name: str, clock: Clock) -> None:
    """Start a run, or resume it."""
    folder = folder_of(arguments, name, plain["seed"])
    shares = arguments.share and name != "before"
    if (folder / CONFIG).exists():
        if shares != ("begin" in read_config(folder)):
            began = "without" if shares else "with"
            sys.exit(f"{folder} was begun {began} --share; go on as it was begun")
        config.resume(folder, clock)
        return
    if shares:
        plain = plain | {"begin": str(folder_of(arguments, "before", plain["seed"]))}
    config.start(config.resolve(plain), folder, clock)


def finished_arms(arguments: argparse.Namespace) -> set[tuple[str, int]]:
    """Arms and seeds that the file has."""
    return {(line["arm"], line["seed"]) for line in read_lines(Path(arguments.out))}


def folder_of(arguments: argparse.Namespace, name: str, seed: int) -> Path:
    """The run folder of an arm and seed."""
    return Path(arguments.work) / f"{Path(arguments.out).stem}-{name.replace('=', '-')}-{seed}"


def has_agent(folder: Path) -> bool:
    """Whether a run has an agent to begin with."""
    try:
        return read_checkpoint(folder, "agent").is_dir()
    except RunError:
        return False


def side_by_side(arguments: argparse.Namespace) -> None:
    """Each arm and seed in a process of its own: a small model leaves most of a GPU idle."""
    same = ["--out", arguments.out, "--world", arguments.world, "--work", arguments.work]
    if arguments.set:
        same += ["--set", *arguments.set]
    if arguments.share:
        same.append("--share")
    end = time.monotonic() + 60 * arguments.minutes

    def run_job(job: tuple[int, str]) -> int:
        seed, name = job
        minutes = max(0.0, (end - time.monotonic()) / 60)
        only = ["--seeds", str(seed), "--arms", name, "--minutes", str(minutes)]
        return subprocess.run([sys.executable, __file__, *same, *only]).returncode

    def run_jobs(pool: ThreadPoolExecutor, jobs: list[tuple[int, str]]) -> None:
        failed = sum(code != 0 for code in pool.map(run_job, jobs))
        if failed:
            sys.exit(f"{failed} runs failed; the same command tries them again")

    with ThreadPoolExecutor(arguments.processes) as pool:
        if arguments.share:  # the other arms begin with this agent
            missing = [seed for seed in arguments.seeds if not has_agent(folder_of(arguments, "before", seed))]
            run_jobs(pool, [(seed, "before") for seed in missing])
        if time.monotonic() < end:
            done = finished_arms(arguments)
            jobs = itertools.product(arguments.seeds, arguments.arms)
            run_jobs(pool, [(seed, name) for seed, name in jobs if (name, seed) not in done])


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="The file of results.")
    parser.add_argument("--world", choices=WORLDS, default="tools")
    parser.add_argument("--work", default="runs", help="The folder of the run folders.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=["before", "genenv", "random", "static", "agent_only"])
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--processes", type=int, default=1, help="Runs at a time; `tools` takes some 20 GB each.")
    parser.add_argument("--share", action="store_true", help="Begin with the agent of `before`, which runs first.")
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value")
    arguments = parser.parse_args(words)
    if arguments.processes > 1:
        side_by_side(arguments)
    else:
        run_all(arguments)


if __name__ == "__main__":
    main()
