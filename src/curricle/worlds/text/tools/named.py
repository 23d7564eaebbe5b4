"""Named: a check of written tasks that compares the values of gold's calls with the request (the option `named`).

In: a task. Out: what is wrong with it, in words. There are three rules:

- Every value of gold's calls stands in the request or in an earlier result. Other values could only be guessed.
- Every number of the request stands in a call. If gold ignores "for 3 days", the agent learns to ignore it.
- If gold makes no call, the task says which call it lacks a tool for (`lacks`), and that call follows the same rules.
  Otherwise such tasks would reward an agent that never makes a call.

The rules also refuse some good tasks: a request may imply a value ("at noon" is hour 12), mention a number that does
not matter, or need no tool at all. They are for environment policies that are too small to write such tasks well.
"""

import json
from collections.abc import Sequence

from curricle.text.similarity import words
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.schema import Json, shown
from curricle.worlds.text.tools.simulators import SIMULATORS

FEWEST_WORDS = 2
"""Words that a request must have."""


def doubtful(item: Item) -> str:
    """What is wrong with a task by these rules, in words; empty: nothing."""
    if not item.calls and not item.lacks:
        return "gold makes no call, and that no tool would do cannot be checked without a line lacks:"
    if len(words(item.request)) < FEWEST_WORDS:
        return f"the request {shown(item.request)} is no sentence: it has fewer than {FEWEST_WORDS} words"
    return unnamed(item) or left_out(item)


def unnamed(item: Item) -> str:
    """Which value of gold is neither in the request nor in an earlier result, in words; empty: none."""
    known = [words(text) for text in (item.request, *(message.content for message in item.before))]
    simulator = SIMULATORS[item.simulator] if item.simulator else None
    state = simulator.begin(item.start) if simulator else {}
    for gold in item.calls or item.lacks:
        for name, value in gold.arguments.items():
            right = (value, *gold.accepted.get(name, ()))
            if name not in gold.optional and not any(_stands(one, known) for one in right):
                return f"gold passes on {name} = {shown(value)}, which nothing before it names"
        if simulator:
            state, result = simulator.run(state, gold.call)
            known.append(words(json.dumps(result, ensure_ascii=False)))
    if simulator and item.answer and not _stands(item.answer, known):
        return f"the answer {shown(item.answer)} stands in no result of gold's calls"
    return ""


def left_out(item: Item) -> str:
    """Which number of the request is in none of gold's calls, in words; empty: none.

    Tasks on a simulator are not checked: a number may be needed only to look something up.
    """
    asked = item.calls or item.lacks
    if not asked or item.simulator:
        return ""
    values = [value for gold in asked for value in (*gold.arguments.values(), *gold.accepted.values())]
    passed = {word for value in values for word in words(json.dumps(value, ensure_ascii=False, default=list))}
    left = [word for word in words(item.request) if word.isdecimal() and word not in passed]
    return f"the request says {left[0]}, which gold passes on nowhere" if left else ""


def _stands(value: Json, known: Sequence[Sequence[str]]) -> bool:
    """Whether the words of a value follow each other in one of some texts; booleans and null need no words."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, list | dict):
        return all(_stands(one, known) for one in (value.values() if isinstance(value, dict) else value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    said = words(str(value))
    return any(list(text[at : at + len(said)]) == said for text in known for at in range(len(text) + 1))
