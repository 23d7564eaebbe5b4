"""Forecast: how likely the agent shows each skill in a setting, as far as one can know.

A logistic regression a skill over the features of `space.py`, Bayesian (Laplace): it begins with what the world
declares and is moved by every outcome, for every skill at once - an episode tells about all of them, whatever its aim
was. The agent changes, so before each update the past is trusted a little less; that lets it follow an agent that
improves or forgets.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np

from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats, Reward
from curricle.records import Outcome, Scores

TRUST = 60.0
"""Attempts that one outcome counts for at most: the agent changed while they were made, and the model is simple."""
DRIFT = 0.8
WEAR = 0.15
"""Deviation by which the agent's level, and the weight of each feature, may have moved from one cycle to the next."""
NEWTON = 25
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(7)


class Forecast:
    """Success rates of all skills in any setting of a space."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.mean, spread = space.expectation()
        self.cov = np.stack([np.diag(row**2) for row in spread])

    def log_odds(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and variance of each skill's log-odds: (settings, skills) each."""
        x = self.space.features(rows)
        return x @ self.mean.T, (np.matmul(x, self.cov) * x).sum(-1).T

    def rates(self, rows: Rows) -> Floats:
        """Success rates to be expected: (settings, skills)."""
        return self.expected(rows, lambda p: p)

    def expected(self, rows: Rows, reward: Reward) -> Floats:
        """Reward to be expected at each skill, over all that the success rate may be: (settings, skills)."""
        mean, variance = self.log_odds(rows)
        points = mean[..., None] + np.sqrt(variance)[..., None] * _NODES
        return np.asarray(reward(_sigmoid(points)) @ (_SHARES / _SHARES.sum()))

    def guess(self, rng: np.random.Generator, share: float) -> "Forecast":
        """One of the forecasts that this one holds possible: what knobs do is drawn, for a share of the doubt.

        Designs made by different guesses differ in what they hand out; their outcomes tell which guess was right.
        """
        other = copy(self)
        root = np.linalg.cholesky(self.cov + 1e-9 * np.eye(self.cov.shape[1]))
        drawn = share * np.einsum("sfg,sg->sf", root, rng.standard_normal(self.mean.shape))
        drawn[:, 0] = 0.0  # how able the agent is stays what is expected
        other.mean = self.mean + drawn
        other.cov = self.cov * (1 - share**2)
        return other

    def learn(self, rows: Rows, shown: Floats, tried: Floats) -> None:
        """Take in counts of some settings: (settings, skills) each."""
        x = self.space.features(rows)
        size = np.minimum(1.0, TRUST / np.maximum(tried, 1))
        shown = shown * size
        tried = tried * size
        drift = np.full(x.shape[1], WEAR**2)
        drift[0] = DRIFT**2
        for s in range(len(self.mean)):
            self.mean[s], self.cov[s] = _laplace(
                self.mean[s], self.cov[s] + np.diag(drift), x, shown[:, s], tried[:, s]
            )


def counts(outcomes: Sequence[Outcome], names: Sequence[str]) -> tuple[Floats, Floats]:
    """How often each skill was shown, and of how many attempts: (outcomes, skills) each.

    An attempt that could not show a skill counts as one that did not: the design teaches nothing of it.
    """
    shown = np.array([[o.skills.get(n, 0) for n in names] for o in outcomes], np.float64)
    tried = np.array([[o.chances(n) or o.attempts for n in names] for o in outcomes], np.float64)
    return shown.reshape(-1, len(names)), tried.reshape(-1, len(names))


def original_counts(scores: Scores, names: Sequence[str]) -> tuple[Floats, Floats]:
    """The same for the original world: practice there, which is free; where there was none, the test."""
    if scores.trained is not None and scores.trained.attempts:
        tried = np.full(len(names), float(scores.trained.attempts))
        rates = np.array([scores.trained.skills.get(n, 0.0) for n in names])
    else:
        tried = np.array([scores.skills[n].n for n in names], np.float64)
        rates = np.array([scores.skills[n].mean for n in names])
    return (tried * rates)[None], tried[None]


def _laplace(mean: Floats, cov: Floats, x: Floats, shown: Floats, tried: Floats) -> tuple[Floats, Floats]:
    """The likeliest weights and the spread around them, given a Gaussian before the counts."""
    precision = np.linalg.inv(cov)
    w = mean.copy()
    for _ in range(NEWTON):
        p = _sigmoid(x @ w)
        gradient = x.T @ (shown - tried * p) - precision @ (w - mean)
        curve = precision + (x.T * (tried * p * (1 - p))) @ x
        step = np.linalg.solve(curve, gradient)
        w = w + step * min(1.0, 2.0 / max(1e-9, float(np.abs(step).max())))  # far from the goal, full steps overshoot
        if np.abs(step).max() < 1e-8:
            break
    p = _sigmoid(x @ w)
    after = np.linalg.inv(precision + (x.T * (tried * p * (1 - p))) @ x)
    return w, (after + after.T) / 2


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30.0, 30.0))))
