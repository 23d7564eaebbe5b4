"""Settings: how our options become TRL's GRPOConfig, and which of TRL's own a user may add (`agent.trl`).

A setting of TRL's that one of ours decides is refused and ours is named: both at once would contradict each other
without a word. What TRL itself refuses is told as such, with the settings that were added.
"""

import copy
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from curricle.errors import AgentError, nearest
from curricle.llm.extras import needed
from curricle.llm.models.model import CausalOptions
from curricle.records import Frozen, FrozenMap
from curricle.scale import ranks


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
    clip: float = Field(0.2, gt=0, description="How far the odds of a token may move in one update.")
    kl_coef: float = Field(1e-3, ge=0, description="Weight of the KL divergence from the model it began as.")
    entropy_coef: float = Field(1e-3, ge=0, description="Weight of the entropy bonus.")
    step_weight: float = Field(0.0, ge=0, description="Weight of advantages by turn (GiGPO); 0: none.")
    step_discount: float = Field(0.95, gt=0, le=1, description="Discount of a turn's return, by the turns after it.")
    temperature: float = Field(1.0, gt=0, description="Temperature of practice.")
    max_tokens: int = Field(256, ge=1, description="Most tokens of one reply.")
    trl: FrozenMap[str, Any] = Field(
        Frozen(),
        description="More settings of TRL's GRPOConfig: fsdp, use_vllm, gradient_checkpointing, ...",
    )


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
"""Settings of TRL's, and the option that decides each."""
FIXED = (
    *("output_dir", "shuffle_dataset", "remove_unused_columns", "logging_steps", "logging_strategy", "data_seed"),
    *("logging_nan_inf_filter", "optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "sync_ref_model"),
    *("vllm_importance_sampling_correction", "ds3_gather_for_generation"),
)
"""Those that must be as they are: tasks come by turns, each update is counted, a run resumes exactly."""
DRAWING = (
    *("use_vllm", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation"),
    *("use_transformers_paged", "use_transformers_continuous_batching", "transformers_continuous_batching_config"),
)
"""Those that say how TRL draws replies, beside all that begin with vllm_."""


def check(added: Mapping[str, Any], drawn_by_trl: bool) -> None:
    """Refuse settings that would do nothing, or break what ours do."""
    for name, value in added.items():
        given = f"trl = {{{name!r}: {value!r}}}"
        if name in OURS:
            raise AgentError(f"{given} is decided by an option of ours; set {OURS[name]} instead")
        if name in FIXED:
            raise AgentError(f"{given} cannot be changed here; leave it out")
        if name not in (known := sorted(needed("trl").GRPOConfig.__dataclass_fields__)):
            raise AgentError(f"{given} is no setting of TRL's GRPOConfig, {nearest(name, known)}")
        if (name in DRAWING or name.startswith("vllm_")) and not drawn_by_trl:
            raise AgentError(f"{given} is for replies that TRL draws; set [agent] sampler = 'trl' as well")


@contextmanager
def refusals(trl: Any, options: LearningOptions) -> Iterator[None]:
    """Put what TRL refuses, now or when it first computes, into words; errors of rollouts stay what they are."""
    try:
        yield
    except (ImportError, ValueError, TypeError) as error:
        names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
        ours = [name for name in names if name.startswith("curricle.")]
        if not options.trl or ours[-1] not in (__name__, "curricle.agents.grpo.trainer"):
            raise
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AgentError(f"TRL {trl.__version__} refuses trl = {dict(options.trl)}: {words}") from error


def config(trl: Any, options: LearningOptions, on_gpu: bool, folder: Path) -> Any:
    """TRL's configuration."""
    width = options.group_size * options.tasks_per_update
    share = width // ranks.count()
    micro = next(m for m in range(min(options.microbatch_size, share), 0, -1) if share % m == 0)
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": share // micro,
        "generation_batch_size": width,
        "num_generations": options.group_size,
        "num_iterations": options.iterations,
        "max_completion_length": options.max_tokens,
        "temperature": options.temperature,
        "loss_type": "dapo",  # all tokens weigh the same; with a mean a reply ("grpo") short ones drown the others
        "epsilon": options.clip,
        "beta": 0.0,  # set together with its reference, see trainer.py
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
        "vllm_importance_sampling_correction": False,  # needs a server's odds of every token, the world's included
    }
    return trl.GRPOConfig(**(settings | copy.deepcopy(dict(options.trl))))  # it changes what it is given
