"""Grammar: what may come next in a task that is being written line by line (`writing.py` says how lines look).

Names of tools and parameters, kinds of values and what must be given are held; requests, answers and values in quotes
are free. So a model too small to know the rules writes tasks that can be read, and spends its choices on what they say.
"""

import json
import re
from collections.abc import Sequence

from curricle.setting import Span
from curricle.worlds.text.catalogue import TOOLS
from curricle.worlds.text.schema import Tool
from curricle.worlds.text.simulators import SIMULATORS
from curricle.worlds.text.simulators.base import STARTS

MOST_TOOLS, MOST_CALLS, MOST_DIGITS = 8, 6, 6
DIGITS = tuple("0123456789")
CALL = re.compile(r"call: (\w+)\((.*)$")
NUMBER = re.compile(r"=(\d*)$")
LINE, QUOTED = Span(until="\n", never="`", blank=False), Span(until='"', never="\n\\`")


def follows(said: str, must_call: bool = False) -> Sequence[str] | Span:
    """Pieces of which one must come next (the empty one: the task is whole), or a stretch of free text.

    With `must_call` gold has to make a call.
    """
    *before, line = said.split("\n")
    if not line:
        return _line(before, must_call)
    if line.startswith("tools: "):
        named = line.removeprefix("tools: ").split(", ")
        left = [name for name in TOOLS if name not in named]
        more = [f"{name}, " for name in left] if len(named) < MOST_TOOLS else []
        return [f"{name}\nrequest: " for name in left] + more
    if line == "simulator: ":
        return [f"{name} " for name in SIMULATORS]
    if line.startswith("simulator: "):
        digits = line.rpartition(" ")[2]
        more = list(DIGITS) if len(digits) < len(str(STARTS - 1)) else []
        return more + (["\nrequest: "] if digits else [])
    call = CALL.match(line)
    return _argument(_tools(before[0])[call[1]], call[2]) if call else LINE


def _tools(first: str) -> dict[str, Tool]:
    """The tools that a task's first line names."""
    if first.startswith("simulator: "):
        return {str(tool["name"]): tool for tool in SIMULATORS[first.split(" ")[1]].tools}
    return {name: TOOLS[name] for name in first.removeprefix("tools: ").split(", ")}


def _line(before: Sequence[str], must_call: bool) -> list[str]:
    """How the next line may begin."""
    if not before:
        return ["tools: ", "simulator: "]
    calls = sum(line.startswith("call: ") for line in before)
    if before[-1].startswith("answer: "):
        return [""]
    lines = [f"call: {name}(" for name in _tools(before[0])] if calls < MOST_CALLS else []
    if must_call and not calls:
        return lines
    if before[0].startswith("simulator: "):
        return [*lines, "answer: ", *([""] if calls else [])]
    return [*lines, ""]


def _argument(tool: Tool, said: str) -> Sequence[str] | Span:
    """What may come next between the brackets of a call."""
    if said.count('"') % 2:
        return QUOTED
    properties, required = tool["parameters"]["properties"], tool["parameters"].get("required", [])
    given = re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", said))
    comma = ", " if given else ""
    next_ = [f"{comma}{start}" for name in properties if name not in given for start in _starts(name, properties[name])]
    ends = [] if set(required) - set(given) else [")\n"]
    number = NUMBER.search(said)
    if number is None:
        return next_ + ends
    digits = number[1]
    more = list(DIGITS) if not digits or (digits != "0" and len(digits) < MOST_DIGITS) else []
    return more + (next_ + ends if digits else [])


def _starts(name: str, schema: Tool) -> list[str]:
    """An argument up to where its value is free: values of a short list are written whole."""
    if "enum" in schema:
        return [f"{name}={json.dumps(value, ensure_ascii=False)}" for value in schema["enum"]]
    if schema.get("type") == "boolean":
        return [f"{name}=true", f"{name}=false"]
    return [f"{name}="] if schema.get("type") in ("integer", "number") else [f'{name}="']
