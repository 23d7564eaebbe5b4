"""Matching: which vectors of one set correspond to which of another, by entropic partial optimal transport.

This computes Dykstra's projections of Benamou et al. 2015 (section 5), as POT's `entropic_partial_wasserstein` does. A
projection scales whole rows, whole columns or everything, and Dykstra's correction takes the last such scale back, so
rows r, columns c and a total s say all: the plan is s * r_i * kernel_ij * c_j. A numba kernel does it on the CPU: sets
are small and iterations many, so a GPU would spend its time on launches.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

TINY = 1e-300


@njit(cache=True, nogil=True)
def _scale(kernel: Any, mass: float, iterations: int) -> None:
    """Turn a kernel (n, m) into the plan, in place."""
    n, m = kernel.shape
    rows = np.ones(n)
    columns = np.ones(m)
    to_columns = np.zeros(m)
    total = mass / max(kernel.sum(), TINY)
    for _ in range(iterations):
        to_columns[:] = 0
        for i in range(n):
            from_row = 0.0
            for j in range(m):
                from_row += kernel[i, j] * columns[j]
            rows[i] = 1 / max(total * from_row, 1.0)
            for j in range(m):
                to_columns[j] += kernel[i, j] * rows[i]
        moved = 0.0
        for j in range(m):
            columns[j] = 1 / max(total * to_columns[j], 1.0)
            moved += columns[j] * to_columns[j]
        total = mass / max(moved, TINY)
    for i in range(n):
        for j in range(m):
            kernel[i, j] *= total * rows[i] * columns[j]


def transport(costs: NDArray[Any], entropy: float, iterations: int = 100) -> NDArray[np.float64]:
    """The plan (n, m) that moves min(n, m) units at least cost, at most 1 from each row and to each column."""
    plan = np.exp(np.asarray(costs, np.float64) / -entropy)
    _scale(plan, float(min(plan.shape)), iterations)
    return plan


def match(
    similarity: NDArray[Any], sizes: Sequence[int], entropy: float, threshold: float
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs (row, column) between which a plan moves more than `threshold`, for each of several sets of unit vectors.

    `similarity` has the products of one set (rows) with all others, set beside set (columns); `sizes` are theirs.
    """
    pairs = []
    for costs in np.split(1 - similarity, np.cumsum(sizes)[:-1], axis=1):
        rows, columns = np.nonzero(transport(costs, entropy) > threshold)
        pairs.append((rows, columns))
    return pairs
