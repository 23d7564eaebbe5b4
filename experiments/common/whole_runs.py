"""A study of whole runs: its script names the settings, this module makes the runs that the data lack and the table.

    python experiments/STUDY/study.py run [--only SETTING ...] [--seeds 5 6] [--runs FOLDER]
    python experiments/STUDY/study.py table

`run` makes one run after the other. It skips what the data file has, resumes a run that was cut off as long as its
folder is there, and appends a line when a run is finished. Each command is printed before it starts. `table` prints one
row a setting: means over its seeds.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from collect import summary
from reporting import append_line, read_lines
from results import table, value_of

from curricle import config


class Setting(NamedTuple):
    """What one row of the table trains: a world or a config file, what is changed in it, and the seeds."""

    source: str
    seeds: Sequence[int]
    changes: Sequence[str] = ()


class Study(NamedTuple):
    """A file of data, the settings by name, and the keys of the config that tell them apart."""

    data: Path
    settings: Mapping[str, Setting]
    keys: Sequence[str]

    def values(self, setting: Setting) -> tuple[Any, ...]:
        """What a run of this setting has under the keys."""
        plain = config.override(config.load(setting.source), setting.changes)
        line = {"config": config.resolve(plain).to_toml()}
        return tuple(value_of(line, key) for key in self.keys)

    def finished(self) -> set[tuple[Any, ...]]:
        """The values and the seed of each run that the data have."""
        found = set()
        for line in read_lines(self.data):
            found.add((*(value_of(line, key) for key in self.keys), line["config"]["seed"]))
        return found


class Job(NamedTuple):
    """A run that is wanted."""

    name: str
    setting: Setting
    seed: int


def missing(study: Study, names: Sequence[str], seeds: Sequence[int] | None) -> Iterator[Job]:
    """The runs that the data do not have, for these seeds or for each setting's own."""
    finished = study.finished()
    for name in names:
        setting = study.settings[name]
        values = study.values(setting)
        for seed in seeds or setting.seeds:
            if (*values, seed) not in finished:
                yield Job(name, setting, seed)


def command(job: Job, folder: Path) -> list[str]:
    """Start a run, or resume it."""
    curricle = [sys.executable, "-m", "curricle"]
    if (folder / "config.toml").exists():
        return [*curricle, "resume", str(folder)]
    words = [*curricle, "run", job.setting.source, "--seed", str(job.seed), "--out", str(folder)]
    for change in job.setting.changes:
        words += ["--set", change]
    return words


def run(study: Study, arguments: argparse.Namespace) -> None:
    """Make the runs that the data file does not have."""
    for job in missing(study, arguments.only, arguments.seeds):
        folder = arguments.runs / f"{job.name.replace(' ', '_')}--s{job.seed}"
        words = command(job, folder)
        print(*words, flush=True)
        subprocess.run(words, check=True)
        append_line(study.data, summary(folder))
    print("all runs are done")


def main(study: Study, description: str | None, words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    names = list(study.settings)
    runs = commands.add_parser("run", help=run.__doc__)
    runs.add_argument("--only", nargs="+", choices=names, default=names, metavar="SETTING", help=", ".join(names))
    runs.add_argument("--seeds", type=int, nargs="+", help="instead of the seeds of the study")
    default = Path("runs") / study.data.parent.name
    runs.add_argument("--runs", type=Path, default=default, help="the folder of the run folders")
    commands.add_parser("table", help="print the table")
    arguments = parser.parse_args(words)
    if arguments.command == "run":
        run(study, arguments)
    else:
        print(table(read_lines(study.data), study.keys))
