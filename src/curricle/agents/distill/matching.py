"""Matching: which vectors of one set are the same as which of another, by entropic partial optimal transport.

Dykstra's projections of Benamou et al. 2015 (section 5), the ones of POT's `entropic_partial_wasserstein`. A projection
scales whole rows, whole columns or everything, and Dykstra's correction takes the last such scale back, so three scales
say all that three matrices would: rows r, columns c and the total s of the plan s * r_i * kernel_ij * c_j. A numba
kernel does it on the host: the sets are small and the rounds many, so on a GPU it would be bound by launches.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

TINY = 1e-300


@njit(cache=True, nogil=True)
def _scale(kernel: Any, mass: float, rounds: int) -> None:
    """Turn a kernel (n, m) into the plan, in place."""
    n, m = kernel.shape
    rows = np.ones(n)
    columns = np.ones(m)
    inward = np.zeros(m)
    total = mass / max(kernel.sum(), TINY)
    for _ in range(rounds):
        inward[:] = 0
        for i in range(n):
            outward = 0.0
            for j in range(m):
                outward += kernel[i, j] * columns[j]
            rows[i] = 1 / max(total * outward, 1.0)
            for j in range(m):
                inward[j] += kernel[i, j] * rows[i]
        moved = 0.0
        for j in range(m):
            columns[j] = 1 / max(total * inward[j], 1.0)
            moved += columns[j] * inward[j]
        total = mass / max(moved, TINY)
    for i in range(n):
        for j in range(m):
            kernel[i, j] *= total * rows[i] * columns[j]


def transport(costs: NDArray[Any], blur: float, rounds: int = 100) -> NDArray[np.float64]:
    """The plan (n, m) that moves min(n, m) units at least cost, at most 1 from each row and to each column."""
    plan = np.exp(np.asarray(costs, np.float64) / -blur)
    _scale(plan, float(min(plan.shape)), rounds)
    return plan


def match(likeness: NDArray[Any], sizes: Sequence[int], blur: float, least: float) -> list[tuple[Any, Any]]:
    """Pairs (mine, theirs) that carry more than `least`, for each of several other sets of unit vectors.

    `likeness` are the products of mine (rows) and all of theirs, set beside set (columns); `sizes` are the sets' sizes.
    """
    sets = np.split(1 - likeness, np.cumsum(sizes)[:-1], axis=1)
    rows_and_columns = (np.nonzero(transport(costs, blur) > least) for costs in sets)
    return [(rows, columns) for rows, columns in rows_and_columns]
