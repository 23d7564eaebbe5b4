"""The card of an exported dataset: a README.md whose header tells `datasets` of files and columns.

The header is YAML and holds only words of ours. Names from the config of a run folder, which may come from anybody,
stand below it as code, so that nothing in them is read as markdown. Paths are cut to their last part: the others say
how a machine is set up.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curricle.records import Scores
from curricle.run import read_environment, read_records
from curricle.tracking.environment import packages
from curricle.views.table import finished

DESIGNS = "designs"
D_TRAIN = "d_train"
CHAT = "chat"
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    DESIGNS: {
        "cycle": ("int64", "cycle of the run in which it was made"),
        "setting": ("string", "knobs and their values, as JSON; of a dropped candidate only those that it wrote"),
        "aim": ("string", "skill that it is meant to teach; null: the whole world"),
        "by": ("string", "designer that made it; a fallback says so"),
        "why": ("string", "the designer's reason"),
        "changed": ("strings", "what was repaired or replaced in the designer's answer"),
        "used": ("bool", "whether the agent got it to practise"),
        "dropped": ("string", "why a candidate was not used, in a word; empty: it was"),
        "dropped_why": ("string", "the same in a sentence"),
        "attempts": ("int64", "the agent's attempts in it, in its own cycle; 0: not practised so far"),
        "successes": ("int64", "attempts that met its aim"),
        "p": ("float64", "successes / attempts; null without attempts"),
        "prompt": (CHAT, "its task, as seed 0 draws it; null in worlds without text tasks"),
        "gold": ("string", "what the verifier of the world holds the answer against, as JSON"),
        "skill": ("string", "skill that the task is about"),
        "written": ("bool", "whether the setting alone decides the task, because its text was written"),
        "request": (CHAT, "what the environment policy was asked; null of other designers"),
        "completion": ("string", "what it answered"),
        "seed_task": ("string", "seed task or knobs that it was asked to vary"),
        "reward": ("float64", "its reward for the design, in its own cycle"),
        "weight": ("float64", "weight of the answer in its training, by the newest attempts; 0: none"),
    },
    D_TRAIN: {
        "id": ("string", "name of the task in its world"),
        "prompt": (CHAT, "the task"),
        "completion": (CHAT, "the best valid attempt, with the world's turns"),
        "gold": ("string", "what the verifier of the world holds the answer against, as JSON"),
        "skill": ("string", "skill that the task is about"),
        "by": ("string", "designer of the task"),
        "attempts": ("int64", "all attempts at the task"),
        "successes": ("int64", "those that solved it"),
        "reward": ("float64", "reward of the attempt that is shown; 0: it is wrong"),
    },
}
"""Tables and their columns: the type, and what it holds."""
ABOUT = {
    DESIGNS: "what the designer made, one row a design",
    D_TRAIN: "tasks that the agent practised, each with its best attempt",
}
HOW = """Curricle trained an agent in tasks or settings that a designer made for it while it learned. In each cycle the
designer proposed designs, the agent practised them, and the designer learned what came of them. The rows are the
records of one run, and its pools as of the last checkpoint, written by `curricle export RUN --as hf`. Texts that a
language model wrote were neither edited nor checked by a person. No task was drawn with a seed that is for tests. The
licence is not known: it depends on the models and data that the run used."""


def card(folder: Path, config: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """The whole README.md of a dataset with these tables and so many rows each."""
    tables = "\n\n".join(_columns(name, size) for name, size in sizes.items())
    facts = "\n".join(f"| {name} | {_cell(value)} |" for name, value in _facts(folder, config).items())
    title = f"# Designs of a run in {_cell(_last(config['world']['id']))}"
    return f"{_header(sizes)}\n{title}\n\n{HOW}\n\n| run | |\n|---|---|\n{facts}\n\n{tables}\n"


def _header(sizes: Mapping[str, int]) -> str:
    """The header of the card: configs with their files, the columns of each, and the licence."""
    lines = ["---", "license: other", "license_name: unknown", "tags:", "- curricle", "configs:"]
    for number, name in enumerate(sizes):
        lines += [f"- config_name: {name}", *(["  default: true"] if number == 0 else [])]
        lines += ["  data_files:", "  - split: train", f"    path: {name}.jsonl"]
    lines.append("dataset_info:")
    for name in sizes:
        lines += [f"- config_name: {name}", "  features:"]
        for column, (kind, _) in COLUMNS[name].items():
            lines += [f"  - name: {column}", *_type(kind)]
    return "\n".join([*lines, "---", ""])


def _type(kind: str) -> list[str]:
    """The type of a column, as `datasets` writes it."""
    if kind == "strings":
        return ["    list: string"]
    if kind == CHAT:
        parts = [(f"    - name: {part}", "      dtype: string") for part in ("role", "content")]
        return ["    list:", *(line for part in parts for line in part)]
    return [f"    dtype: {kind}"]


def _facts(folder: Path, config: Mapping[str, Any]) -> dict[str, object]:
    """What a reader must know of the run; what it does not have is left out."""
    designer = config["designer"]
    inner = designer.get("of_options", {})
    environments = read_environment(folder)
    known = environments[-1].get("packages") if environments else None
    scores = read_records(folder, Scores)
    facts = {
        "world": _last(config["world"]["id"]),
        "agent": _last(config["agent"]["id"]),
        "model of the agent": _last(config["agent"].get("model", "")),
        "designer": _last(designer["id"]),
        "works on designs of": _last(designer.get("of", "")),
        "model of the designer": _last(designer.get("model") or inner.get("model", "")),
        "alpha": designer.get("alpha", inner.get("alpha", "")),
        "seed": config["seed"],
        "cycles": config["schedule"]["cycles"],
        "finished": "yes" if finished(config, scores) else "no",
        "Curricle of the run": known.get("curricle", "") if isinstance(known, Mapping) else "",
        "Curricle of this export": packages().get("curricle", ""),
    }
    return {name: value for name, value in facts.items() if value != ""}


def _columns(name: str, size: int) -> str:
    """The section on one table."""
    rows = "\n".join(f"| `{column}` | {kind} | {what} |" for column, (kind, what) in COLUMNS[name].items())
    return f"## {name}\n\n{size:,} rows: {ABOUT[name]}.\n\n| column | type | what it holds |\n|---|---|---|\n{rows}"


def _last(name: object) -> str:
    """A name without the folders of a path."""
    return str(name).rstrip("/\\").replace("\\", "/").rpartition("/")[2] if _is_path(str(name)) else str(name)


def _is_path(name: str) -> bool:
    return name.startswith(("/", "~", ".", "replay:", "local:")) or ".py:" in name or name[1:2] == ":"


def _cell(value: object) -> str:
    """A value in a table, as code: nothing in it is read as markdown or HTML."""
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    line = "".join(char if char.isprintable() else " " for char in text)[:200]
    return f"`{line.replace('`', ' ').replace('|', ' ')}`"
