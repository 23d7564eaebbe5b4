"""Choices: a policy over settings - first the aim, then each knob given the aim, one categorical each.

It begins as the world's declaration has it: what eases the aim is handed out, the rest stays as in the original. It is
trained by reward-weighted regression with a KL penalty to that beginning. For categoricals both have a closed form: the
best policy is proportional to the weighted counts of the levels that were used plus `hold` times the beginning. How far
one update may move is capped, and no aim and no level ever becomes impossible. KL here is that of what is drawn, aim
and knobs together, divided by the number of choices.
"""

import numpy as np

from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats

Tables = tuple[Floats, list[Floats]]
"""Chances of the aims, and of each knob's levels given the aim, (aims, levels) each."""

SLOPE = 2.0
"""How much the beginning prefers the most that can be handed out to nothing, in log-odds."""


class Choices:
    """Categoricals over aims and, for each aim, over the levels of each knob.

    `floor` is the share of every choice that stays uniform, `stray` the chance at first to move a knob of no use.
    """

    def __init__(self, space: Space, floor: float, stray: float) -> None:
        self.space = space
        self.floor = floor
        knobs = [self._begin(i, stray) for i in range(len(space.knobs))]
        self.start: Tables = np.full(len(space.skills), 1 / len(space.skills)), knobs
        self.tables: Tables = self.start

    @property
    def aims(self) -> Floats:
        """Chance of each aim."""
        return self._floored(self.tables[0])

    def sample(self, rng: np.random.Generator, aims: Rows) -> Rows:
        """Draw a setting for each aim."""
        rows = np.empty((len(aims), len(self.space.knobs)), np.int64)
        for i, table in enumerate(self.tables[1]):
            heights = np.cumsum(self._floored(table)[aims], axis=1)
            rows[:, i] = (heights < rng.random((len(aims), 1)) * heights[:, -1:]).sum(1)
        return rows

    def log(self, rows: Rows, aims: Rows) -> Floats:
        """Log-probability of settings given their aims."""
        return np.asarray(
            sum(np.log(self._floored(table)[aims, rows[:, i]]) for i, table in enumerate(self.tables[1])), np.float64
        )

    def learn(self, rows: Rows, weights: Floats, aimed: Floats, hold: float, cap: float) -> float:
        """Fit to settings weighted for each aim, (settings, aims), and to weights of the aims; gives back the KL."""
        hits = weights.sum(0)
        if not hits.any():
            return 0.0
        knobs = []
        for start, levels in zip(self.start[1], rows.T, strict=True):
            used = np.zeros_like(start)
            np.add.at(used.T, levels, weights)
            knobs.append((used + hold * start) / (hits[:, None] + hold))
        goal = (aimed + hold * self.start[0]) / (aimed.sum() + hold), knobs
        old = self.tables
        self.tables = self._toward(goal, cap)
        return self._kl(old, self.tables)

    def spread(self) -> float:
        """Diversity: how many levels a knob effectively has, on average over knobs and aims (exp of the entropy)."""
        parts = [np.exp(-(f * np.log(f)).sum(1)) for f in map(self._floored, self.tables[1]) if f.shape[1] > 1]
        return float(np.mean(np.concatenate(parts))) if parts else 1.0

    def away(self) -> float:
        """KL from the beginning."""
        return self._kl(self.start, self.tables)

    def _toward(self, goal: Tables, cap: float) -> Tables:
        """The way to a goal, as far as the cap allows."""
        low = 0.0
        high = 1.0
        if self._kl(self.tables, goal) <= cap:
            return goal
        for _ in range(30):
            middle = (low + high) / 2
            inside = self._kl(self.tables, _between(self.tables, goal, middle)) <= cap
            low, high = (middle, high) if inside else (low, middle)
        return _between(self.tables, goal, low)

    def _kl(self, old: Tables, new: Tables) -> float:
        """KL of new from old, of aim and knobs together, a choice."""
        (before, knobs) = old
        (after, moved) = new
        total = _divergence(self._floored(before), self._floored(after))
        for a, b in zip(knobs, moved, strict=True):
            total = total + self._floored(after) @ _divergence(self._floored(a), self._floored(b))
        return float(total) / (1 + len(knobs))

    def _begin(self, index: int, stray: float) -> Floats:
        """One knob's levels before anything was learnt, for each aim."""
        count = len(self.space.levels[index])
        home = int(self.space.home[index])
        if count == 1:
            return np.ones((len(self.space.skills), 1))
        rows = []
        for skill in self.space.skills:
            path = self.space.toward(skill).get(index)
            row = np.full(count, stray / (count - 1))
            row[home] = 1 - stray
            if path is not None and len(path) > 1:
                row = np.full(count, stray / count)
                row[list(path)] += (1 - stray) * _slope(len(path))
            rows.append(row / row.sum())
        return np.array(rows)

    def _floored(self, table: Floats) -> Floats:
        return np.asarray((1 - self.floor) * table + self.floor / table.shape[-1])


def _slope(count: int) -> Floats:
    """Rising chances from the first of `count` levels to the last."""
    rising = np.exp(SLOPE * np.arange(count) / (count - 1))
    return np.asarray(rising / rising.sum())


def _between(old: Tables, new: Tables, share: float) -> Tables:
    """A share of the way from old to new."""
    aims = (1 - share) * old[0] + share * new[0]
    return aims, [(1 - share) * a + share * b for a, b in zip(old[1], new[1], strict=True)]


def _divergence(old: Floats, new: Floats) -> Floats:
    """KL of categoricals along the last axis."""
    return np.asarray(np.where(new > 0, new * np.log(np.maximum(new, 1e-300) / old), 0.0).sum(-1))
