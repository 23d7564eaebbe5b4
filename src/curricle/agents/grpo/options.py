"""Options: those of GRPO, how they become TRL's GRPOConfig, and what a user may add to it (`agent.trl`).

A setting of TRL that one of our options decides is refused, and the message names our option.
"""

import copy
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from curricle.errors import AgentError, nearest, needed
from curricle.llm.models.loading import CausalOptions
from curricle.records import Frozen, FrozenMap
from curricle.scale import ranks

TESTED_TRL = (1, 16)
"""The minor version of TRL that is tested; `pyproject.toml` asks for the same."""


class LearningOptions(CausalOptions):
    """GRPO's settings; the defaults are GenEnv's."""

    renamed: ClassVar[Mapping[str, str]] = {
        "group": "group_size",
        "tasks": "tasks_per_update",
        "micro": "microbatch_size",
        "kl": "kl_coef",
        "entropy": "entropy_coef",
        "most_tokens": "max_tokens",
    }

    group_size: int = Field(8, ge=2, description="Rollouts of each task; their rewards are compared with each other.")
    tasks_per_update: int = Field(8, ge=1, description="Tasks of one update.")
    microbatch_size: int = Field(
        8, ge=1, description="Rollouts that go through the network at a time, on average; memory against speed."
    )
    iterations: int = Field(1, ge=1, description="Updates made from the same rollouts.")
    clip: float = Field(0.2, gt=0, description="How far the probability ratio of a token may move in one update.")
    kl_coef: float = Field(1e-3, ge=0, description="Weight of the KL divergence from the initial model.")
    entropy_coef: float = Field(1e-3, ge=0, description="Weight of the entropy bonus.")
    step_weight: float = Field(0.0, ge=0, description="Weight of advantages by turn (GiGPO); 0: none.")
    step_discount: float = Field(0.95, gt=0, le=1, description="Discount of a turn's return, by the turns after it.")
    temperature: float = Field(1.0, gt=0, description="Temperature of practice.")
    max_tokens: int = Field(256, ge=1, description="Most tokens of one reply.")
    trl: FrozenMap[str, Any] = Field(
        Frozen(),
        description="More settings of TRL's GRPOConfig: fsdp, use_vllm, gradient_checkpointing, ...",
    )

    @property
    def rollouts_per_update(self) -> int:
        """Rollouts of one update, over all ranks."""
        return self.group_size * self.tasks_per_update


OURS = {
    "num_generations": "[agent] group_size",
    "generation_batch_size": "[agent] group_size and tasks_per_update",
    "steps_per_generation": "[agent] group_size and tasks_per_update",
    "per_device_train_batch_size": "[agent] microbatch_size",
    "gradient_accumulation_steps": "[agent] microbatch_size",
    "num_iterations": "[agent] iterations",
    "max_completion_length": "[agent] max_tokens",
    "temperature": "[agent] temperature",
    "epsilon": "[agent] clip",
    "beta": "[agent] kl_coef",
    "entropy_coef": "[agent] entropy_coef",
    "learning_rate": "[agent] learning_rate",
    "weight_decay": "[agent] weight_decay",
    "use_cpu": "[agent] device",
    "max_steps": "[schedule] per_cycle",
    "num_train_epochs": "[schedule] per_cycle",
    "save_strategy": "[schedule] save_every",
    "seed": "seed",
    "report_to": "[log]",
}
"""Settings of TRL, and the option that decides each."""
FIXED = (
    "output_dir",
    "shuffle_dataset",
    "remove_unused_columns",
    "logging_steps",
    "logging_strategy",
    "data_seed",
    "logging_nan_inf_filter",
    "optim",
    "optim_args",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "sync_ref_model",
    "vllm_importance_sampling_correction",
    "ds3_gather_for_generation",
)
"""Settings that nobody may change: designs take turns, every update is counted, and a run resumes exactly."""
SAMPLING = (
    "use_vllm",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "generation_kwargs",
    "cache_implementation",
    "use_transformers_paged",
    "use_transformers_continuous_batching",
    "transformers_continuous_batching_config",
)
"""Settings of how TRL samples replies, beside all that begin with vllm_."""


def check_settings(added: Mapping[str, Any], sampled_by_trl: bool) -> None:
    """Refuse settings of TRL that would do nothing, or contradict our options."""
    for name, value in added.items():
        given = f"trl = {{{name!r}: {value!r}}}"
        if name in OURS:
            raise AgentError(f"{given} is decided by an option of ours; set {OURS[name]} instead")
        if name in FIXED:
            raise AgentError(f"{given} cannot be changed here; leave it out")
        known = sorted(needed("trl").GRPOConfig.__dataclass_fields__)
        if name not in known:
            raise AgentError(f"{given} is no setting of TRL's GRPOConfig, {nearest(name, known)}")
        if (name in SAMPLING or name.startswith("vllm_")) and not sampled_by_trl:
            raise AgentError(f"{given} is for replies that TRL draws; set [agent] sampler = 'trl' as well")


def check_version() -> None:
    """Refuse an untested version of TRL: `trainer.py` overrides private methods, which change without notice."""
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        return  # whoever needs it says how to get it
    installed = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if installed != TESTED_TRL:
        major, minor = TESTED_TRL
        raise AgentError(
            f"TRL {version} is installed, but this agent overrides private methods of TRL and is tested with "
            f"{major}.{minor} only: pip install 'trl>={major}.{minor},<{major}.{minor + 1}'"
        )


def make_config(options: LearningOptions, on_gpu: bool, folder: Path) -> Any:
    """Return TRL's configuration."""
    rows = options.rollouts_per_update
    rows_of_rank = rows // ranks.count()
    microbatch = min(options.microbatch_size, rows_of_rank)
    while rows_of_rank % microbatch:
        microbatch -= 1
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": microbatch,
        "gradient_accumulation_steps": rows_of_rank // microbatch,
        "generation_batch_size": rows,
        "num_generations": options.group_size,
        "num_iterations": options.iterations,
        "max_completion_length": options.max_tokens,
        "temperature": options.temperature,
        "loss_type": "dapo",  # all tokens weigh the same; with a mean a reply ("grpo") short ones dominate
        "epsilon": options.clip,
        "beta": 0.0,  # trainer.py sets it together with the reference
        "entropy_coef": options.entropy_coef,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "max_steps": 1,
        "bf16": on_gpu,
        "use_cpu": not on_gpu,
        "gradient_checkpointing": False,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "ddp_find_unused_parameters": False,
        "vllm_importance_sampling_correction": False,  # needs vLLM's log-probabilities of every token, also the world's
    }
    added = copy.deepcopy(dict(options.trl))  # TRL changes what it is given
    return needed("trl").GRPOConfig(**(settings | added))
