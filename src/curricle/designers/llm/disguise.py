"""Meaningless names: EnvGen's ablation of what a model knows about a famous game, for any world.

In: a brief. Out: the same brief with every word in the names of skills, knobs and choices replaced by a meaningless one
(`hide`). A word is replaced wherever it stands, so the guide still explains the rules. `reveal` translates a design
that was made for such a brief back.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from curricle.records import Brief, Cycle, Design, Frozen, Knob, Outcome, Skill, Value, Values

KEPT = frozenset(re.findall(r"\w+", "a an and at by for from in is it of on or per the to with"))
_WORD = re.compile(r"[^\W\d_]+")
_CONSONANTS = "zvkbdfglmnprst"
_VOWELS = "oiae"


class Disguise:
    """The meaningless words of one world."""

    def __init__(self, brief: Brief) -> None:
        skills = [skill.name for skill in brief.skills]
        knobs = [knob.name for knob in brief.knobs]
        choices = [choice for knob in brief.knobs for choice in knob.choices]
        names = " ".join([brief.world.rpartition("-v")[0], *skills, *knobs, *choices]).lower()
        words = [word for word in dict.fromkeys(_WORD.findall(names)) if word not in KEPT]
        self.words = dict(zip(words, _meaningless_words(brief.guide.lower() + names), strict=False))
        self.back = {token: word for word, token in self.words.items()}
        self.skills = self._names(skills)
        self.knobs = self._names(knobs)
        self.choices = self._names(choices)
        self.real_choices = {token: name for name, token in self.choices.items()}

    def text(self, text: str) -> str:
        """A text with every word of a name replaced."""
        return _WORD.sub(lambda match: _other(match[0], self.words), text)

    def plain(self, text: str) -> str:
        """A text with the world's own words again."""
        return _WORD.sub(lambda match: _other(match[0], self.back), text)

    def hide(self, brief: Brief) -> Brief:
        """The brief with meaningless names."""
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

    def reveal(self, design: Design) -> Design:
        """A design for the world, from one with meaningless names."""
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
        """A setting with meaningless names."""
        return Frozen({self.knobs[name]: self._value(value) for name, value in values.items()})

    def real(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """A setting of the world, from one with meaningless names."""
        names = {token: name for name, token in self.knobs.items()}
        return {names[name]: self._real(value) for name, value in values.items()}

    def _names(self, names: Iterable[str]) -> dict[str, str]:
        """A meaningless name for each; of two that differ in case only, one gets a number."""
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
        shown = design.model_copy(update={**hidden, "why": self.text(design.why)})
        return outcome.model_copy(update={"design": shown, **counts})


def _other(word: str, words: Mapping[str, str]) -> str:
    """What replaces a word, also in the plural; the word itself where nothing does."""
    lower = word.lower()
    if lower in words:
        return words[lower]
    if lower[-1] == "s" and lower[:-1] in words:
        return f"{words[lower[:-1]]}s"
    return word


def _meaningless_words(used: str) -> Iterable[str]:
    """Words without a meaning, none of which is in a text already."""
    for length in range(1, 4):
        for number in range((len(_CONSONANTS) * len(_VOWELS)) ** length):
            word = ""
            for _ in range(length):
                number, syllable = divmod(number, len(_CONSONANTS) * len(_VOWELS))
                word += _CONSONANTS[syllable % len(_CONSONANTS)] + _VOWELS[syllable // len(_CONSONANTS)]
            if f"{word}q" not in used:
                yield f"{word}q"
