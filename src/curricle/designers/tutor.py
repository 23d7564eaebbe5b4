"""The tutor: knows the skill tree, aims at the weakest skills within reach and hands out what they need.

The offline default. Its knowledge is the world's declaration alone: the skills' `needs` and `eased_by`, and the
direction in which each knob gets harder. How much it hands out (`ease` per skill: 1 all, 0 nothing) follows the success
at the aim: more when the agent fails, less when it succeeds, so designs drift back to the original as it is mastered.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from curricle.designer import Context, Designer
from curricle.designers.aims import AimOptions, aims
from curricle.errors import RunDamaged, ValueRefused
from curricle.records import Brief, Design, Knob, Outcome, Scores, Skill, Value, Values
from curricle.setting import Setting

STATE = "ease.json"


class TutorOptions(AimOptions):
    """Options of the tutor."""

    low: float = Field(0.3, ge=0, le=1, description="Success at the aim below which more is handed out.")
    high: float = Field(0.7, ge=0, le=1, description="Success at the aim above which less is handed out.")
    step: float = Field(0.25, gt=0, le=1, description="How much the ease changes at a time.")


class Tutor(Designer):
    """One design for each of the weakest skills in reach."""

    id = "tutor-v1"
    Options = TutorOptions
    options: TutorOptions

    def __init__(self, setting: type[Setting], options: TutorOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.ease: dict[str, float] = {}

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Aim at n skills; where there are fewer to aim at, they come again with less handed out."""
        rates = brief.rates
        wanted = aims(brief.skills, rates, self.options)
        designs = []
        for i in range(n):
            skill = wanted[i % len(wanted)]
            again = i // len(wanted)
            ease = max(0.0, self.ease.get(skill.name, 1.0) - again * self.options.step)
            setting = self._eased(skill, ease, brief)
            known = f"success {rates[skill.name]:.0%} in the original" if skill.name in rates else "not tested yet"
            given = f"{ease:.0%} of what it needs is handed out"
            if setting == brief.original and ease:
                given = "nothing is declared that would ease it (eased_by, harder): the original"
            designs.append(Design(setting=setting, aim=skill.name, why=f"{known}; {given}"))
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Hand out more where the agent failed at the aim, less where it succeeded."""
        for aim in dict.fromkeys(outcome.design.aim for outcome in outcomes):
            tried = next(o for o in outcomes if o.design.aim == aim)  # the one with the most handed out
            if aim is None or tried.rate is None:
                continue
            change = (tried.rate < self.options.low) - (tried.rate > self.options.high)
            self.ease[aim] = min(1.0, max(0.0, self.ease.get(aim, 1.0) + change * self.options.step))

    def save(self, folder: Path) -> None:
        """Write the ease of each skill."""
        (folder / STATE).write_text(json.dumps(self.ease, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read it."""
        try:
            read = json.loads((folder / STATE).read_text(encoding="utf-8"))
            self.ease = {str(name): float(ease) for name, ease in read.items()}
        except (OSError, ValueError, AttributeError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error

    def _eased(self, skill: Skill, ease: float, brief: Brief) -> Values:
        """The original, moved towards what eases the skill; if nothing is named, towards easy on every knob."""
        knobs = {knob.name: knob for knob in brief.knobs}
        targets = dict(skill.eased_by) or {
            k.name: k.levels()[-1 if k.harder == "down" else 0] for k in brief.knobs if k.harder
        }
        moved = {name: _between(knobs[name], brief.original[name], value, ease) for name, value in targets.items()}
        for values in (moved, targets):  # half-way there, a rule across knobs may refuse
            try:
                return self.setting.of({**brief.original, **values}).values
            except ValueRefused:
                continue
        return brief.original


def _between(knob: Knob, start: Value, end: Value, share: float) -> Value:
    """A value on the way from start to end; what has no order switches half-way."""
    if knob.kind == "choice" and knob.harder:
        at = knob.choices.index(str(start))
        to = knob.choices.index(str(end))
        return knob.choices[round(at + (to - at) * share)]
    if knob.kind in ("int", "float"):
        value = float(start) + (float(end) - float(start)) * share
        return round(value) if knob.kind == "int" else value
    return end if share >= 0.5 else start
