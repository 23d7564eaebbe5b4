"""The alpha-curriculum's reward: how well a design's difficulty fits the agent (GenEnv, arXiv 2512.19682, section 3).

In: counts, k successes of n attempts at a skill, each design with its own n. Out: rewards, whether a design counts, and
the weights of a reward-weighted regression. Pure functions, shared by every designer that is trained. All of them look
at the whole posterior of the success rate (a Beta distribution over a flat prior) instead of k/n alone: with few
attempts k/n is mostly chance.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reward = Callable[[Floats], Floats]
"""From success rates to rewards between 0 and 1."""
Counts = Sequence[tuple[int, int]]
"""(k, n) of each design."""

GRID: Floats = (np.arange(1000) + 0.5) / 1000
"""Success rates over which posteriors are added up."""
MOST = 2000
"""Attempts beyond which more change nothing: a posterior must not become narrower than the grid can show."""
ENOUGH = 0.1
"""Chance of being inside the band from which on a design is taken for one that is."""
WIDEN = 0.005
"""What a cold start widens the band by at least: some points of the grid have to be inside it, however narrow it is."""


def bell(alpha: float, beta: float) -> Reward:
    """GenEnv's reward, exp(-beta (p - alpha)^2): 1 at alpha, falling to both sides; the paper's code has beta = 2."""
    return lambda p: np.exp(-beta * (p - alpha) ** 2)


def learnability(p: Floats) -> Floats:
    """4p(1 - p): the variance of success, most at even odds; knows no alpha."""
    return 4 * p * (1 - p)


def passes(k: int, n: int, alpha: float, k_min: float) -> bool:
    """GenEnv's filter as published, |k/n - alpha| <= k_min; at n = 4 and its alpha and k_min only k = 2 passes."""
    return n > 0 and abs(k / n - alpha) <= k_min + 1e-9


def posterior(counts: Counts) -> Floats:
    """Weight of each success rate of GRID, given k of n, one row a design; without attempts all weigh the same."""
    table = np.array(counts, np.float64).reshape(-1, 2)
    k = table[:, :1]
    n = table[:, 1:]
    shrink = np.minimum(1.0, MOST / np.maximum(n, 1))
    log = shrink * (k * np.log(GRID) + (n - k) * np.log1p(-GRID))
    weight = np.exp(log - log.max(1, keepdims=True, initial=-np.inf))
    return np.asarray(weight / weight.sum(1, keepdims=True))


def expected(reward: Reward, counts: Counts) -> Floats:
    """Reward to be expected of each design."""
    return np.asarray(posterior(counts) @ reward(GRID))


def in_band(counts: Counts, alpha: float, k_min: float) -> Floats:
    """Chance that the success rate of each design lies within k_min of alpha."""
    return np.asarray(posterior(counts) @ (np.abs(GRID - alpha) <= k_min))


def confidence(counts: Counts) -> Floats:
    """How much the attempts told about each success rate: 0 for none, towards 1 for many (variance explained)."""
    weight = posterior(counts)
    spread = weight @ GRID**2 - (weight @ GRID) ** 2
    return np.asarray(np.clip(1 - spread / np.var(GRID), 0.0, 1.0))


def alike(counts: Counts) -> bool:
    """Whether success rates differ by no more than chance (Pearson's chi-square, within three of its deviations)."""
    table = np.array([(k, n) for k, n in counts if n > 0], np.float64).reshape(-1, 2)
    (k, n) = table.T
    others = len(table) - 1
    if others < 1 or k.sum() in (0, n.sum()):
        return True
    p = k.sum() / n.sum()
    return bool(((k - n * p) ** 2 / (n * p * (1 - p))).sum() <= others + 3 * np.sqrt(2 * others))


def admitted(counts: Counts, alpha: float, k_min: float) -> Floats:
    """The filter, softly: each design counts by its chance of being inside the band.

    Cold start: where none has a fair chance, the band is widened until the nearest one has, so that an agent that fails
    everywhere (or succeeds everywhere) still tells which way to go.
    """
    chance = in_band(counts, alpha, k_min)
    tried = np.array([n > 0 for _, n in counts], bool)
    if not tried.any() or chance[tried].max() >= ENOUGH:
        return np.where(tried, chance, 0.0)
    nearest = np.abs(posterior(counts) @ GRID - alpha)[tried].min()
    return np.where(tried, in_band(counts, alpha, float(nearest) + max(k_min / 2, WIDEN)), 0.0)


def tells(counts: Counts, alpha: float, k_min: float) -> bool:
    """Whether a cold start says which way to go: designs differ by more than chance, and some count far less.

    Where all that was tried is solved always or never, all is as far from alpha, and to learn it would be to learn to
    write what was written.
    """
    if alike(counts):
        return False
    share = admitted(counts, alpha, k_min)
    return bool(share.min() < share.max() / 2)


def weights(counts: Counts, reward: Reward, alpha: float, k_min: float, strength: float) -> Floats:
    """Weights of a reward-weighted regression: exp(strength * reward), as far as it is more than chance.

    Designs that are alike but for chance teach nothing: to fit a policy to them would only follow the luck of its own
    draws, or prefer those that were tried least. Others are measured against a baseline, the mean reward of the batch:
    a weight is what exp gives above it, times the confidence in the count, times the filter.
    """
    if alike(counts):
        return np.zeros(len(counts))
    gained = expected(reward, counts)
    tried = np.array([n > 0 for _, n in counts], bool)
    baseline = gained[tried].mean()
    excess = np.maximum(0.0, np.expm1(strength * (gained - baseline)))
    return np.asarray(excess * confidence(counts) * admitted(counts, alpha, k_min))


def ranking_error(near: float, far: float, n: int) -> float:
    """GenEnv's bound on ranking two designs wrongly by n attempts each, from their distances to alpha."""
    return float(min(1.0, 4 * np.exp(-(2 / 9) * (far - near) ** 2 * n)))


def edge(reward: Reward) -> Reward:
    """What a reward gives above the better of its ends, 0 to 1: at p = 0 and p = 1 there is nothing to be learnt."""
    ends = float(np.max(reward(np.array([0.0, 1.0]))))
    return lambda p: np.maximum(0.0, (reward(p) - ends) / max(1e-9, 1 - ends))
