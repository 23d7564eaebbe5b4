"""Names replaced by words that say nothing: EnvGen's ablation, for any world.

What a model knows of a famous game from its training is in the names. `hide` gives a brief in which every word that the
names of skills, knobs and choices are made of is another, meaningless one, the same wherever it stands: what the guide
says of the rules still holds. `show` turns a design that was made for such a brief back into one for the world.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from curricle.records import Brief, Cycle, Design, Frozen, Knob, Outcome, Skill, Value, Values

STAY = frozenset(re.findall(r"\w+", "a an and at by for from in is it of on or per the to with"))
_WORD = re.compile(r"[^\W\d_]+")
_CONSONANTS = "zvkbdfglmnprst"
_VOWELS = "oiae"


class Disguise:
    """The other words of one world."""

    def __init__(self, brief: Brief) -> None:
        skills = [skill.name for skill in brief.skills]
        knobs = [knob.name for knob in brief.knobs]
        choices = [choice for knob in brief.knobs for choice in knob.choices]
        told = " ".join([brief.world.rpartition("-v")[0], *skills, *knobs, *choices]).lower()
        words = [word for word in dict.fromkeys(_WORD.findall(told)) if word not in STAY]
        self.words = dict(zip(words, _nonsense(brief.guide.lower() + told), strict=False))
        self.back = {token: word for word, token in self.words.items()}
        self.skills, self.knobs, self.choices = (self._names(names) for names in (skills, knobs, choices))
        self.real_choices = {token: name for name, token in self.choices.items()}

    def text(self, text: str) -> str:
        """A text with every telling word replaced."""
        return _WORD.sub(lambda match: _other(match[0], self.words), text)

    def plain(self, text: str) -> str:
        """The same backwards."""
        return _WORD.sub(lambda match: _other(match[0], self.back), text)

    def hide(self, brief: Brief) -> Brief:
        """The brief in other words."""
        return brief.model_copy(
            update={
                "world": "world",
                "guide": self.text(brief.guide),
                "skills": tuple(self._skill(skill) for skill in brief.skills),
                "knobs": tuple(self._knob(knob) for knob in brief.knobs),
                "original": self.values(brief.original),
                "past": tuple(self._cycle(cycle) for cycle in brief.past),
                "examples": tuple(self.values(values) for values in brief.examples),
            }
        )

    def show(self, design: Design) -> Design:
        """A design for the world, out of one that was made in other words."""
        aims = {token: name for name, token in self.skills.items()}
        return design.model_copy(
            update={
                "setting": Frozen(self.real(design.setting)),
                "aim": aims[design.aim] if design.aim else None,
                "why": self.plain(design.why),
                "changed": tuple(self.plain(note) for note in design.changed),
            }
        )

    def values(self, values: Mapping[str, Value]) -> Values:
        """A setting in other words."""
        return Frozen({self.knobs[name]: self._value(value) for name, value in values.items()})

    def real(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """A setting of the world, out of one in other words."""
        names = {token: name for name, token in self.knobs.items()}
        return {names[name]: self._real(value) for name, value in values.items()}

    def _names(self, names: Iterable[str]) -> dict[str, str]:
        """Another name for each; two that differ in case only get a number."""
        other: dict[str, str] = {}
        for name in dict.fromkeys(names):
            token = self.text(name)
            other[name] = token if token not in other.values() else f"{token}_{len(other)}"
        return other

    def _value(self, value: Value) -> Value:
        return self.choices.get(value) or self.text(value) if isinstance(value, str) else value

    def _real(self, value: Value) -> Value:
        return self.real_choices.get(value) or self.plain(value) if isinstance(value, str) else value

    def _skill(self, skill: Skill) -> Skill:
        return Skill(name=self.skills[skill.name], needs=tuple(self.skills[need] for need in skill.needs))

    def _knob(self, knob: Knob) -> Knob:
        changes: dict[str, Any] = {"name": self.knobs[knob.name], "sentence": self.text(knob.sentence)}
        changes |= {"choices": tuple(self.choices[c] for c in knob.choices), "default": self._value(knob.default)}
        return knob.model_copy(update=changes)

    def _cycle(self, cycle: Cycle) -> Cycle:
        skills = Frozen({self.skills[name]: score for name, score in cycle.scores.skills.items()})
        scores = cycle.scores.model_copy(update={"skills": skills})
        return cycle.model_copy(update={"designed": tuple(map(self._outcome, cycle.designed)), "scores": scores})

    def _outcome(self, outcome: Outcome) -> Outcome:
        design = outcome.design
        hidden = {"setting": self.values(design.setting), "aim": self.skills[design.aim] if design.aim else None}
        counts = {
            name: Frozen({self.skills[skill]: count for skill, count in getattr(outcome, name).items()})
            for name in ("skills", "tried")
        }
        told = design.model_copy(update={**hidden, "why": self.text(design.why)})
        return outcome.model_copy(update={"design": told, **counts})


def _other(word: str, words: Mapping[str, str]) -> str:
    """Another word for this one, with its plural."""
    lower = word.lower()
    if lower in words:
        return words[lower]
    return f"{words[lower[:-1]]}s" if lower[-1] == "s" and lower[:-1] in words else word


def _nonsense(used: str) -> Iterable[str]:
    """Words without a meaning, none of which stands in a text already."""
    for length in range(1, 4):
        for number in range((len(_CONSONANTS) * len(_VOWELS)) ** length):
            word = ""
            for _ in range(length):
                number, syllable = divmod(number, len(_CONSONANTS) * len(_VOWELS))
                word += _CONSONANTS[syllable % len(_CONSONANTS)] + _VOWELS[syllable // len(_CONSONANTS)]
            if f"{word}q" not in used:
                yield f"{word}q"
