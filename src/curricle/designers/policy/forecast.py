"""Forecast: how likely the agent is to show each skill in a setting, and how certain that is.

One Bayesian logistic regression a skill (Laplace approximation) over the features of `space.py`. The prior is what the
world declares. Every outcome updates all skills, since an episode says something of each, whatever its aim was. The
agent changes, so before each update the past is trusted a little less: the forecast follows an agent that improves or
forgets.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np

from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats, Reward
from curricle.records import Outcome, Scores

MAX_ATTEMPTS = 60.0
"""Attempts that one outcome counts for at most: the agent changed while they were made, and the model is simple."""
INTERCEPT_DRIFT = 0.8
WEIGHT_DRIFT = 0.15
"""Standard deviation by which the intercept (the agent's ability) and each other weight may move in one cycle."""
NEWTON_STEPS = 25
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)


class Forecast:
    """Success rates of all skills in any setting of a space."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.mean, deviation = space.prior()
        self.cov = np.stack([np.diag(row**2) for row in deviation])

    def log_odds(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and variance of each skill's log-odds: (settings, skills) each."""
        x = self.space.features(rows)
        return x @ self.mean.T, (np.matmul(x, self.cov) * x).sum(-1).T

    def rates(self, rows: Rows) -> Floats:
        """Expected success rates: (settings, skills)."""
        return self.expected(rows, lambda p: p)

    def expected(self, rows: Rows, reward: Reward) -> Floats:
        """Expected reward at each skill, over the distribution of its success rate: (settings, skills)."""
        mean, variance = self.log_odds(rows)
        points = mean[..., None] + np.sqrt(variance)[..., None] * _NODES
        return np.asarray(reward(_sigmoid(points)) @ (_NODE_WEIGHTS / _NODE_WEIGHTS.sum()))

    def sample(self, rng: np.random.Generator, scale: float) -> "Forecast":
        """A forecast with the effects of knobs drawn from the posterior, scaled down (Thompson sampling).

        Designs made with different samples ease different things; their outcomes tell which sample was right.
        """
        sampled = copy(self)
        root = np.linalg.cholesky(self.cov + 1e-9 * np.eye(self.cov.shape[1]))
        noise = scale * np.einsum("sfg,sg->sf", root, rng.standard_normal(self.mean.shape))
        noise[:, 0] = 0.0  # the agent's ability keeps its mean
        sampled.mean = self.mean + noise
        sampled.cov = self.cov * (1 - scale**2)
        return sampled

    def learn(self, rows: Rows, shown: Floats, tried: Floats) -> None:
        """Update by counts of successes and attempts in some settings: (settings, skills) each."""
        x = self.space.features(rows)
        size = np.minimum(1.0, MAX_ATTEMPTS / np.maximum(tried, 1))
        shown = shown * size
        tried = tried * size
        drift = np.full(x.shape[1], WEIGHT_DRIFT**2)
        drift[0] = INTERCEPT_DRIFT**2
        for s in range(len(self.mean)):
            prior = self.cov[s] + np.diag(drift)
            self.mean[s], self.cov[s] = _laplace(self.mean[s], prior, x, shown[:, s], tried[:, s])


def counts(outcomes: Sequence[Outcome], names: Sequence[str]) -> tuple[Floats, Floats]:
    """How often each skill was shown, and in how many attempts: (outcomes, skills) each.

    An attempt that could not show a skill counts as one that did not: the design teaches nothing of it.
    """
    shown = np.zeros((len(outcomes), len(names)))
    tried = np.zeros((len(outcomes), len(names)))
    for i, outcome in enumerate(outcomes):
        for s, name in enumerate(names):
            shown[i, s] = outcome.skills.get(name, 0)
            tried[i, s] = outcome.chances(name) or outcome.attempts
    return shown, tried


def original_counts(scores: Scores, names: Sequence[str]) -> tuple[Floats, Floats]:
    """The same for the original world: from practice there, which is free; without any, from the test."""
    if scores.trained is not None and scores.trained.attempts:
        tried = np.full(len(names), float(scores.trained.attempts))
        rates = np.array([scores.trained.skills.get(n, 0.0) for n in names])
    else:
        tried = np.array([scores.skills[n].n for n in names], np.float64)
        rates = np.array([scores.skills[n].mean for n in names])
    return (tried * rates)[None], tried[None]


def _laplace(mean: Floats, cov: Floats, x: Floats, shown: Floats, tried: Floats) -> tuple[Floats, Floats]:
    """Posterior mode of the weights and the covariance around it, given a Gaussian prior and the counts."""
    precision = np.linalg.inv(cov)
    w = mean.copy()
    for _ in range(NEWTON_STEPS):
        p = _sigmoid(x @ w)
        gradient = x.T @ (shown - tried * p) - precision @ (w - mean)
        hessian = precision + (x.T * (tried * p * (1 - p))) @ x
        step = np.linalg.solve(hessian, gradient)
        w = w + step * min(1.0, 2.0 / max(1e-9, float(np.abs(step).max())))  # full steps overshoot far from the mode
        if np.abs(step).max() < 1e-8:
            break
    p = _sigmoid(x @ w)
    covariance = np.linalg.inv(precision + (x.T * (tried * p * (1 - p))) @ x)
    return w, (covariance + covariance.T) / 2


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30.0, 30.0))))
