"""Runs beside each other: the last scores of each, out of their folders alone."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from curricle.errors import RunError, UsageError
from curricle.records import Scores, leaves
from curricle.run import read_config, read_environment, read_records
from curricle.views.table import finished

PARTS = {"world": "world", "original": "world", "designer": "designer", "agent": "agent"}
"""Sections of a config that mean nothing without the id of a part, and whose it is."""


class Row(NamedTuple):
    """A run that is compared."""

    folder: Path
    config: Mapping[str, Any]
    scores: Scores
    done: bool


def comparison(folders: Sequence[Path]) -> Group:
    """One row for all runs of one config, whatever their seeds; it says what tells that config from the others."""
    groups = dict[str, dict[int, Row]]()
    untested = list[str]()
    doubled = list[str]()
    folders = [*{folder.resolve(): folder for folder in folders}.values()]
    for folder in sorted(folders, key=_started):
        config = read_config(folder)
        scores = read_records(folder, Scores)
        if not scores:
            untested.append(str(folder))
            continue
        runs = groups.setdefault(_plain(config), {})
        if config["seed"] in runs:  # equal by design: counted twice, it would look like a seed more
            doubled.append(str(runs[config["seed"]].folder))
        runs[config["seed"]] = Row(folder, config, scores[-1][1], finished(config, scores))
    if not groups:
        raise UsageError(f"no scores yet: {', '.join(untested)}")
    order = dict.fromkeys(_plain(read_config(folder)) for folder in folders)
    rows = [[*groups[plain].values()] for plain in order if plain in groups]
    notes = [Text(f"left out, no scores yet: {', '.join(untested)}")] if untested else []
    if doubled:
        notes.append(Text(f"left out, a later run has the same config and seed: {', '.join(doubled)}"))
    return Group(_table(rows), *notes)


def _table(groups: Sequence[Sequence[Row]]) -> Table:
    caption = "mean ± one std over seeds; (n) seeds that are finished, the others count as they are"
    shown = Table(caption=Text(caption))
    for column in ("run", "seeds", "test: headline", "reward", "training: headline", "reward"):
        shown.add_column(column, justify="left" if column == "run" else "right")
    configs = [runs[0].config for runs in groups]
    for runs in groups:
        tests = [run.scores for run in runs]
        trained = [run.scores.trained for run in runs if run.scores.trained]
        shown.add_row(
            Text(_name(runs[0].config, configs)),
            f"{len(runs)} ({sum(run.done for run in runs)})",
            _spread([s.headline for s in tests], 1),
            _spread([s.reward.mean for s in tests], 2),
            _spread([t.headline for t in trained], 1),
            _spread([t.reward for t in trained], 2),
        )
    return shown


def _started(folder: Path) -> str:
    """When a run began; one that does not tell counts as the oldest."""
    lines = read_environment(folder)
    return str(lines[0].get("started", "")) if lines else ""


def _plain(config: Mapping[str, Any]) -> str:
    """A config without what may differ between runs of one row."""
    same = {key: value for key, value in config.items() if key not in ("seed", "log")}
    return json.dumps(same | {"begin": _beginning(config)}, sort_keys=True)


def _beginning(config: Mapping[str, Any]) -> str:
    """What a run began with; that of each seed may be a run of the same seed, and they are alike if those are."""
    try:
        other = read_config(Path(config["begin"])) if "begin" in config else {}
    except RunError:  # it may be gone
        other = {}
    return _plain(other) if other and other["seed"] == config["seed"] else str(config.get("begin", ""))


def _name(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> str:
    """World, designer and agent, and every key in which runs that could have it differ: no run is the plain one."""
    parts = [str(config[part]["id"]).rpartition("/")[2] for part in ("world", "designer", "agent")]
    parts += [f"begin={Path(config['begin']).name}"] if "begin" in config else []
    known = {"seed", "begin", "world.id", "designer.id", "agent.id"}
    for key in dict.fromkeys(key for other in configs for key, _ in leaves(other)):
        if key in known or key.startswith("log."):
            continue
        values = [dict(leaves(other)).get(key, "unset") for other in _beside(key, config, configs)]
        if any(value != values[0] for value in values):
            parts.append(f"{key}={dict(leaves(config)).get(key, 'unset')}")
    return ", ".join(parts)


def _beside(key: str, config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The configs that a key is compared in: those that share the part it is an option of, itself among them."""
    section, _, rest = key.partition(".")
    part = PARTS.get(section)
    named = rest.partition(".")[0].removesuffix("_options")

    def owners(one: Mapping[str, Any]) -> tuple[Any, Any]:
        """A part, and the designer that it names beside these options (`of` beside `of_options`)."""
        nested = part is not None and rest.startswith(f"{named}_options.")
        return one[part]["id"] if part else None, one[section].get(named) if nested else None

    return [other for other in configs if owners(other) == owners(config)]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
