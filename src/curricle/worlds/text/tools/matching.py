"""Matching: whether the calls of an answer are the gold calls.

Exact names; all arguments that gold gives and none that it does not; JSON's types (schema.py); each value equal to
gold's or to one of its accepted alternatives. An argument may be left out where gold lists it as optional or where
gold's value is the schema's default; one that gold leaves out may be given only with the schema's default.

Text is compared as the Berkeley Function Calling Leaderboard does: in lower case, without spaces and , . / - _ * ^, and
with both kinds of quotes as one; but its numbers must be the same as well: "1.5 kg" is not "15 kg" (numerals.py). Calls
are compared in any order unless gold is ordered; every call counts, so one right call among wrong ones is wrong.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from curricle.records import Record
from curricle.worlds.text.numerals import same_numbers
from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, Tool, arguments_fault, shown

IGNORED = re.compile(r"[ ,./\-_*^]")


class GoldCall(Record):
    """One call of the gold answer."""

    name: str
    arguments: dict[str, Json] = Field({}, description="The argument values.")
    accepted: dict[str, list[Json]] = Field({}, description="Other values of an argument that are right as well.")
    optional: tuple[str, ...] = Field((), description="Arguments that may be left out.")

    @property
    def call(self) -> Call:
        """The call that a perfect agent makes."""
        return Call(self.name, dict(self.arguments))


def fault(calls: Sequence[Call], gold: Sequence[GoldCall], tools: Mapping[str, Tool], ordered: bool = False) -> str:
    """Why calls are not the gold calls, in words; empty if they are."""
    if len(calls) != len(gold):
        return f"{len(calls)} calls instead of {len(gold)}"
    for call in calls:
        if call.name not in tools:
            return f"there is no tool {shown(call.name)}"
        if wrong := arguments_fault(tools[call.name]["parameters"], call.arguments):
            return f"{shown(call.name)}: {wrong}"
    if ordered:
        return next((f for c, g in zip(calls, gold, strict=True) if (f := difference(c, g, tools))), "")
    fits = [[j for j, wanted in enumerate(gold) if not difference(call, wanted, tools)] for call in calls]
    for call, options in zip(calls, fits, strict=True):
        if not options:
            return difference(call, next((g for g in gold if g.name == call.name), gold[0]), tools)
    return "" if _pairs(fits) == len(gold) else "one gold call was made twice and another not at all"


def difference(call: Call, gold: GoldCall, tools: Mapping[str, Tool]) -> str:
    """How a call that fits its schema differs from a gold call; empty where it does not."""
    if call.name != gold.name:
        return f"{shown(call.name)} is not the tool to call"
    properties = tools[call.name]["parameters"].get("properties", {})
    for name, value in call.arguments.items():
        wanted = [gold.arguments[name], *gold.accepted.get(name, [])] if name in gold.arguments else []
        if not wanted and "default" in properties[name]:
            wanted = [properties[name]["default"]]
        if not any(same(value, one) for one in wanted):
            return f"{shown(call.name)}: {name} = {shown(value)} is not right"
    for name, value in gold.arguments.items():
        default = "default" in properties.get(name, {}) and same(properties[name]["default"], value)
        if name not in call.arguments and name not in gold.optional and not default:
            return f"{shown(call.name)}: {shown(name)} is not given"
    return ""


def same_text(one: str, other: str) -> bool:
    """Whether two texts are equal by the rules above; without a letter or digit, they must be equal as they are."""
    plain = _plain(one)
    return plain == _plain(other) and (same_numbers(one, other) if plain else one.strip() == other.strip())


def same_ignoring_case(one: str, other: str) -> bool:
    """Whether two texts are equal but for case and white space."""
    return one.casefold().split() == other.casefold().split()


def same(one: Json, other: Json, text: Callable[[str, str], bool] = same_text) -> bool:
    """Whether two values are equal; texts are compared by a rule."""
    if isinstance(one, str) and isinstance(other, str):
        return text(one, other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, text) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], text) for key in one)
    return bool(one == other)


def _plain(text: str) -> str:
    return IGNORED.sub("", text).lower().replace("'", '"')


def _pairs(fits: Sequence[Sequence[int]]) -> int:
    """The size of a maximum matching between calls and gold calls, by augmenting paths."""
    owner: dict[int, int] = {}

    def place(call: int, seen: set[int]) -> bool:
        for option in fits[call]:
            if option in seen:
                continue
            seen.add(option)
            if option not in owner or place(owner[option], seen):
                owner[option] = call
                return True
        return False

    return sum(place(call, set()) for call in range(len(fits)))
