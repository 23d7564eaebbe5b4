"""Regression: how a model learns replies by weight, near where it began, in small steps (GenEnv, section 3).

The environment policy learns from its records so; an agent that solves nothing yet may be shown solutions so.

Each record is a request, the reply that answered it, and a weight. The loss is the weighted mean of the replies'
negative log-likelihood, plus `kl` times the divergence from the *initial* model. After a step the divergence from the
model just before it is measured; where it is above `cap`, the step is halved until it is not. A divergence is the mean
over all tokens of the batch that the model said itself, in however many parts they go through the network.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from curricle.errors import ModelError, explained
from curricle.llm.models.model import CausalModel, lightly
from curricle.llm.models.sharding import whole

HALVINGS = 12
TOKENS = 8192
"""Most tokens that go through the network at a time, padding included; long ones go alone."""


@dataclass(frozen=True)
class Example:
    """One record of D_env in tokens, or one solved task."""

    prompt: list[int]
    reply: list[int]
    weight: float
    mask: list[int] | None = None
    """Which tokens of the reply the model said itself; None: all."""

    @property
    def said(self) -> int:
        """How many they are."""
        return len(self.reply) if self.mask is None else sum(self.mask)


Before = tuple[list[Example], Any]
"""Examples, and the logits of the tokens the model said in them, before a step."""


def token_logits(model: Any, examples: Sequence[Example], pad: int) -> tuple[Any, Any, Any]:
    """Logits before every token that the model said itself, (tokens, words); those tokens; and whose each one is.

    Padding comes last, where no token looks, so there is no need for a mask.
    """
    ids = torch.full((len(examples), max(len(e.prompt) + len(e.reply) for e in examples)), pad)
    own = torch.zeros_like(ids, dtype=torch.bool)
    for row, e in enumerate(examples):
        start = len(e.prompt)
        end = len(e.prompt) + len(e.reply)
        ids[row, :end] = torch.tensor(e.prompt + e.reply)
        own[row, start:end] = True if e.mask is None else torch.tensor(e.mask, dtype=torch.bool)
    device = next(model.parameters()).device
    ids = ids.to(device)
    own = own.to(device)
    chosen = own.roll(-1, 1)  # a token is foretold where the one before it stands
    with lightly(model), _narrowed(model, chosen):
        logits = model(input_ids=ids, use_cache=False).logits
    kept = logits[chosen] if logits.shape[:2] == ids.shape else logits[0]  # some models do not call the head they name
    return kept.float(), ids[own], own.nonzero()[:, 0]


@contextmanager
def _narrowed(model: Any, chosen: Any) -> Iterator[None]:
    """Let a model's last layer, which is as wide as there are words, look only at the places that count."""
    head = model.get_output_embeddings()
    before = head.__dict__.get("forward")
    forward = head.forward
    head.forward = lambda hidden: forward(hidden[chosen.to(hidden.device)].unsqueeze(0))
    try:
        yield
    finally:
        del head.forward
        if before is not None:  # whoever lays a model over several devices put it there
            head.forward = before


def divergence(logits: Any, other: Any) -> Any:
    """KL(p || q) of next-token odds, the mean over all tokens, from two stacks of logits."""
    return _each(logits, other).sum() / max(1, len(logits))


def _each(logits: Any, other: Any) -> Any:
    """KL(p || q) at each place."""
    log_p = logits.log_softmax(-1)
    log_q = other.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def unlikelihood(logits: Any, tokens: Any, rows: Any, count: int) -> Any:
    """Negative log-likelihood of each of `count` replies, the mean over its tokens."""
    costs = torch.nn.functional.cross_entropy(logits, tokens, reduction="none")
    said = torch.bincount(rows, minlength=count).clamp(min=1)
    return torch.zeros(count, device=logits.device).index_add(0, rows, costs) / said


def _parts(examples: Sequence[Example], micro: int) -> list[list[Example]]:
    """Examples that go through the network together: of like length, at most `micro`, the longest first."""
    parts = list[list[Example]]()
    longest = 0
    for example in sorted(examples, key=lambda e: -len(e.prompt) - len(e.reply)):
        if not parts or len(parts[-1]) == micro or (len(parts[-1]) + 1) * longest > TOKENS:
            parts.append([])
            longest = len(example.prompt) + len(example.reply)
        parts[-1].append(example)
    return parts


def step(
    causal: CausalModel, examples: Sequence[Example], kl: float, cap: float, micro: int, total: float | None = None
) -> dict[str, float]:
    """One update from a batch of examples; says how far it went.

    `total` is what their weights are measured by, their sum where nothing is said: a batch of a pass over many records
    is to count by its share of their weight, however little that is. Without a penalty and a cap nobody asks how far,
    and passes that would only measure it are left out.
    """
    with explained(causal.who, "lower its microbatch_size", ModelError):
        return _step(causal, examples, kl, cap, micro, total or sum(e.weight for e in examples))


def _step(
    causal: CausalModel, examples: Sequence[Example], kl: float, cap: float, micro: int, total: float
) -> dict[str, float]:
    model = causal.model
    optimizer = causal.optimizer
    parts = _parts(examples, micro)
    measured = bool(kl) or cap < float("inf")
    pad = causal.tokenizer.pad_token_id
    tokens_said = max(1, sum(e.said for e in examples))
    optimizer.zero_grad(set_to_none=True)
    loss_sum = kl_sum = 0.0
    before: list[Before] = []
    for part in parts:
        logits, tokens, rows = token_logits(model, part, pad)
        weights = torch.tensor([e.weight / total for e in part], device=logits.device)
        fit = (weights * unlikelihood(logits, tokens, rows, len(part))).sum()
        away = torch.zeros_like(fit)
        if measured:
            with causal.origin() as origin, torch.no_grad():
                initial, _, _ = token_logits(origin, part, pad)
            away = divergence(logits, initial) * len(tokens) / tokens_said
            before.append((part, logits.detach().cpu()))  # of a whole batch: too much for some GPUs
        (fit + kl * away).backward()
        loss_sum = loss_sum + float(fit.detach())
        kl_sum = kl_sum + float(away.detach())
    most = min(1.0, sum(e.weight for e in examples) / total)  # clipped to one length, all shares would be the same
    norm = float(whole(torch.nn.utils.clip_grad_norm_([p for _, p in causal.trained()], most)))
    if not math.isfinite(loss_sum + norm):
        raise ModelError(
            f"{causal.who}: an update came out as loss {loss_sum}, gradient {norm}, and was not made; the last "
            f"checkpoint is as it was. Lower learning_rate, {causal.options.learning_rate}, or use dtype = 'float32'"
        )
    told = {"loss": loss_sum}
    if measured:
        moved, scale = _capped(causal, before, cap)
        told |= {"kl_initial": kl_sum, "kl_step": moved, "step_scale": scale}
    else:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return told


def _capped(causal: CausalModel, before: Sequence[Before], cap: float) -> tuple[float, float]:
    """Make the optimiser's step, or the largest half, quarter, ... of it that stays under the cap."""
    was = [(p, p.detach().clone()) for _, p in causal.trained()]
    causal.optimizer.step()
    now = [p.detach().clone() for p, _ in was]
    scale = 1.0
    with torch.no_grad():
        for _ in range(HALVINGS + 1):
            moved = _moved(causal, before, cap)
            if moved <= cap:
                return moved, scale
            scale /= 2
            for (p, start), end in zip(was, now, strict=True):
                p.copy_(start + scale * (end - start))
        for p, start in was:  # no step of this direction is small enough
            p.copy_(start)
    return 0.0, 0.0


def _moved(causal: CausalModel, before: Sequence[Before], cap: float) -> float:
    """Divergence from the logits before, over the whole batch; only a lower bound once that is above the cap."""
    total = 0.0
    tokens = max(1, sum(len(old) for _, old in before))
    for part, old in before:
        logits, _, _ = token_logits(causal.model, part, causal.tokenizer.pad_token_id)
        total += float(_each(logits, old.to(logits.device)).sum())
        if not total / tokens <= cap:  # no part can take any of it back
            break
    return total / tokens
