"""Writing: tasks as text, in lines that any model can write, or as JSON. Both are parsed and never run.

    tools: get_forecast, set_timer                  simulator: bank 7
    request: How will Rome be for 3 days?           request: Freeze my silver card.
    call: get_forecast(city="Rome", days=3)         call: set_frozen(card="silver", frozen=true)

`tools` are names of the catalogue; `tool` is a schema written out as JSON; `call` stands once for each gold call; with
`answer` the agent has to say something. Where no tool at hand would do, `lacks` is the call that the request asks for,
of another tool of the catalogue. JSON has the keys tools, request, calls, lacks, simulator, start and answer; there a
call is {"name", "arguments"}, with `accepted` (other right values of an argument) and `optional` where needed.
"""

import json
import re
from typing import Any

from pydantic import ValidationError

from curricle.worlds.text.tools.calls import read_python_call
from curricle.worlds.text.tools.catalogue import TOOLS
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.schema import Json, Tool, shown, tool_fault
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.simulators.base import STARTS

LONGEST = 8_000
"""Characters of a written task."""
KEYS = {"tools", "request", "calls", "lacks", "simulator", "start", "answer"}
LINE = re.compile(r"(tools|tool|simulator|request|call|lacks|answer):(.*)")
MANY = ("tool", "call", "lacks")


def write(item: Item) -> str:
    """Write a task: as lines if they can express it, or else as JSON."""
    plain = not any(call.accepted or call.optional for call in (*item.calls, *item.lacks))
    tools: list[Json] = [tool["name"] if TOOLS.get(str(tool["name"])) == tool else tool for tool in item.tools]
    if not plain or "\n" in item.request + item.answer:
        calls = [call.model_dump(mode="json", exclude_defaults=True) for call in item.calls]
        lacks = [call.model_dump(mode="json", exclude_defaults=True) for call in item.lacks]
        where: dict[str, Json] = (
            {"simulator": item.simulator, "start": item.start} if item.simulator else {"tools": tools}
        )
        rest = {key: value for key, value in (("lacks", lacks), ("answer", item.answer)) if value}
        return json.dumps(where | {"request": item.request, "calls": calls} | rest, ensure_ascii=False)
    names = ", ".join(tool for tool in tools if isinstance(tool, str))
    lines = [f"simulator: {item.simulator} {item.start}" if item.simulator else f"tools: {names}"]
    lines += [f"tool: {_said(tool)}" for tool in tools if not isinstance(tool, str)]
    lines.append(f"request: {item.request}")
    for key, every in (("call", item.calls), ("lacks", item.lacks)):
        for call in every:
            lines.append(f"{key}: {call.name}({', '.join(f'{k}={_said(v)}' for k, v in call.arguments.items())})")
    return "\n".join([*lines, *([f"answer: {item.answer}"] if item.answer else [])])


def _said(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def written(text: str) -> Item:
    """Read a written task; `ValueError` says what is wrong with its form. `verify.py` checks its content."""
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else _from_lines(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the task cannot be read: {shown(str(error), 200)}") from None
    if not isinstance(data, dict) or not set(data) <= KEYS or not isinstance(data.get("request"), str):
        raise ValueError(f"a task has a request and some of {', '.join(sorted(KEYS))}")
    if (simulator := data.get("simulator", "")) and (not isinstance(simulator, str) or simulator not in SIMULATORS):
        raise ValueError(f"there is no simulator {shown(simulator)}; there are {', '.join(SIMULATORS)}")
    if bool(simulator) == ("tools" in data) or ("start" in data) != bool(simulator):
        raise ValueError("a task has either tools, or a simulator and the number of its start")
    start = data.get("start", 0)
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < STARTS:
        raise ValueError(f"start is a whole number from 0 to {STARTS - 1}, not {shown(start)}")
    tools = data.get("tools", [])
    if not isinstance(tools, list) or len(tools) > 16:
        raise ValueError("tools is a list of at most 16 names and schemas")
    try:
        return Item.model_validate({**data, "tools": [_tool(one) for one in tools]})
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _from_lines(text: str) -> dict[str, Json]:
    """The lines as the data that JSON would hold; a line without a key goes on with the one before it."""
    pairs: list[list[str]] = []
    for line in text.splitlines():
        if found := LINE.match(line.strip()):
            pairs.append([found[1], found[2].strip()])
        elif pairs:
            pairs[-1][1] += f"\n{line}"
        elif line.strip():
            raise ValueError(f"a line starts with a key such as request:, not {shown(line)}")
    once = {key: said for key, said in pairs if key not in MANY}
    if len(once) != sum(key not in MANY for key, _ in pairs):
        raise ValueError("tools, simulator, request and answer stand once")
    data: dict[str, Any] = {key: once[key].strip() for key in ("request", "answer") if key in once}
    if "simulator" in once:
        name, _, number = once["simulator"].partition(" ")
        data |= {"simulator": name, "start": int(number)}
    if "tools" in once or any(key == "tool" for key, _ in pairs):
        names = [name.strip() for name in once.get("tools", "").split(",") if name.strip()]
        data["tools"] = names + [json.loads(said) for key, said in pairs if key == "tool"]
    for key, name in (("calls", "call"), ("lacks", "lacks")):
        calls = [read_python_call(said, {}) for line, said in pairs if line == name]
        data[key] = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return data


def _tool(tool: Json) -> Tool:
    """A tool by its name in the catalogue, or written out."""
    if isinstance(tool, str):
        if tool not in TOOLS:
            raise ValueError(f"there is no tool {shown(tool)}; write its schema out or use {', '.join(TOOLS)}")
        return TOOLS[tool]
    if fault := tool_fault(tool):
        raise ValueError(fault)
    return dict(tool)
