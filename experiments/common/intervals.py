"""Means over seeds with their 95 % interval, for the tables of the experiments."""

import math
import statistics
from collections.abc import Sequence

T95 = (
    "12.71 4.30 3.18 2.78 2.57 2.45 2.36 2.31 2.26 2.23 2.20 2.18 2.16 2.14 2.13 2.12 2.11 2.10 2.09 2.09 "
    "2.08 2.07 2.07 2.06"
)
"""Student's t for 95 % with 1, 2, ... degrees of freedom."""


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Mean with its 95 % interval; a single value alone."""
    if len(values) < 2:
        return f"{statistics.mean(values):.{digits}f}"
    t = [float(word) for word in T95.split()]
    half = t[min(len(values) - 1, len(t)) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"
