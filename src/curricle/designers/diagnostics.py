"""Watch: the signs by which a co-evolution is seen to go well or wrong."""

import itertools
import logging
import math
import statistics
from collections.abc import Sequence

Point = tuple[float, float]
"""Success in the designs, and the held-out score, of one cycle."""
HALF = 3
"""Cycles on either side of a change."""
SURE = 2.0
RISE = 0.05
FALL = 1.0
"""Standard errors, success and points of score that a change must exceed to be one."""
log = logging.getLogger("curricle")


def band(rates: Sequence[float], alpha: float, k_min: float) -> dict[str, float]:
    """Where success lies: its mean, and how many designs are in the band, solved by all, solved by none."""
    n = max(len(rates), 1)
    return {
        "success": sum(rates) / n,
        "in_band": sum(abs(p - alpha) <= k_min + 1e-9 for p in rates) / n,
        "solved": sum(p == 1 for p in rates) / n,
        "unsolved": sum(p == 0 for p in rates) / n,
    }


def oscillation(history: Sequence[Point]) -> float:
    """How much of the way success went was back and forth: 0 for a steady course, towards 1 for running in circles."""
    course = [p for p, _ in history]
    moves = [b - a for a, b in itertools.pairwise(course)]
    way = sum(abs(m) for m in moves)
    return 1 - abs(sum(moves)) / way if way else 0.0


def alarm(history: Sequence[Point]) -> bool:
    """Whether success in the designs rose while the held-out score fell: they may be teaching the wrong thing.

    Of the last six cycles the later three are set against the earlier three. Both changes must be real ones: greater
    than `SURE` standard errors by the spread inside the threes, and than what nobody would mind.
    """
    recent = history[-2 * HALF :]
    if len(recent) < 2 * HALF:
        return False
    success, score = (_change([point[i] for point in recent]) for i in (0, 1))
    return success[0] > max(RISE, SURE * success[1]) and -score[0] > max(FALL, SURE * score[1])


def _change(course: Sequence[float]) -> tuple[float, float]:
    """By how much the later three are above the earlier three, and the standard error of that."""
    earlier = course[:HALF]
    later = course[HALF:]
    error = math.sqrt((statistics.variance(earlier) + statistics.variance(later)) / HALF)
    return statistics.mean(later) - statistics.mean(earlier), error


def warn(history: Sequence[Point], cycle: int) -> None:
    """Say so in the log when the alarm goes off for the first time in a run."""
    if alarm(history) and not any(alarm(history[:end]) for end in range(len(history))):
        log.warning(
            "cycle %d: success in the designs rises while the held-out score falls; they may teach the wrong thing",
            cycle,
        )
