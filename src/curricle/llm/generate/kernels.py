"""Triton kernels for decoding on a GPU (`decoding.py`). Imported on a GPU only.

`decode_attention` is attention of one new token a row to the columns it may see. torch's own reads every column and
hides most of them afterwards: those between a short prompt and the end of its padding, and all of a row that has ended.
Here a block of columns that the mask hides is never read. `rotate` applies rotary embeddings to queries and keys, in
one kernel instead of ten.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Columns that are read together."""


@triton.jit
def _decode_attention(
    query, keys, values, mask, out, scale, length, SHARED: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    WIDE: tl.constexpr, DEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program takes one row and the queries that share one head's keys; the softmax is updated block by block."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    which = tl.arange(0, WIDE)[:, None]
    depth = tl.arange(0, DEEP)
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
            weights = tl.exp(scores - higher[:, None])
            kept = tl.exp(top - higher)
            v = tl.load(
                values + column[:, None] + depth[None, :], mask=there[:, None] & (depth < SIZE)[None, :], other=0.0
            )
            found = found * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            total = total * kept + tl.sum(weights, 1)
            top = higher
    found = found / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + mine, found.to(q.dtype), mask=real)


def decode_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of queries (rows, heads, queries of a head, size) to columns (rows, heads, columns, size).

    The mask (rows, columns) is added to the scores; a row that sees nothing gets zeros.
    """
    rows, shared, group, size = query.shape
    query = query.contiguous()
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    kernel: Any = _decode_attention
    kernel[(rows, shared)](
        query, keys, values, mask, out, scale, keys.shape[2], shared, group, size,
        max(16, triton.next_power_of_2(group)), max(16, triton.next_power_of_2(size)), BLOCK,
    )  # fmt: skip
    return out


@triton.jit
def _rotate(
    query, keys, cosine, sine, turned, turned_keys, tokens, each, HEADS: tl.constexpr, SHARED: tl.constexpr,
    HALF: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """A program takes all heads of one token; they lie side by side, as the layer before wrote them."""
    at = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, WIDE)[:, None]
    depth = tl.arange(0, DEEP)[None, :]
    angle = (at // tokens * each + at % tokens) * 2 * HALF + depth
    cos, cos_after = _pair(cosine + angle, depth < HALF, HALF)
    sin, sin_after = _pair(sine + angle, depth < HALF, HALF)
    here = head * 2 * HALF + depth
    real = (head < HEADS) & (depth < HALF)
    x, y = _pair(query + at * HEADS * 2 * HALF + here, real, HALF)
    place = turned + at * HEADS * 2 * HALF + here
    tl.store(place, (x * cos - y * sin).to(turned.dtype.element_ty), mask=real)
    tl.store(place + HALF, (y * cos_after + x * sin_after).to(turned.dtype.element_ty), mask=real)
    real = (head < SHARED) & (depth < HALF)
    x, y = _pair(keys + at * SHARED * 2 * HALF + here, real, HALF)
    place = turned_keys + at * SHARED * 2 * HALF + here
    tl.store(place, (x * cos - y * sin).to(turned.dtype.element_ty), mask=real)
    tl.store(place + HALF, (y * cos_after + x * sin_after).to(turned.dtype.element_ty), mask=real)


@triton.jit
def _pair(at, real, HALF: tl.constexpr):
    """Load the first half of some numbers and the second."""
    first = tl.load(at, mask=real, other=0.0).to(tl.float32)
    return first, tl.load(at + HALF, mask=real, other=0.0).to(tl.float32)


def rotate(query: Tensor, keys: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embeddings, x cos + (-second half, first half) sin, of queries and keys (rows, heads, tokens, size).

    Cosine and sine are (rows or 1, tokens, size).
    """
    rows, heads, tokens, size = query.shape
    shared = keys.shape[1]
    half = size // 2
    side_by_side = [one.transpose(1, 2).contiguous() for one in (query, keys)]
    turned = [torch.empty_like(one) for one in side_by_side]
    angles = [one.contiguous() for one in (cosine, sine)]
    kernel: Any = _rotate
    kernel[(rows * tokens,)](
        *side_by_side, *angles, *turned, tokens, 0 if len(cosine) == 1 else tokens, heads, shared, half,
        triton.next_power_of_2(max(heads, shared)), triton.next_power_of_2(half),
    )  # fmt: skip
    return turned[0].transpose(1, 2), turned[1].transpose(1, 2)


def try_build() -> None:
    """Compile and run the kernels once, on small tensors; raises where Triton cannot."""
    query = torch.zeros(1, 1, 1, 16, device="cuda")
    cosine = torch.zeros(1, 1, 16, device="cuda")
    decode_attention(query, query, query, cosine[0, :, :1].contiguous(), 1.0)
    rotate(query, query, cosine, cosine)
    torch.cuda.synchronize()
