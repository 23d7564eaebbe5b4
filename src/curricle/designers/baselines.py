"""Designers that need no model: none, random, fixed, easy-to-hard and adversarial (EnvGen's baselines and ablations).

Three of them work on proposals of another designer, `of`: `fixed` keeps its first ones, `easy_to_hard` and
`adversarial` take 16 candidates from it and rank them by how well an agent does in each.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from curricle.designer import Context, Designer, LeaveOptions, OfOptions
from curricle.designers.proposals import Client
from curricle.errors import RunDamaged
from curricle.records import Brief, Design, Outcome
from curricle.seeds import generator
from curricle.setting import Setting

STATE = "designs.json"


class Nobody(Designer):
    """No designs: the agent practises in the original all the time."""

    id = "none-v1"

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Propose nothing."""
        return []


class Random(Designer):
    """Settings drawn uniformly, each aimed at a random skill: EnvGen with its feedback removed."""

    id = "random-v1"
    Options = LeaveOptions
    options: LeaveOptions

    def __init__(self, setting: type[Setting], options: LeaveOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.options.check(setting)

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Draw n settings."""
        rng = generator(self.seed, "random", brief.cycle)
        held = self.options.held(brief.original)
        return [
            Design(
                setting=self.setting.sample(rng, held).values,
                aim=brief.skills[int(rng.integers(len(brief.skills)))].name,
                why="drawn at random",
            )
            for _ in range(n)
        ]


class Keeping(Client):
    """Works on proposals of another designer, which it keeps."""

    def __init__(self, setting: type[Setting], options: OfOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.designs: list[Design] = []

    def save(self, folder: Path) -> None:
        """Write the designs that are kept, and whatever their maker saves."""
        content = json.dumps([json.loads(design.to_json()) for design in self.designs], indent=1)
        (folder / STATE).write_text(content + "\n", encoding="utf-8")
        super().save(folder)

    def load(self, folder: Path) -> None:
        """Read them."""
        try:
            values = json.loads((folder / STATE).read_text(encoding="utf-8"))
            self.designs = [Design.model_validate(value) for value in values]
        except (OSError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error
        super().load(folder)


class FixedOptions(OfOptions):
    """Options of fixed."""

    variations: int = Field(
        0,
        ge=0,
        description="Designs made for each seed task of the first cycle, or, without seed tasks, for each design of a "
        "cycle, which cycles then take in turn; 0: as many as one cycle takes.",
    )


class Fixed(Keeping):
    """The first proposal of another designer, kept for the whole run: EnvGen without adaptation."""

    id = "fixed-v1"
    Options = FixedOptions
    options: FixedOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Ask once, then repeat; of more designs than fit into a cycle each takes the next ones."""
        if not self.designs:
            wanted = self.options.variations * (len(brief.examples) or n) or n
            self.designs = self.maker.propose(brief, wanted, context)
        made = len(self.designs)
        if made <= n:
            return self.designs
        return [self.designs[((brief.cycle - 1) * n + i) % made] for i in range(n)]


class RankingOptions(OfOptions):
    """Options of a designer that ranks candidates."""

    candidates: int = Field(16, ge=1, description="How many designs are ranked.")


class EasyToHardOptions(RankingOptions):
    """Options of easy-to-hard."""

    renamed: ClassVar[Mapping[str, str]] = {"practised": "validation_practice"}

    validation_practice: int = Field(
        10_000, ge=0, description="Practice of the validation agent in the original, in its unit."
    )


class EasyToHard(Keeping):
    """Candidates ranked once by a validation agent; each cycle takes the next harder ones."""

    id = "easy_to_hard-v1"
    Options = EasyToHardOptions
    options: EasyToHardOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Rank at the first call, then walk down the list."""
        if not self.designs:
            candidates = self.maker.propose(brief, self.options.candidates, context)
            self.designs = _easiest_first(context.trial(candidates, practised=self.options.validation_practice))
        start = max(0, min((brief.cycle - 1) * n, len(self.designs) - n))
        return self.designs[start : start + n]


class Adversarial(Keeping):
    """The hardest of the candidates under the current agent, ranked anew each cycle."""

    id = "adversarial-v1"
    Options = RankingOptions
    options: RankingOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Rank all candidates and take the hardest n."""
        self.designs = self.designs or self.maker.propose(brief, self.options.candidates, context)
        return _easiest_first(context.trial(self.designs))[-n:]


def _easiest_first(outcomes: Sequence[Outcome]) -> list[Design]:
    """Order designs by the skills an agent showed in them; reward breaks ties."""

    def ease(outcome: Outcome) -> tuple[float, float]:
        attempts = max(outcome.attempts, 1)
        return (sum(outcome.skills.values()) / attempts, outcome.reward / attempts)

    return [outcome.design for outcome in sorted(outcomes, key=ease, reverse=True)]
