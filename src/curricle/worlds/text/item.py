"""Item: what one task with tools is made of, whoever wrote it: the pool, a data file or a designer.

`written` reads the JSON that a designer writes, `Item.text` writes it again, `Item.task` makes the task an agent reads.
"""

import hashlib
import json
from typing import Any, Self

from pydantic import Field, ValidationError

from curricle.records import Message, Record, Task
from curricle.worlds.text.catalogue import TOOLS
from curricle.worlds.text.matching import GoldCall
from curricle.worlds.text.schema import Json, Tool, shown, tool_fault
from curricle.worlds.text.simulators import SIMULATORS
from curricle.worlds.text.simulators.base import STARTS

LONGEST = 8_000
"""Characters of a written task."""
KEYS = {"tools", "request", "calls", "simulator", "start", "answer"}
SINGLE = """You can call these tools:
{tools}
Answer with one block <tool_call>{{"name": NAME, "arguments": {{...}}}}</tool_call> for each call that is needed, all \
at once. If no tool can do what is asked, answer with an empty list: []"""
STEPS = """You can call these tools:
{tools}
Make a call with a block <tool_call>{{"name": NAME, "arguments": {{...}}}}</tool_call>. You are shown its result and \
may then make the next one. {end}"""
DONE = "When everything is done, say so in words, without a call."
ANSWER = "When you know it, give the answer alone, between <answer> and </answer>."


class Item(Record):
    """One task: tools or a simulator, a request, and gold: calls, or an answer in words, or both."""

    tools: tuple[dict[str, Json], ...] = ()
    request: str = Field(min_length=1, max_length=20_000)
    before: tuple[Message, ...] = ()
    """What was said before the request."""
    calls: tuple[GoldCall, ...] = Field((), max_length=32)
    ordered: bool = False
    simulator: str = ""
    start: int = 0
    """Number of the simulator's state to start from."""
    answer: str = ""
    """Gold in words; empty where calls alone count."""

    @property
    def skill(self) -> str:
        """What the task is about, read off its content."""
        if self.answer:
            return "answer_in_words"
        if self.simulator:
            return "several_steps"
        if len(self.calls) != 1:
            return "parallel_calls" if self.calls else "no_call_needed"
        (call,) = self.calls
        required = self.known.get(call.name, {}).get("parameters", {}).get("required", [])
        if set(call.arguments) - set(required) - set(call.optional):
            return "optional_arguments"
        return "right_tool" if len(self.tools) > 1 else "one_call"

    @property
    def known(self) -> dict[str, Tool]:
        """The tools by name."""
        tools = SIMULATORS[self.simulator].tools if self.simulator else self.tools
        return {str(tool["name"]): tool for tool in tools}

    @property
    def text(self) -> str:
        """The task as a designer would write it."""
        calls = [call.model_dump(mode="json", exclude_defaults=True) for call in self.calls]
        data: dict[str, Any] = {"request": self.request, "calls": calls}
        if self.simulator:
            data = {"simulator": self.simulator, "start": self.start, **data}
        else:
            tools = [tool["name"] if TOOLS.get(str(tool["name"])) == tool else tool for tool in self.tools]
            data = {"tools": tools, **data}
        return json.dumps(data | ({"answer": self.answer} if self.answer else {}), ensure_ascii=False)

    def task(self) -> Task:
        """The task that an agent reads; its id is a digest of its content, so equal ids mean equal tasks."""
        gold = self.model_dump(mode="json", exclude_defaults=True)
        digest = hashlib.sha256(json.dumps(gold, sort_keys=True).encode()).hexdigest()[:16]
        rules = (Message(role="system", content=self._rules()),)
        prompt = (*rules, *self.before, Message(role="user", content=self.request))
        return Task(id=f"{self.skill}-{digest}", prompt=prompt, gold=gold, skill=self.skill)

    def _rules(self) -> str:
        tools = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in self.known.values())
        if self.simulator:
            return STEPS.format(tools=tools, end=ANSWER if self.answer else DONE)
        return ANSWER if self.answer else SINGLE.format(tools=tools)

    @classmethod
    def of(cls, task: Task) -> Self:
        """The item behind a task."""
        return cls.model_validate(task.gold)


def written(text: str) -> Item:
    """Read a written task; `ValueError` says what is wrong with its form (`verify.py` says whether it is any good)."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the task is not JSON: {shown(str(error))}") from None
    if not isinstance(data, dict) or not set(data) <= KEYS or not isinstance(data.get("request"), str):
        raise ValueError(f"a task is a JSON object with a request and some of {', '.join(sorted(KEYS))}")
    if (simulator := data.get("simulator", "")) and (not isinstance(simulator, str) or simulator not in SIMULATORS):
        raise ValueError(f"there is no simulator {shown(simulator)}; there are {', '.join(SIMULATORS)}")
    if bool(simulator) == ("tools" in data) or ("start" in data) != bool(simulator):
        raise ValueError("a task has either tools, or a simulator and the number of its start")
    start = data.get("start", 0)
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < STARTS:
        raise ValueError(f"start is a whole number from 0 to {STARTS - 1}, not {shown(start)}")
    try:
        return Item.model_validate({**data, "tools": [_tool(one) for one in _list(data.get("tools", []))]})
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _list(tools: Json) -> list[Json]:
    if not isinstance(tools, list) or len(tools) > 16:
        raise ValueError("tools is a list of at most 16 names and schemas")
    return tools


def _tool(tool: Json) -> Tool:
    """A tool by its name in the catalogue, or written out."""
    if isinstance(tool, str):
        if tool not in TOOLS:
            raise ValueError(f"there is no tool {shown(tool)}; write its schema out or use {', '.join(TOOLS)}")
        return TOOLS[tool]
    if fault := tool_fault(tool):
        raise ValueError(fault)
    return dict(tool)
