"""Trainer: TRL's GRPOTrainer, fed task by task, with our rollouts.

TRL does the loss, the clipping, the KL and entropy terms, gradient accumulation, and what accelerate and vLLM offer
(the agent's `trl` option). We give it an `IterableDataset` of tasks and a rollout function, because a rollout here is a
conversation with a world. One trainer lives as long as its agent: its optimiser is the agent's own, so that checkpoints
are ours, small and exact. Four things TRL has no setting for:

- the reference of the KL term is the model the agent began with, which may come from no folder TRL could load;
- advantages by turn (GiGPO, `credit.py`) are added to those of the group;
- rows of like length go through the network together (`parts.py`), a prompt that several share once (`packing.py`);
- a call of `practise` is a training of its own length; buffers of the one before are dropped.

Of several ranks (`ranks.py`) each rolls out its share of an update's rows and learns from it. A group may lie across
two: TRL compares rewards, and we turns, over all ranks. The leader draws the tasks, so the others keep no pool.
"""

import itertools
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from curricle.agents.grpo import sharding as sharing
from curricle.agents.grpo.credit import token_advantages
from curricle.agents.grpo.microbatches import MEANS, TOKENWISE, laid_out, share
from curricle.agents.grpo.options import LearningOptions, config, refusals
from curricle.agents.grpo.packing import packed, packs, scored
from curricle.agents.grpo.rollouts import Attempt
from curricle.errors import AgentError, explained
from curricle.llm.extras import needed
from curricle.llm.models.model import CausalModel, lightly
from curricle.records import Task
from curricle.scale import ranks
from curricle.seeds import derive

Slot = tuple[Task, int]
"""A task and the design it counts for."""
Rollout = Callable[[Sequence[Slot]], list[Attempt]]
Watch = Callable[[int, Sequence[Attempt], Mapping[str, float]], None]
"""Told after each update: updates so far, its attempts, and TRL's figures."""
FIGURES = {
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "clip_ratio/region_mean": "clipped",
    "frac_reward_zero_std": "even",
}
"""What TRL logs and we report; `even` is the share of tries whose group was all right or all wrong: no signal."""


LIGHTER = 4
"""How many times as many packed rows go through the network at a time where nothing is kept for a gradient."""
UNLIKELY = -1000.0
"""Log-odds below those of any token: exp(UNLIKELY - them) is 0."""


class Grpo:
    """A trainer that outlives the calls of `practise`."""

    def __init__(self, causal: CausalModel, options: LearningOptions, rollout: Rollout) -> None:
        self.causal = causal
        self.rollout = rollout
        self.options = options if causal.sharded else sharing.alone(options)
        self.trainer: Any = _trainer(self) if causal.sharded else None  # taken apart before anything is loaded

    def run(self, slots: Iterator[Slot], steps: int, seed: int, watch: Watch) -> None:
        """Make `steps` updates from the tasks that `slots` hands out."""
        if self.trainer is None:
            self.trainer = _trainer(self)
        trainer = self.trainer
        trainer.args.max_steps = steps * self.options.iterations
        needed_slots = itertools.islice(
            slots, steps * self.options.tasks_per_update
        )  # loaders read ahead, and tasks may cost time
        trainer.train_dataset = _dataset(ranks.dealt(needed_slots, self.options.tasks_per_update), trainer.slots)
        trainer.watch = watch
        trainer._step = 0
        trainer._buffered_inputs = None
        devices = [self.causal.device] if self.causal.device.type == "cuda" else []
        advice = "lower its microbatch_size, sample_batch or max_tokens"
        told = explained(self.causal.who, advice, AgentError)
        with torch.random.fork_rng(devices=devices), warnings.catch_warnings(), told:
            warnings.simplefilter("ignore")
            torch.manual_seed(own_seed(seed))
            try:
                with refusals(needed("trl"), self.options), ranks.connected():
                    trainer.train()
            finally:
                trainer.slots.clear()
                self.causal.model.eval()

    @property
    def width(self) -> int:
        """Rollouts of one update."""
        return self.options.group_size * self.options.tasks_per_update


def own_seed(seed: int) -> int:
    """A seed of this rank's own; the leader's is what it would be alone."""
    return derive(seed, "rank", ranks.number()) if ranks.number() else seed


def _dataset(slots: Iterator[Slot], kept: dict[int, Slot]) -> Any:
    """Tasks as TRL's streaming dataset; `kept` holds what a row of plain data cannot."""
    datasets = needed("datasets")

    def rows() -> Iterator[dict[str, Any]]:
        for number, slot in enumerate(slots):
            kept[number] = slot
            yield {"prompt": [{"role": m.role, "content": m.content} for m in slot[0].prompt], "slot": number}

    return datasets.iterable_dataset.IterableDataset(
        datasets.iterable_dataset.ExamplesIterable(lambda: ((i, row) for i, row in enumerate(rows())), {})
    )


def _trainer(owner: Grpo) -> Any:
    trl = needed("trl")
    options = owner.options
    causal = owner.causal
    from transformers import PrinterCallback, TrainerCallback
    from trl.trainer import grpo_trainer
    from trl.trainer.utils import add_fused_lm_head

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc,name-defined]
        """TRL's, told which rows are rolled out, and giving credit by turn."""

        slots: dict[int, Slot]
        watch: Watch
        entropy_coef: float

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            with laid_out(grpo_trainer, self.loss_type, options.group_size):
                return super()._prepare_inputs(generation_batch)

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            self.rows = [self.slots[row["slot"]] for row in inputs]
            batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
            if "ref_per_token_logps" in batch:
                batch["ref_per_token_logps"] = hushed(batch)
            if options.step_weight:
                width = batch["completion_ids"].shape[1]
                every = token_advantages(self.fresh, options.step_discount, width)
                first = ranks.number() * len(inputs)
                steps = torch.tensor(every[first : first + len(inputs)])
                whole = batch["advantages"].unsqueeze(1)
                batch["advantages"] = whole + options.step_weight * steps.to(whole)
            return batch

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            """TRL's; what it takes a mean over parts of is a mean over tokens."""
            weight = share(inputs, self.args.steps_per_generation)
            if self.loss_type not in TOKENWISE or ranks.count() > 1 or self.use_adaptive_entropy:
                weight = 1.0
            coefficient = self.entropy_coef
            self.entropy_coef = weight * self.entropy_coef
            try:
                loss = super()._compute_loss(model, inputs)
            finally:
                if not self.use_adaptive_entropy:
                    self.entropy_coef = coefficient
            for figures in (self._metrics["train"].get(name) for name in MEANS):
                if figures:
                    figures[-1] *= weight
            return loss

        def _get_per_token_logps_and_entropies(
            self, model: Any, ids: Any, seen: Any, keep: int, batch_size: int | None = None, **named: Any
        ) -> tuple[Any, Any, Any]:
            """The same figures; where several rows have one prompt, from packed sequences."""
            plain = super()._get_per_token_logps_and_entropies
            count = batch_size or len(ids)
            alone = ranks.count() == 1  # several have to pass the network equally often
            may = packs(causal.model) and not named.get("compute_aux_loss")
            pad = causal.tokenizer.pad_token_id

            def passed(rows: slice) -> tuple[Any, Any, Any]:
                some = packed(ids[rows], seen[rows], keep, pad, apart=alone) if may else []
                if not some:
                    found: tuple[Any, Any, Any] = plain(model, ids[rows], seen[rows], keep, count, **named)
                    return found
                with self.accelerator.autocast(), lightly(causal.model):
                    return *scored(some, model), None

            many = LIGHTER * count if alone and not torch.is_grad_enabled() else count
            parts = [passed(slice(start, start + many)) for start in range(0, len(ids), many)]
            odds, entropies, losses = zip(*parts, strict=True)
            entropy = torch.cat(entropies) if named.get("compute_entropy") else None
            return torch.cat(odds), entropy, None if losses[0] is None else torch.stack(losses).mean()

    class Told(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in (logs or {}):
                figures = {ours: float(logs[theirs]) for theirs, ours in FIGURES.items() if theirs in logs}
                _whole(causal, figures)
                trainer.watch(int(state.global_step), trainer.fresh, figures)
                trainer.fresh = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        own = owner.rollout(trainer.rows)
        trainer.fresh = [one for part in ranks.gathered(own) for one in part]
        return {
            "prompt_ids": [one.prompt for one in own],
            "completion_ids": [one.ids for one in own],
            "env_mask": [one.mask for one in own],
            "earned": [one.verdict.reward for one in own],
            "logprobs": None,
        }

    def earned(earned: list[float], **_: Any) -> list[float]:
        return earned

    told = refusals(trl, options)
    frozen = causal.frozen
    with told, warnings.catch_warnings(), tempfile.TemporaryDirectory() as nowhere:
        warnings.simplefilter("ignore")
        trainer = Trainer(
            model=causal.model,
            reward_funcs=earned,
            args=config(trl, options, causal.device.type == "cuda", Path(nowhere)),
            train_dataset=_dataset(iter(()), {}),
            processing_class=causal.tokenizer,
            rollout_func=rollout,
            callbacks=[Told()],
        )
    trainer.slots = {}
    trainer.fresh = []
    trainer.optimizer = causal.optimizer
    trainer.remove_callback(PrinterCallback)
    if frozen is not None and options.kl_coef:
        add_fused_lm_head(frozen, temperature=options.temperature)
    if causal.sharded:
        frozen = sharing.take_apart(trainer, causal, options.trl)
    trainer.beta = options.kl_coef
    trainer.ref_model = frozen if options.kl_coef else None
    return trainer


def hushed(batch: Mapping[str, Any]) -> Any:
    """The reference's log-odds, where tokens that are not the agent's own are set to what no term can blow up from.

    TRL takes exp(reference - model) of every token and masks it afterwards; of a world's words, which the agent need
    not find likely at all, that can be infinite, and nothing times infinity is no number.
    """
    own = batch["completion_mask"] * batch.get("tool_mask", 1)
    return batch["ref_per_token_logps"].masked_fill(own == 0, UNLIKELY)


def _whole(causal: CausalModel, figures: Mapping[str, float]) -> None:
    """Stop at an update that is no number, before anything is saved."""
    if not math.isfinite(figures["loss"] + figures.get("grad_norm", 0.0)):
        raise AgentError(
            f"{causal.who}: an update came out as {dict(figures)}; the last checkpoint is as it was. Lower "
            f"learning_rate, {causal.options.learning_rate}, or use dtype = 'float32'"
        )
