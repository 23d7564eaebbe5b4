"""Signs of whether a co-evolution of designer and agent goes well; `curricle show` and the metrics report them."""

import itertools
import logging
import math
import statistics
from collections.abc import Sequence

Point = tuple[float, float]
"""Success in the designs, and the held-out score, of one cycle."""
WINDOW = 3
"""Cycles on either side of a change."""
STANDARD_ERRORS = 2.0
"""A change is real if it exceeds this many standard errors,"""
MIN_RISE = 0.05
"""this much for success in the designs,"""
MIN_FALL = 1.0
"""and this many points for the held-out score."""
LOG = logging.getLogger("curricle")


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
    """How much of the movement of success was back and forth: 0 for steady movement, towards 1 for going in circles."""
    success = [p for p, _ in history]
    moves = [after - before for before, after in itertools.pairwise(success)]
    distance = sum(abs(move) for move in moves)
    return 1 - abs(sum(moves)) / distance if distance else 0.0


def alarm(history: Sequence[Point]) -> bool:
    """Whether success in the designs rose while the held-out score fell: they may be teaching the wrong thing.

    The last three cycles are compared with the three before. Both changes must be real: larger than `STANDARD_ERRORS`
    standard errors by the spread within each three, and larger than `MIN_RISE` and `MIN_FALL`.
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
