"""Item: the data of one task with tools, from the pool, a data file or a designer (`writing.py`)."""

import hashlib
import json
from typing import Self

from pydantic import Field

from curricle.records import Message, Record, Task
from curricle.worlds.text.tools.matching import GoldCall
from curricle.worlds.text.tools.schema import Json, Tool
from curricle.worlds.text.tools.simulators import SIMULATORS

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
    lacks: tuple[GoldCall, ...] = Field((), max_length=32)
    """If gold makes no call: the calls that the request asks for, of tools that the task does not have."""
    ordered: bool = False
    simulator: str = ""
    start: int = 0
    """Number of the simulator's state to start from."""
    answer: str = ""
    """Gold in words; empty where calls alone count."""

    @property
    def skill(self) -> str:
        """The skill that the task is about, from its content."""
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
