"""Trainer: one GRPO update after the other. Read `GRPOTrainer` from top to bottom.

    1 rollout      `_roll_out`: the agent attempts each task of the update `group_size` times
    2 reward       `_rewards`: what the world's verifier gave
    3 advantage    `_generate_and_score_completions`: each reward against its group's, and by turn (GiGPO)
    4 update       `_prepare_inputs` splits the rows into microbatches; for each one `_compute_loss` gets the loss;
                   then TRL makes the optimiser's step
    5 metrics      `_ReportMetrics`, after each update

TRL drives this loop. It has the losses, clipping, KL and entropy terms, gradient accumulation, and what accelerate and
vLLM offer (`agent.trl`). It gets an `IterableDataset` of tasks and a rollout function, because a rollout here is a
conversation with a world. One trainer lives as long as its agent, with the agent's own optimiser, so that checkpoints
are ours, small and exact. Each call of `practise` is a training of its own length.

**Private methods.** Four methods of TRL's `GRPOTrainer` are overridden that are private to it. Their docstrings say
why: TRL has no setting for that. Private methods change without notice, so only the version of TRL that the tests run
with is accepted (`TESTED_TRL` in `options.py`), and `tests/agents/grpo/test_trl.py` compares the signatures.

Of several ranks each rolls out its share of an update's rows and learns from it. A group may lie across two ranks: TRL
compares rewards over all ranks, and so do we by turn. The leader draws the tasks, so the others keep no pool.

This module imports TRL, so `agent.py` imports it late.
"""

import itertools
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.utils import add_fused_lm_head

from curricle.agents.grpo import sharding
from curricle.agents.grpo.credit import token_advantages
from curricle.agents.grpo.microbatches import (
    TOKEN_MEAN_LOSSES,
    TOKEN_MEAN_METRICS,
    Batch,
    pack,
    packed_log_probs,
    split,
    supports_packing,
    token_share,
)
from curricle.agents.grpo.options import LearningOptions, make_config
from curricle.agents.grpo.rollouts import Attempt, DesignTask
from curricle.errors import AgentError, explained, needed
from curricle.llm.models.model import CausalModel, fast_passes
from curricle.scale import ranks

RollOut = Callable[[Sequence[DesignTask]], list[Attempt]]
"""Attempts tasks, one row each; a group of rows has the same task."""
OnUpdate = Callable[[int, Sequence[Attempt], Mapping[str, float]], None]
"""Called after each update with the updates so far, its attempts (none if they were used before) and metrics."""
REPORTED = {
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "clip_ratio/region_mean": "clipped",
    "frac_reward_zero_std": "no_signal",
}
"""TRL's names of the metrics we report; `no_signal` is the share of attempts whose group all earned the same reward."""
ROWS_WITHOUT_GRADIENT = 4
"""How many times as many packed rows go through the network at a time where nothing is kept for a gradient."""
NO_ADVANTAGE = 1e-6
"""Advantages up to this are those of equal rewards."""
MASKED_LOG_PROB = -1000.0
"""Below the log-probability of any token: exp(MASKED_LOG_PROB - log_prob) is 0."""


class GRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc,name-defined,unused-ignore]
    """TRL's trainer with our rollouts, microbatches by length, shared prompts, and advantages by turn."""

    entropy_coef: float  # of TRL
    _buffered_inputs: list[Batch] | None  # of TRL: the microbatches of this update
    _step: int  # of TRL: microbatches so far

    def __init__(self, causal: CausalModel, options: LearningOptions, roll_out: RollOut) -> None:
        self.causal = causal
        self.options = options if causal.sharded else sharding.without_sharding(options)
        self.roll_out = roll_out
        self.on_update: OnUpdate = _ignore
        self.tasks: dict[int, DesignTask] = {}  # of this call of `run`, by the number that stands in TRL's rows
        self.row_tasks: list[DesignTask] = []  # of this rank's rows of the update
        self.attempts: list[Attempt] = []  # of all ranks, of this update; empty once they are reported
        self.has_signal = True  # whether any attempt of this update has an advantage
        on_gpu = causal.device.type == "cuda"
        with (
            explain_refusals(self.options),
            warnings.catch_warnings(),
            tempfile.TemporaryDirectory() as folder,  # TRL asks for one and writes nothing
        ):
            warnings.simplefilter("ignore")
            super().__init__(
                model=causal.model,
                reward_funcs=_rewards,
                args=make_config(self.options, on_gpu, Path(folder)),
                train_dataset=self._dataset(iter(())),
                processing_class=causal.tokenizer,
                rollout_func=_call_roll_out,
                callbacks=[_ReportMetrics(self)],
            )
        self.optimizer = causal.optimizer
        self.remove_callback(PrinterCallback)
        self._set_reference()

    def _set_reference(self) -> None:
        """Give TRL the initial model for its KL term: the one in memory, which may come from no folder TRL could load.

        With an adapter there is none to give: TRL asks the base, or the adapter `ref` if there is one.
        """
        reference = self.causal.initial_copy
        kl_coef = self.options.kl_coef
        if reference is not None and kl_coef:
            add_fused_lm_head(reference, temperature=self.options.temperature)
        if self.causal.sharded:
            reference = sharding.shard(self, self.causal, self.options.trl)
        self.beta = kl_coef
        self.ref_model = reference if kl_coef else None

    def run(self, tasks: Iterator[DesignTask], updates: int, seed: int, on_update: OnUpdate) -> None:
        """Make some updates from the tasks that an iterator hands out."""
        self.args.max_steps = updates * self.options.iterations
        count = updates * self.options.tasks_per_update
        exactly = itertools.islice(tasks, count)  # data loaders read ahead, and a task may take long to make
        self.train_dataset = self._dataset(ranks.broadcast_items(exactly, self.options.tasks_per_update))
        self.on_update = on_update
        self._step = 0
        self._buffered_inputs = None
        devices = [self.causal.device] if self.causal.device.type == "cuda" else []
        advice = "lower its microbatch_size, sample_batch or max_tokens"
        with (
            torch.random.fork_rng(devices=devices),
            warnings.catch_warnings(),
            explained(self.causal.player, advice, AgentError),
        ):
            warnings.simplefilter("ignore")
            torch.manual_seed(ranks.rank_seed(seed))
            try:
                with explain_refusals(self.options), ranks.explain_lost_rank():
                    self.train()
            finally:
                self.tasks.clear()
                self.causal.model.eval()

    def _dataset(self, tasks: Iterator[DesignTask]) -> Any:
        """Tasks as TRL's streaming dataset; a row has the prompt, and the number of its task in `self.tasks`."""

        def rows() -> Iterator[tuple[int, dict[str, Any]]]:
            with own_code():
                for number, (task, design) in enumerate(tasks):
                    self.tasks[number] = DesignTask(task, design)
                    chat = [{"role": message.role, "content": message.content} for message in task.prompt]
                    yield number, {"prompt": chat, "number": number}

        streaming = needed("datasets.iterable_dataset")
        return streaming.IterableDataset(streaming.ExamplesIterable(rows, {}))

    # -- 1: rollout ----------------------------------------------------------------------------------------------------

    def _roll_out(self) -> dict[str, Any]:
        """Attempt this rank's rows of the update; returns what TRL asks of a rollout function."""
        own = self.roll_out(self.row_tasks)
        self.attempts = [one for of_rank in ranks.all_gather(own) for one in of_rank]
        return {
            "prompt_ids": [one.prompt for one in own],
            "completion_ids": [one.ids for one in own],
            "env_mask": [one.mask for one in own],
            "verdict_reward": [one.verdict.reward for one in own],
            "logprobs": None,
        }

    # -- 2 and 3: reward and advantage ---------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        """Roll out, and give every row its reward and its advantage inside the group, all by TRL.

        Overridden because a rollout needs the tasks behind the rows, because TRL has no advantages by turn, and because
        its KL term is infinite for some tokens of the world.
        """
        self.row_tasks = [self.tasks[row["number"]] for row in inputs]
        batch: Batch = super()._generate_and_score_completions(inputs)
        if "ref_per_token_logps" in batch:
            batch["ref_per_token_logps"] = mask_reference(batch)
        if self.options.step_weight:
            batch["advantages"] = self._add_turn_advantages(batch)
        largest = float(batch["advantages"].abs().max())
        self.has_signal = max(ranks.all_gather(largest)) > NO_ADVANTAGE
        return batch

    def _add_turn_advantages(self, batch: Batch) -> torch.Tensor:
        """Return an advantage a token: the row's, plus that of its turn."""
        of_group = batch["advantages"].unsqueeze(1)
        of_turns = token_advantages(self.attempts, self.options.step_discount, batch["completion_ids"].shape[1])
        first = ranks.number() * len(of_group)
        own = torch.tensor(of_turns[first : first + len(of_group)])
        advantages: torch.Tensor = of_group + self.options.step_weight * own.to(of_group)
        return advantages

    # -- 4: update -----------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> Batch:
        """Return the next microbatch, after steps 1 to 3 where the rows before it are used up.

        Overridden because TRL shuffles rows and cuts them into equally many; see `microbatches.py`. The rest is TRL's.
        """
        count = self.args.steps_per_generation
        if self._step % (count * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split(batch, count, self.options.group_size, self.loss_type)
        microbatch: Batch = self._buffered_inputs[self._step % count]
        return microbatch

    def _compute_loss(self, model: Any, inputs: Batch) -> Any:
        """Return TRL's loss of a microbatch.

        Overridden because TRL takes the mean entropy, and means for metrics, over each microbatch. They have unequally
        many tokens, so these means count by their tokens, as if taken over the whole update. An update in which no
        group has a signal has no entropy bonus: Adam makes whole steps of it, however small, and an agent that earns
        nothing would forget what it can do.
        """
        weight = 1.0
        if self.loss_type in TOKEN_MEAN_LOSSES and ranks.count() == 1 and not self.use_adaptive_entropy:
            weight = token_share(inputs, self.args.steps_per_generation)
        entropy_coef = self.entropy_coef
        self.entropy_coef = weight * entropy_coef * self.has_signal
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            if not self.use_adaptive_entropy:  # else TRL has changed it
                self.entropy_coef = entropy_coef
        for name in TOKEN_MEAN_METRICS:
            values = self._metrics["train"].get(name)
            if values:
                values[-1] *= weight
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Any, Any, Any]:
        """Return log-probabilities and entropies of the replies' tokens, and the loss of routers.

        Overridden so that rows with the same prompt go through the network packed; the values are the same.
        """
        size = batch_size or len(input_ids)
        at_a_time = size
        one_rank = ranks.count() == 1  # several ranks have to pass the network equally often
        if one_rank and not torch.is_grad_enabled():
            at_a_time = ROWS_WITHOUT_GRADIENT * size
        may_pack = supports_packing(self.causal.model) and not options.get("compute_aux_loss")
        pad = self.causal.tokenizer.pad_token_id
        log_probs = list[Any]()
        entropies = list[Any]()
        router_losses = list[Any]()
        for start in range(0, len(input_ids), at_a_time):
            ids = input_ids[start : start + at_a_time]
            mask = attention_mask[start : start + at_a_time]
            packs = pack(ids, mask, logits_to_keep, pad, by_length=one_rank) if may_pack else []
            if packs:
                with self.accelerator.autocast(), fast_passes(self.causal.model):
                    found = (*packed_log_probs(packs, model), None)
            else:
                found = super()._get_per_token_logps_and_entropies(model, ids, mask, logits_to_keep, size, **options)
            log_probs.append(found[0])
            entropies.append(found[1])
            router_losses.append(found[2])
        entropy = torch.cat(entropies) if options.get("compute_entropy") else None
        router_loss = None if router_losses[0] is None else torch.stack(router_losses).mean()
        return torch.cat(log_probs), entropy, router_loss


def _rewards(verdict_reward: list[float], **_: Any) -> list[float]:
    """Step 2: TRL asks a function for the rewards; they came with the rollouts."""
    return verdict_reward


def _call_roll_out(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
    """Step 1: TRL asks a function for the rollouts. The prompts are those of `trainer.row_tasks`."""
    with own_code():
        return trainer._roll_out()


def mask_reference(batch: Mapping[str, Any]) -> Any:
    """Return the reference's log-probabilities, set to MASKED_LOG_PROB for tokens that are not the agent's own.

    TRL takes exp(reference - model) of every token and masks it afterwards. For a world's words, which the agent may
    find very unlikely, that can be infinite, and zero times infinity is no number.
    """
    own = batch["completion_mask"] * batch.get("tool_mask", 1)
    return batch["ref_per_token_logps"].masked_fill(own == 0, MASKED_LOG_PROB)


# -- 5: metrics --------------------------------------------------------------------------------------------------------


class _ReportMetrics(TrainerCallback):
    """Hands each update's attempts and metrics to the agent."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer = trainer

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Called by TRL after each update."""
        if "loss" not in (logs or {}):
            return
        with own_code():
            metrics = {ours: float(logs[theirs]) for theirs, ours in REPORTED.items() if theirs in logs}
            _refuse_non_finite(self.trainer.causal, metrics)
            self.trainer.on_update(int(state.global_step), self.trainer.attempts, metrics)
            self.trainer.attempts = []  # a second pass over them brings no new ones


def _refuse_non_finite(causal: CausalModel, metrics: Mapping[str, float]) -> None:
    """Stop at an update that is no number, before anything is saved."""
    if not math.isfinite(metrics["loss"] + metrics.get("grad_norm", 0.0)):
        raise AgentError(
            f"{causal.player}: an update came out as {dict(metrics)}; the last checkpoint is as it was. Lower "
            f"learning_rate, {causal.options.learning_rate}, or use dtype = 'float32'"
        )


def _ignore(update: int, attempts: Sequence[Attempt], metrics: Mapping[str, float]) -> None:
    """What happens after an update before a run has begun: nothing."""


# -- errors ------------------------------------------------------------------------------------------------------------


class OwnError(Exception):
    """Carries an error of our own code through TRL, so that it is not taken for a setting that TRL refuses."""


@contextmanager
def own_code() -> Iterator[None]:
    """Mark code of ours that TRL calls: its errors leave `explain_refusals` as they are."""
    try:
        yield
    except (ImportError, ValueError, TypeError) as error:
        raise OwnError from error


@contextmanager
def explain_refusals(options: LearningOptions) -> Iterator[None]:
    """Name the settings in `trl` where TRL refuses them, at once or when it first computes."""
    own_error: BaseException | None = None
    try:
        yield
    except OwnError as carrier:
        own_error = carrier.__cause__
    except (ImportError, ValueError, TypeError) as error:
        if not options.trl:
            raise
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AgentError(f"TRL {trl.__version__} refuses trl = {dict(options.trl)}: {first_line}") from error
    if own_error is not None:
        raise own_error
