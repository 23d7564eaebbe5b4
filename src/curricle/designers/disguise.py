"""Names replaced by tokens that say nothing: EnvGen's ablation, for any world.

What a model knows of a famous game from its training is in the names. `hide` gives a brief in which every skill, knob
and choice has a number for a name, and so has every word that those names are made of, wherever the guide uses it;
`show` turns a design that was made for such a brief back into one for the world.
"""

import re
from collections.abc import Mapping
from typing import Any

from curricle.records import Brief, Cycle, Design, Frozen, FrozenMap, Knob, Outcome, Scores, Skill, Value, Values

COMMON = frozenset(
    re.findall(
        r"\w+",
        """all and any are both can common down false few for from has have how length less long many more most near
        nearby new next no none normal not number of off old on one only other per random rare same size some start
        than that the then this time to total true two type up use very was with world""",
    )
)
"""Words of names that say nothing about a world and stay."""
_TOKEN = re.compile(r"\b(?:skill|knob|value|word)_\d+\b")


class Disguise:
    """The tokens of one world's names."""

    def __init__(self, brief: Brief) -> None:
        choices = dict.fromkeys(choice for knob in brief.knobs for choice in knob.choices)
        self.skills = {skill.name: f"skill_{i}" for i, skill in enumerate(brief.skills, start=1)}
        self.knobs = {knob.name: f"knob_{i}" for i, knob in enumerate(brief.knobs, start=1)}
        self.choices = {choice: f"value_{i}" for i, choice in enumerate(choices, start=1)}
        kinds = (self.choices, self.skills, self.knobs)
        names = {name.lower(): token for kind in kinds for name, token in kind.items()}
        told = (brief.world.rpartition("-v")[0], *names)
        parts = dict.fromkeys(part for name in told for part in re.split(r"[\W_]+", name.lower()))
        words = [p for p in parts if len(p) > 2 and not p.isdigit() and p not in names and p not in COMMON]
        self.words = names | {word: f"word_{i}" for i, word in enumerate(words, start=1)}
        phrases = sorted((re.escape(name) for name in self.words), key=len, reverse=True)
        self.pattern = re.compile(rf"([`'\"]?)(?<!\w)({'|'.join(phrases)})(s?)(?!\w)([`'\"]?)", re.IGNORECASE)
        both = {token: word for word, token in self.words.items()}
        self.back = both | {token: name for kind in kinds for name, token in kind.items()}

    def text(self, text: str) -> str:
        """A text with every telling word replaced; a common word only where it is quoted as a name."""

        def token(match: re.Match[str]) -> str:
            quote, word, plural, end = match.groups()
            if word.lower() in COMMON and not (quote and end):
                return match[0]
            return f"{quote}{self.words[word.lower()]}{plural}{end}"

        return self.pattern.sub(token, text)

    def plain(self, text: str) -> str:
        """The same backwards."""
        return _TOKEN.sub(lambda match: self.back.get(match[0], match[0]), text)

    def hide(self, brief: Brief) -> Brief:
        """The brief with tokens for names."""
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
        """A design for the world, out of one that was made for the tokens."""
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
        """Knobs and choices as tokens."""
        return Frozen({self.knobs[name]: self._value(value) for name, value in values.items()})

    def real(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Tokens as knobs and choices."""
        return {self.back[name]: self.plain(v) if isinstance(v, str) else v for name, v in values.items()}

    def _value(self, value: Value) -> Value:
        return self.choices.get(value) or self.text(value) if isinstance(value, str) else value

    def _skill(self, skill: Skill) -> Skill:
        return Skill(name=self.skills[skill.name], needs=tuple(self.skills[need] for need in skill.needs))

    def _knob(self, knob: Knob) -> Knob:
        changes: dict[str, Any] = {"name": self.knobs[knob.name], "sentence": self.text(knob.sentence)}
        changes |= {"choices": tuple(self.choices[c] for c in knob.choices), "default": self._value(knob.default)}
        return knob.model_copy(update=changes)

    def _cycle(self, cycle: Cycle) -> Cycle:
        skills: FrozenMap[str, Any] = Frozen({self.skills[n]: score for n, score in cycle.scores.skills.items()})
        scores: Scores = cycle.scores.model_copy(update={"skills": skills})
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
