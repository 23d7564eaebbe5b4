"""Kernels on a GPU, in Triton: attention of one new token a row to the columns it may look at (`decoding.py`).

torch's own reads every column and hides most of them afterwards: those between a short prompt and its padding's end,
and all of a row that has ended. Here a block of columns that the mask hides is never read. Loaded on a GPU only.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Columns that are looked at together."""


@triton.jit
def _look(
    query, keys, values, mask, out, scale, length, SHARED: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    WIDE: tl.constexpr, DEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program takes one row and the queries that share one head's keys; softmax goes along from block to block."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    which, depth = tl.arange(0, WIDE)[:, None], tl.arange(0, DEEP)
    here = row * SHARED + head
    mine = here * GROUP * SIZE + which * SIZE + depth[None, :]
    real = (which < GROUP) & (depth < SIZE)[None, :]
    q = tl.load(query + mine, mask=real, other=0.0)
    top = tl.full((WIDE,), float("-inf"), tl.float32)
    total = tl.zeros((WIDE,), tl.float32)
    found = tl.zeros((WIDE, DEEP), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = tl.load(mask + row * length + at, mask=at < length, other=float("-inf")).to(tl.float32)
        if tl.max(seen, 0) > float("-inf"):
            there = seen > float("-inf")
            column = (here * length + at) * SIZE
            k = tl.load(
                keys + column[None, :] + depth[:, None], mask=there[None, :] & (depth < SIZE)[:, None], other=0.0
            )
            scores = tl.dot(q, k, input_precision="ieee") * scale + seen[None, :]
            higher = tl.maximum(top, tl.max(scores, 1))
            weights, kept = tl.exp(scores - higher[:, None]), tl.exp(top - higher)
            v = tl.load(
                values + column[:, None] + depth[None, :], mask=there[:, None] & (depth < SIZE)[None, :], other=0.0
            )
            found = found * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            total = total * kept + tl.sum(weights, 1)
            top = higher
    found = found / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + mine, found.to(q.dtype), mask=real)


def look(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of queries (rows, heads, queries of a head, size) to columns (rows, heads, columns, size).

    The mask (rows, columns) is added to the scores; a row that may look at nothing finds zeros.
    """
    rows, shared, group, size = query.shape
    query, out = query.contiguous(), torch.empty(query.shape, dtype=query.dtype, device=query.device)
    kernel: Any = _look
    kernel[(rows, shared)](
        query, keys, values, mask, out, scale, keys.shape[2], shared, group, size,
        max(16, triton.next_power_of_2(group)), max(16, triton.next_power_of_2(size)), BLOCK,
    )  # fmt: skip
    return out
