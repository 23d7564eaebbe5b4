"""The chain of skills in one run: which links the agent has, which it is climbing, and where no setting leads on.

For each skill, in the order of what it needs: success in the original, and success in the settings that were practised
lately. A setting with success between 20 and 80 % is a rung: practice there teaches. A skill that has none and is not
mastered in the original is a gap, and the table says on which side: the agent never shows the skill in any setting, or
it nearly always does in those that it knows and hardly ever in the original.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from curricle.errors import RunError, UsageError
from curricle.records import Outcome, Scores, Skill, Value, Values
from curricle.run import read_config, read_records
from curricle.views.designs import designs, moved_knobs

LOW = 0.2
HIGH = 0.8
"""Success of a rung lies between these; from the second on a skill counts as mastered."""
MIN_ATTEMPTS = 8
"""Attempts that a success rate must rest on."""
Rate = tuple[float, int, Values]
"""Success at a skill in a setting, the attempts it rests on, and the setting."""


@dataclass(frozen=True)
class Link:
    """One skill: how it goes in the original, in the best setting known, and in the best rung."""

    skill: Skill
    original: float | None
    """None: it was never tested."""
    best: Rate | None
    rung: Rate | None

    @property
    def state(self) -> str:
        """In words, where the agent stands."""
        if self.original is not None and self.original >= HIGH:
            return "mastered"
        if self.original is not None and self.original > LOW:
            return "learning in the original"
        if self.rung:
            return "has a rung"
        if self.best is None:
            return "gap: no setting was tried"
        if self.best[0] >= HIGH:
            return "gap: nothing between this setting and the original"
        return "gap: not shown in any setting"

    @property
    def is_gap(self) -> bool:
        """Whether no setting teaches it."""
        return self.state.startswith("gap")


def links(folder: Path, skills: Sequence[Skill], lately: int) -> list[Link]:
    """The links of a run, by its last test and the designs of the last cycles."""
    scores = read_records(folder, Scores)
    if not scores:
        raise RunError(f"{folder} has no test yet, so there is no chain to show; wait for the end of the first cycle")
    tested = scores[-1][1].skills
    if set(tested) != {skill.name for skill in skills}:
        raise UsageError(
            f"{folder} is a run with other skills ({', '.join(tested)}); name the world that it was made in, "
            f"{read_config(folder)['world']['id']}"
        )
    rates = {name: score.mean for name, score in tested.items() if score.n}
    found = designs(folder)
    newest = max((cycle for cycle, _ in found), default=0)
    recent = [outcome for cycle, outcome in found if cycle > newest - lately]
    return make_links(skills, rates, recent)


def make_links(skills: Sequence[Skill], rates: Mapping[str, float], outcomes: Sequence[Outcome]) -> list[Link]:
    """The links from success in the original and from what came of designs."""
    made = []
    for skill in in_order(skills):
        known = success_by_setting(skill.name, outcomes)
        rungs = [rate for rate in known if LOW < rate[0] < HIGH]
        best = max(known, key=lambda rate: rate[0], default=None)
        rung = min(rungs, key=lambda rate: abs(rate[0] - 0.5), default=None)
        made.append(Link(skill, rates.get(skill.name), best, rung))
    return made


def in_order(skills: Sequence[Skill]) -> list[Skill]:
    """The skills, each after what it needs; otherwise as they are declared."""
    by_name = {skill.name: skill for skill in skills}
    ordered: dict[str, Skill] = {}
    waiting = list(reversed(skills))
    while waiting:
        skill = waiting[-1]
        missing = [by_name[need] for need in skill.needs if need in by_name and need not in ordered]
        if skill.name in ordered or not missing:
            ordered[skill.name] = skill
            waiting.pop()
        else:
            waiting += missing
    return list(ordered.values())


def success_by_setting(skill: str, outcomes: Sequence[Outcome]) -> list[Rate]:
    """Success at a skill in each setting that has attempts enough, whatever its design was aimed at."""
    together: dict[Values, list[Outcome]] = {}
    for outcome in outcomes:
        together.setdefault(outcome.design.setting, []).append(outcome)
    rates: list[Rate] = []
    for setting, same in together.items():
        attempts = sum(outcome.chances(skill) for outcome in same)
        shown = sum(outcome.skills.get(skill, 0) for outcome in same)
        if attempts >= MIN_ATTEMPTS:
            rates.append((shown / attempts, attempts, setting))
    return rates


def chain_table(folder: Path, found: Sequence[Link], lately: int) -> Table:
    """One row a link, and under the table what is missing."""
    original = read_config(folder)["original"]
    gaps = [link.skill.name for link in found if link.is_gap]
    missing = f"no setting teaches: {', '.join(gaps)}" if gaps else "each skill that is not mastered has a rung"
    caption = f"designs of the last {lately} cycles; a rung has success between {LOW:.0%} and {HIGH:.0%}. {missing}"
    shown = Table(title=Text(f"{folder.resolve().name}: chain"), caption=Text(caption))
    for name in ("skill", "original", "best setting known", "rung", "state"):
        shown.add_column(name, justify="right" if name == "original" else "left")
    for link in found:
        tested = "-" if link.original is None else f"{link.original:.0%}"
        cells = (_setting(link.best, original), _setting(link.rung, original))
        shown.add_row(Text(link.skill.name), tested, *cells, Text(link.state, style="bold" if link.is_gap else ""))
    return shown


def _setting(rate: Rate | None, original: Mapping[str, Value]) -> Text:
    """Success and the knobs that differ from the original."""
    if rate is None:
        return Text("-")
    success, attempts, setting = rate
    return Text(f"{success:.0%} of {attempts}: {moved_knobs(setting, original)}")
