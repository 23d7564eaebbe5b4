"""Sharing: what ranks hold of an agent's model. All of it each, or a part, by accelerate's FSDP2.

A user asks for parts in TRL's words (`fsdp` in `agent.trl`) or in accelerate's (`accelerate launch --use_fsdp`, or its
config file), and accelerate cuts the model. We only say when: once, before anything is loaded or learnt, so that one
optimiser lasts as long as its agent and is in its checkpoints (`llm/models/sharding.py`).
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
from curricle.errors import AgentError
from curricle.llm.extras import needed
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
"""What accelerate's launcher says by, and what it asks for."""
RAM_EFFICIENT = ("cpu_ram_efficient_loading", "fsdp_cpu_ram_efficient_loading")


def asked(added: Mapping[str, Any]) -> tuple[str, str]:
    """By what the model is to be taken apart ("": by nothing), and where that was said."""
    for way in (DEEPSPEED, FSDP):
        if added.get(way):
            value = "..." if isinstance(added[way], Mapping) else repr(added[way])
            return way, f"trl = {{{way!r}: {value}}}"
    launched = (name for name in LAUNCHED if os.environ.get(name, "").lower() == "true")
    return next(((LAUNCHED[name], f"{name}=true") for name in launched), ("", ""))


def parted(options: LearningOptions) -> bool:
    """Whether each rank holds a part; one process holds it all."""
    return ranks.count() > 1 and bool(asked(options.trl)[0])


def refuse(options: LearningOptions, warm: int) -> None:
    """Refuse what ranks cannot share out."""
    count = ranks.count()
    width = options.group_size * options.tasks_per_update
    way, said = asked(options.trl)
    if width % count:
        raise AgentError(
            f"group_size * tasks_per_update = {options.group_size} * {options.tasks_per_update} = {width} "
            f"rollouts of an update cannot be shared out evenly over {count} ranks; change [agent] group_size or "
            "tasks_per_update, or the number of processes"
        )
    if count > 1 and options.spread_over_gpus:
        raise AgentError(
            f"spread_over_gpus = true lays the agent over all GPUs of one process, but {count} ranks were "
            "launched, each with a GPU of its own; set [agent] spread_over_gpus = false, or start one process"
        )
    if options.trl.get("fsdp_config") and way != FSDP:
        raise AgentError(f"trl = {{'fsdp_config': {options.trl['fsdp_config']!r}}} does nothing without fsdp = true")
    if way not in ("", FSDP):
        raise AgentError(f"{said}: {way} is not supported; leave it out, or use FSDP instead (fsdp = true)")
    if way == FSDP and count > 1:
        _refuse_fsdp(said, options, warm)


def _refuse_fsdp(said: str, options: LearningOptions, warm: int) -> None:
    config = options.trl.get("fsdp_config") or {}
    if options.trl.get(FSDP):
        config = json.loads(Path(config).read_text(encoding="utf-8")) if isinstance(config, str) else config
        version = int(config.get("version", config.get("fsdp_version", 2)))
    else:
        version = int(os.environ.get("FSDP_VERSION", "1"))
    if version != 2:
        raise AgentError(
            f"{said}, version {version} of FSDP: it lays parameters end to end, and they could not be saved one by "
            "one; use version 2 (fsdp_config = {version = 2}, or accelerate launch --fsdp_version 2)"
        )
    if loads := next((name for name in RAM_EFFICIENT if config.get(name)), ""):
        raise AgentError(
            f"fsdp_config = {{{loads!r}: true}}: then only one rank of a machine would load whatever models there are, "
            "the world's own included; leave it out, and every rank loads the agent's"
        )
    if warm and options.lora:
        raise AgentError(
            f"{said}, imitation_updates = {warm}, lora = {options.lora}: what an adapter was after imitation is "
            "kept as another one, which FSDP would not take apart any more; set [agent] imitation_updates = 0 or "
            "lora = 0, or leave FSDP out"
        )


def alone(options: LearningOptions) -> LearningOptions:
    """Options for one process, which has nobody to share with."""
    way, said = asked(options.trl)
    if not way:
        return options
    LOG.warning("%s is for several ranks: one process holds all of the model", said)
    os.environ["ACCELERATE_USE_FSDP"] = "false"  # accelerate would take apart what one process holds, too
    kept = {name: value for name, value in options.trl.items() if name not in (FSDP, "fsdp_config")}
    return options.model_copy(update={"trl": Frozen(kept)})


def take_apart(trainer: Any, causal: CausalModel, added: Mapping[str, Any]) -> Any:
    """Leave this rank its part of a model, of its optimiser and of its reference; returns the reference to ask."""
    way, said = asked(added)
    try:
        found = _by_fsdp(trainer, causal, said)
    except (AssertionError, ImportError, KeyError, TypeError, ValueError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise AgentError(f"{said}: {way} refuses to take {causal.options.model!r} apart: {words}") from error
    _last(trainer.accelerator)
    return found


def _by_fsdp(trainer: Any, causal: CausalModel, said: str) -> Any:
    if not trainer.is_fsdp_enabled:
        raise AgentError(
            f"{said} asks for parts, but accelerate takes models apart on GPUs only, and the agent is on a "
            f"{causal.device.type}: leave it out, and every rank holds the whole model"
        )
    plugin = trainer.accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:  # accelerate's would round gradients before they are summed, and odds
        exact = {"reduce_dtype": torch.float32, "output_dtype": torch.float32}
        plugin.mixed_precision_policy = dataclasses.replace(plugin.mixed_precision_policy, **exact)
    model, trainer.optimizer = trainer.accelerator.prepare(causal.model, causal.optimizer)
    trainer.model = trainer.model_wrapped = model
    prepare = needed("accelerate.utils.fsdp_utils").fsdp2_prepare_model
    return None if causal.frozen is None else prepare(trainer.accelerator, causal.frozen)


def _last(accelerator: Any) -> None:
    """Let a preparation last: transformers' Trainer would free it, and make another one, each time it trains."""
    prepare = accelerator.prepare

    def once(*given: Any, **how: Any) -> Any:
        if all(getattr(one, "_is_accelerate_prepared", False) for one in given):
            return given if len(given) > 1 else given[0]
        return prepare(*given, **how)

    def free(*given: Any) -> Any:
        accelerator._schedulers = []
        accelerator._dataloaders = []
        accelerator.step = 0
        return given

    accelerator.prepare = once
    accelerator.free_memory = free
