"""Designers that need no model: none, random, fixed, easy-to-hard and adversarial (EnvGen's baselines and ablations).

The last three work on the designs of another designer, which the option `of` names: `fixed` repeats the first ones,
`easy_to_hard` and `adversarial` take 16 candidates and rank them by how well an agent does in each.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from curricle.designer import Context, Designer, LeaveOptions, OfOptions
from curricle.errors import RunDamaged
from curricle.records import Brief, Design, Outcome, Value
from curricle.registry import named
from curricle.seeds import generator
from curricle.setting import Setting

INNER_FOLDER = "of"
DESIGNS_FILE = "designs.json"


class NoDesigns(Designer):
    """Proposes nothing: the agent practises in the original all the time."""

    id = "none-v1"

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Return no designs."""
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
        return [self._draw(brief, rng) for _ in range(n)]

    def _draw(self, brief: Brief, rng: np.random.Generator) -> Design:
        setting = self.setting.sample(rng, self.options.held(brief.original)).values
        aim = brief.skills[int(rng.integers(len(brief.skills)))].name
        return Design(setting=setting, aim=aim, why="drawn at random")


class DesignerWrapper(Designer):
    """A designer that works on the designs of another one, `inner`, and keeps its state beside its own."""

    Options = OfOptions
    options: OfOptions

    def __init__(self, setting: type[Setting], options: OfOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.inner = named(self.options, "of", setting, seed)

    def ready(self) -> None:
        """Check that the inner designer can begin."""
        self.inner.ready()

    def save(self, folder: Path) -> None:
        """Save the inner designer into a folder of its own; no folder is left where it has no state."""
        inner_folder = folder / INNER_FOLDER
        inner_folder.mkdir()
        self.inner.save(inner_folder)
        if not any(inner_folder.iterdir()):
            inner_folder.rmdir()

    def load(self, folder: Path) -> None:
        """Load the inner designer, if it had any state."""
        if (folder / INNER_FOLDER).is_dir():
            self.inner.load(folder / INNER_FOLDER)


class StoredDesigns(DesignerWrapper):
    """Asks the inner designer once, and stores its designs."""

    def __init__(self, setting: type[Setting], options: OfOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.designs: list[Design] = []

    def save(self, folder: Path) -> None:
        """Write the stored designs, and the state of the inner designer."""
        content = json.dumps([json.loads(design.to_json()) for design in self.designs], indent=1)
        (folder / DESIGNS_FILE).write_text(content + "\n", encoding="utf-8")
        super().save(folder)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        try:
            values = json.loads((folder / DESIGNS_FILE).read_text(encoding="utf-8"))
            self.designs = [Design.model_validate(value) for value in values]
        except (OSError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error
        super().load(folder)


class FixedOptions(OfOptions):
    """Options of fixed."""

    variations: float = Field(
        0,
        ge=0,
        description="Designs to make for each seed task of the first cycle, or, without seed tasks, for each design of "
        "a cycle; cycles then use them in turn. 0: as many designs as one cycle takes.",
    )


class Fixed(StoredDesigns):
    """The first designs of another designer, kept for the whole run: EnvGen without adaptation."""

    id = "fixed-v1"
    Options = FixedOptions
    options: FixedOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Ask once, then repeat. Where there are more designs than a cycle takes, each cycle uses the next ones."""
        if not self.designs:
            seed_tasks = len(brief.examples)
            wanted = math.ceil(round(self.options.variations * (seed_tasks or n), 6))
            self.designs = self.inner.propose(brief, wanted or n, context)
        count = len(self.designs)
        if count <= n:
            return self.designs
        start = (brief.cycle - 1) * n
        return [self.designs[(start + i) % count] for i in range(n)]


class RankingOptions(OfOptions):
    """Options of a designer that ranks candidates."""

    candidates: int = Field(16, ge=1, le=10_000, description="How many designs are ranked.")


class EasyToHardOptions(RankingOptions):
    """Options of easy-to-hard."""

    renamed: ClassVar[Mapping[str, str]] = {"practised": "validation_practice"}

    validation_practice: int = Field(
        10_000, ge=0, description="Practice of the validation agent in the original, in the agent's unit of budget."
    )


class EasyToHard(StoredDesigns):
    """Candidates that a validation agent ranked once; each cycle takes the next harder ones."""

    id = "easy_to_hard-v1"
    Options = EasyToHardOptions
    options: EasyToHardOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Rank at the first call, then walk down the list."""
        if not self.designs:
            candidates = self.inner.propose(brief, self.options.candidates, context)
            outcomes = context.trial(candidates, practised=self.options.validation_practice)
            self.designs = _easiest_first(outcomes, self.setting)
        last_start = len(self.designs) - n
        start = max(0, min((brief.cycle - 1) * n, last_start))
        return self.designs[start : start + n]


class Adversarial(StoredDesigns):
    """The hardest of the candidates under the current agent, ranked anew each cycle."""

    id = "adversarial-v1"
    Options = RankingOptions
    options: RankingOptions

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Rank all candidates and take the hardest n."""
        if not self.designs:
            self.designs = self.inner.propose(brief, self.options.candidates, context)
        return _easiest_first(context.trial(self.designs), self.setting)[-n:]


def _easiest_first(outcomes: Sequence[Outcome], setting: type[Setting]) -> list[Design]:
    """Order designs by the skills that an agent showed in them; then by the mean reward and by what knobs declare."""

    def ease(outcome: Outcome) -> tuple[float, float, float]:
        attempts = max(outcome.attempts, 1)
        shown = sum(outcome.skills.values()) / attempts
        return (shown, outcome.reward / attempts, -declared_difficulty(setting, outcome.design.setting))

    return [outcome.design for outcome in sorted(outcomes, key=ease, reverse=True)]


def declared_difficulty(setting: type[Setting], values: Mapping[str, Value]) -> float:
    """How hard a setting is by the directions that its knobs declare: the sum over them, each from 0 to 1."""
    total = 0.0
    for knob in setting.knobs():
        levels = knob.levels() if knob.harder and knob.kind != "text" else ()
        if len(levels) < 2:
            continue
        if knob.kind in ("int", "float"):
            place = (float(values[knob.name]) - float(levels[0])) / (float(levels[-1]) - float(levels[0]))
        else:
            place = levels.index(values[knob.name]) / (len(levels) - 1)
        total += place if knob.harder == "up" else 1 - place
    return total
