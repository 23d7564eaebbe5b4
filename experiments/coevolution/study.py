"""Does co-evolution teach what the agent never learns alone? GenEnv on chains, against its ablations.

    python experiments/coevolution/study.py run --processes 2            # the runs that results.jsonl lacks
    python experiments/coevolution/study.py run --scarce --seeds 20-24  # 20 tasks of the original and no more
    python experiments/coevolution/study.py run --out VARIANTS.jsonl --arms alpha=0.25 paper genenv=soft kl=0.3
    python experiments/coevolution/study.py --summary [--scarce]         # the tables, from the data that are here
    python experiments/coevolution/study.py picture [--out PNG]
    python experiments/coevolution/study.py demo                         # `make genenv`: one seed, two arms, minutes

All arms of a seed begin with the same agent, which has imitated chains of one and two steps (arm `before`). All take
the same number of rollouts and of updates. Each run is a process of its own on one core. A run that was cut off is
resumed as long as its folder is there. `arms.py` says what each arm is, `tables.py` makes tables and pictures.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from arms import ARMS, BEFORE, make_config
from data import has_agent, result
from reporting import append_line, read_lines
from tables import draw, levels_table, summary

from curricle import config
from curricle.run import CONFIG

HERE = Path(__file__).parent
DEMO_ARMS = ("agent_only", "genenv")
DEMO_CYCLES = 75
_writing = Lock()


def data_file(scarce: bool) -> Path:
    """The file of results of the study, or of its part with few tasks."""
    return HERE / ("scarce.jsonl" if scarce else "results.jsonl")


def run(arguments: argparse.Namespace) -> None:
    """Make the runs that the data file does not have, several processes at a time."""
    out = arguments.out or data_file(arguments.scarce)
    done = {(line["arm"], line["seed"]) for line in read_lines(out)}
    wanted = [(arm, seed) for seed in arguments.seeds for arm in arguments.arms if (arm, seed) not in done]
    run_jobs(arguments, [(BEFORE, seed) for seed in dict.fromkeys(seed for _, seed in wanted)], None)
    run_jobs(arguments, wanted, out)


def run_jobs(arguments: argparse.Namespace, jobs: Sequence[tuple[str, int]], out: Path | None) -> None:
    """Run arms and seeds side by side, and append a line for each one that is finished."""

    def run_job(job: tuple[str, int]) -> None:
        arm, seed = job
        folder = folder_of(arguments, arm, seed)
        words = [sys.executable, __file__, "one", "--arm", arm, "--seed", str(seed), "--runs", str(arguments.runs)]
        words += ["--scarce"] * arguments.scarce + ["--cycles", str(arguments.cycles), "--set", *arguments.set]
        if out is None and has_agent(folder):
            return
        print(f"{arm}, seed {seed}: {folder}", flush=True)
        in_own_process(words)
        if out is not None:
            with _writing:
                append_line(out, {"arm": arm, "seed": seed, **result(folder)})

    with ThreadPoolExecutor(arguments.processes) as pool:
        for _ in pool.map(run_job, jobs):
            pass


def in_own_process(words: Sequence[str]) -> None:
    """Make one run on one core."""
    subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_one(arguments: argparse.Namespace) -> None:
    """Start one run, or resume it."""
    folder = folder_of(arguments, arguments.arm, arguments.seed)
    if (folder / CONFIG).exists():
        config.resume(folder)
        return
    plain = make_config(arguments.arm, arguments.seed, arguments.cycles, arguments.scarce, arguments.set)
    if arguments.arm != BEFORE:
        plain["begin"] = str(folder_of(arguments, BEFORE, arguments.seed))
    config.start(config.resolve(plain), folder)


def folder_of(arguments: argparse.Namespace, arm: str, seed: int) -> Path:
    """The run folder of an arm and seed."""
    part = "scarce" if arguments.scarce else "endless"
    return Path(arguments.runs) / f"{part}-{arm.replace('=', '-')}-{seed}"


def show_summary(arguments: argparse.Namespace) -> None:
    """Print the tables of a data file."""
    print(summary(read_lines(arguments.out or data_file(arguments.scarce))))


def picture(arguments: argparse.Namespace) -> None:
    """Draw success at the target and what the environment policy writes."""
    lines = read_lines(data_file(arguments.scarce))
    draw(lines, arguments.out or HERE / "curves.png")


def demo(arguments: argparse.Namespace) -> None:
    """One seed of the agent alone and of GenEnv, side by side; then a table and a picture."""
    out = Path(arguments.runs) / "results.jsonl"
    Path(arguments.runs).mkdir(parents=True, exist_ok=True)
    run(argparse.Namespace(**{**vars(arguments), "out": out, "arms": DEMO_ARMS, "seeds": [arguments.seed]}))
    lines = [line for line in read_lines(out) if line["seed"] == arguments.seed]
    print(levels_table(lines))
    drawing = Path(arguments.runs) / "curves.png"
    draw(lines, drawing)
    print(f"\npicture: {drawing}\nruns: {arguments.runs}")


def seeds(word: str) -> list[int]:
    """Seeds from words like 3 or 0-9."""
    first, _, last = word.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--summary", dest="command", action="store_const", const=show_summary)
    same = argparse.ArgumentParser(add_help=False)
    for one in (parser, same):
        one.add_argument("--scarce", action="store_true", default=argparse.SUPPRESS, help="practice has few tasks")
        one.add_argument("--out", type=Path, default=argparse.SUPPRESS, help="another file")
    commands = parser.add_subparsers()
    for name, function in (("run", run), ("one", run_one), ("demo", demo), ("picture", picture)):
        one = commands.add_parser(name, help=function.__doc__, parents=[same])
        one.set_defaults(command=function)
        if name == "picture":
            continue
        default = Path("runs/genenv" if name == "demo" else "runs/coevolution")
        one.add_argument("--runs", type=Path, default=default, help="the folder of the run folders")
        one.add_argument("--cycles", type=int, default=DEMO_CYCLES if name == "demo" else 0, help="0: as in the config")
        one.add_argument("--set", nargs="*", default=[], metavar="key=value", help="changes for all arms")
        one.add_argument("--processes", type=int, default=2 if name == "demo" else 1)
        if name == "run":
            one.add_argument("--arms", nargs="+", default=list(ARMS), metavar="ARM")
            one.add_argument("--seeds", type=seeds, default=list(range(20, 30)), metavar="20-29")
        else:
            one.add_argument("--seed", type=int, default=0)
        if name == "one":
            one.add_argument("--arm", required=True)
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.error("say --summary, or one of run, picture and demo")
    defaults = {"scarce": False, "out": None}
    arguments.command(argparse.Namespace(**{**defaults, **vars(arguments)}))


if __name__ == "__main__":
    main()
