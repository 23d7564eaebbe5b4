"""Pool: the world's own base tasks, drawn from templates, with a training side and a held-out side.

A held-out request uses a phrasing and names (cities, people, files, accounts, products) that practice never shows. Only
clauses for optional arguments and the texts of files occur on both sides. Every item passes the checks of written tasks
(`verify.task_fault`).
"""

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from curricle.errors import WorldError
from curricle.worlds.text.tools.catalogue import ENTRIES, Entry
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.matching import GoldCall
from curricle.worlds.text.tools.schema import Json
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.simulators.base import STARTS, Draw, variants
from curricle.worlds.text.tools.verify import task_fault

About = Literal[
    "any",
    "one_call",
    "right_tool",
    "optional_arguments",
    "parallel_calls",
    "no_call_needed",
    "several_steps",
    "answer_in_words",
]
SKILLS: tuple[str, ...] = get_args(About)[1:]
JOINS = (" Also: ", " And then there is this: ", " Another thing. ", " Moreover: ")
ORDERS = (", then ", ", and after that ", ", next ", "; when that is done, ")
TRIES = 50


def draw_item(
    skill: str, rng: np.random.Generator, held_out: bool, distractors: int = 3, parallel: int = 2, steps: int = 2
) -> Item:
    """One task about a skill."""
    draw = Draw(rng, held_out)
    for _ in range(TRIES):
        if skill in ("several_steps", "answer_in_words"):
            item = _with_state(draw, steps, ask=skill == "answer_in_words")
        else:
            item = _at_once(skill, draw, distractors, parallel)
        if item.skill == skill and not task_fault(item):
            return item
    raise WorldError(f"no good {skill} task in {TRIES} draws; this is a fault of the pool")


def _at_once(skill: str, draw: Draw, distractors: int, parallel: int) -> Item:
    """A task with one answer; the number of tools shown does not reveal how many are needed."""
    optional = skill == "optional_arguments"
    entries = draw.sample([entry for entry in ENTRIES if entry.clauses or not optional], len(ENTRIES))
    wanted = [draw.choice(entries) for _ in range(parallel if skill == "parallel_calls" else 1)]
    asked = [_ask(entry, draw, optional) for entry in wanted]
    needed = [] if skill == "no_call_needed" else list({str(entry.tool["name"]): entry for entry in wanted}.values())
    alone = skill == "one_call" or (not needed and draw.integer(0, 1))
    others = _distractors(wanted, draw, max(0, (1 if alone else 1 + max(1, distractors)) - len(needed)))
    shown = [*needed, *others]
    tools = {str(entry.tool["name"]): dict(entry.tool) for entry in draw.sample(shown, len(shown))}
    calls = tuple(call for _, call in asked)
    return Item(
        tools=tuple(tools.values()),
        request=draw.name(JOINS).join(request for request, _ in asked),
        calls=calls if needed else (),
        lacks=() if needed else calls,
    )


def _distractors(wanted: list[Entry], draw: Draw, n: int) -> list[Entry]:
    """Other tools, those of the same domains first: they are the hardest to tell apart."""
    others = [entry for entry in ENTRIES if entry not in wanted]
    domains = {entry.domain for entry in wanted}
    return sorted(draw.sample(others, len(others)), key=lambda entry: entry.domain not in domains)[:n]


def _ask(entry: Entry, draw: Draw, optional: bool) -> tuple[str, GoldCall]:
    """A request for one call, with or without optional arguments; no text occurs twice in it, such as Oslo to Oslo."""
    clauses = draw.sample(list(entry.clauses), draw.integer(1, len(entry.clauses))) if optional else []
    required = entry.tool["parameters"]["required"]
    values: Mapping[str, Json] = {}
    while len(names := [v for v in values.values() if isinstance(v, str)]) != len(set(names)) or not values:
        values = {name: draw.name(entry.values[name]) for name in [*required, *clauses]}
    phrase = draw.name(variants(entry.phrases))
    request = phrase.format(**values) + "".join(entry.clauses[name].format(**values) for name in clauses)
    return f"{request}.", GoldCall(name=str(entry.tool["name"]), arguments=dict(values))


def _with_state(draw: Draw, steps: int, ask: bool) -> Item:
    """A task on a simulator: some chores in a row, or a question."""
    simulator = SIMULATORS[draw.choice(tuple(SIMULATORS))]
    start = draw.integer(0, STARTS - 1) + STARTS * draw.held_out
    state = simulator.begin(start)
    if ask:
        question = simulator.question(state, draw)
        calls = [GoldCall(name=call.name, arguments=call.arguments) for call in question.calls]
        return Item(
            simulator=simulator.name, start=start, request=question.request, calls=calls, answer=question.answer
        )
    requests = []
    calls = []
    for _ in range(steps):
        chore = simulator.chore(state, draw)
        for call in chore.calls:
            state, _ = simulator.run(state, call)
        requests.append(chore.request)
        calls += [GoldCall(name=call.name, arguments=call.arguments) for call in chore.calls]
    request = draw.name(ORDERS).join(requests)
    return Item(simulator=simulator.name, start=start, request=f"{request[0].upper()}{request[1:]}.", calls=calls)
