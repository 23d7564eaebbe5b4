"""Designers against each other in Heist from symbols: equal steps for all, several seeds, held-out levels.

    python experiments/heist/designers.py run --seeds 5          # what the data file does not have yet
    python experiments/heist/designers.py run --seeds 1 --steps 2_000_000 --cycles 20 --out PILOTS.jsonl
    python experiments/heist/designers.py table                  # what it has

`run` makes one run after the other, each on two cores, and appends a line when a run is finished; a run that was cut
off is resumed as long as its folder is there. A fifth of the steps is practice in designs, a fifth in the original in
turn with them, the rest in the original afterwards; without a designer all of it is in the original.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from collect import summary
from reporting import append_line, interval, markdown, read_lines

DATA = Path(__file__).parent / "runs.jsonl"
DESIGNERS = ("none", "random", "tutor", "policy")
SKILLS = ("collect_key_1", "open_door_1", "collect_key_2", "open_door_2", "reach_gem")


def command(folder: Path, designer: str, seed: int, steps: int, cycles: int) -> list[str]:
    """Start a run, or resume it."""
    curricle = [sys.executable, "-m", "curricle"]
    if (folder / "config.toml").exists():
        return [*curricle, "resume", str(folder)]
    per_cycle = 2 * steps // (5 * cycles)
    pairs = [
        "agent.device=cpu",
        "log.tensorboard=false",
        f"schedule.cycles={cycles}",
        f"schedule.per_cycle={per_cycle}",
        f"schedule.final={steps - cycles * per_cycle}",
        "schedule.test_seeds=100",
        "schedule.test_episodes=1",
    ]
    words = [*curricle, "run", "heist", "--designer", designer, "--seed", str(seed), "--out", str(folder)]
    for pair in pairs:
        words += ["--set", pair]
    return words


def run(arguments: argparse.Namespace) -> None:
    """Make the runs that the data file does not have."""
    done = {(line["condition"], line["config"]["seed"]) for line in read_lines(arguments.out)}
    for seed in range(arguments.seeds):
        for designer in arguments.only:
            if (designer, seed) in done:
                continue
            folder = arguments.runs / f"{designer}--s{seed}"
            subprocess.run(command(folder, designer, seed, arguments.steps, arguments.cycles), check=True)
            append_line(arguments.out, {"condition": designer, "steps": arguments.steps, **summary(folder)})


def table(arguments: argparse.Namespace) -> None:
    """Success at the gem and at other skills, in percent, with 95 % intervals over seeds."""
    rows = []
    lines = read_lines(arguments.out)
    for designer in DESIGNERS:
        mine = [line for line in lines if line["condition"] == designer]
        if not mine:
            continue
        row = [designer, str(len(mine)), f"{mine[0]['steps']:,}"]
        row.append(interval([line["trained"]["headline"] for line in mine]))
        row += [interval([100 * line["tested"]["skills"][skill] for line in mine]) for skill in SKILLS]
        rows.append(row)
    print(markdown(("designer", "seeds", "steps", "gem, training", *SKILLS), rows))


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", run), ("table", table)):
        one = commands.add_parser(name, help=function.__doc__)
        one.set_defaults(command=function)
        one.add_argument("--out", type=Path, default=DATA, help="the file of results")
        if name == "run":
            one.add_argument("--runs", type=Path, default=Path("runs/heist"), help="the folder of the run folders")
            one.add_argument("--only", nargs="*", choices=DESIGNERS, default=DESIGNERS)
            one.add_argument("--seeds", type=int, default=5)
            one.add_argument("--steps", type=lambda word: int(word.replace("_", "")), default=5_000_000)
            one.add_argument("--cycles", type=int, default=5)
    arguments = parser.parse_args(words)
    arguments.command(arguments)


if __name__ == "__main__":
    main()
