"""The table of a study whose data are lines of `collect.py`: one row a setting, means over its seeds.

Keys of the config tell the settings of the study apart. `±` is one standard deviation over seeds, as in the papers; it
is left out where there are fewer than three.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from reporting import deviation, markdown, option

SCORES = ("training score", "training reward", "late reward", "test score", "test reward")


def value_of(line: Mapping[str, Any], key: str) -> Any:
    """An option of a run: `agent.steps`, for instance."""
    part, _, name = key.partition(".")
    return option(line, part, name)


def heading(key: str) -> str:
    """How the table names a key of the config."""
    return key.removesuffix(".id").rpartition(".")[2]


def cells(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Seeds and scores of the runs of one setting."""
    seeds = {line["config"]["seed"] for line in lines}
    count = str(len(seeds)) if len(seeds) == len(lines) else f"{len(seeds)} ({len(lines)} runs)"
    late = [line["late_reward"] for line in lines if line.get("late_reward") is not None]
    late_reward = deviation(late)
    if 0 < len(late) < len(lines):
        late_reward += f" ({len(late)})"
    return [
        count,
        deviation([line["trained"]["headline"] for line in lines]),
        deviation([line["trained"]["reward"] for line in lines]),
        late_reward,
        deviation([line["tested"]["headline"] for line in lines]),
        deviation([line["tested"]["reward"] for line in lines]),
    ]


def table(lines: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    """One row for each setting."""
    settings = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for line in lines:
        settings[tuple(value_of(line, key) for key in keys)].append(line)
    rows = [[*values, *cells(settings[values])] for values in sorted(settings)]
    return markdown([*map(heading, keys), "seeds", *SCORES], rows)
