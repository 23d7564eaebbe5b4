"""Norms: RMSNorm, which most models have, in one kernel instead of six, and without their notes for the gradient."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@contextmanager
def fused(model: Any) -> Iterator[None]:
    """Let a model normalise so for a while."""
    norms = [module for module in model.modules() if _is_one(module) and "forward" not in vars(module)]  # hooks stay
    for norm in norms:
        norm.forward = functools.partial(_normed, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _is_one(module: Any) -> bool:
    """Whether a module is RMSNorm as Llama has it; those that add 1 to their weights, or take a gate, are others."""
    return type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")


def _normed(norm: Any, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # which would have it in float32
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
