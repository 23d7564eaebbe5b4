"""Pools: the tasks and traces that both players of GenEnv gather, as Parquet that verl and TRL read as it is.

`D_train`, the agent's: one row a task with a valid trace, with the best of them, and as `weight` what that one earned;
practice draws old tasks from it.
`D_env`, the environment policy's: one row a task it wrote, conditioning to task, with the weight it has in training (0:
none; a frozen policy notes it all the same) and, where it was dropped, why. Every task it ever wrote is a row, so
nothing goes uncounted.

Columns: `data_source` (the world), `prompt` and `completion` (chat lists), `ability` (the skill), `reward_model` with
`style` and `ground_truth` (JSON), `weight`, and `extra_info` (JSON fields of ours). Where a world answers back, the
completion is the conversation after the prompt, the world's turns included. A pool is part of its player's checkpoint,
so a run that is killed resumes with exactly the rows it had.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from curricle.errors import RunDamaged
from curricle.llm.extras import needed
from curricle.records import Frozen, FrozenMap, Message, Record, Task

TRAIN = "d_train.parquet"
ENV = "d_env.parquet"


class Row(Record):
    """One task of a pool."""

    source: str
    prompt: tuple[Message, ...]
    completion: str = ""
    """What the player said last."""
    before: tuple[Message, ...] = ()
    """What was said between the prompt and that, in turns."""
    skill: str = ""
    truth: JsonValue = None
    weight: float = 1.0
    info: FrozenMap[str, Any] = Frozen()

    @property
    def task(self) -> Task:
        """As a task again, to be tried once more."""
        return Task(id=str(self.info.get("id", "")), prompt=self.prompt, gold=self.truth, skill=self.skill)


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a pool; equal rows give equal bytes, and fields of a gold come back in the order they had."""
    pyarrow = needed("pyarrow")
    parquet = needed("pyarrow.parquet")
    chat = pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))
    judged = pyarrow.struct([("style", pyarrow.string()), ("ground_truth", pyarrow.string())])
    extra = pyarrow.struct([("index", pyarrow.int64()), ("split", pyarrow.string()), ("info", pyarrow.string())])
    schema = pyarrow.schema(
        [
            ("data_source", pyarrow.string()),
            ("prompt", chat),
            ("completion", chat),
            ("ability", pyarrow.string()),
            ("reward_model", judged),
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
    """Read a pool back."""
    pyarrow = needed("pyarrow")
    parquet = needed("pyarrow.parquet")
    try:
        found = parquet.read_table(path).to_pylist()
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
            for row in found
        ]
    except (OSError, ValueError, KeyError, IndexError, TypeError, pyarrow.ArrowException) as error:
        raise RunDamaged(f"pool {path} cannot be read: {error}") from error


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
