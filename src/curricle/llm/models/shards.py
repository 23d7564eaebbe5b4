"""Shards: tensors of which each rank may hold a part, read and written as wholes.

A model that several ranks train comes in one of three kinds, and a checkpoint is the same files for all of them:

    whole        every rank holds all of it
    parts        accelerate's FSDP2: each parameter is a `DTensor`
    partitions   DeepSpeed's ZeRO, whose optimiser keeps the parameters that count (`zero.py`)

What reads or writes whole tensors has to be done by all ranks together.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from curricle.llm.models import zero

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
    if zero.is_partition(tensor):
        with zero.gathered([tensor]):
            return tensor.detach().clone()
    return tensor.full_tensor() if _is_part(tensor) else tensor


def gathered(parameters: list[Any]) -> AbstractContextManager[Any]:
    """For as long as it lasts partitions are there as wholes, to be computed with; parts can do that as they are."""
    return zero.gathered(parameters) if any(map(zero.is_partition, parameters)) else nullcontext()


def shape(p: Any) -> tuple[int, ...]:
    """That of the whole of a parameter."""
    return tuple(p.ds_shape if zero.is_partition(p) else p.shape)


def blank(p: Any) -> torch.Tensor:
    """Room for the whole of a parameter."""
    return torch.empty(shape(p), device=p.device, dtype=zero.dtype(p))


def take(p: Any, full: torch.Tensor) -> None:
    """Let a parameter hold what a whole tensor does, which every rank has."""
    with torch.no_grad():
        if zero.is_known(p):
            zero.take(p, full)
        elif _is_part(p):
            p.to_local().copy_(_cut(full, p).to_local())
        else:
            p.copy_(full)


def weight(p: Any) -> Any:
    """A trained parameter, whole, as its optimiser knows it."""
    return zero.weight(p) if zero.is_trained(p) else whole(p)


def memory(optimizer: Any, p: Any) -> dict[str, Any]:
    """What an optimiser remembers about a parameter, whole; nothing before its first step."""
    if zero.is_trained(p):
        return zero.memory(optimizer, p)
    return {key: whole(torch.as_tensor(value)) for key, value in sorted(optimizer.state.get(p, {}).items())}


def remember(optimizer: Any, p: Any, step: torch.Tensor | None, moments: Mapping[str, torch.Tensor]) -> None:
    """Let an optimiser remember this about a parameter; without a step it is as new."""
    if zero.is_trained(p):
        return zero.remember(optimizer, p, step, moments)
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
