"""Verify: score an attempt at an item (`score_attempt`), and check an item that somebody wrote (`task_fault`).

Only what the agent said counts, and who wrote a task has no influence here. In a task with one answer the calls are
compared (`matching.py`). In a task with a simulator the agent's calls are run turn by turn, and its end state is
compared with gold's. An answer in words is compared by its likeness in [0, 1]. It earns nothing if the end state is
wrong, or if gold makes calls and no call of the agent ran before it: then it is a guess.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from curricle.records import Message
from curricle.text.similarity import f1, overlap
from curricle.text.unsafe import find_unsafe
from curricle.worlds.text.answers import final_answer
from curricle.worlds.text.tools.calls import CLOSE, OPEN, Call, Unreadable, read_calls, write_calls
from curricle.worlds.text.tools.catalogue import TOOLS
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.matching import GoldCall, fault, same, same_ignoring_case
from curricle.worlds.text.tools.schema import Json, Tool, arguments_fault, shown, tool_fault, value_fault
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.simulators.base import State

JUNK = ("", " ", "junk", "[", "{}", "null", "<tool_call></tool_call>", "<answer></answer>", "I cannot do that.")
FORMS = ("{}", "<answer>{}</answer>", "<tool_call>{}</tool_call>", "```\n{}\n```")
"""Where an answer is looked for (answers.py, calls.py)."""
QUOTED = re.compile(
    r"""(?<!\w)(?:"([^"\n]+)"|'([^'\n]+)'|`([^`\n]+)`|\u201c([^\u201d\n]+)\u201d|\u2018([^\u2019\n]+)\u2019)(?!\w)"""
)
FLOOR = 0.5
ECHOED = 0.3
"""Likeness up to `FLOOR` counts as none. An echo of the request may not be above `ECHOED`."""
BRACKET = re.compile(r"[\[{]")
MOST = 100
"""Where JSON may begin in a request; each place is tried, so there is a maximum."""
Likeness = Callable[[str, str], float]


def score_attempt(
    item: Item, transcript: Sequence[Message], likeness: Likeness = f1, floor: float = FLOOR
) -> tuple[float, str]:
    """The reward of an attempt in [0, 1], and why it is not 1; likeness up to the floor counts as 0."""
    said = [message.content for message in transcript if message.role == "assistant"]
    if not said:
        return 0.0, "no answer"
    wrong = ""
    if item.simulator:
        wrong = _wrong_end(item, said)
    elif not item.answer:
        wrong = _wrong_calls(item, said[-1])
    if item.simulator and item.answer and item.calls and not wrong and not _made_a_call(item, said[:-1]):
        wrong = "an answer without a call before it is a guess"
    if wrong or not item.answer:
        return float(not wrong), wrong
    reward = likeness(final_answer(said[-1]), item.answer)
    return reward * (reward > floor or reward == 1), "" if reward == 1 else f"likeness {reward:.2f} to the answer"


def is_well_formed(item: Item, transcript: Sequence[Message]) -> bool:
    """Whether all calls can be read, fit their tools and run, and the last message is of the kind asked for."""
    said = [message.content for message in transcript if message.role == "assistant"]
    try:
        turns = [read_calls(text) for text in said]
    except Unreadable:
        return False
    for call in (call for calls in turns for call in calls or ()):
        if call.name not in item.known or arguments_fault(item.known[call.name]["parameters"], call.arguments):
            return False
    if item.simulator and any("error" in result for result in _results(item, said)):
        return False
    if item.answer:
        return bool(said) and bool(final_answer(said[-1]))
    return bool(turns) and (bool(item.simulator) or turns[-1] is not None)


def respond(item: Item, transcript: Sequence[Message]) -> Message | None:
    """What a simulator answers to the agent's last message; None where the attempt is over."""
    said = [message.content for message in transcript if message.role == "assistant"]
    if not item.simulator or not said:
        return None
    try:
        if not (calls := read_calls(said[-1])):
            return None
        content = "\n".join(json.dumps(result, ensure_ascii=False) for result in _play(item, said[:-1], calls))
    except Unreadable as error:
        content = json.dumps({"error": str(error)})
    return Message(role="user", content=f"<tool_response>\n{content}\n</tool_response>")


def end(item: Item, transcript: Sequence[Message]) -> Json:
    """The simulator's state after the agent's calls; None where there is no simulator."""
    if not item.simulator:
        return None
    return _after(item, [message.content for message in transcript if message.role == "assistant"])


def solution(item: Item) -> list[str]:
    """What a perfect agent says, turn by turn."""
    calls = [gold.call for gold in item.calls]
    if not item.simulator and not item.answer:
        return [write_calls(calls)]
    last = f"<answer>{item.answer}</answer>" if item.answer else "Everything is done."
    return [*(write_calls([call]) for call in calls if item.simulator), last]


def task_fault(item: Item) -> str:
    """Why an item is not a sound task, in words; empty if gold runs and scores 1, and junk and echoes score 0.

    Junk and echoes are tried in all forms of an answer; answers in words as if gold's calls had been made before.
    """
    if found := find_unsafe([item.model_dump(exclude={"before"}), *map(_earlier, item.before)]):
        return found
    if bad := next((wrong for tool in item.tools if (wrong := tool_fault(tool))), ""):
        return bad
    if len(item.known) != len(SIMULATORS[item.simulator].tools if item.simulator else item.tools):
        return "two tools share a name"
    for gold in item.calls:
        if gold.name not in item.known:
            return f"gold calls {shown(gold.name)}, which is none of the tools"
        if wrong := _gold_fault(gold, item.known[gold.name]):
            return f"gold calls {shown(gold.name)} wrongly: {wrong}"
    if item.lacks and (wrong := _not_lacking(item)):
        return wrong
    if len(BRACKET.findall(item.request)) > MOST:
        return f"a request of more than {MOST} brackets takes too long to check"
    if not _finite(item.model_dump()):
        return "a task has numbers that can be written, not NaN or infinite ones"
    if not item.simulator and bool(item.answer) == bool(item.tools):
        return "a task has tools and calls, or an answer in words and no tools, or a simulator"
    if item.simulator and (wrong := _gold_run(item)):
        return wrong
    messages = [Message(role="assistant", content=text) for text in solution(item)]
    if score_attempt(item, messages)[0] != 1:
        return f"gold itself does not score 1: {score_attempt(item, messages)[1]}"
    echoed = item.model_copy(update={"simulator": ""}) if item.answer else item
    prompt = [message.content for message in item.task().prompt]
    whole = (*JUNK, *prompt, "\n".join(prompt), "\n".join(json.dumps(tool) for tool in item.tools))
    for text in dict.fromkeys((*whole, *_parts(item.request))):
        for said in (form.format(text) for form in FORMS):
            if score_attempt(echoed, [Message(role="assistant", content=said)], overlap, ECHOED)[0]:
                return f"an answer that is junk or repeats the prompt scores: {shown(said)}"
    return ""


def _earlier(message: Message) -> str:
    """An earlier message, without the marks of an agent's calls."""
    return message.content.replace(OPEN, "").replace(CLOSE, "") if message.role == "assistant" else message.content


def _parts(request: str) -> Iterator[str]:
    """The parts of a request that an agent could copy: lines, quoted passages, and JSON that is not empty."""
    yield from (line.strip() for line in request.splitlines())
    yield from (part for groups in QUOTED.findall(request) for part in groups if part)
    for found in BRACKET.finditer(request):
        try:
            data, end = json.JSONDecoder().raw_decode(request, found.start())
        except (ValueError, RecursionError):
            continue
        if data:
            yield request[found.start() : end]


def _gold_fault(gold: GoldCall, tool: Tool) -> str:
    """What is wrong with a gold call: its arguments, other values that it accepts, or what it says may be left out."""
    parameters = tool["parameters"]
    if wrong := arguments_fault(parameters, gold.arguments):
        return wrong
    if unknown := [name for name in (*gold.accepted, *gold.optional) if name not in gold.arguments]:
        return f"it accepts values of {shown(unknown[0])}, or leaves it out, which is none of its arguments"
    if needed := [name for name in gold.optional if name in parameters.get("required", [])]:
        return f"it may leave out {shown(needed[0])}, which its tool requires"
    others = ((name, value) for name, values in gold.accepted.items() for value in values)
    wrongs = (value_fault(parameters["properties"][name], value, name) for name, value in others)
    return next((wrong for wrong in wrongs if wrong), "")


def _not_lacking(item: Item) -> str:
    """What is wrong with the calls that a task lacks tools for; they must be calls of other tools of the catalogue."""
    if item.calls or item.simulator or item.answer:
        return "only a task without calls, a simulator and an answer can lack a tool"
    for call in item.lacks:
        if call.name in item.known or call.name not in TOOLS:
            there = "at hand" if call.name in item.known else f"no tool of the catalogue: {', '.join(TOOLS)}"
            return f"the task lacks {shown(call.name)}, which is {there}"
        if wrong := _gold_fault(call, TOOLS[call.name]):
            return f"the task lacks a call of {shown(call.name)} that is wrong: {wrong}"
    return ""


def _finite(data: Json) -> bool:
    """Whether JSON can express all numbers of some data."""
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        return False
    return True


def _gold_run(item: Item) -> str:
    """Why gold's calls do not run on the simulator, or change nothing though nothing else is asked for."""
    simulator = SIMULATORS[item.simulator]
    state = _start_state(item.simulator, item.start)
    for gold in item.calls:
        state, result = simulator.run(state, gold.call)
        if "error" in result:
            return f"gold calls {gold.name} and is refused: {result['error']}"
    unchanged = same(
        simulator.essence(state), simulator.essence(_start_state(item.simulator, item.start)), same_ignoring_case
    )
    return "gold changes nothing and no answer is asked for" if unchanged and not item.answer else ""


def _wrong_calls(item: Item, said: str) -> str:
    try:
        calls = read_calls(said)
    except Unreadable as error:
        return f"unreadable: {error}"
    if calls is None:
        return "no call, and no [] to say that none is needed"
    return fault(calls, item.calls, item.known, item.ordered)


def _wrong_end(item: Item, said: Sequence[str]) -> str:
    """Compare the agent's end state with gold's; texts may differ in case and white space only."""
    simulator = SIMULATORS[item.simulator]
    right = same(simulator.essence(_after(item, said)), simulator.essence(_gold_end(item)), same_ignoring_case)
    return "" if right else "the end state is not gold's"


def _made_a_call(item: Item, said: Sequence[str]) -> bool:
    """Whether a call of these turns ran."""
    return any("error" not in result for result in _results(item, said))


def _results(item: Item, said: Sequence[str]) -> Iterator[Mapping[str, Json]]:
    """The result of each call of some turns."""
    simulator = SIMULATORS[item.simulator]
    state = _start_state(item.simulator, item.start)
    for text in said:
        for call in _readable(text):
            state, result = simulator.run(state, call)
            yield result


def _play(item: Item, said: Sequence[str], calls: Sequence[Call]) -> list[Json]:
    """The results of the last turn's calls, after all turns before it."""
    simulator = SIMULATORS[item.simulator]
    state = _after(item, said)
    results = []
    for call in calls:
        state, result = simulator.run(state, call)
        results.append(result)
    return results


def _after(item: Item, said: Sequence[str]) -> State:
    """The state after all calls of some turns."""
    simulator = SIMULATORS[item.simulator]
    state = _start_state(item.simulator, item.start)
    for text in said:
        for call in _readable(text):
            state, _ = simulator.run(state, call)
    return state


@functools.lru_cache(maxsize=1024)
def _start_state(simulator: str, start: int) -> State:
    """The state to start from; calls return others and never change it."""
    return SIMULATORS[simulator].begin(start)


def _gold_end(item: Item) -> State:
    """The state after gold's calls."""
    return _state_after_calls(
        item.simulator, item.start, json.dumps([[gold.name, gold.arguments] for gold in item.calls])
    )


@functools.lru_cache(maxsize=1024)
def _state_after_calls(simulator: str, start: int, calls: str) -> State:
    """The state after some calls. It is cached: all attempts at a task are compared with the same end state."""
    state = _start_state(simulator, start)
    for name, arguments in json.loads(calls):
        state, _ = SIMULATORS[simulator].run(state, Call(name, arguments))
    return state


def _readable(text: str) -> list[Call]:
    """A turn's calls; none if it cannot be read."""
    try:
        return read_calls(text) or []
    except Unreadable:
        return []
