"""Shards: a model of which each rank holds a part (FSDP), for weights and optimisers that one GPU cannot hold.

Every layer is gathered just before it computes and given up after it; embeddings and head, often the same tensor, are
gathered with the whole. transformers' Trainer knows models that came to it in parts and leaves them as they are. What
reads or writes whole tensors has to be done by all ranks together.
"""

from typing import Any

import torch

from curricle import ranks
from curricle.errors import ModelError
from curricle.llm.extra import needed


def sharded(model: Any, device: torch.device, who: str) -> Any:
    """Leave this rank its part of a model that every rank has loaded into memory."""
    transformers = needed("transformers")
    if not hasattr(model, "is_distributed_loading_by_transformers"):
        raise ModelError(
            f"{who}: shard = true needs a newer transformers than {transformers.__version__}: 5.22 will do"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, layers = init_device_mesh(device.type, (ranks.count(),)), set(model._no_split_modules or ())
    for module in list(model.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model._is_distributed_loading_by_transformers = True
    return model


def settle(model: Any) -> None:
    """Give up what the last pass gathered and kept, so that a model's parameters are its parts again."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()


def whole(tensor: Any) -> Any:
    """A tensor of which each rank may hold a part."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def part(tensor: torch.Tensor, like: Any) -> torch.Tensor:
    """This rank's part of the leader's tensor, cut as another one is."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements)
