"""Shards: tensors of which each rank may hold a part, read and written as wholes.

Each rank that trains a model holds the whole of it, or a part: accelerate's FSDP2 makes each parameter a `DTensor`.
A checkpoint is the same files for both. All ranks have to read or write whole tensors together.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

WRAPPED = "_checkpoint_wrapped_module."
"""What accelerate's activation checkpointing puts into the names of parameters."""


def named(model: Any, *, twice: bool = False) -> Iterator[tuple[str, Any]]:
    """A model's parameters by the names they had before it was taken apart; by all of them, if they may come twice."""
    settle(model)
    for name, p in model.named_parameters(remove_duplicate=not twice):
        yield name.replace(WRAPPED, ""), p


def settle(model: Any) -> None:
    """Give up what the last pass gathered and kept, so that a model's parameters are its parts again."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()


def whole(tensor: Any) -> Any:
    """A tensor of which each rank may hold a part."""
    return tensor.full_tensor() if _is_part(tensor) else tensor


def blank(p: Any) -> torch.Tensor:
    """Room for the whole of a parameter."""
    return torch.empty(tuple(p.shape), device=p.device, dtype=p.dtype)


def take(p: Any, full: torch.Tensor) -> None:
    """Let a parameter hold what a whole tensor does, which every rank has."""
    with torch.no_grad():
        if _is_part(p):
            p.to_local().copy_(_cut(full, p).to_local())
        else:
            p.copy_(full)


def memory(optimizer: Any, p: Any) -> dict[str, Any]:
    """What an optimiser remembers about a parameter, whole; nothing before its first step."""
    return {key: whole(torch.as_tensor(value)) for key, value in sorted(optimizer.state.get(p, {}).items())}


def remember(optimizer: Any, p: Any, step: torch.Tensor | None, moments: Mapping[str, torch.Tensor]) -> None:
    """Let an optimiser remember this about a parameter; without a step it is as new."""
    optimizer.state.pop(p, None)
    if step is not None:
        own = {key: _cut(full, p) if _is_part(p) else full for key, full in moments.items()}
        optimizer.state[p] = {"step": step.clone(), **own}


def _is_part(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")


def _cut(full: torch.Tensor, like: Any) -> Any:
    """This rank's part of a tensor that every rank has, cut as another one is."""
    from torch.distributed.tensor import distribute_tensor

    part = distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
    return part.to(like.device)
