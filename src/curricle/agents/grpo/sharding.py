"""Sharing: what ranks hold of an agent's model. All of it each, or a part, by accelerate's FSDP2 or DeepSpeed's ZeRO.

Parts are asked for in TRL's words (`fsdp`, `deepspeed` in `agent.trl`) or accelerate's (`accelerate launch --use_fsdp`,
`--use_deepspeed`, a config file of its own), and cut by accelerate. Ours is only when: before anything is loaded or
learnt, once, so that one optimiser lasts as long as its agent and is in its checkpoints (`llm/shards.py`).
"""

import dataclasses
import importlib.util
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from curricle.agents.grpo.options import LearningOptions
from curricle.errors import AgentError
from curricle.llm.extras import needed
from curricle.llm.models.causal import Causal
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
    width = options.group * options.tasks
    (way, said) = asked(options.trl)
    if width % count:
        raise AgentError(
            f"group * tasks = {options.group} * {options.tasks} = {width} rollouts of an update cannot be shared out "
            f"evenly over {count} ranks; change [agent] group or tasks, or the number of processes"
        )
    if count > 1 and options.spread:
        raise AgentError(
            f"spread = true lays the agent over all GPUs of one process, but {count} ranks were launched, each with a "
            "GPU of its own; set [agent] spread = false, or start one process"
        )
    if options.trl.get("fsdp_config") and way != FSDP:
        raise AgentError(f"trl = {{'fsdp_config': {options.trl['fsdp_config']!r}}} does nothing without fsdp = true")
    if way not in ("", FSDP, DEEPSPEED):
        raise AgentError(f"{said}: {way} has a model and an optimiser of its own; use FSDP or DeepSpeed instead")
    if count == 1 and way == DEEPSPEED and not options.trl.get(way):
        raise AgentError(f"{said} for one process, which holds all of the model anyway: start it without, or several")
    if way == DEEPSPEED and count > 1:
        _refuse_deepspeed(said, warm)
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
            f"{said}, warm = {warm}, lora = {options.lora}: what an adapter was after imitation is kept as another "
            "one, which FSDP would not take apart any more; set [agent] warm = 0 or lora = 0, or leave FSDP out"
        )


def _refuse_deepspeed(said: str, warm: int) -> None:
    if importlib.util.find_spec(DEEPSPEED) is None:
        raise AgentError(f"{said} needs DeepSpeed: pip install 'curricle[deepspeed]'")
    if warm:
        raise AgentError(
            f"{said}, warm = {warm}: imitation makes steps of its own, and DeepSpeed's optimiser makes none but with "
            "TRL's updates; set [agent] warm = 0, or use fsdp instead"
        )


def alone(options: LearningOptions) -> LearningOptions:
    """Options for one process, which has nobody to share with."""
    way, said = asked(options.trl)
    if not way:
        return options
    LOG.warning("%s is for several ranks: one process holds all of the model", said)
    os.environ["ACCELERATE_USE_FSDP"] = "false"  # accelerate would take apart what one process holds, too
    kept = {name: value for name, value in options.trl.items() if name not in (FSDP, "fsdp_config", DEEPSPEED)}
    return options.model_copy(update={"trl": Frozen(kept)})


def take_apart(trainer: Any, causal: Causal, added: Mapping[str, Any]) -> Any:
    """Leave this rank its part of a model, of its optimiser and of its reference; returns the reference to ask."""
    way, said = asked(added)
    try:
        found = _by_deepspeed(trainer, causal, said) if way == DEEPSPEED else _by_fsdp(trainer, causal, said)
    except (AssertionError, ImportError, KeyError, TypeError, ValueError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise AgentError(f"{said}: {way} refuses to take {causal.options.model!r} apart: {words}") from error
    _last(trainer.accelerator)
    return found


def _by_fsdp(trainer: Any, causal: Causal, said: str) -> Any:
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


def _by_deepspeed(trainer: Any, causal: Causal, said: str) -> Any:
    known = needed("transformers.integrations.deepspeed")
    prepare = needed("trl.models").prepare_deepspeed
    given = trainer.accelerator.state.deepspeed_plugin.hf_ds_config.config
    if both := sorted({"optimizer", "scheduler"} & given.keys()):
        raise AgentError(f"{said}: leave out its {both[0]}: [agent] rate and decay decide what ours is")
    try:
        known.deepspeed_init(trainer, num_training_steps=1)  # fills in what the config leaves to us
        engine, trainer.optimizer = trainer.accelerator.prepare(causal.model, causal.optimizer)
        _same_manner(engine, trainer.args, said)
        trainer.model_wrapped = engine
        causal.optimizer = engine.optimizer
        return None if causal.frozen is None else prepare(causal.frozen, trainer.accelerator)
    finally:
        known.unset_hf_deepspeed_config()


def _same_manner(engine: Any, args: Any, said: str) -> None:
    """Refuse an engine that would not learn as plain ranks do."""
    stage = engine.zero_optimization_stage()
    if stage not in (1, 2, 3):
        raise AgentError(f"{said}: its ZeRO stage is {stage}; write 1, 2 or 3 there")
    for name, theirs, ours in (
        ("gradient_accumulation_steps", engine.gradient_accumulation_steps(), args.gradient_accumulation_steps),
        ("gradient_clipping", engine.gradient_clipping(), args.max_grad_norm),
    ):
        if theirs != ours:
            raise AgentError(f"{said}: its {name} is {theirs}, but here it is {ours}; write {name!r}: 'auto' there")


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


@contextmanager
def passing(trainer: Any) -> Iterator[None]:
    """Let transformers and TRL know of DeepSpeed while the model that it took apart computes, and only then.

    Otherwise whatever else is loaded would come in partitions, too, and replies would be drawn in step by all ranks.
    """
    if not trainer.is_deepspeed_enabled:
        yield
        return
    known = needed("transformers.integrations.deepspeed")
    known.set_hf_deepspeed_config(trainer.accelerator.state.deepspeed_plugin.hf_ds_config)
    try:
        yield
    finally:
        known.unset_hf_deepspeed_config()
