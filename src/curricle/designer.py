"""Designer: the contract of what makes environments for the agent.

A designer gets its world's `Setting` class and briefs, never the world's code. Random draws come from
`seeds.generator(self.seed, purpose, cycle)`, so that a resumed run proposes what the uninterrupted one would have.
Start from `designers/baselines.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field, field_validator

from curricle import records
from curricle.errors import UsageError, nearest
from curricle.records import Brief, Design, Exchange, Frozen, FrozenMap, Message, Outcome, Scores
from curricle.setting import Setting


class Context(Protocol):
    """What a designer may use while it works; the loop provides it."""

    cycle: int
    folder: Path
    """The folder for prompts to a person, and for the answers. It survives a killed step and may not exist yet."""

    def trial(self, designs: Sequence[Design], *, episodes: int = 12, practised: int | None = None) -> list[Outcome]:
        """Test designs without updates, by the current agent or by a new one that practised in the original first.

        Its cost is in the metrics as `trial/spent`; it is not part of the schedule's budget.
        """

    def report(self, metrics: Mapping[str, float]) -> None:
        """Add numbers to the run's metrics."""

    def keep(self, exchange: Exchange) -> None:
        """Store one exchange with a language model in the run folder, at once."""

    def kept(self) -> Sequence[Exchange]:
        """The stored exchanges of this step; after a crash their replies are used and not paid for again."""

    def spent(self) -> Mapping[str, float]:
        """The cost of all exchanges of the run so far: the sum of their `usage`."""


class NamingOptions(records.Options):
    """Options that name other designers: beside such an option `x`, `x_options` has the options of that designer."""

    naming: ClassVar[tuple[str, ...]] = ()


class OfOptions(NamingOptions):
    """Options of a designer that works on another one's proposals."""

    naming = ("of",)
    of: str = Field("random", description="The designer whose proposals are used.")
    of_options: FrozenMap[str, Any] = Field(Frozen(), description="Options of that designer.")


class LeaveOptions(records.Options):
    """Options of a designer that can leave some knobs as they are."""

    leave: tuple[str, ...] = Field(
        (), strict=False, description='Knobs that stay as they are in the original, as in ["level"].'
    )

    @field_validator("leave", mode="before")
    @classmethod
    def _one_is_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    def check(self, setting: type[Setting]) -> None:
        """Refuse names that are not knobs, and a list of all knobs."""
        names = [k.name for k in setting.knobs()]
        for name in self.leave:
            if name not in names:
                raise UsageError(f"leave = {name!r}: there is no such knob: {nearest(name, names)}")
        if names and set(names) == set(self.leave):
            raise UsageError(f"leave = {list(self.leave)} leaves nothing to design: these are all knobs there are")

    def held(self, original: records.Values) -> dict[str, records.Value]:
        """The knobs that it leaves, with their values in the original."""
        return {name: original[name] for name in self.leave}


class Designer(ABC):
    """Proposes designs and learns from what became of them."""

    id: ClassVar[str]
    Options: ClassVar[type[records.Options]] = records.Options

    def __init__(self, setting: type[Setting], options: records.Options | None = None, seed: int = 0) -> None:
        self.setting = setting
        self.options = options or self.Options()
        self.seed = seed

    def ready(self) -> None:
        """Raise an error if a person has to set something up before a run can begin, such as an API key."""
        return

    def prompts(self, brief: Brief, n: int) -> Sequence[Sequence[Message]]:
        """The prompts that it would send to a language model for n designs, one a call; none without a model."""
        return ()

    @abstractmethod
    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Step 1: return up to n designs; with none, the agent practises in the original instead."""

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Step 4: adapt to the outcomes of the designs and to the scores of the test after them."""
        return

    def save(self, folder: Path) -> None:
        """Write all state into an existing, empty folder; a designer without state writes nothing."""
        return

    def load(self, folder: Path) -> None:
        """Read the state that `save` wrote."""
        return
