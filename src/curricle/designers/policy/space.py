"""Space: a world's settings as a grid of levels, for designers that learn without a language model.

In: the declaration of a world (knobs, skills, the original). Out: settings as rows of level numbers; features of such
rows, 0 for the original and positive where a knob is easier; and a prior over how these features change the success at
each skill.
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

WEAKEST_LINK = 1.5
"""Prior weight of the minimum over a skill's requirements."""
EASED = 2.0
"""Prior log-odds, divided among all knobs that ease a skill."""
INHERITED = 1.0
"""The same for knobs that ease what the skill needs."""
EASIER = 0.05
"""Prior log-odds of any knob that is easier."""
CONTRADICTED = -3.0
"""Prior log-odds of a level that the world's rules refuse beside what eases the skill."""
FIRST_SKILL = -2.0
LATER_SKILL = -4.5
"""Prior log-odds in the original, of skills that need nothing and of the others."""


class Space:
    """The grid of one world's settings."""

    def __init__(self, setting: type[Setting], original: Values, skills: Sequence[Skill]) -> None:
        self.setting = setting
        self.knobs = setting.knobs()
        self.original = original
        self.skills = tuple(skills)
        self.levels = [_levels(knob, original, skills) for knob in self.knobs]
        self.original_row = self.encode(original)
        self.feature_tables = [self._feature_table(i) for i in range(len(self.knobs))]
        widths = [table.shape[1] for table in self.feature_tables]
        self.offsets = np.cumsum([1, *widths])
        """The first feature of each knob, and then the end; feature 0 is a constant."""
        self.easing = [self._easing(skill) for skill in self.skills]

    def encode(self, values: Mapping[str, Value]) -> Rows:
        """The row nearest to a setting."""
        return np.array([self._level(i, values[knob.name]) for i, knob in enumerate(self.knobs)], np.int64)

    def decode(self, row: Rows) -> dict[str, Value]:
        """The setting of a row."""
        return {k.name: self.levels[i][level] for i, (k, level) in enumerate(zip(self.knobs, row, strict=True))}

    def features(self, rows: Rows) -> Floats:
        """A constant 1, what each knob adds, and the weakest link of what eases each skill: (settings, features)."""
        knobs = [table[rows[:, i]] for i, table in enumerate(self.feature_tables)]
        weakest_links = []
        for easing in self.easing:
            if easing:
                weakest_links.append(np.min([share[rows[:, i]] for i, share in easing.items()], axis=0))
            else:
                weakest_links.append(np.zeros(len(rows)))
        return np.concatenate([np.ones((len(rows), 1)), *knobs, np.stack(weakest_links, axis=1)], axis=1)

    def covers(self, values: Mapping[str, Value]) -> bool:
        """Whether the nearest row says all of a setting: not if the setting has texts of its own."""
        return all(values[k.name] == self.original[k.name] for k in self.knobs if k.kind == "text")

    def allowed(self, values: Mapping[str, Value]) -> bool:
        """Whether the world's rules across knobs accept a setting."""
        try:
            self.setting.of(values)
        except ValueRefused:
            return False
        return True

    def easing_levels(self, skill: Skill) -> dict[int, tuple[int, ...]]:
        """For each knob that eases a skill: its levels from the original to the one declared, in order.

        Where these get easier, they go on to the end: nine pieces of wood ease what three ease.
        """
        found = {}
        for i, knob in enumerate(self.knobs):
            if knob.name not in skill.eased_by:
                continue
            start = int(self.original_row[i])
            end = self._level(i, skill.eased_by[knob.name])
            if start == end:  # the original has it already
                continue
            if knob.kind in ("int", "float") or knob.harder:
                step = 1 if end > start else -1
                if self.feature_tables[i][end].sum() > 0 and knob.harder:
                    end = len(self.levels[i]) - 1 if step > 0 else 0
                found[i] = tuple(range(start, end + step, step))
            else:
                found[i] = (start, end)
        return found

    def prior(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of each skill's weights, from the declaration alone: (skills, features)."""
        end = int(self.offsets[-1])
        mean = np.zeros((len(self.skills), end + len(self.skills)))
        deviation = np.full_like(mean, 0.5)
        deviation[:, 0] = 1.5
        deviation[:, end:] = 0.1
        for s, skill in enumerate(self.skills):
            mean[s, end + s] = WEAKEST_LINK
            deviation[s, end + s] = WEAKEST_LINK / 2
            mean[s, 0] = LATER_SKILL if skill.needs else FIRST_SKILL
            for i, knob in enumerate(self.knobs):
                if knob.harder:
                    mean[s, self._span(i)] = EASIER
            self._add_easing(skill, mean[s], deviation[s])
            self._add_contradictions(skill, mean[s], deviation[s])
        return mean, deviation

    def _add_easing(self, skill: Skill, mean: Floats, deviation: Floats) -> None:
        """Set the prior of the knobs that ease a skill, or what it needs."""
        inherited = dict[int, Floats]()
        for need in self._all_needs(skill):
            inherited |= self._eased_features(need)
        own = self._eased_features(skill)
        for eased, log_odds in ((inherited, INHERITED), (own, EASED)):
            for i, row in eased.items():
                span = self._span(i)
                mean[span] = log_odds / len(eased) * row / np.dot(row, row)
                deviation[span] = np.maximum(0.7, np.abs(mean[span]) / 2)

    def _add_contradictions(self, skill: Skill, mean: Floats, deviation: Floats) -> None:
        """Set the prior of levels that the world's rules refuse beside what eases a skill."""
        for i, row in self._refused_features(skill).items():
            span = self._span(i)
            mean[span] = np.where(row != 0, CONTRADICTED * row / np.maximum(row**2, 1e-9), mean[span])
            deviation[span] = np.maximum(1.0, deviation[span])

    def _span(self, index: int) -> slice:
        """Where a knob's features stand."""
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))

    def _easing(self, skill: Skill) -> dict[int, Floats]:
        """For each knob that eases a skill, how much each of its levels eases it, 0 to 1."""
        found = {}
        for i, path in self.easing_levels(skill).items():
            if len(path) > 1:
                found[i] = np.zeros(len(self.levels[i]))
                found[i][list(path)] = np.linspace(0.0, 1.0, len(path))
        return found

    def _eased_features(self, skill: Skill) -> dict[int, Floats]:
        """Features of each knob where a skill is eased most."""
        found = {}
        for i, path in self.easing_levels(skill).items():
            row = self.feature_tables[i][path[-1]]
            if row.any():
                found[i] = row
        return found

    def _refused_features(self, skill: Skill) -> dict[int, Floats]:
        """Features of the levels that the world's rules refuse beside what eases a skill."""
        eased = {**self.original, **skill.eased_by}
        found = dict[int, Floats]()
        if not self.allowed(eased):
            return found
        for i, knob in enumerate(self.knobs):
            refused = [not self.allowed({**eased, knob.name: value}) for value in self.levels[i]]
            rows = self.feature_tables[i][refused]
            if rows.any() and (rows.min(0) * rows.max(0) >= 0).all():  # refused on one side only: it means something
                found[i] = rows[np.abs(rows).argmax(0), np.arange(rows.shape[1])]
        return found

    def _all_needs(self, skill: Skill) -> list[Skill]:
        """All that a skill needs, and what that needs."""
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

    def _feature_table(self, index: int) -> Floats:
        """Features of each level of a knob: (levels, features).

        Levels without an order are one-hot, the original being zero. Levels with an order have their distance from the
        original, positive where easier, with a feature for each of the two directions.
        """
        knob = self.knobs[index]
        original = int(self.original_row[index])
        count = len(self.levels[index])
        if knob.kind in ("choice", "text") and not knob.harder:
            return np.delete(np.eye(count), original, axis=1)
        distance = np.arange(count) - original
        farthest = np.where(distance > 0, max(1, count - 1 - original), max(1, original))
        ease = distance / farthest * (-1 if knob.harder == "up" else 1)
        directions = np.stack([np.maximum(ease, 0.0), np.minimum(ease, 0.0)], axis=1)
        return directions[:, directions.any(0)]


def _levels(knob: Knob, original: Values, skills: Sequence[Skill]) -> tuple[Value, ...]:
    """A knob's levels, with the original's and those that ease a skill among them."""
    if knob.kind == "text":
        return (original[knob.name],)
    if knob.kind in ("bool", "choice"):
        return knob.levels()
    declared = [skill.eased_by[knob.name] for skill in skills if knob.name in skill.eased_by]
    return tuple(sorted({*knob.levels(), original[knob.name], *declared}, key=float))
