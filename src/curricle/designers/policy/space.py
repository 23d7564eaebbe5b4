"""Space: a world's settings as a grid of levels, for designers that learn without a language model.

In: the declaration of a world (knobs, skills, the original). Out: settings as rows of level numbers; features of such
rows, 0 for the original, positive where a knob is easier; and what the declaration lets one expect of each skill.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from curricle.designers.reward import Floats
from curricle.errors import ValueRefused
from curricle.records import Knob, Skill, Value, Values
from curricle.setting import Setting

Rows = NDArray[np.int64]
"""Settings by the number of each knob's level: (settings, knobs)."""
CHAIN = 1.5
EASED = 2.0
INHERITED = 1.0
EASIER = 0.05
"""What the declaration promises, in log-odds: all that eases a skill, together; each of it by itself (in sum); all that
eases what it needs; any easier knob. A chain is as strong as its weakest link: what hands out two of three things that
are needed hands out little."""
CONTRADICTED = -3.0
"""What a level costs a skill, in log-odds, if the world's rules refuse it beside what eases that skill."""
ROOT = -2.0
DEEP = -4.5
"""Log-odds expected in the original before anything was seen: of skills that need nothing, and of the others."""


class Space:
    """The grid of one world's settings."""

    def __init__(self, setting: type[Setting], original: Values, skills: Sequence[Skill]) -> None:
        self.setting = setting
        self.knobs = setting.knobs()
        self.original = original
        self.skills = tuple(skills)
        self.levels = [_levels(knob, original, skills) for knob in self.knobs]
        self.home: Rows = np.array([self._level(i, original[k.name]) for i, k in enumerate(self.knobs)], np.int64)
        tables = [self._table(i) for i in range(len(self.knobs))]
        self.spans = np.cumsum([1, *(table.shape[1] for table in tables)])
        self.tables = tables
        self.links = [self._links(skill) for skill in self.skills]

    def encode(self, values: Mapping[str, Value]) -> Rows:
        """The row nearest to a setting."""
        return np.array([self._level(i, values[knob.name]) for i, knob in enumerate(self.knobs)], np.int64)

    def decode(self, row: Rows) -> dict[str, Value]:
        """The setting of a row."""
        return {k.name: self.levels[i][level] for i, (k, level) in enumerate(zip(self.knobs, row, strict=True))}

    def features(self, rows: Rows) -> Floats:
        """A constant 1, what each knob adds, and how strong the chain of each skill is: (settings, features)."""
        parts = [table[rows[:, i]] for i, table in enumerate(self.tables)]
        chains = [
            np.min([link[rows[:, i]] for i, link in links.items()], axis=0) if links else np.zeros(len(rows))
            for links in self.links
        ]
        return np.concatenate([np.ones((len(rows), 1)), *parts, np.stack(chains, axis=1)], axis=1)

    def covers(self, values: Mapping[str, Value]) -> bool:
        """Whether a setting is on the grid but for the nearest level: not if it has texts of its own."""
        return all(values[k.name] == self.original[k.name] for k in self.knobs if k.kind == "text")

    def allowed(self, values: Mapping[str, Value]) -> bool:
        """Whether the world's rules across knobs accept a setting."""
        try:
            self.setting.of(values)
        except ValueRefused:
            return False
        return True

    def toward(self, skill: Skill) -> dict[int, tuple[int, ...]]:
        """For each knob that eases a skill: its levels from the original to the named one, in order.

        Where that way leads to what is easier, it goes on to the end: nine pieces of wood ease what three ease.
        """
        found = {}
        for i, knob in enumerate(self.knobs):
            if knob.name not in skill.eased_by:
                continue
            start = int(self.home[i])
            end = self._level(i, skill.eased_by[knob.name])
            if start == end:  # the original has it already
                continue
            if knob.kind in ("int", "float") or knob.harder:
                step = 1 if end > start else -1
                if self.tables[i][end].sum() > 0 and knob.harder:
                    end = len(self.levels[i]) - 1 if step > 0 else 0
                found[i] = tuple(range(start, end + step, step))
            else:
                found[i] = (start, end)
        return found

    def expectation(self) -> tuple[Floats, Floats]:
        """Means and deviations of each skill's weights, out of the declaration alone: (skills, features) each."""
        knobs = int(self.spans[-1])
        mean = np.zeros((len(self.skills), knobs + len(self.skills)))
        spread = np.full_like(mean, 0.5)
        spread[:, 0] = 1.5
        spread[:, knobs:] = 0.1
        for s, skill in enumerate(self.skills):
            mean[s, knobs + s] = CHAIN
            spread[s, knobs + s] = CHAIN / 2
            mean[s, 0] = DEEP if skill.needs else ROOT
            for i, knob in enumerate(self.knobs):
                if knob.harder:
                    mean[s, int(self.spans[i]) : int(self.spans[i + 1])] = EASIER
            own = self._promised(skill)
            inherited = {i: row for need in self._ancestors(skill) for i, row in self._promised(need).items()}
            for promised, gain in ((inherited, INHERITED), (own, EASED)):
                for i, row in promised.items():
                    part = slice(int(self.spans[i]), int(self.spans[i + 1]))
                    mean[s, part] = gain / len(promised) * row / np.dot(row, row)
                    spread[s, part] = np.maximum(0.7, np.abs(mean[s, part]) / 2)
            for i, row in self._contradicted(skill).items():
                part = slice(int(self.spans[i]), int(self.spans[i + 1]))
                mean[s, part] = np.where(row != 0, CONTRADICTED * row / np.maximum(row**2, 1e-9), mean[s, part])
                spread[s, part] = np.maximum(1.0, spread[s, part])
        return mean, spread

    def _links(self, skill: Skill) -> dict[int, Floats]:
        """For each knob that eases a skill, how far each of its levels goes, 0 to 1."""
        found = {}
        for i, path in self.toward(skill).items():
            if len(path) > 1:
                found[i] = np.zeros(len(self.levels[i]))
                found[i][list(path)] = np.linspace(0.0, 1.0, len(path))
        return found

    def _promised(self, skill: Skill) -> dict[int, Floats]:
        """Features of each knob where a skill is eased most."""
        rows = {i: self.tables[i][path[-1]] for i, path in self.toward(skill).items()}
        return {i: row for i, row in rows.items() if row.any()}

    def _contradicted(self, skill: Skill) -> dict[int, Floats]:
        """Features of the levels that the world's rules refuse beside what eases a skill."""
        eased = {**self.original, **skill.eased_by}
        found = dict[int, Floats]()
        for i, knob in enumerate(self.knobs if self.allowed(eased) else ()):
            refused = [not self.allowed({**eased, knob.name: value}) for value in self.levels[i]]
            rows = self.tables[i][refused]
            if rows.any() and (rows.min(0) * rows.max(0) >= 0).all():  # refused on one side only: it means something
                found[i] = rows[np.abs(rows).argmax(0), np.arange(rows.shape[1])]
        return found

    def _ancestors(self, skill: Skill) -> list[Skill]:
        """All that a skill needs, in depth."""
        known = {s.name: s for s in self.skills}
        found = dict[str, Skill]()
        waiting = list(skill.needs)
        while waiting:
            need = known[waiting.pop()]
            if need.name not in found:
                found[need.name] = need
                waiting += need.needs
        return list(found.values())

    def _level(self, index: int, value: Value) -> int:
        """Number of the level nearest to a value."""
        levels = self.levels[index]
        if self.knobs[index].kind in ("int", "float"):
            return int(np.argmin([abs(float(level) - float(value)) for level in levels]))
        return levels.index(value) if value in levels else 0

    def _table(self, index: int) -> Floats:
        """Features of each level: which it is, or where there is an order, how far it is from the original.

        Easier is positive, and the two directions are apart.
        """
        knob = self.knobs[index]
        home = int(self.home[index])
        count = len(self.levels[index])
        if knob.kind in ("choice", "text") and not knob.harder:
            return np.delete(np.eye(count), home, axis=1)
        away = np.arange(count) - home
        room = np.where(away > 0, max(1, count - 1 - home), max(1, home))
        ease = away / room * (-1 if knob.harder == "up" else 1)
        sides = np.stack([np.maximum(ease, 0.0), np.minimum(ease, 0.0)], axis=1)
        return sides[:, sides.any(0)]


def _levels(knob: Knob, original: Values, skills: Sequence[Skill]) -> tuple[Value, ...]:
    """A knob's levels, with the original's and those that ease a skill among them."""
    if knob.kind == "text":
        return (original[knob.name],)
    if knob.kind in ("bool", "choice"):
        return knob.levels()
    named = [skill.eased_by[knob.name] for skill in skills if knob.name in skill.eased_by]
    return tuple(sorted({*knob.levels(), original[knob.name], *named}, key=float))
