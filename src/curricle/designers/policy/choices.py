"""Choices: a probability distribution over settings: first the aim, then each knob given the aim, all categorical.

At first it follows the world's declaration: what eases the aim is handed out, the rest stays as in the original. It is
trained by reward-weighted regression with a KL penalty to this initial distribution. For categoricals both have a
closed form: the best distribution is proportional to the weighted counts of the levels that were used plus `kl_coef`
times the initial one. The KL divergence of one update is limited, and no aim and no level ever becomes impossible. KL
here is that of aim and knobs together, divided by the number of choices.
"""

import numpy as np

from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats
from curricle.records import Skill

Tables = tuple[Floats, list[Floats]]
"""Probabilities of the aims, and of each knob's levels given the aim, (aims, levels) each."""

EASING_PREFERENCE = 2.0
"""Initial log-odds of handing out as much as possible, rather than nothing."""


class Choices:
    """Categoricals over aims and, for each aim, over the levels of each knob.

    `uniform_share` is the share of every categorical that stays uniform. `stray` is the initial probability that a knob
    which does not ease the aim differs from the original.
    """

    def __init__(self, space: Space, uniform_share: float, stray: float) -> None:
        self.space = space
        self.uniform_share = uniform_share
        aims = np.full(len(space.skills), 1 / len(space.skills))
        self.initial: Tables = aims, [self._initial_table(i, stray) for i in range(len(space.knobs))]
        self.tables: Tables = self.initial

    @property
    def aim_probabilities(self) -> Floats:
        """Probability of each aim."""
        return self._mixed(self.tables[0])

    def sample(self, rng: np.random.Generator, aims: Rows) -> Rows:
        """Draw a setting for each aim."""
        rows = np.empty((len(aims), len(self.space.knobs)), np.int64)
        for i, table in enumerate(self.tables[1]):
            cumulative = np.cumsum(self._mixed(table)[aims], axis=1)
            rows[:, i] = (cumulative < rng.random((len(aims), 1)) * cumulative[:, -1:]).sum(1)
        return rows

    def log_prob(self, rows: Rows, aims: Rows) -> Floats:
        """Log-probability of settings given their aims."""
        knobs = enumerate(self.tables[1])
        return np.asarray(sum(np.log(self._mixed(table)[aims, rows[:, i]]) for i, table in knobs), np.float64)

    def learn(self, rows: Rows, weights: Floats, aim_weights: Floats, kl_coef: float, max_kl: float) -> float:
        """Fit to settings weighted for each aim, (settings, aims), and to weights of the aims; returns the KL."""
        totals = weights.sum(0)
        if not totals.any():
            return 0.0
        initial_aims, initial_knobs = self.initial
        knobs = []
        for initial, levels in zip(initial_knobs, rows.T, strict=True):
            used = np.zeros_like(initial)
            np.add.at(used.T, levels, weights)
            knobs.append((used + kl_coef * initial) / (totals[:, None] + kl_coef))
        aims = (aim_weights + kl_coef * initial_aims) / (aim_weights.sum() + kl_coef)
        old = self.tables
        self.tables = self._toward((aims, knobs), max_kl)
        return self._kl(old, self.tables)

    def effective_levels(self) -> float:
        """Diversity: exp of the entropy of a knob's levels, the mean over knobs and aims."""
        counts = []
        for table in self.tables[1]:
            if table.shape[1] > 1:
                p = self._mixed(table)
                counts.append(np.exp(-(p * np.log(p)).sum(1)))
        return float(np.mean(np.concatenate(counts))) if counts else 1.0

    def kl_from_initial(self) -> float:
        """KL divergence from the initial distribution."""
        return self._kl(self.initial, self.tables)

    def _toward(self, target: Tables, max_kl: float) -> Tables:
        """As far towards a target as the limit allows, found by bisection."""
        if self._kl(self.tables, target) <= max_kl:
            return target
        low = 0.0
        high = 1.0
        for _ in range(30):
            middle = (low + high) / 2
            if self._kl(self.tables, _between(self.tables, target, middle)) <= max_kl:
                low = middle
            else:
                high = middle
        return _between(self.tables, target, low)

    def _kl(self, old: Tables, new: Tables) -> float:
        """KL of new from old, of aim and knobs together, divided by the number of choices."""
        old_aims, old_knobs = old
        new_aims, new_knobs = new
        total = _divergence(self._mixed(old_aims), self._mixed(new_aims))
        for old_knob, new_knob in zip(old_knobs, new_knobs, strict=True):
            total = total + self._mixed(new_aims) @ _divergence(self._mixed(old_knob), self._mixed(new_knob))
        return float(total) / (1 + len(old_knobs))

    def _initial_table(self, index: int, stray: float) -> Floats:
        """Probabilities of one knob's levels for each aim, before any update."""
        if len(self.space.levels[index]) == 1:
            return np.ones((len(self.space.skills), 1))
        return np.array([self._initial_row(index, skill, stray) for skill in self.space.skills])

    def _initial_row(self, index: int, skill: Skill, stray: float) -> Floats:
        count = len(self.space.levels[index])
        path = self.space.easing_levels(skill).get(index)
        if path is not None and len(path) > 1:
            row = np.full(count, stray / count)
            row[list(path)] += (1 - stray) * _rising(len(path))
        else:
            row = np.full(count, stray / (count - 1))
            row[int(self.space.original_row[index])] = 1 - stray
        return np.asarray(row / row.sum())

    def _mixed(self, table: Floats) -> Floats:
        """Probabilities with the uniform share mixed in."""
        return np.asarray((1 - self.uniform_share) * table + self.uniform_share / table.shape[-1])


def _rising(count: int) -> Floats:
    """Probabilities that rise from the first of `count` levels to the last."""
    rising = np.exp(EASING_PREFERENCE * np.arange(count) / (count - 1))
    return np.asarray(rising / rising.sum())


def _between(old: Tables, new: Tables, share: float) -> Tables:
    """The tables that lie a share of the way from old to new."""
    aims = (1 - share) * old[0] + share * new[0]
    return aims, [(1 - share) * a + share * b for a, b in zip(old[1], new[1], strict=True)]


def _divergence(old: Floats, new: Floats) -> Floats:
    """KL of categoricals along the last axis."""
    return np.asarray(np.where(new > 0, new * np.log(np.maximum(new, 1e-300) / old), 0.0).sum(-1))
