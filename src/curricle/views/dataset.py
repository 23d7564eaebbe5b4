"""The designs of a run as a folder that Hugging Face's `datasets` reads: `load_dataset(FOLDER)`.

    designs.jsonl   one row a design, with its task, what came of it, and whether it was used
    d_train.jsonl   the agent's pool, where it has one: solved and unsolved tasks with their best attempt
    README.md       the dataset card (`card.py`), which declares the columns

Every run has designs. Where the designer keeps a pool of all that it wrote (`D_env`), dropped candidates are rows, too,
and each row has what the policy was asked and answered. Rows come from the records and checkpoints of the run folder.
Prompts and gold come from its world, whose code is imported only as `run/trust.py` allows.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curricle.errors import CurricleError, RunDamaged, RunError, RunUnwritable
from curricle.llm import pools
from curricle.records import Design, Message, Outcome, Task, checked
from curricle.registry import find
from curricle.run import read_checkpoint, read_config, trust
from curricle.views.card import D_TRAIN, DESIGNS, card
from curricle.views.designs import designs_so_far
from curricle.world import TaskWorld, World

UNUSED = "unused"
"""Why a design without a fault was not practised: a designer that ranks candidates left it out."""
SOUND = ("", "spare", "duplicate")
"""Faults of candidates whose settings the world accepts, so that their tasks can be drawn."""
REFUSED = "refused"
LEFT_OUT = "the world refused it; it is left out, because it may be a task that is kept for tests"
DEEPEST = 4
"""How many designers inside each other are searched for a pool."""
Row = dict[str, Any]


def export_dataset(folder: Path, out: Path, trusted: bool = False) -> list[str]:
    """Write a run's designs into a new folder; returns notes on what was left out."""
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")
    config = read_config(folder)
    world, note = _task_world(config, folder, trusted)
    tables = {DESIGNS: _design_rows(folder, config, _Tasks(world)), D_TRAIN: _train_rows(folder)}
    tables = {name: rows for name, rows in tables.items() if rows}
    if not tables:
        raise RunError(f"{folder} has nothing to export: {config['designer']['id']} has made no designs so far")
    texts = {f"{name}.jsonl": "".join(f"{_json(row)}\n" for row in rows) for name, rows in tables.items()}
    texts["README.md"] = card(folder, config, {name: len(rows) for name, rows in tables.items()})
    try:
        out.mkdir(parents=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunUnwritable(f"cannot write {out}: {error.strerror or error}; choose another --out") from error
    return [note] if note else []


class _Tasks:
    """Draws the tasks of settings, each once."""

    def __init__(self, world: TaskWorld | None) -> None:
        self.world = world
        self._drawn: dict[str, Row] = {}

    def columns(self, values: Mapping[str, Any]) -> Row:
        """The columns of a setting's task: the one that seed 0 gives."""
        key = _json(values)
        if key not in self._drawn:
            self._drawn[key] = self._draw(values)
        return self._drawn[key]

    def _draw(self, values: Mapping[str, Any]) -> Row:
        if self.world is None:
            return _task_columns(None, False)
        try:
            setting = self.world.setting(values)
            (task,) = self.world.draw(setting, 1, 0)
            original = self.world.original.values
            has_text = any(k.kind == "text" and setting.values[k.name] != original[k.name] for k in setting.knobs())
            written = has_text and self.world.draw(setting, 1, 1)[0].id == task.id
        except CurricleError:  # what a run once accepted, its world may refuse today
            return _task_columns(None, False)
        return _task_columns(task, written)


class _Written:
    """What the environment policy wrote, by the design that came of it."""

    def __init__(self, rows: Sequence[pools.Row], original: Mapping[str, Any]) -> None:
        self.rows = rows
        self.taken = set[int]()
        self._places = defaultdict[str, list[int]](list)
        for place, row in enumerate(rows):
            if not row.info["fault"]:
                self._places[_key(row.skill, {**original, **_values(row)})].append(place)

    def of(self, design: Design, cycle: int) -> pools.Row | None:
        """The row of a design: the first of its cycle that is not taken, or any for one that is used again later."""
        if design.changed:  # a fallback's
            return None
        places = self._places.get(_key(design.aim or "", design.setting), [])
        own = [place for place in places if self.rows[place].info["cycle"] == cycle and place not in self.taken]
        if not own and not places:
            return None
        place = (own or places)[0]
        self.taken.add(place)
        return self.rows[place]


def _design_rows(folder: Path, config: Mapping[str, Any], tasks: _Tasks) -> list[Row]:
    """One row a design or dropped candidate, by cycles, those that were used first."""
    written = _Written(_pool(folder, "designer", pools.ENV), config.get("original", {}))
    found = defaultdict[int, list[Row]](list)
    for cycle, outcome in designs_so_far(folder):
        row = _used_row(cycle, outcome, tasks)
        found[cycle].append(row | _policy_columns(written.of(outcome.design, cycle)))
    for place, candidate in enumerate(written.rows):
        if place not in written.taken:
            row = _dropped_row(candidate, str(config["designer"]["id"]), tasks)
            found[row["cycle"]].append(row | _policy_columns(candidate))
    return [row for _, rows in sorted(found.items()) for row in rows]


def _used_row(cycle: int, outcome: Outcome, tasks: _Tasks) -> Row:
    design = outcome.design
    return {
        "cycle": cycle,
        "setting": _json(design.setting),
        "aim": design.aim,
        "by": design.by,
        "why": design.why,
        "changed": list(design.changed),
        "used": True,
        "dropped": "",
        "dropped_why": "",
        "attempts": outcome.attempts,
        "successes": outcome.successes,
        "p": outcome.rate,
        **tasks.columns(design.setting),
    }


def _dropped_row(candidate: pools.Row, by: str, tasks: _Tasks) -> Row:
    """A candidate that was not used; its setting has only the knobs that it wrote."""
    fault = str(candidate.info["fault"])
    is_refused = fault == REFUSED
    values = {} if is_refused else _values(candidate)
    return {
        "cycle": int(candidate.info["cycle"]),
        "setting": _json(values),
        "aim": candidate.skill or None,
        "by": by,
        "why": "",
        "changed": [],
        "used": False,
        "dropped": fault or UNUSED,
        "dropped_why": LEFT_OUT if is_refused else str(candidate.info.get("why", "")),
        "attempts": 0,
        "successes": 0,
        "p": None,
        **(tasks.columns(values) if fault in SOUND else _task_columns(None, False)),
    }


def _task_columns(task: Task | None, written: bool) -> Row:
    return {
        "prompt": _chat(task.prompt) if task else None,
        "gold": _json(task.gold) if task else None,
        "skill": task.skill if task else None,
        "written": written,
    }


def _policy_columns(row: pools.Row | None) -> Row:
    """What the environment policy was asked and answered, and how much its training weighs it."""
    reward = row.info.get("reward") if row else None
    is_shown = row is not None and row.info["fault"] != REFUSED
    return {
        "request": _chat(row.prompt) if row else None,
        "completion": row.completion if row and is_shown else None,
        "seed_task": str(row.info.get("group", "")) if row else None,
        "reward": None if reward is None else float(reward),
        "weight": row.weight if row else None,
    }


def _train_rows(folder: Path) -> list[Row]:
    """The agent's pool: each task with its best attempt."""
    return [
        {
            "id": str(row.info.get("id", "")),
            "prompt": _chat(row.prompt),
            "completion": _chat([*row.before, Message(role="assistant", content=row.completion)]),
            "gold": _json(row.truth),
            "skill": row.skill,
            "by": str(row.info.get("by", "")),
            "attempts": int(row.info.get("attempts", 0)),
            "successes": int(row.info.get("successes", 0)),
            "reward": row.weight,
        }
        for row in _pool(folder, "agent", pools.TRAIN)
    ]


def _pool(folder: Path, part: str, name: str) -> list[pools.Row]:
    """The rows of a pool in the newest checkpoint; a designer that works on another one's has it in `of`."""
    try:
        place = read_checkpoint(folder, part)
    except RunDamaged:
        raise
    except RunError:  # nothing is saved so far
        return []
    for _ in range(DEEPEST):
        path = place / name
        if path.is_file() and not path.is_symlink():
            return pools.read(path)
        place = place / "of"
    return []


def _task_world(config: Mapping[str, Any], folder: Path, trusted: bool) -> tuple[TaskWorld | None, str]:
    """The world of a run, if it has tasks, and why it is not there where its code may not or cannot run."""
    table = config["world"]
    try:
        trust.check({"world": table}, folder, trusted)
        kind = find(World, table["id"])
        if not issubclass(kind, TaskWorld):
            return None, ""
        given = {key: value for key, value in table.items() if key != "id"}
        options = checked(kind.Options, given, f"[world] {kind.id}")
        return kind(options, kind().setting(config.get("original", {}))), ""
    except CurricleError as error:
        return None, f"designs are written without prompts and gold: {error}"


def _values(row: pools.Row) -> Mapping[str, Any]:
    return row.truth if isinstance(row.truth, dict) else {}


def _key(aim: str, values: Mapping[str, Any]) -> str:
    return json.dumps([aim, dict(values)], sort_keys=True)


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
