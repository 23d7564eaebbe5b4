"""Pools: the tasks and replies that both players of GenEnv gather, as Parquet that verl and TRL can read.

`D_train` is the agent's. It has one row a task with a valid attempt. The row holds the best attempt, and as `weight`
its reward. Practice draws old tasks from it.
`D_env` is the environment policy's. It has one row for every task the policy ever wrote, from conditioning to task,
with its weight in training (0: not trained on) and, where it was dropped, the reason.

Columns: `data_source` (the world), `prompt` and `completion` (chat lists), `ability` (the skill), `reward_model` with
`style` and `ground_truth` (JSON), `weight`, and `extra_info` (JSON fields of our own). Where a world answers back, the
completion is the conversation after the prompt, with the world's turns. A pool is part of its player's checkpoint, so a
run that is killed resumes with exactly the rows it had.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from curricle.errors import RunDamaged, needed
from curricle.records import Frozen, FrozenMap, Message, Record, Task

TRAIN = "d_train.parquet"
ENV = "d_env.parquet"


class Row(Record):
    """One task of a pool."""

    source: str
    prompt: tuple[Message, ...]
    completion: str = ""
    """The player's last reply."""
    before: tuple[Message, ...] = ()
    """The turns between the prompt and that reply."""
    skill: str = ""
    truth: JsonValue = None
    weight: float = 1.0
    info: FrozenMap[str, Any] = Frozen()

    @property
    def task(self) -> Task:
        """The row as a task, to be attempted again."""
        return Task(id=str(self.info.get("id", "")), prompt=self.prompt, gold=self.truth, skill=self.skill)


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a pool; equal rows give equal bytes. The fields of a gold answer keep their order."""
    pyarrow = needed("pyarrow")
    parquet = needed("pyarrow.parquet")
    chat = pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))
    reward_model = pyarrow.struct([("style", pyarrow.string()), ("ground_truth", pyarrow.string())])
    extra = pyarrow.struct([("index", pyarrow.int64()), ("split", pyarrow.string()), ("info", pyarrow.string())])
    schema = pyarrow.schema(
        [
            ("data_source", pyarrow.string()),
            ("prompt", chat),
            ("completion", chat),
            ("ability", pyarrow.string()),
            ("reward_model", reward_model),
            ("weight", pyarrow.float64()),
            ("extra_info", extra),
        ]
    )
    table = [
        {
            "data_source": row.source,
            "prompt": _chat(row.prompt),
            "completion": [*_chat(row.before), {"role": "assistant", "content": row.completion}],
            "ability": row.skill,
            "reward_model": {"style": "rule", "ground_truth": _json(row.truth)},
            "weight": row.weight,
            "extra_info": {"index": index, "split": "train", "info": _json(dict(row.info))},
        }
        for index, row in enumerate(rows)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(table, schema=schema), path)


def read(path: Path) -> list[Row]:
    """Read a pool."""
    pyarrow = needed("pyarrow")
    parquet = needed("pyarrow.parquet")
    try:
        rows = parquet.read_table(path).to_pylist()
        return [
            Row(
                source=row["data_source"],
                prompt=tuple(Message(**message) for message in row["prompt"]),
                completion=row["completion"][-1]["content"],
                before=tuple(Message(**message) for message in row["completion"][:-1]),
                skill=row["ability"],
                truth=json.loads(row["reward_model"]["ground_truth"]),
                weight=row["weight"],
                info=json.loads(row["extra_info"]["info"]),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, IndexError, TypeError, pyarrow.ArrowException) as error:
        raise RunDamaged(f"pool {path} cannot be read: {error}") from error


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
