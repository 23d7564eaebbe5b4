"""Agent: the contract of whatever learns.

An agent has two verbs: `practise` trains in designs, `measure` tests in designs without updates. Both return one
outcome a design, counted from the very attempts that were made. Budgets are in the agent's own `unit`: simulator steps
for RL agents, rollouts of tasks for language models. File to imitate: `agents/tabular.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from curricle import records
from curricle.errors import UsageError
from curricle.records import Design, Outcome
from curricle.world import World, WorldVector


class Report(Protocol):
    """Called by an agent while it practises: budget used so far in this call, and figures worth plotting."""

    def __call__(self, done: int, metrics: Mapping[str, float]) -> None:
        """Figures must not depend on the clock: they are part of a run's reproducible record."""


class Agent(ABC):
    """Learns in the designs of one world."""

    id: ClassVar[str]
    unit: ClassVar[str] = "steps"
    Options: ClassVar[type[records.Options]] = records.Options
    several: ClassVar[bool] = False
    """Whether several processes may train it together; if so, it asks the others itself (see `ranks.py`)."""

    def __init__(self, world: World, options: records.Options | None = None, seed: int = 0) -> None:
        self.world = world
        self.options = options or self.Options()
        self.seed = seed

    @abstractmethod
    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Train in all designs side by side for about `budget` units; draw only from generators of this seed.

        A long practice arrives as several calls with a checkpoint after each, so what must carry over from one call to
        the next is part of what `save` writes.
        """

    @abstractmethod
    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Make `episodes` attempts in each design, from the seed beside it, without learning anything."""

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode without learning; hands out the world at its start and after every step, to be watched."""
        raise UsageError(f"{self.id} cannot be watched")

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that was learnt into an existing, empty folder; see `tracking/checkpoint.py`."""

    def publish(self, folder: Path, merged: bool) -> None:
        """Write what was learnt into a new folder in a form that other tools read, where its kind has one: not here.

        With `merged` an adapter is part of the model under it.
        """
        if merged:
            raise UsageError(f"{self.id} has no adapter to merge; leave --merged out")

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""
