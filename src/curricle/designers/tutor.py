"""The tutor: teaches the weakest skills within reach and hands out what they need. It needs no model.

It is the default where no language model is configured. All it knows is what the world declares: the skills' `needs`
and `eased_by`, and the direction in which each knob gets harder. How much it hands out (`ease` of each skill: 1 all,
0 nothing) follows the success at the aim: more where the agent fails, less where it succeeds. So designs drift back to
the original as a skill is mastered.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from curricle.designer import Context, Designer
from curricle.errors import RunDamaged, ValueRefused
from curricle.records import Brief, Design, Knob, Options, Outcome, Scores, Skill, Value, Values
from curricle.setting import Setting

EASE_FILE = "ease.json"


class TutorOptions(Options):
    """Options of the tutor."""

    reach: float = Field(0.1, ge=0, le=1, description="Success from which on skills that need this one are taught.")
    mastered: float = Field(0.9, ge=0, le=1, description="Success from which on a skill needs no more designs.")
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
        """Aim at n skills; where there are fewer to teach, they come again with less handed out."""
        skills = self._skills_to_teach(brief.skills, brief.rates)
        designs = []
        for i in range(n):
            skill = skills[i % len(skills)]
            repeats = i // len(skills)
            ease = max(0.0, self.ease.get(skill.name, 1.0) - repeats * self.options.step)
            designs.append(self._design(skill, ease, brief))
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Hand out more where the agent failed at the aim, less where it succeeded."""
        for aim in dict.fromkeys(outcome.design.aim for outcome in outcomes):
            easiest = next(o for o in outcomes if o.design.aim == aim)  # designs of an aim come easiest first
            if aim is None or easiest.rate is None:
                continue
            ease = self.ease.get(aim, 1.0)
            change = (easiest.rate < self.options.low) - (easiest.rate > self.options.high)
            self.ease[aim] = min(1.0, max(0.0, ease + change * self.options.step))

    def save(self, folder: Path) -> None:
        """Write the ease of each skill."""
        (folder / EASE_FILE).write_text(json.dumps(self.ease, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        try:
            read = json.loads((folder / EASE_FILE).read_text(encoding="utf-8"))
            self.ease = {str(name): float(ease) for name, ease in read.items()}
        except (OSError, ValueError, AttributeError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error

    def _skills_to_teach(self, skills: Sequence[Skill], rates: Mapping[str, float]) -> list[Skill]:
        """Skills whose needs are in reach, weakest first, without mastered ones unless all of them are mastered."""

        def rate(skill: Skill) -> float:
            return rates.get(skill.name, 0.0)

        in_reach = []
        for skill in skills:
            if all(rates.get(need, 0.0) >= self.options.reach for need in skill.needs):
                in_reach.append(skill)
        weakest_first = sorted(in_reach, key=rate)  # stable: ties stay in the order of the skill tree
        unmastered = [skill for skill in weakest_first if rate(skill) < self.options.mastered]
        return unmastered or weakest_first

    def _design(self, skill: Skill, ease: float, brief: Brief) -> Design:
        """A design for a skill, and in words why it is as it is."""
        setting = self._eased(skill, ease, brief)
        known = "not tested yet"
        if skill.name in brief.rates:
            known = f"success {brief.rates[skill.name]:.0%} in the original"
        given = f"{ease:.0%} of what it needs is handed out"
        if setting == brief.original and ease:
            given = "nothing is declared that would ease it (eased_by, harder): the original"
        return Design(setting=setting, aim=skill.name, why=f"{known}; {given}")

    def _eased(self, skill: Skill, ease: float, brief: Brief) -> Values:
        """The original, moved towards what eases the skill; if nothing is declared, towards easy on every knob."""
        knobs = {knob.name: knob for knob in brief.knobs}
        targets = dict(skill.eased_by)
        if not targets:
            for knob in brief.knobs:
                if knob.harder:
                    easiest = -1 if knob.harder == "down" else 0
                    targets[knob.name] = knob.levels()[easiest]
        moved = {name: _between(knobs[name], brief.original[name], value, ease) for name, value in targets.items()}
        for values in (moved, targets):  # a rule across knobs may refuse what lies half-way
            try:
                return self.setting.of({**brief.original, **values}).values
            except ValueRefused:
                continue
        return brief.original


def _between(knob: Knob, start: Value, end: Value, share: float) -> Value:
    """The value that lies a share of the way from start to end; values without an order switch half-way."""
    if knob.kind == "choice" and knob.harder:
        first = knob.choices.index(str(start))
        last = knob.choices.index(str(end))
        return knob.choices[round(first + (last - first) * share)]
    if knob.kind in ("int", "float"):
        value = float(start) + (float(end) - float(start)) * share
        return round(value) if knob.kind == "int" else value
    return end if share >= 0.5 else start
