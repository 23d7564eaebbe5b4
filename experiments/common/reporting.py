"""What the scripts of several studies share: reading data, means over seeds, and tables in Markdown."""

import functools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curricle.agent import Agent
from curricle.designer import Designer
from curricle.registry import find
from curricle.world import World

T95 = (
    "12.71 4.30 3.18 2.78 2.57 2.45 2.36 2.31 2.26 2.23 2.20 2.18 2.16 2.14 2.13 2.12 2.11 2.10 2.09 2.09 "
    "2.08 2.07 2.07 2.06"
)
"""Student's t for 95 % with 1, 2, ... degrees of freedom."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a data file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Add one line to a data file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@functools.cache
def renamed(part: str, name: str) -> dict[str, str]:
    """Old names of a part's options, with the names of today. A part is the world, the designer or the agent."""
    if part == "agent":
        return find(Agent, name).Options.every_renamed()
    if part == "designer":
        return find(Designer, name).Options.every_renamed()
    return find(World, name).Options.every_renamed()


def option(line: Mapping[str, Any], part: str, name: str, default: Any = None) -> Any:
    """An option of a run, whatever it was called at the time."""
    options = line["config"][part]
    names = renamed(part, options["id"])
    wanted = names.get(name, name)
    for key, value in options.items():
        if names.get(key, key) == wanted:
            return value
    return default


def mean(values: Sequence[float], digits: int = 1) -> str:
    """The mean of some values."""
    return f"{statistics.fmean(values):.{digits}f}"


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Mean with its 95 % interval; a single value alone."""
    if len(values) < 2:
        return mean(values, digits)
    t = [float(word) for word in T95.split()]
    half = t[min(len(values) - 1, len(t)) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean(values, digits)} ± {half:.{digits}f}"


def deviation(values: Sequence[float], digits: int = 1) -> str:
    """Mean with one standard deviation; the mean alone where there are fewer than three values."""
    if not values:
        return "-"
    if len(values) < 3:
        return mean(values, digits)
    return f"{mean(values, digits)} ± {statistics.stdev(values):.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in rows:
        lines.append(f"| {' | '.join(str(cell) for cell in row)} |")
    return "\n".join(lines)
