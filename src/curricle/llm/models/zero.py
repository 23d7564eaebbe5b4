"""ZeRO: parameters and moments of a model that DeepSpeed trains, as whole tensors.

DeepSpeed's optimiser lays all parameters end to end, in float32, and each rank keeps a piece of that (stage 1 and 2);
of stage 3 the parameters themselves are cut up, too, and empty but for the moments they are used. DeepSpeed has
functions that give and take wholes, but none for a memory that is still empty, and none that counts steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from curricle.llm.extras import needed

MOMENTS = ("exp_avg", "exp_avg_sq")


def is_partition(p: Any) -> bool:
    """Whether a parameter is cut up itself (stage 3)."""
    return hasattr(p, "ds_id")


def is_trained(p: Any) -> bool:
    """Whether DeepSpeed's optimiser keeps the parameter that counts."""
    return hasattr(p, "_hp_mapping") or hasattr(p, "_z3_optimizer")


def is_known(p: Any) -> bool:
    """Whether it is of a kind that DeepSpeed made, trained or not."""
    return is_partition(p) or is_trained(p)


def dtype(p: Any) -> torch.dtype:
    """What a parameter's whole is kept as."""
    kept: torch.dtype = torch.float32 if is_trained(p) else p.dtype
    return kept


@contextmanager
def gathered(parameters: list[Any], changed: bool = False) -> Iterator[None]:
    """Hold wholes of parameters that are cut up; if they are changed, the leader's become everybody's."""
    cut = [p for p in {id(p): p for p in parameters}.values() if is_partition(p)]
    with needed("deepspeed").zero.GatheredParameters(cut, modifier_rank=0 if changed else None, enabled=bool(cut)):
        yield


def take(p: Any, full: torch.Tensor) -> None:
    """Let a parameter hold a whole tensor, and its optimiser know of it."""
    with gathered([p], changed=True):
        p.data.copy_(full)
    if is_trained(p):
        needed("deepspeed").utils.safe_set_full_fp32_param(p, full)


def weight(p: Any) -> torch.Tensor:
    """A trained parameter in float32."""
    found: torch.Tensor = needed("deepspeed").utils.safe_get_full_fp32_param(p)
    return found


def memory(optimizer: Any, p: Any) -> dict[str, torch.Tensor]:
    """Moments and steps; nothing before the first step."""
    known = [state["step"] for state in optimizer.optimizer.state.values() if "step" in state]
    if not known or not float(known[0]):
        return {}
    get = needed("deepspeed").utils.safe_get_full_optimizer_state
    return {**{key: get(p, key) for key in MOMENTS}, "step": torch.tensor(float(known[0]))}


def remember(optimizer: Any, p: Any, step: torch.Tensor | None, moments: Mapping[str, torch.Tensor]) -> None:
    """Let the optimiser remember moments and steps, of which there is one number for all parameters."""
    _furnish(optimizer)
    for state in optimizer.optimizer.state.values():
        done = 0.0 if step is None else float(step)
        state["step"] = int(done) if isinstance(state["step"], int) else torch.tensor(done)
    for key in MOMENTS:
        full = torch.zeros_like(weight(p)) if step is None else moments[key]
        needed("deepspeed").utils.safe_set_full_optimizer_state(p, full, key)


def _furnish(optimizer: Any) -> None:
    """Make the memory that Adam would make at its first step, and show DeepSpeed where it lies."""
    base = optimizer.optimizer
    name = "fp32_partitioned_groups_flat"  # of stage 3
    for flat in getattr(optimizer, name, None) or optimizer.single_partition_of_fp32_groups:
        if not base.state.get(flat):
            first: Any = torch.tensor(0.0) if isinstance(base, torch.optim.AdamW) else 0  # DeepSpeed's own counts so
            base.state[flat] = {"step": first, **{key: torch.zeros_like(flat) for key in MOMENTS}}
    if not hasattr(optimizer, name):
        optimizer._lazy_init_hp_params_optimizer_state()
