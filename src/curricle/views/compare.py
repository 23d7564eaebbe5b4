"""Runs beside each other: the last scores of each, out of their folders alone."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from curricle.errors import UsageError
from curricle.records import Scores
from curricle.run import read_config, read_records
from curricle.views.table import finished


def comparison(folders: Sequence[Path]) -> Table:
    """One row for all runs of one config, whatever their seeds; it says what tells that config from the first."""
    groups, untested = dict[str, list[tuple[dict[str, Any], Scores, bool]]](), list[str]()
    for folder in folders:
        config, scores = read_config(folder), read_records(folder, Scores)
        if not scores:
            untested.append(str(folder))
            continue
        plain = {key: value for key, value in config.items() if key not in ("seed", "log")}
        row = (config, scores[-1][1], finished(config, scores))
        groups.setdefault(json.dumps(plain, sort_keys=True), []).append(row)
    if not groups:
        raise UsageError(f"no scores yet: {', '.join(untested)}")
    left = f"; left out, no scores yet: {', '.join(untested)}" if untested else ""
    caption = "mean ± one std over seeds; (n) seeds that are finished, the others count as they are"
    shown = Table(caption=Text(caption + left))
    for column in ("run", "seeds", "test: headline", "reward", "training: headline", "reward"):
        shown.add_column(column, justify="left" if column == "run" else "right")
    first = next(iter(groups.values()))[0][0]
    for runs in groups.values():
        tests, trained = [s for _, s, _ in runs], [s.trained for _, s, _ in runs if s.trained]
        seeds = f"{len(runs)} ({sum(done for _, _, done in runs)})"
        shown.add_row(
            Text(_name(runs[0][0], first)),
            seeds,
            _spread([s.headline for s in tests], 1),
            _spread([s.reward.mean for s in tests], 2),
            _spread([t.headline for t in trained], 1),
            _spread([t.reward for t in trained], 2),
        )
    return shown


def _name(config: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """World, designer and agent, and all that differs from the first run."""
    parts = [str(config[part]["id"]).rpartition("/")[2] for part in ("world", "designer", "agent")]
    before, known = dict(_leaves(first)), {"seed", "world.id", "designer.id", "agent.id"}
    same = config["designer"]["id"] == first["designer"]["id"]
    for key, value in _leaves(config):
        if key in known or key.startswith("log.") or (key.startswith("designer.") and not same):
            continue
        if before.get(key) != value:
            parts.append(f"{key}={value}")
    return ", ".join(parts)


def _leaves(table: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
