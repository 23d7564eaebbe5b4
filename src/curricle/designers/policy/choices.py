"""Choices: a policy over settings - first the aim, then each knob given the aim, one categorical each.

It begins as the world's declaration has it: what eases the aim is handed out, the rest stays as in the original. It is
trained by reward-weighted regression with a KL penalty to that beginning. For categoricals both have a closed form: the
best policy is proportional to the weighted counts of the levels that were used plus `hold` times the beginning. How far
one update may move (mean KL a knob) is capped, and no level ever becomes impossible.
"""

from collections.abc import Sequence

import numpy as np

from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats

SLOPE = 2.0
"""How much the beginning prefers the most that can be handed out to nothing, in log-odds."""


class Choices:
    """Categoricals over aims and, for each aim, over the levels of each knob.

    `floor` is the share of every choice that stays uniform, `stray` the chance at first to move a knob of no use.
    """

    def __init__(self, space: Space, floor: float, stray: float) -> None:
        self.space, self.floor = space, floor
        self.start = [self._begin(i, stray) for i in range(len(space.knobs))]
        self.knobs = [table.copy() for table in self.start]  # (aims, levels) each
        self.aims = np.full(len(space.skills), 1 / len(space.skills))

    def sample(self, rng: np.random.Generator, aims: Rows) -> Rows:
        """Draw a setting for each aim."""
        rows = np.empty((len(aims), len(self.knobs)), np.int64)
        for i, table in enumerate(self.knobs):
            heights = np.cumsum(self._floored(table)[aims], axis=1)
            rows[:, i] = (heights < rng.random((len(aims), 1)) * heights[:, -1:]).sum(1)
        return rows

    def log(self, rows: Rows, aims: Rows) -> Floats:
        """Log-probability of settings given their aims."""
        return np.asarray(
            sum(np.log(self._floored(table)[aims, rows[:, i]]) for i, table in enumerate(self.knobs)), np.float64
        )

    def learn(self, rows: Rows, weights: Floats, hold: float, cap: float) -> float:
        """Fit to settings weighted for each aim, (settings, aims); gives back the KL of the update, a knob."""
        hits = weights.sum(0)
        if not hits.any():
            return 0.0
        goals = []
        for table, start, levels in zip(self.knobs, self.start, rows.T, strict=True):
            used = np.zeros_like(table)
            np.add.at(used.T, levels, weights)
            goals.append((used + hold * start) / (hits[:, None] + hold))
        share = _longest(self.knobs, goals, cap)
        moved = [(1 - share) * old + share * new for old, new in zip(self.knobs, goals, strict=True)]
        kl = _kl(self.knobs, moved)
        self.knobs = moved
        aimed = (hits + hold / len(hits)) / (hits.sum() + hold)
        self.aims = (1 - share) * self.aims + share * aimed
        return kl

    def spread(self) -> float:
        """Diversity: how many levels a knob effectively has, on average over knobs and aims (exp of the entropy)."""
        parts = [np.exp(-(f * np.log(f)).sum(1)) for f in map(self._floored, self.knobs) if f.shape[1] > 1]
        return float(np.mean(np.concatenate(parts))) if parts else 1.0

    def away(self) -> float:
        """KL from the beginning, a knob."""
        return _kl(self.start, self.knobs)

    def _begin(self, index: int, stray: float) -> Floats:
        """One knob's levels before anything was learnt, for each aim."""
        count, home = len(self.space.levels[index]), int(self.space.home[index])
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
        return np.asarray((1 - self.floor) * table + self.floor / table.shape[1])


def _slope(count: int) -> Floats:
    """Rising chances from the first of `count` levels to the last."""
    rising = np.exp(SLOPE * np.arange(count) / (count - 1))
    return np.asarray(rising / rising.sum())


def _longest(old: Sequence[Floats], new: Sequence[Floats], cap: float) -> float:
    """The largest share of the way from old to new whose KL stays under the cap."""
    low, high = 0.0, 1.0
    if _kl(old, new) <= cap:
        return 1.0
    for _ in range(30):
        middle = (low + high) / 2
        moved = [(1 - middle) * a + middle * b for a, b in zip(old, new, strict=True)]
        low, high = (middle, high) if _kl(old, moved) <= cap else (low, middle)
    return low


def _kl(old: Sequence[Floats], new: Sequence[Floats]) -> float:
    """KL of new from old, mean over knobs and aims."""
    parts = [np.where(b > 0, b * np.log(np.maximum(b, 1e-300) / a), 0.0).sum(1) for a, b in zip(old, new, strict=True)]
    return float(np.mean(np.concatenate(parts)))
