"""Rotary places of queries and keys in one kernel instead of ten, for models that give them as Llama does.

Models of transformers call a function of their own module for it, many the same one, some another of the same name. So
ours stands in only where it was seen to find what theirs does.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from curricle.llm.extras import kernels

NAME = "apply_rotary_pos_emb"
Pair = tuple[Tensor, Tensor]


@contextmanager
def turning(model: Any) -> Iterator[None]:
    """Let a model on a GPU do so for a while; nothing that is computed meanwhile has a gradient."""
    spaces = {sys.modules[type(module).__module__] for module in model.modules()}
    theirs = {space: getattr(space, NAME) for space in spaces if hasattr(space, NAME)}
    if not next(model.parameters()).is_cuda or kernels() is None:
        theirs = {}
    for space, function in theirs.items():
        if alike(function, kernels().turn, "cuda"):
            setattr(space, NAME, functools.partial(_turned, function))
    try:
        yield
    finally:
        for space, function in theirs.items():
            setattr(space, NAME, function)


@functools.cache
def alike(theirs: Callable[..., Pair], ours: Callable[..., Pair], device: str) -> bool:
    """Whether two functions find the same, as far as one example tells."""
    luck = torch.Generator(device).manual_seed(0)
    given = [torch.randn(shape, generator=luck, device=device) for shape in ((2, 4, 3, 16), (2, 2, 3, 16))]
    given += [torch.randn(2, 3, 16, generator=luck, device=device) for _ in range(2)]
    try:
        pairs = list(zip(theirs(*given), ours(*given), strict=True))
    except (LookupError, RuntimeError, TypeError, ValueError):  # another function that happens to have that name
        return False
    return all(a.shape == b.shape and torch.allclose(a, b, atol=1e-4) for a, b in pairs)


def _turned(
    theirs: Callable[..., Pair], query: Tensor, keys: Tensor, cosine: Tensor, sine: Tensor, *more: Any, **named: Any
) -> Pair:
    """Ours if it is called as it was tried; some models turn a part of each head only, and ours has no gradient."""
    plain = query.is_cuda and not torch.is_grad_enabled() and not more and not named
    if not plain or cosine.ndim != 3 or cosine.shape[-1] != query.shape[-1]:
        return theirs(query, keys, cosine, sine, *more, **named)
    found: Pair = kernels().turn(query, keys, cosine, sine)
    return found
