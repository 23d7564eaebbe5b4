"""Grammar: what may come next in a task that is written token by token, in the lines of `writing.py`.

In: the text so far. Out: pieces of which one must come next, or a `Span` of free text. Names of tools and parameters,
types of values and required arguments are constrained; requests, answers and values in quotes are free. So even a small
model writes tasks that can be read. With `named` (`named.py`), values of calls are words and numbers of the request,
and a task without a call must say which call lacks its tool. Calls on a simulator may use its answers, so there values
stay free.
"""

import functools
import json
import re
from collections.abc import Sequence

from curricle.setting import Span
from curricle.text.similarity import WORD, words
from curricle.worlds.text.tools.catalogue import TOOLS
from curricle.worlds.text.tools.schema import Tool
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.simulators.base import STARTS

MOST_TOOLS = 8
MOST_CALLS = 6
MOST_DIGITS = 6
MOST_WORDS = 6
DIGITS = tuple("0123456789")
CALL = re.compile(r"(?:call|lacks): (\w+)\((.*)$")
NUMBER = re.compile(r"=(\d*)$")
LINE = Span(until="\n", never="`", blank=False)
QUOTED = Span(until='"', never="\n\\`")


def follows(said: str, named: bool = False) -> Sequence[str] | Span:
    """Pieces of which one must come next (the empty one: the task is complete), or a `Span` of free text."""
    *before, line = said.split("\n")
    if not line:
        return _line(before, named)
    if line.startswith("tools: "):
        shown = line.removeprefix("tools: ").split(", ")
        left = [name for name in TOOLS if name not in shown]
        more = [f"{name}, " for name in left] if len(shown) < MOST_TOOLS else []
        return [f"{name}\nrequest: " for name in left] + more
    if line == "simulator: ":
        return [f"{name} " for name in SIMULATORS]
    if line.startswith("simulator: "):
        digits = line.rpartition(" ")[2]
        more = list(DIGITS) if len(digits) < len(str(STARTS - 1)) else []
        return more + (["\nrequest: "] if digits else [])
    call = CALL.match(line)
    request = _request(before) if named else ""
    return _argument({**TOOLS, **_tools(before[0])}[call[1]], call[2], request) if call else LINE


def _tools(first: str) -> dict[str, Tool]:
    """The tools that a task's first line names."""
    if first.startswith("simulator: "):
        return {str(tool["name"]): tool for tool in SIMULATORS[first.split(" ")[1]].tools}
    return {name: TOOLS[name] for name in first.removeprefix("tools: ").split(", ")}


def _request(before: Sequence[str]) -> str:
    """The request, if values have to come from it; empty on a simulator, or if the request has no words."""
    request = next((line.removeprefix("request: ") for line in before if line.startswith("request: ")), "")
    return request if before[0].startswith("tools: ") and _spans(request) else ""


def _line(before: Sequence[str], named: bool) -> list[str]:
    """How the next line may begin."""
    if not before:
        return ["tools: ", "simulator: "]
    calls = sum(line.startswith("call: ") for line in before)
    if before[-1].startswith(("answer: ", "lacks: ")):
        return [""]
    tools = _tools(before[0])
    request = _request(before) if named else ""
    lines = [f"call: {name}(" for name, tool in tools.items() if _fits(tool, request)] if calls < MOST_CALLS else []
    if not calls and not before[0].startswith("simulator: "):
        lines += [f"lacks: {name}(" for name, tool in TOOLS.items() if name not in tools and _fits(tool, request)]
    if named and not calls:
        return lines
    if before[0].startswith("simulator: "):
        return [*lines, "answer: ", *([""] if calls else [])]
    return [*lines, ""]


def _fits(tool: Tool, request: str) -> bool:
    """Whether a request has values for all required arguments of a tool."""
    parameters = tool["parameters"]
    return all(_starts(name, parameters["properties"][name], request) for name in parameters.get("required", []))


def _argument(tool: Tool, said: str, request: str) -> Sequence[str] | Span:
    """What may come next between the brackets of a call."""
    if said.count('"') % 2:
        new = [span for span in _spans(request) if span not in said.split('"')[1::2]]  # nobody goes from Oslo to Oslo
        return [f'{span}"' for span in new or _spans(request)] if request else QUOTED
    properties = tool["parameters"]["properties"]
    required = tool["parameters"].get("required", [])
    given = re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", said))
    starts = [s for name in properties if name not in given for s in _starts(name, properties[name], request)]
    ends = [] if set(required) - set(given) else [")\n"]
    if said.endswith(", "):
        return starts
    next_ = [f", {start}" if given else start for start in starts]
    number = NUMBER.search(said)
    if number is None:
        return next_ + ends
    digits = number[1]
    if request:  # what follows decides between 3 and 30
        return [f"{one}{end}" for one in _numbers(request) for end in [*([", "] if starts else []), *ends]]
    more = list(DIGITS) if not digits or (digits != "0" and len(digits) < MOST_DIGITS) else []
    return more + (next_ + ends if digits else [])


def _starts(name: str, schema: Tool, request: str) -> list[str]:
    """How an argument may begin, up to where its value is free; values of an enum are written whole."""
    if "enum" in schema:
        values = [v for v in schema["enum"] if not request or words(str(v)) in _runs(request)]
        return [f"{name}={json.dumps(value, ensure_ascii=False)}" for value in values]
    if schema.get("type") == "boolean":
        return [f"{name}=true", f"{name}=false"]
    if schema.get("type") in ("integer", "number"):
        return [f"{name}="] if not request or _numbers(request) else []
    return [f'{name}="']


@functools.lru_cache(maxsize=256)
def _spans(request: str) -> tuple[str, ...]:
    """Words of a request in a row, as they stand there."""
    found = [match.span() for match in WORD.finditer(request)]
    rows = ((start, found[i : i + MOST_WORDS]) for i, (start, _) in enumerate(found))
    every = (request[start:end] for start, row in rows for _, end in row)
    return tuple(dict.fromkeys(span for span in every if not set(span) & set(QUOTED.never + QUOTED.until)))


@functools.lru_cache(maxsize=256)
def _numbers(request: str) -> tuple[str, ...]:
    """Whole numbers of a request."""
    whole = [word for word in words(request) if word.isdecimal() and word.isascii() and len(word) <= MOST_DIGITS]
    return tuple(dict.fromkeys(word for word in whole if word == str(int(word))))


@functools.lru_cache(maxsize=256)
def _runs(request: str) -> list[list[str]]:
    """Words in a row, as they are compared."""
    return [words(span) for span in _spans(request)]
