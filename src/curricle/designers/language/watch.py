"""Watch: the signs by which a co-evolution is seen to go well or wrong."""

import itertools
from collections.abc import Sequence

Point = tuple[float, float]
"""Success in the designs, and the held-out score, of one cycle."""
LOOK_BACK = 3
"""Cycles that a trend is read from."""


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
    """Whether success in the designs rose while the held-out score fell: they may be teaching the wrong thing."""
    recent = history[-LOOK_BACK:]
    if len(recent) < LOOK_BACK:
        return False
    (first, held), (last, now) = recent[0], recent[-1]
    return last > first and now < held
