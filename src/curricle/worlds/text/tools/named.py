"""Named: whether a task says all that its gold passes on, and whether gold passes on the numbers that it says.

What nobody could know from a task is solved by luck alone, and gold that forgets the three days it was asked for
teaches the agent to. Gold without a call says that no tool would do, whatever was asked, and pays an agent that never
calls one: it has to say which call the request asks for, of a tool that is not at hand (`lacks`), and that is held to
the same rules. All three are stricter than a good task has to be, for a request may mean what it does not say ("at
noon" is hour 12), say what does not matter, and need no tool at all. They are for environments too small to be trusted
with that (the world's option `named`).
"""

import json
from collections.abc import Sequence

from curricle.text.similarity import words
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.schema import Json, shown
from curricle.worlds.text.tools.simulators import SIMULATORS

FEWEST_WORDS = 2
"""Of a request that asks for something."""


def doubtful(item: Item) -> str:
    """What is wrong with a task by any of these rules, in words; empty: nothing."""
    if not item.calls and not item.lacks:
        return "gold makes no call, and that no tool would do cannot be checked without a line lacks:"
    if len(words(item.request)) < FEWEST_WORDS:
        return f"the request {shown(item.request)} is no sentence: it has fewer than {FEWEST_WORDS} words"
    return unnamed(item) or left_out(item)


def unnamed(item: Item) -> str:
    """Which value of gold stands neither in the request nor in an earlier call's result, in words; empty: none."""
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
    """Which number of the request gold's calls pass on nowhere, in words; empty: none.

    Where nothing is called or lacks nothing has to be passed on, and a simulator may need numbers only to look
    something up.
    """
    asked = item.calls or item.lacks
    if not asked or item.simulator:
        return ""
    values = [value for gold in asked for value in (*gold.arguments.values(), *gold.accepted.values())]
    passed = {word for value in values for word in words(json.dumps(value, ensure_ascii=False, default=list))}
    left = [word for word in words(item.request) if word.isdecimal() and word not in passed]
    return f"the request says {left[0]}, which gold passes on nowhere" if left else ""


def _stands(value: Json, known: Sequence[Sequence[str]]) -> bool:
    """Whether the words of a value stand in a row in one of some texts; yes and no need no words."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, list | dict):
        return all(_stands(one, known) for one in (value.values() if isinstance(value, dict) else value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    said = words(str(value))
    return any(list(text[at : at + len(said)]) == said for text in known for at in range(len(text) + 1))
