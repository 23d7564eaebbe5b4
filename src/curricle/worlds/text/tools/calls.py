"""Calls: from an agent's answer, which is any text at all, to the tool calls it makes.

An answer is read in the first of these forms that it has:

1. the whole answer as JSON;
2. one or more `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks, each on one line or several;
3. one or more fenced blocks, three backticks before and after, with or without the word json.

Each holds one call or a list of calls. `parameters` is read as `arguments`; without either there are none. Text around
the blocks does not count, nor does text between `<think>` and `</think>`. `[]` means that no call is needed.
"""

import ast
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from curricle.worlds.text.tools.schema import Json, shown

LONGEST = 100_000
"""Characters of an answer; more are refused."""
MOST = 64
WORDS = {"true": True, "false": False, "null": None}
OPEN = "<tool_call>"
CLOSE = "</tool_call>"
FENCE = "```"


@dataclass(frozen=True)
class Call:
    """One call of a tool, as the agent wrote it."""

    name: str
    arguments: dict[str, Json]


class Unreadable(ValueError):
    """An answer with a call that cannot be read."""


def read_calls(text: str) -> list[Call] | None:
    """The calls of an answer; None for an answer in words only, `Unreadable` with a reason for a broken one."""
    if len(text) > LONGEST:
        raise Unreadable(f"the answer has {len(text)} characters, more than {LONGEST}")
    text = without_thoughts(text)
    begins = text.strip()[:1] in ("[", "{")
    if begins and _whole(text):
        blocks = [text]
    elif OPEN in text:
        blocks = _between(text, OPEN, CLOSE)
    elif FENCE in text:
        blocks = [block.removeprefix("json") for block in _between(text, FENCE, FENCE)]
    elif begins:
        blocks = [text]
    else:
        return None
    calls = [call for block in blocks for call in _calls(_json(block))]
    if len(calls) > MOST:
        raise Unreadable(f"{len(calls)} calls, more than {MOST}")
    return calls


def without_thoughts(text: str) -> str:
    """An answer without its thoughts; empty if they never end."""
    return text.rpartition("</think>")[2].partition("<think>")[0]


def read_python_call(text: str, order: Mapping[str, Sequence[str]]) -> Call:
    """Read a call written as Python, `cd(folder="a")`: parsed, never run. `order` has the arguments of each tool."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes and numbers in the text
        tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.Call):
        raise ValueError(f"not a call like f(x=1): {shown(text)}")
    name = ast.unparse(tree.func)
    if len(tree.args) > len(order.get(name, ())) or not all(word.arg for word in tree.keywords):
        raise ValueError(f"write the names of the arguments: {shown(text)}")
    arguments = dict(zip(order.get(name, ()), map(_literal, tree.args), strict=False))
    return Call(name, arguments | {str(word.arg): _literal(word.value) for word in tree.keywords})


def _literal(node: ast.expr) -> Json:
    """A value in Python's or JSON's words."""
    if isinstance(node, ast.Name) and node.id in WORDS:
        return WORDS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(part) for part in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(ast.literal_eval(key)): _literal(value) for key, value in pairs if key is not None}
    value = ast.literal_eval(node)
    if not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"{shown(value)} is no value of JSON")
    return value


def write_calls(calls: Iterable[Call]) -> str:
    """Calls in the first form; none is the empty list."""
    blocks = [json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in calls]
    return "\n".join(f"{OPEN}{block}{CLOSE}" for block in blocks) or "[]"


def _between(text: str, opening: str, closing: str) -> list[str]:
    """What stands between pairs of marks, found in one pass."""
    blocks = []
    _, opened, rest = text.partition(opening)
    while opened:
        block, closed, rest = rest.partition(closing)
        if not closed:
            raise Unreadable(f"a block opened by {opening} is not closed")
        blocks.append(block)
        _, opened, rest = rest.partition(opening)
    return blocks


def _whole(text: str) -> bool:
    """Whether the whole answer is JSON; marks of blocks inside its strings then mean nothing."""
    try:
        _json(text)
    except Unreadable:
        return False
    return True


def _json(text: str) -> Json:
    """Parse one block; the error says in which way its JSON is broken."""
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
    except RecursionError:
        raise Unreadable("its JSON is nested too deeply") from None
    except ValueError as error:
        reason = str(error) if isinstance(error, Unreadable) else f"not JSON: {shown(text.strip())}"
        raise Unreadable(reason) from None


def _no_number(word: str) -> NoReturn:
    raise Unreadable(f"{word} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise Unreadable(f"an argument is given twice: {shown(names)}")
    return dict(pairs)


def _calls(data: Json) -> list[Call]:
    return [_call(one) for one in (data if isinstance(data, list) else [data])]


def _call(data: Json) -> Call:
    """One call: a name, its arguments where it has some, and nothing else."""
    if not isinstance(data, dict) or "name" not in data:
        raise Unreadable(f"a call is an object with a name and arguments, not {shown(data)}")
    rest = {key: value for key, value in data.items() if key != "name"}
    if len(rest) > 1 or not set(rest) <= {"arguments", "parameters"}:
        raise Unreadable(f"a call has a name and arguments, not {shown(sorted(data))}")
    arguments: Json = next(iter(rest.values()), {})
    if not isinstance(data["name"], str) or not isinstance(arguments, dict):
        raise Unreadable(f"a call's name is text and its arguments an object, not {shown(data)}")
    return Call(data["name"], arguments)
