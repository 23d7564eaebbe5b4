"""Simulator: a state of plain JSON data, tools that change it, and chores and questions that tasks ask for.

A call never changes the state that it gets: it returns a new one. If a tool cannot do what it is asked, it returns an
error and the same state. Names and arguments that models write are looked up and compared, never run.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curricle.seeds import generator
from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, Tool, arguments_fault, shown

State = dict[str, Json]
STARTS = 10_000
"""Start states have numbers; from this number on they contain held-out names."""


class Refused(Exception):
    """A tool cannot do what it was asked; the message is its answer."""


@dataclass(frozen=True)
class Chore:
    """Something to do in a state: the request in words, and the calls that do it."""

    request: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Question:
    """Something to find out in a state: the request in words, the calls that show it, and the answer."""

    request: str
    calls: tuple[Call, ...]
    answer: str


def variants(text: str) -> tuple[str, ...]:
    """Split names or phrasings that are written with bars between them."""
    return tuple(part.strip() for part in text.split("|"))


class Draw:
    """The random draws of one task: its names and phrasings come from one side of the split, training or held-out."""

    def __init__(self, rng: np.random.Generator, held_out: bool) -> None:
        self.rng = rng
        self.held_out = held_out

    def choice(self, values: "list[Json] | tuple[Json, ...]") -> Json:
        """One of some values."""
        return values[int(self.rng.integers(len(values)))]

    def sample(self, values: "list[Json] | tuple[Json, ...]", n: int) -> list[Json]:
        """Several different values, in random order."""
        return [values[int(i)] for i in self.rng.permutation(len(values))[:n]]

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def side(self, values: tuple[Json, ...]) -> tuple[Json, ...]:
        """The names or phrasings of this side: every fourth is held out, the others are for practice."""
        return tuple(value for i, value in enumerate(values) if (i % 4 == 3) == self.held_out)

    def name(self, values: tuple[Json, ...]) -> Json:
        """One name or phrasing of this side."""
        return self.choice(self.side(values))

    def phrase(self, phrasings: str, *values: Json) -> str:
        """Put values into one phrasing of this side; there must be at least four, with bars between them."""
        return str(self.name(variants(phrasings)).format(*values))


class Simulator(ABC):
    """Tools over a state."""

    name: ClassVar[str]
    tools: ClassVar[tuple[Tool, ...]]

    @abstractmethod
    def start(self, draw: Draw) -> State:
        """A state to start from."""

    def begin(self, number: int) -> State:
        """The state with a number."""
        return self.start(Draw(generator(number, "start", self.name), held_out=number >= STARTS))

    @abstractmethod
    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """What each tool does: a function of a state, which it may change, and of the tool's arguments."""

    @abstractmethod
    def chore(self, state: State, draw: Draw) -> Chore:
        """Something to do that changes this state."""

    @abstractmethod
    def question(self, state: State, draw: Draw) -> Question:
        """Something that only the tools can tell."""

    def essence(self, state: State) -> Json:
        """What counts when two end states are compared."""
        return state

    def run(self, state: State, call: Call) -> tuple[State, Json]:
        """Make one call: the state after it and what the tool answers."""
        known = {tool["name"]: tool for tool in self.tools}
        if call.name not in known:
            return state, {"error": f"there is no tool {shown(call.name)}"}
        if fault := arguments_fault(known[call.name]["parameters"], call.arguments):
            return state, {"error": fault}
        after = copy.deepcopy(state)
        try:
            return after, {"result": self.methods()[call.name](after, **call.arguments)}
        except Refused as refusal:
            return state, {"error": str(refusal)}
