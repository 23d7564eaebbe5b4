"""Reading a run folder: for views and everyone else; needs no lock.

A folder may come from anywhere and may be damaged. Files are read only if they are regular files of a bearable size,
links are not followed, and whatever cannot be read is one line that names the file, the line and what to do.
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from curricle.errors import CurricleError, RunDamaged, RunError
from curricle.records import Design, Exchange, Outcome, Record, Scores
from curricle.run.names import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    EXCHANGES,
    FILES,
    JOURNAL,
    LOCK,
    METRICS,
    RENAMED_METRICS,
    TIMINGS,
    Step,
)

L = TypeVar("L", bound=Record)
R = TypeVar("R", Design, Outcome, Scores)

LONGEST = 2**30
LONGEST_CONFIG = 2**24
"""Bytes of a file of records and of a config that are read; Curricle itself writes none that are longer."""
BAD = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What unexpected data raises while it is read."""
COPY = "restore it from a copy"


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved config of a run, as plain data."""
    config = parse_config(folder)
    path = folder / CONFIG
    if type(config.get("seed")) is not int:
        raise RunDamaged(f"{path} has no seed; {COPY}")
    for section in ("world", "designer", "agent"):
        table = config.get(section)
        if not isinstance(table, Mapping) or not isinstance(table.get("id"), str):
            raise RunDamaged(f"{path} has no [{section}] with an id; {COPY}")
        if not table["id"].isprintable():
            raise RunDamaged(f"{path}: [{section}] id = {table['id']!a:.200} is not a name; {COPY}")
    if not isinstance(config.get("schedule"), Mapping):
        raise RunDamaged(f"{path} has no [schedule]; {COPY}")
    if not isinstance(config.get("original", {}), Mapping):
        raise RunDamaged(f"{path}: [original] is not a table; {COPY}")
    for name in ("cycles", "final"):
        if type(config["schedule"].get(name)) is not int:
            raise RunDamaged(f"{path}: schedule.{name} is missing or no whole number; {COPY}")
    return config


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run or of an exported agent, and no other place for a config."""
    return any((folder / name).exists() for name in (JOURNAL, ENVIRONMENT, LOCK, CHECKPOINTS, "agent"))


def parse_config(folder: Path) -> dict[str, Any]:
    """The same, whatever it holds."""
    path = folder / CONFIG
    try:
        there = path.is_file()
    except OSError as error:
        raise RunError(f"{folder!s:.200} is not a run folder: {error.strerror}") from None
    if not there:
        raise RunError(f"{folder} is not a run folder: it has no {CONFIG} (a run that never began is run again)")
    try:
        return tomllib.loads(read_file(path, LONGEST_CONFIG).decode())
    except (ValueError, RecursionError) as error:
        raise RunDamaged(f"{path} cannot be read: {one_line(error)}; {COPY}") from error


def read_records(folder: Path, kind: type[R]) -> list[tuple[Step, R]]:
    """All records of a kind with the step that made them."""
    return read_tagged(folder / FILES[kind], kind)


def read_exchanges(folder: Path) -> list[tuple[Step, Exchange]]:
    """All exchanges with language models, with the step that made them."""
    return read_tagged(folder / EXCHANGES, Exchange)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All metrics under the names of today: one dict a line, with `at`, `cycle` and `phase`."""
    lines = _read_plain(folder / METRICS, "it is part of the result: restore it from a copy")
    for number, line in enumerate(lines, start=1):
        fits = type(line.get("at")) is int and type(line.get("cycle")) is int and isinstance(line.get("phase"), str)
        numbers = [value for name, value in line.items() if name != "phase"]
        if not fits or not all(value is None or type(value) in (int, float) for value in numbers):
            raise RunDamaged(f"{folder / METRICS}, line {number}: it does not hold metrics; {COPY}")
    return [{RENAMED_METRICS.get(name, name): value for name, value in line.items()} for line in lines]


def read_timings(folder: Path) -> list[dict[str, Any]]:
    """How long each step took, repeated ones included: not part of the result."""
    return _read_plain(folder / TIMINGS, "it is not part of the result: move it away")


def read_environment(folder: Path) -> list[dict[str, Any]]:
    """Config, machine and versions at the start and at every resume."""
    return _read_plain(folder / ENVIRONMENT, "it is not part of the result: move it away")


def read_tagged(path: Path, kind: type[L]) -> list[tuple[Step, L]]:
    """The records of a file with their steps."""
    return [tagged(line, path, number, kind) for number, line in enumerate(whole_lines(path), start=1)]


def tagged(line: bytes, path: Path, number: int, kind: type[L]) -> tuple[Step, L]:
    """A line that says which step its record came from."""
    try:
        values = json.loads(line)
        step = Step(**{name: values.pop(name) for name in Step.model_fields})
        return step, kind.from_json(json.dumps(values))
    except BAD as error:
        raise RunDamaged(f"{path}, line {number}: {one_line(error)}; {COPY}") from error


def _read_plain(path: Path, advice: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            values = json.loads(line)
        except BAD as error:
            raise RunDamaged(f"{path}, line {number}: {one_line(error)}; {advice}") from error
        if not isinstance(values, dict):
            raise RunDamaged(f"{path}, line {number}: it holds no object; {advice}")
        found.append(values)
    return found


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; one torn by a crash at the very end is left out. No file has no lines."""
    if not os.path.lexists(path):
        return []
    return [line + b"\n" for line in read_file(path).split(b"\n")[:-1]]


def read_file(path: Path, longest: int = LONGEST) -> bytes:
    """The content of a regular file; links, devices and what is far too long are refused."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            state = os.fstat(file.fileno())
            if path.is_symlink() or not stat.S_ISREG(state.st_mode):
                raise RunDamaged(f"{path} is not a regular file; {COPY}")
            if state.st_size > longest:
                raise RunDamaged(f"{path} has {state.st_size:,} bytes, more than any run writes into it; {COPY}")
            return file.read(longest + 1)
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error.strerror or error}; {COPY}") from error


def one_line(error: BaseException) -> str:
    """What is wrong, in one short line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        text = f"{place}: {first['msg']}" if place else str(first["msg"])
    elif isinstance(error, KeyError):
        text = f"it has no {error}"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())[:200]


@contextmanager
def shown(*folders: Path) -> Iterator[None]:
    """Put into words that the files of a run contradict each other, whatever that broke in a view."""
    try:
        yield
    except CurricleError:
        raise
    except (*BAD, IndexError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        names = ", ".join(map(str, folders))
        raise RunDamaged(
            f"{names} cannot be shown, files contradict each other ({what}); see: curricle verify {folders[0]}"
        ) from error
