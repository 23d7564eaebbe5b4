"""A study of GenEnv in one world: its script names arms and learning rates, this module runs them and prints tables.

    python experiments/STUDY/study.py run [--seeds 0 1 2] [--arms A ...] [--processes 8] [--minutes 60]
    python experiments/STUDY/study.py rates [--minutes 60]
    python experiments/STUDY/study.py table [--of rates.jsonl] [--against random]

`run` adds the arms that `results.jsonl` lacks, with `genenv.py`. `rates` adds the learning rates that `rates.jsonl`
lacks: the agent alone, on a seed that no other table has. Each of its lines is named after what was changed. `table`
runs nothing.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import genenv
import genenv_tables
from reporting import append_line, read_lines

RATE_SEED = "7"


class Study(NamedTuple):
    """A folder with data, a world of `genenv.py`, its arms, and what `rates` tries."""

    folder: Path
    world: str
    arms: Sequence[str]
    rates: Mapping[str, Sequence[str]]
    """By the name of a line: what changes in the config."""
    all_rates: Sequence[str] = ()
    """What changes in all of them: they are shorter."""

    @property
    def runs(self) -> Path:
        """Where the run folders lie unless the command line says otherwise."""
        return Path("runs") / self.folder.name


def run(study: Study, arguments: argparse.Namespace) -> None:
    """Make the runs that the data file does not have."""
    words = ["--world", study.world, "--share", "--out", str(study.folder / "results.jsonl")]
    words += ["--work", str(arguments.runs), "--minutes", str(arguments.minutes)]
    words += ["--processes", str(arguments.processes), "--seeds", *map(str, arguments.seeds)]
    genenv.main([*words, "--arms", *arguments.arms])


def rates(study: Study, arguments: argparse.Namespace) -> None:
    """Try the learning rates that the data file does not have."""
    file = study.folder / "rates.jsonl"
    tried = {line["arm"] for line in read_lines(file)}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for name, changes in study.rates.items():
        if name in tried:
            continue
        out = arguments.runs / f"rate-{name.replace(', ', '-').replace(' ', '_')}.jsonl"
        words = ["--world", study.world, "--share", "--out", str(out), "--work", str(arguments.runs)]
        words += ["--minutes", str(arguments.minutes), "--seeds", RATE_SEED, "--arms", "agent_only"]
        genenv.main([*words, "--set", *study.all_rates, *changes])
        for line in read_lines(out):
            if line["arm"] == "agent_only":
                append_line(file, {**line, "arm": name})


def table(study: Study, arguments: argparse.Namespace) -> None:
    """Print the table of a data file."""
    print(genenv_tables.table(read_lines(study.folder / arguments.of), arguments.against))


def parsers(study: Study, description: str | None) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction]:
    """The parser of a study's script, and the place where the script adds commands of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", run), ("rates", rates)):
        runs = commands.add_parser(name, help=function.__doc__)
        runs.set_defaults(command=function)
        runs.add_argument("--runs", type=Path, default=study.runs, help="the folder of the run folders")
        runs.add_argument("--minutes", type=float, default=1e9)
        if name == "run":
            runs.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
            runs.add_argument("--arms", nargs="+", default=list(study.arms))
            runs.add_argument("--processes", type=int, default=1, help="runs at a time on one GPU")
    tables = commands.add_parser("table", help=table.__doc__)
    tables.set_defaults(command=table)
    tables.add_argument("--of", default="results.jsonl", help="a data file of this folder")
    tables.add_argument("--against", default="agent_only", metavar="ARM", help="the arm that gains are measured from")
    return parser, commands


def main(study: Study, description: str | None, words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser, _ = parsers(study, description)
    arguments = parser.parse_args(words)
    arguments.command(study, arguments)
