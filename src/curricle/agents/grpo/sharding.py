"""Sharding: each rank holds the whole of the agent's model, or a part of it by accelerate's FSDP2.

A user asks for it in TRL's words (`fsdp` in `agent.trl`) or in accelerate's (`accelerate launch --use_fsdp`, or its
config file), and accelerate shards the model. We only say when: once, before anything is loaded or learnt, so that one
optimiser lasts as long as its agent and is in its checkpoints (`llm/models/model.py`).
"""

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from curricle.agents.grpo.options import LearningOptions
from curricle.errors import AgentError, needed
from curricle.llm.models.model import CausalModel
from curricle.records import Frozen
from curricle.scale import ranks

LOG = logging.getLogger("curricle")
FSDP = "fsdp"
DEEPSPEED = "deepspeed"
LAUNCHED = {
    "ACCELERATE_USE_DEEPSPEED": DEEPSPEED,
    "ACCELERATE_USE_FSDP": FSDP,
    "ACCELERATE_USE_MEGATRON_LM": "megatron",
}
"""The variables that accelerate's launcher sets, and what each asks for."""
RAM_EFFICIENT = ("cpu_ram_efficient_loading", "fsdp_cpu_ram_efficient_loading")


def requested(added: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is to shard the model ("": nothing), and where the user said so."""
    for method in (DEEPSPEED, FSDP):
        if added.get(method):
            value = "..." if isinstance(added[method], Mapping) else repr(added[method])
            return method, f"trl = {{{method!r}: {value}}}"
    for variable, method in LAUNCHED.items():
        if os.environ.get(variable, "").lower() == "true":
            return method, f"{variable}=true"
    return "", ""


def is_sharded(options: LearningOptions) -> bool:
    """Whether each rank holds a part; a single process holds it all."""
    return ranks.count() > 1 and bool(requested(options.trl)[0])


def check(options: LearningOptions, imitation_updates: int) -> None:
    """Refuse what cannot be shared out over the ranks."""
    count = ranks.count()
    rows = options.rollouts_per_update
    method, said = requested(options.trl)
    if rows % count:
        raise AgentError(
            f"group_size * tasks_per_update = {options.group_size} * {options.tasks_per_update} = {rows} "
            f"rollouts of an update cannot be shared out evenly over {count} ranks; change [agent] group_size or "
            "tasks_per_update, or the number of processes"
        )
    if count > 1 and options.spread_over_gpus:
        raise AgentError(
            f"spread_over_gpus = true lays the agent over all GPUs of one process, but {count} ranks were "
            "launched, each with a GPU of its own; set [agent] spread_over_gpus = false, or start one process"
        )
    if options.trl.get("fsdp_config") and method != FSDP:
        raise AgentError(f"trl = {{'fsdp_config': {options.trl['fsdp_config']!r}}} does nothing without fsdp = true")
    if method not in ("", FSDP):
        raise AgentError(f"{said}: {method} is not supported; leave it out, or use FSDP instead (fsdp = true)")
    if method == FSDP and count > 1:
        _check_fsdp(said, options, imitation_updates)


def _check_fsdp(said: str, options: LearningOptions, imitation_updates: int) -> None:
    config = options.trl.get("fsdp_config") or {}
    if options.trl.get(FSDP):
        if isinstance(config, str):
            config = json.loads(Path(config).read_text(encoding="utf-8"))
        version = int(config.get("version", config.get("fsdp_version", 2)))
    else:
        version = int(os.environ.get("FSDP_VERSION", "1"))
    if version != 2:
        raise AgentError(
            f"{said}, version {version} of FSDP: it lays parameters end to end, and they could not be saved one by "
            "one; use version 2 (fsdp_config = {version = 2}, or accelerate launch --fsdp_version 2)"
        )
    for name in RAM_EFFICIENT:
        if config.get(name):
            raise AgentError(
                f"fsdp_config = {{{name!r}: true}}: then only one rank of a machine would load whatever models there "
                "are, the world's own included; leave it out, and every rank loads the agent's"
            )
    if imitation_updates and options.lora:
        raise AgentError(
            f"{said}, imitation_updates = {imitation_updates}, lora = {options.lora}: the initial model after "
            "imitation is kept as another adapter, which FSDP could not shard any more; set [agent] "
            "imitation_updates = 0 or lora = 0, or leave FSDP out"
        )


def without_sharding(options: LearningOptions) -> LearningOptions:
    """Return options for a model that this process holds whole."""
    method, said = requested(options.trl)
    if not method:
        return options
    LOG.warning("%s is for several ranks: one process holds all of the model", said)
    os.environ["ACCELERATE_USE_FSDP"] = "false"  # accelerate would shard what one process holds, too
    kept = {name: value for name, value in options.trl.items() if name not in (FSDP, "fsdp_config")}
    return options.model_copy(update={"trl": Frozen(kept)})


def shard(trainer: Any, causal: CausalModel, added: Mapping[str, Any]) -> Any:
    """Leave this rank its part of a model, of its optimiser and of its reference; returns the sharded reference."""
    method, said = requested(added)
    try:
        reference = _shard_by_fsdp(trainer, causal, said)
    except (AssertionError, ImportError, KeyError, TypeError, ValueError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise AgentError(f"{said}: {method} refuses to shard {causal.options.model!r}: {words}") from error
    _keep_prepared(trainer.accelerator)
    return reference


def _shard_by_fsdp(trainer: Any, causal: CausalModel, said: str) -> Any:
    if not trainer.is_fsdp_enabled:
        raise AgentError(
            f"{said} asks for parts, but accelerate takes models apart on GPUs only, and the agent is on a "
            f"{causal.device.type}: leave it out, and every rank holds the whole model"
        )
    plugin = trainer.accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:  # accelerate's rounds logits, and gradients before they are summed
        exact = {"reduce_dtype": torch.float32, "output_dtype": torch.float32}
        plugin.mixed_precision_policy = dataclasses.replace(plugin.mixed_precision_policy, **exact)
    model, trainer.optimizer = trainer.accelerator.prepare(causal.model, causal.optimizer)
    trainer.model = model
    trainer.model_wrapped = model
    if causal.initial_copy is None:
        return None
    return needed("accelerate.utils.fsdp_utils").fsdp2_prepare_model(trainer.accelerator, causal.initial_copy)


def _keep_prepared(accelerator: Any) -> None:
    """Let what is prepared stay prepared: transformers' Trainer would free and prepare it again each time it trains."""
    prepare = accelerator.prepare

    def prepare_once(*objects: Any, **arguments: Any) -> Any:
        if all(getattr(one, "_is_accelerate_prepared", False) for one in objects):
            return objects if len(objects) > 1 else objects[0]
        return prepare(*objects, **arguments)

    def free_memory(*objects: Any) -> Any:
        accelerator._schedulers = []
        accelerator._dataloaders = []
        accelerator.step = 0
        return objects

    accelerator.prepare = prepare_once
    accelerator.free_memory = free_memory
