"""API-Bank: dialogues in which the next thing is a call, as items; levels 1, 2 and 3 of its test data.

Its data has faults, such as gold that leaves out or misspells arguments: items that are not sound are dropped when the
source is loaded. Every argument of its tools is required; values are turned into the type that the tool declares.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from curricle.worlds.text.tools.calls import read_python_call
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.matching import GoldCall
from curricle.worlds.text.tools.schema import Json, Tool

if TYPE_CHECKING:
    from curricle.worlds.text.tools.sources.data import Data

FILES = ("level-1-api.json", "level-2-api.json", "level-3-batch-inf.json")
QUOTED_LIST = re.compile(r"='(\[.*?\])'")
"""Its data puts quotes around lists that hold quotes, which no parser reads."""
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def items(data: "Data") -> Iterator[tuple[str, Item]]:
    """All items whose text can be read, each with the name of its dialogue."""
    for name in FILES:
        for row in data.rows(name):
            dialogue = str(row.get("file", f"{name} {row.get('sample_id')}"))
            if item := read_row(row):
                yield dialogue, item


def read_row(row: Mapping[str, Json]) -> Item | None:
    """One row; None where its gold is not written as a call."""
    lines = f"{row['instruction']}\n{row['input']}".splitlines()
    tools = {str(tool["name"]): tool for line in lines for tool in _tools(line)}
    talk = [line for line in row["input"].splitlines() if line and not line.startswith('{"')]
    request = "\n".join(line for line in talk if not line.startswith("Generate "))
    gold = str(row.get("expected_output", row.get("output"))).partition("[")[2].rpartition("]")[0]
    try:
        call = read_python_call(QUOTED_LIST.sub(r"=\1", gold), {})
    except (SyntaxError, ValueError):
        return None
    properties = tools.get(call.name, {}).get("parameters", {}).get("properties", {})
    arguments = {key: _typed(value, properties.get(key, {})) for key, value in call.arguments.items()}
    return Item(tools=tools.values(), request=request, calls=[GoldCall(name=call.name, arguments=arguments)])


def _tools(line: str) -> list[Tool]:
    """The tools that a line describes: a description as JSON, or the find of a search, as Python's literals."""
    try:
        found = json.loads(line) if line.startswith('{"') else ast.literal_eval(line.partition("->")[2].strip() or "0")
    except (ValueError, SyntaxError):
        return []
    found = found.get("output", found) if isinstance(found, dict) else found
    return [_tool(one) for one in (found if isinstance(found, list) else [found]) if _describes(one)]


def _describes(data: Json) -> bool:
    return isinstance(data, dict) and ("input_parameters" in data or "apiCode" in data)


def _tool(data: Mapping[str, Json]) -> Tool:
    fields = data.get("input_parameters", data.get("parameters", {}))
    properties = {
        key: {"description": value.get("description", "")}
        | ({"type": kind} if (kind := TYPES.get(value["type"])) else {})
        for key, value in fields.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    name = data.get("name", data.get("apiCode"))
    return {"name": name, "description": data.get("description", ""), "parameters": parameters}


def _typed(value: Json, schema: Mapping[str, Json]) -> Json:
    """A text as the number or list that the tool wants, where it can be read as one."""
    kind = schema.get("type")
    if not isinstance(value, str) or kind in (None, "string"):
        return str(value) if kind == "string" and not isinstance(value, (list, dict)) else value
    readers: dict[str, Callable[[str], Json]] = {"integer": int, "number": float}
    try:
        return readers.get(kind, json.loads)(value)
    except ValueError:
        return value
