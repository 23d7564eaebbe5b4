"""The alpha-curriculum's reward: how well a design's difficulty fits the agent (GenEnv, arXiv 2512.19682, section 3).

In: counts, k successes of n attempts at a skill, each design with its own n. Out: rewards, whether a design passes the
filter, and the weights of a reward-weighted regression. At the end stand metrics of whether the co-evolution of
designer and agent goes well. Pure functions, shared by all designers that are trained.

The functions use the posterior of the success rate (a Beta distribution, from a flat prior) and not k/n alone, which
with few attempts is mostly chance.
"""

import itertools
import logging
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reward = Callable[[Floats], Floats]
"""From success rates to rewards between 0 and 1."""
Counts = Sequence[tuple[int, int]]
"""(k, n) of each design."""

Point = tuple[float, float]
"""Success in the designs, and the held-out score, of one cycle."""
LOG = logging.getLogger("curricle")

GRID: Floats = (np.arange(1000) + 0.5) / 1000
"""Success rates at which posteriors are evaluated."""
MAX_ATTEMPTS = 2000
"""More attempts than this count as this many: a posterior must not become narrower than the grid can show."""
MIN_CHANCE = 0.1
"""Chance of being in the band from which on a design counts as one that is."""
MIN_WIDENING = 0.005
"""A cold start widens the band by at least this: some points of the grid must lie in it, however narrow it is."""
WINDOW = 3
"""Cycles on either side of a change."""
STANDARD_ERRORS = 2.0
"""A change is real if it exceeds this many standard errors,"""
MIN_RISE = 0.05
"""this much for success in the designs,"""
MIN_FALL = 1.0
"""and this many points for the held-out score."""


def alpha_reward(alpha: float, beta: float) -> Reward:
    """GenEnv's reward, exp(-beta (p - alpha)^2): 1 at alpha, falling to both sides; the paper's code has beta = 2."""
    return lambda p: np.exp(-beta * (p - alpha) ** 2)


def learnability(p: Floats) -> Floats:
    """4p(1 - p): the variance of success, largest at p = 1/2; it has no alpha."""
    return 4 * p * (1 - p)


def passes(k: int, n: int, alpha: float, k_min: float) -> bool:
    """GenEnv's filter as published, |k/n - alpha| <= k_min; with n = 4 and its alpha and k_min only k = 2 passes."""
    return n > 0 and abs(k / n - alpha) <= k_min + 1e-9


def posterior(counts: Counts) -> Floats:
    """Probability of each success rate of GRID, given k of n, one row a design; without attempts all are equal."""
    table = np.array(counts, np.float64).reshape(-1, 2)
    k = table[:, :1]
    n = table[:, 1:]
    shrink = np.minimum(1.0, MAX_ATTEMPTS / np.maximum(n, 1))
    log = shrink * (k * np.log(GRID) + (n - k) * np.log1p(-GRID))
    weight = np.exp(log - log.max(1, keepdims=True, initial=-np.inf))
    return np.asarray(weight / weight.sum(1, keepdims=True))


def expected(reward: Reward, counts: Counts) -> Floats:
    """Expected reward of each design."""
    return np.asarray(posterior(counts) @ reward(GRID))


def in_band(counts: Counts, alpha: float, k_min: float) -> Floats:
    """Chance that the success rate of each design lies within k_min of alpha."""
    return np.asarray(posterior(counts) @ (np.abs(GRID - alpha) <= k_min))


def confidence(counts: Counts) -> Floats:
    """How much the attempts say about each success rate: 0 for none, towards 1 for many (explained variance)."""
    weight = posterior(counts)
    variance = weight @ GRID**2 - (weight @ GRID) ** 2
    return np.asarray(np.clip(1 - variance / np.var(GRID), 0.0, 1.0))


def differ_only_by_chance(counts: Counts) -> bool:
    """Whether success rates differ by no more than chance (Pearson's chi-square, within three standard deviations)."""
    table = np.array([(k, n) for k, n in counts if n > 0], np.float64).reshape(-1, 2)
    k = table[:, 0]
    n = table[:, 1]
    degrees_of_freedom = len(table) - 1
    if degrees_of_freedom < 1 or k.sum() in (0, n.sum()):
        return True
    p = k.sum() / n.sum()
    chi_square = ((k - n * p) ** 2 / (n * p * (1 - p))).sum()
    return bool(chi_square <= degrees_of_freedom + 3 * np.sqrt(2 * degrees_of_freedom))


def admitted(counts: Counts, alpha: float, k_min: float) -> Floats:
    """The soft filter: each design counts by its chance of being in the band.

    Cold start: where none has a fair chance, the band is widened until the nearest one has. So an agent that fails
    everywhere (or succeeds everywhere) still shows which way to go.
    """
    chance = in_band(counts, alpha, k_min)
    tried = np.array([n > 0 for _, n in counts], bool)
    if not tried.any() or chance[tried].max() >= MIN_CHANCE:
        return np.where(tried, chance, 0.0)
    nearest = np.abs(posterior(counts) @ GRID - alpha)[tried].min()
    wider = float(nearest) + max(k_min / 2, MIN_WIDENING)
    return np.where(tried, in_band(counts, alpha, wider), 0.0)


def shows_direction(counts: Counts, alpha: float, k_min: float) -> bool:
    """Whether a cold start shows which way to go: designs differ by more than chance, and some count far less.

    If all designs are solved always or never, all are equally far from alpha. They would only teach a policy to write
    what it writes already.
    """
    if differ_only_by_chance(counts):
        return False
    share = admitted(counts, alpha, k_min)
    return bool(share.min() < share.max() / 2)


def weights(counts: Counts, reward: Reward, alpha: float, k_min: float, strength: float) -> Floats:
    """Weights of a reward-weighted regression: exp(strength * reward), as far as the reward is more than chance.

    Designs that are alike but for chance teach nothing: to fit a policy to them would follow the noise of its own
    draws, or prefer those that were tried least. Others are compared with a baseline, the mean reward of the batch. A
    weight is what exp gives above the baseline, times the confidence in the count, times the filter.
    """
    if differ_only_by_chance(counts):
        return np.zeros(len(counts))
    rewards = expected(reward, counts)
    tried = np.array([n > 0 for _, n in counts], bool)
    baseline = rewards[tried].mean()
    excess = np.maximum(0.0, np.expm1(strength * (rewards - baseline)))
    return np.asarray(excess * confidence(counts) * admitted(counts, alpha, k_min))


def ranking_error(near: float, far: float, n: int) -> float:
    """GenEnv's bound on ranking two designs wrongly by n attempts each, from their distances to alpha."""
    return float(min(1.0, 4 * np.exp(-(2 / 9) * (far - near) ** 2 * n)))


def gain(reward: Reward) -> Reward:
    """The reward above the better of its ends, scaled to 0..1: at p = 0 and p = 1 there is nothing to learn."""
    best_end = float(np.max(reward(np.array([0.0, 1.0]))))
    return lambda p: np.maximum(0.0, (reward(p) - best_end) / max(1e-9, 1 - best_end))


# -- metrics of co-evolution -------------------------------------------------------------------------------------------


def band(rates: Sequence[float], alpha: float, k_min: float) -> dict[str, float]:
    """Mean success, and the shares of designs that are in the band, always solved and never solved."""
    n = max(len(rates), 1)
    return {
        "success": sum(rates) / n,
        "in_band": sum(abs(p - alpha) <= k_min + 1e-9 for p in rates) / n,
        "solved": sum(p == 1 for p in rates) / n,
        "unsolved": sum(p == 0 for p in rates) / n,
    }


def oscillation(history: Sequence[Point]) -> float:
    """How much of the movement of success was back and forth: 0 for steady change, towards 1 for going in circles."""
    success = [p for p, _ in history]
    moves = [after - before for before, after in itertools.pairwise(success)]
    distance = sum(abs(move) for move in moves)
    return 1 - abs(sum(moves)) / distance if distance else 0.0


def alarm(history: Sequence[Point]) -> bool:
    """Whether success in the designs rose while the held-out score fell: they may be teaching the wrong thing.

    The last three cycles are compared with the three before. Both changes must be real: larger than `STANDARD_ERRORS`
    standard errors by the spread within each three, and larger than changes that nobody would mind.
    """
    recent = history[-2 * WINDOW :]
    if len(recent) < 2 * WINDOW:
        return False
    rise, rise_error = _change([success for success, _ in recent])
    change, change_error = _change([score for _, score in recent])
    success_rose = rise > max(MIN_RISE, STANDARD_ERRORS * rise_error)
    score_fell = -change > max(MIN_FALL, STANDARD_ERRORS * change_error)
    return success_rose and score_fell


def _change(values: Sequence[float]) -> tuple[float, float]:
    """By how much the mean of the later three exceeds that of the earlier three, and its standard error."""
    earlier = values[:WINDOW]
    later = values[WINDOW:]
    error = math.sqrt((statistics.variance(earlier) + statistics.variance(later)) / WINDOW)
    return statistics.mean(later) - statistics.mean(earlier), error


def warn(history: Sequence[Point], cycle: int) -> None:
    """Log a warning when the alarm goes off for the first time in a run."""
    if alarm(history) and not any(alarm(history[:end]) for end in range(len(history))):
        LOG.warning(
            "cycle %d: success in the designs rises while the held-out score falls; they may teach the wrong thing",
            cycle,
        )
