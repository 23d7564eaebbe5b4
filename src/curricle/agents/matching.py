"""Matching: which vectors of one set are the same as which of another, by entropic partial optimal transport.

Dykstra's projections of Benamou et al. 2015 (section 5), as POT's `entropic_partial_wasserstein` does them, but for
many pairs of sets at once on the device: matrices are padded with zeros, which the projections leave at zero.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

TINY = 1e-300


def transport(costs: Tensor, rows: Tensor, columns: Tensor, blur: float, rounds: int = 100) -> Tensor:
    """Plans (pairs, n, m) that move min(n, m) units at least cost, at most 1 from each row and to each column.

    `rows` (pairs, n) and `columns` (pairs, m) say which ones are there at all.
    """
    there = (rows[:, :, None] & columns[:, None, :]).double()
    mass = torch.minimum(rows.sum(1), columns.sum(1)).double()[:, None, None]
    plan = torch.exp(-costs.double() / blur) * there
    plan = plan * mass / plan.sum((1, 2), keepdim=True)
    a, b, c = torch.ones_like(plan), torch.ones_like(plan), torch.ones_like(plan)
    for _ in range(rounds):
        before, plan = plan, plan * a
        rowed = plan * (1 / plan.sum(2, keepdim=True).clamp(min=TINY)).clamp(max=1)
        a = a * before / rowed.clamp(min=TINY)
        held = rowed * b
        columned = held * (1 / held.sum(1, keepdim=True).clamp(min=TINY)).clamp(max=1)
        b = b * rowed / columned.clamp(min=TINY)
        held = columned * c
        plan = held * mass / held.sum((1, 2), keepdim=True).clamp(min=TINY)
        c = c * columned / plan.clamp(min=TINY)
    return plan


def match(mine: Tensor, theirs: Sequence[Tensor], blur: float, likeness: float) -> list[list[tuple[int, int]]]:
    """For each other set of unit vectors, the pairs (one of mine, one of theirs) that carry more than `likeness`."""
    padded = pad_sequence(list(theirs), batch_first=True)
    lengths = torch.tensor([len(one) for one in theirs], device=mine.device)
    columns = torch.arange(padded.shape[1], device=mine.device) < lengths[:, None]
    rows = torch.ones(len(theirs), len(mine), dtype=torch.bool, device=mine.device)
    plans = transport(1 - torch.einsum("nk,pmk->pnm", mine, padded), rows, columns, blur)
    found: list[list[tuple[int, int]]] = [[] for _ in theirs]
    for pair, row, column in (plans > likeness).nonzero().tolist():
        found[pair].append((row, column))
    return found
