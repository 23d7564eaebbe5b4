"""The local designer: the embedded language model writes one line a design; no key, no server, no network.

Aims are chosen as the tutor does: the weakest skills in reach. For each the model is asked for one line
(`llm/lines.py`), held to the format by a grammar. A line that says nothing is asked for again with another seed; after
that the stated fallback makes this one design, and its record says so. Every exchange is stored at once and used again
after a crash.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from curricle.designer import Designer, NamingOptions, Workshop
from curricle.designers.aims import AimOptions, aims
from curricle.errors import UsageError
from curricle.llm.embedded import Embedded
from curricle.llm.lines import Reading, grammar, prompt, read
from curricle.llm.recorded import Recorded
from curricle.records import Brief, Design, Exchange, Frozen, FrozenMap, Message, Outcome, Scores, Skill
from curricle.registry import find, named
from curricle.seeds import derive
from curricle.setting import Setting

REPLAY = "replay:"
LONGEST = 256
"""Tokens of the longest line."""


class LocalOptions(AimOptions, NamingOptions):
    """Options of the local designer."""

    naming = ("fallback",)
    model: str = Field(
        "", description="GGUF file, such as a tuned one, or replay:RUN; empty: the stock one of `curricle model`."
    )
    temperature: float = Field(0.8, ge=0, le=2, description="How freely the model draws its words.")
    tries: int = Field(2, ge=1, le=10, description="How often a line is asked for before the fallback steps in.")
    fallback: str = Field("tutor", description="The designer that steps in.")
    fallback_options: FrozenMap[str, Any] = Field(Frozen(), description="Options of that designer.")
    grammar: bool = Field(True, description="Hold the model to the line format while it writes.")

    @field_validator("model")
    @classmethod
    def _from_anywhere(cls, model: str) -> str:
        """A full path, so that a run can be resumed from anywhere."""
        replay = REPLAY if model.startswith(REPLAY) else ""
        return replay + str(Path(model.removeprefix(replay)).expanduser().resolve()) if model else model


class Local(Designer):
    """One line of the embedded language model for each of the weakest skills in reach."""

    id = "local-v1"
    Options = LocalOptions
    options: LocalOptions

    def __init__(self, setting: type[Setting], options: LocalOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        o = self.options
        self.replay = Path(o.model.removeprefix(REPLAY)) if o.model.startswith(REPLAY) else None
        self.model: Embedded | Recorded = (
            Recorded(self.replay)
            if self.replay
            else Embedded(o.model or None, temperature=o.temperature, longest=LONGEST)
        )
        if issubclass(find(Designer, self.options.fallback), Local):
            raise UsageError(f"fallback = {self.options.fallback!r}: the local designer cannot step in for itself")
        self.fallback = named(self.options, "fallback", setting, derive(seed, "fallback"))

    @cached_property
    def _grammar(self) -> str | None:
        return grammar(self.setting) if self.options.grammar else None

    def prompts(self, brief: Brief, n: int) -> list[tuple[Message, ...]]:
        """One call a design."""
        wanted = aims(brief.skills, brief.rates, self.options)
        return [self._prompt(brief, wanted[index % len(wanted)]) for index in range(n)]

    def propose(self, brief: Brief, n: int, workshop: Workshop) -> list[Design]:
        """Ask for one line a design; where there are fewer aims than designs, they come again."""
        wanted, known = aims(brief.skills, brief.rates, self.options), list(workshop.kept())
        if self.replay:
            self.model = Recorded(self.replay, known, brief.cycle)
        designs: list[Design] = []
        for index in range(n):
            aim = wanted[index % len(wanted)]
            reading, name, problems = self._ask(brief, aim, index, known, workshop)
            if reading is None or reading.values is None:
                designs += self._replaced(brief, aim, index, n, (*problems, f"{name} wrote no usable line"), workshop)
                continue
            why = f"success {brief.rates.get(aim.name, 0.0):.0%} in the original; {name} wrote the line"
            designs.append(Design(setting=reading.values, aim=aim.name, why=why, changed=(*problems, *reading.notes)))
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, workshop: Workshop) -> None:
        """The model is told of the last try in its prompt; the fallback learns, should it be needed."""
        self.fallback.learn(outcomes, scores, workshop)

    def save(self, folder: Path) -> None:
        """Write the fallback's state; there is no other."""
        self.fallback.save(folder)

    def load(self, folder: Path) -> None:
        """Read it."""
        self.fallback.load(folder)

    def _ask(
        self, brief: Brief, aim: Skill, index: int, known: list[Exchange], workshop: Workshop
    ) -> tuple[Reading | None, str, list[str]]:
        """A line that says something, or None; the model's name; and what was wrong with the lines before it."""
        asked, name, problems = self._prompt(brief, aim), self.model.name, list[str]()
        for attempt in range(self.options.tries):
            exchange = self._exchange(asked, derive(self.seed, "line", brief.cycle, index, attempt), known, workshop)
            reading, name = read(exchange.reply, self.setting, brief.original), exchange.model
            if not exchange.error and reading.values is not None:
                return reading, name, problems
            problems.append(f"not used: {exchange.error or f'no setting in {exchange.reply[:60]!r}'}")
        return None, name, problems

    def _prompt(self, brief: Brief, aim: Skill) -> tuple[Message, ...]:
        """Ask for a line, with a lesson for a model that was not taught; a record knows which of the two was asked."""
        if isinstance(self.model, Embedded):
            return prompt(brief, aim, taught=self.model.taught == brief.world)
        taught = prompt(brief, aim, taught=True)
        return taught if self.model.knows(taught) else prompt(brief, aim, taught=False)

    def _exchange(self, asked: tuple[Message, ...], seed: int, known: list[Exchange], workshop: Workshop) -> Exchange:
        """One call, or the answer to it from before a crash."""
        for exchange in known:
            if exchange.prompt == asked:
                known.remove(exchange)
                return exchange
        held: dict[str, Any] = {"grammar": self._grammar} if isinstance(self.model, Embedded) else {}
        exchange = self.model.reply(asked, seed=seed, **held)
        workshop.keep(exchange)
        return exchange

    def _replaced(
        self, brief: Brief, aim: Skill, index: int, n: int, problems: Sequence[str], workshop: Workshop
    ) -> list[Design]:
        """The fallback's design for this aim, or in this place; none if it has none."""
        offered = self.fallback.propose(brief, n, workshop)
        same = [design for design in offered if design.aim == aim.name] or offered[index : index + 1]
        changed = (*problems, f"{self.fallback.id} made this design")
        return [d.model_copy(update={"by": self.fallback.id, "changed": (*d.changed, *changed)}) for d in same[:1]]
