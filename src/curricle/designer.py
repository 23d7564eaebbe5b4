"""Designer: the contract of whatever makes environments for the agent.

A designer is built with its world's `Setting` class and sees briefs, never a world's code. Its draws come from
`seeds.generator(self.seed, purpose, cycle)`, so that a resumed run proposes what the uninterrupted one would have.
File to imitate: `designers/baselines.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from curricle import records
from curricle.records import Brief, Design, Exchange, Frozen, FrozenMap, Outcome, Scores
from curricle.setting import Setting


class Workshop(Protocol):
    """What a designer may use while it works; the loop provides it."""

    cycle: int

    def trial(self, designs: Sequence[Design], *, episodes: int = 12, practised: int | None = None) -> list[Outcome]:
        """Test designs without updates: by the current agent, or by a newcomer that practised in the original first.

        What it costs stands in the metrics as `trial/spent`; it is not part of the schedule's budget.
        """

    def report(self, figures: Mapping[str, float]) -> None:
        """Add figures to the run's metrics."""

    def keep(self, exchange: Exchange) -> None:
        """Store one exchange with a language model in the run folder, at once."""

    def kept(self) -> Sequence[Exchange]:
        """The exchanges of this very step; after a crash, answers that were paid for and are still to be used."""


class OfOptions(records.Options):
    """Options of a designer that works on another one's proposals."""

    of: str = Field("random", description="The designer whose proposals are used.")
    of_options: FrozenMap[str, Any] = Field(Frozen(), description="Options of that designer.")


class Designer(ABC):
    """Proposes designs and learns from what became of them."""

    id: ClassVar[str]
    Options: ClassVar[type[records.Options]] = records.Options

    def __init__(self, setting: type[Setting], options: records.Options | None = None, seed: int = 0) -> None:
        self.setting = setting
        self.options = options or self.Options()
        self.seed = seed

    @abstractmethod
    def propose(self, brief: Brief, n: int, workshop: Workshop) -> list[Design]:
        """Step 1: make up to n designs; none at all means that the agent practises in the original instead."""

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, workshop: Workshop) -> None:
        """Step 4: adapt to what the agent did in the designs and to how it scored afterwards."""
        return

    def save(self, folder: Path) -> None:
        """Write all state into an existing, empty folder; a designer without state writes nothing."""
        return

    def load(self, folder: Path) -> None:
        """Take up the state that `save` wrote."""
        return


def describe(brief: Brief) -> str:
    """Put a brief into words, out of the world's declaration alone: what a language model or a person designs from."""
    skills = [f"- {s.name}" + (f" (needs {', '.join(s.needs)})" if s.needs else "") for s in brief.skills]
    lines = [
        f"# {brief.world}, cycle {brief.cycle} of {brief.cycles}",
        "",
        brief.guide.strip(),
        "",
        "## Skills",
        "",
        *skills,
    ]
    lines += ["", "## Knobs", "", *(f"- {knob.line}" for knob in brief.knobs)]
    changed = [f"{k.name} = {brief.original[k.name]}" for k in brief.knobs if brief.original[k.name] != k.default]
    if changed:
        lines += ["", f"In the original of this run: {', '.join(changed)}."]
    if brief.past:
        scores = brief.past[-1].scores
        lines += ["", "## The agent in the original world (mean and one standard deviation)", ""]
        lines += [f"- {name}: {score.mean:.0%} +/- {score.std:.0%}" for name, score in scores.skills.items()]
        lines += ["", "## The previous designs", "", *(_told(outcome, brief) for outcome in brief.past[-1].designed)]
    return "\n".join(lines).rstrip() + "\n"


def _told(outcome: Outcome, brief: Brief) -> str:
    """One earlier design and what came of it, in a line."""
    differs = {name: v for name, v in outcome.design.setting.items() if v != brief.original.get(name)}
    setting = ", ".join(f"{name} = {value}" for name, value in differs.items()) or "as the original"
    rate = f"{outcome.rate:.0%} of {outcome.attempts} attempts" if outcome.rate is not None else "no attempt finished"
    return f"- aim {outcome.design.aim or 'everything'}: {setting}. Success: {rate}."
