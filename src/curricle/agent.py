"""Agent: the contract of what learns.

`practise` trains in designs, `measure` tests in designs without updates. Both return an outcome for each design,
counted from the attempts that were made. Budgets are in the agent's own `unit`: simulator steps for RL agents, rollouts
of tasks for language models. Start from `agents/tabular.py`.
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
    """What an agent calls while it practises: with the budget used so far in this call, and metrics."""

    def __call__(self, done: int, metrics: Mapping[str, float]) -> None:
        """Report metrics. They must not depend on the clock, because they are part of the reproducible record."""


class Agent(ABC):
    """Learns in the designs of one world."""

    id: ClassVar[str]
    unit: ClassVar[str] = "steps"
    Options: ClassVar[type[records.Options]] = records.Options
    several: ClassVar[bool] = False
    """Whether several processes may train it together (see `scale/ranks.py`)."""

    def __init__(self, world: World, options: records.Options | None = None, seed: int = 0) -> None:
        self.world = world
        self.options = options or self.Options()
        self.seed = seed

    def ready(self) -> None:
        """Raise an error if something that a new run needs is missing or wrong, such as a file that options name."""
        return

    @abstractmethod
    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Train in all designs side by side for about `budget` units; draw only from generators of this seed.

        A long practice is several calls with a checkpoint after each. So `save` writes everything that must carry over
        from one call to the next.
        """

    @abstractmethod
    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Make `episodes` attempts in each design, from the seed beside it, without learning anything."""

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode without learning; yields the vector at its start and after every step."""
        raise UsageError(f"{self.id} cannot be watched")

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that was learned into an existing, empty folder; see `tracking/checkpoint.py`."""

    def publish(self, folder: Path, merged: bool) -> None:
        """Write what was learned into a new folder in a form that other tools read; by default there is none.

        With `merged`, an adapter is merged into its model.
        """
        if merged:
            raise UsageError(f"{self.id} has no adapter to merge; leave --merged out")

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
