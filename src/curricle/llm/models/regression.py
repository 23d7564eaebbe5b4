"""Regression: a model learns from replies by their weights, near its initial model, in small steps (GenEnv, section 3).

The environment policy learns from its records this way, and an agent that solves nothing yet from solutions.

A record is a request, the reply that answered it, and a weight. The loss is the weighted mean of the replies' negative
log-likelihood, plus `kl_coef` times the KL divergence from the *initial* model. After a step the divergence from the
model just before it is measured. If it is above `max_kl`, the step is halved until it is not. A divergence is the mean
over all tokens of the batch that the model said itself, in however many microbatches they go through the network.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from curricle.errors import ModelError, explained
from curricle.llm.models.model import CausalModel, fast_passes, whole

HALVINGS = 12
TOKENS = 8192
"""Most tokens that go through the network at a time, padding included; a longer record goes alone."""


@dataclass(frozen=True)
class Example:
    """One record of D_env in tokens, or one solved task."""

    prompt: list[int]
    reply: list[int]
    weight: float
    mask: list[int] | None = None
    """Which tokens of the reply the model said itself; None: all."""

    @property
    def own_tokens(self) -> int:
        """How many tokens the model said itself."""
        return len(self.reply) if self.mask is None else sum(self.mask)


Before = tuple[list[Example], Any]
"""Examples, and the logits of the model's own tokens in them before a step."""


def token_logits(model: Any, examples: Sequence[Example], pad: int) -> tuple[Any, Any, Any]:
    """Return logits (tokens, vocabulary) for every token that the model said itself, these tokens, and their rows.

    Padding comes last, where no token looks, so no mask is needed.
    """
    width = max(len(e.prompt) + len(e.reply) for e in examples)
    ids = torch.full((len(examples), width), pad)
    own = torch.zeros_like(ids, dtype=torch.bool)
    for row, e in enumerate(examples):
        start = len(e.prompt)
        end = len(e.prompt) + len(e.reply)
        ids[row, :end] = torch.tensor(e.prompt + e.reply)
        own[row, start:end] = True if e.mask is None else torch.tensor(e.mask, dtype=torch.bool)
    device = next(model.parameters()).device
    ids = ids.to(device)
    own = own.to(device)
    predicts_own = own.roll(-1, 1)  # a token is predicted at the place before it
    with fast_passes(model), _head_only_at(model, predicts_own):
        logits = model(input_ids=ids, use_cache=False).logits
    ignored_head = logits.shape[:2] == ids.shape  # some models do not call the head they name
    logits = logits[predicts_own] if ignored_head else logits[0]
    return logits.float(), ids[own], own.nonzero()[:, 0]


@contextmanager
def _head_only_at(model: Any, places: Any) -> Iterator[None]:
    """Compute a model's last layer, which is as wide as its vocabulary, only at some places."""
    head = model.get_output_embeddings()
    replaced = head.__dict__.get("forward")
    forward = head.forward
    head.forward = lambda hidden: forward(hidden[places.to(hidden.device)].unsqueeze(0))
    try:
        yield
    finally:
        del head.forward
        if replaced is not None:  # a model that is spread over GPUs has one of its own
            head.forward = replaced


def kl_divergence(logits: Any, other: Any) -> Any:
    """Return KL(p || q) of the next token, the mean over all tokens, from two stacks of logits."""
    return _token_kl(logits, other).sum() / max(1, len(logits))


def _token_kl(logits: Any, other: Any) -> Any:
    """KL(p || q) at each place."""
    log_p = logits.log_softmax(-1)
    log_q = other.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def reply_losses(logits: Any, tokens: Any, rows: Any, count: int) -> Any:
    """Return the negative log-likelihood of each of `count` replies, the mean over its tokens."""
    losses = torch.nn.functional.cross_entropy(logits, tokens, reduction="none")
    lengths = torch.bincount(rows, minlength=count).clamp(min=1)
    return torch.zeros(count, device=logits.device).index_add(0, rows, losses) / lengths


def _microbatches(examples: Sequence[Example], size: int) -> list[list[Example]]:
    """Split examples into microbatches of like length, the longest first, of at most `size` examples."""
    batches = list[list[Example]]()
    longest = 0
    for example in sorted(examples, key=lambda e: -len(e.prompt) - len(e.reply)):
        if not batches or len(batches[-1]) == size or (len(batches[-1]) + 1) * longest > TOKENS:
            batches.append([])
            longest = len(example.prompt) + len(example.reply)
        batches[-1].append(example)
    return batches


def update(
    causal: CausalModel,
    examples: Sequence[Example],
    kl_coef: float,
    max_kl: float,
    microbatch_size: int,
    total_weight: float | None = None,
) -> dict[str, float]:
    """Make one update from a batch of examples; returns its metrics.

    Weights are divided by `total_weight`, by default their sum: a batch of a pass over many records must count by its
    share of the weight of all, however little that is. Without a penalty and a cap, divergences are not measured, and
    their passes are left out.
    """
    total = total_weight or sum(e.weight for e in examples)
    with explained(causal.player, "lower its microbatch_size", ModelError):
        causal.optimizer.zero_grad(set_to_none=True)
        measured = bool(kl_coef) or max_kl < float("inf")
        metrics, before = _gradients(causal, examples, kl_coef, microbatch_size, total, measured)
        _clip(causal, metrics["loss"], min(1.0, sum(e.weight for e in examples) / total))
        if measured:
            metrics |= _capped_step(causal, before, max_kl)
        else:
            causal.optimizer.step()
        causal.optimizer.zero_grad(set_to_none=True)
    return metrics


def _gradients(
    causal: CausalModel,
    examples: Sequence[Example],
    kl_coef: float,
    microbatch_size: int,
    total: float,
    measured: bool,
) -> tuple[dict[str, float], list[Before]]:
    """Accumulate the gradient; returns the loss, the divergence if measured, and all logits before the step."""
    pad = causal.tokenizer.pad_token_id
    own_tokens = max(1, sum(e.own_tokens for e in examples))
    loss_sum = 0.0
    kl_sum = 0.0
    before: list[Before] = []
    for batch in _microbatches(examples, microbatch_size):
        logits, tokens, rows = token_logits(causal.model, batch, pad)
        weights = torch.tensor([e.weight / total for e in batch], device=logits.device)
        loss = (weights * reply_losses(logits, tokens, rows, len(batch))).sum()
        kl = torch.zeros_like(loss)
        if measured:
            with causal.initial() as initial, torch.no_grad():
                initial_logits, _, _ = token_logits(initial, batch, pad)
            kl = kl_divergence(logits, initial_logits) * len(tokens) / own_tokens
            before.append((batch, logits.detach().cpu()))  # those of a whole batch do not fit on some GPUs
        (loss + kl_coef * kl).backward()
        loss_sum = loss_sum + float(loss.detach())
        kl_sum = kl_sum + float(kl.detach())
    metrics = {"loss": loss_sum}
    if measured:
        metrics["kl_initial"] = kl_sum
    return metrics, before


def _clip(causal: CausalModel, loss: float, max_norm: float) -> None:
    """Clip the gradient to the batch's share of 1; clipped to 1, all shares would count the same."""
    norm = float(whole(torch.nn.utils.clip_grad_norm_([p for _, p in causal.trained()], max_norm)))
    if not math.isfinite(loss + norm):
        raise ModelError(
            f"{causal.player}: an update came out as loss {loss}, gradient {norm}, and was not made; the last "
            f"checkpoint is as it was. Lower learning_rate, {causal.options.learning_rate}, or use dtype = 'float32'"
        )


def _capped_step(causal: CausalModel, before: Sequence[Before], max_kl: float) -> dict[str, float]:
    """Make the optimiser's step, or the largest half, quarter, ... of it that stays under the cap."""
    starts = [(p, p.detach().clone()) for _, p in causal.trained()]
    causal.optimizer.step()
    ends = [p.detach().clone() for p, _ in starts]
    scale = 1.0
    with torch.no_grad():
        for _ in range(HALVINGS + 1):
            kl = _kl_since(causal, before, max_kl)
            if kl <= max_kl:
                return {"kl_step": kl, "step_scale": scale}
            scale /= 2
            for (p, start), end in zip(starts, ends, strict=True):
                p.copy_(start + scale * (end - start))
        for p, start in starts:  # no step in this direction is small enough
            p.copy_(start)
    return {"kl_step": 0.0, "step_scale": 0.0}


def _kl_since(causal: CausalModel, before: Sequence[Before], max_kl: float) -> float:
    """Divergence from the logits before, over the whole batch; only a lower bound once it is above the cap."""
    total = 0.0
    tokens = max(1, sum(len(logits) for _, logits in before))
    for batch, old_logits in before:
        logits, _, _ = token_logits(causal.model, batch, causal.tokenizer.pad_token_id)
        total += float(_token_kl(logits, old_logits.to(logits.device)).sum())
        if not total / tokens <= max_kl:  # the rest can only add to it
            break
    return total / tokens
