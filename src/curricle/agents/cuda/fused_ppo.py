"""PPO's own arithmetic on a GPU, each of these functions in one Triton kernel instead of tens of small ones.

Each computes what the plain code beside its call computes. Policies are categorical: `log_probs` hold the
log-probabilities of all actions, (batch, actions).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from curricle.agents.cuda import kernels

ROWS = 256
"""Rows of a minibatch that the kernel of the loss takes at a time."""
METRICS = 5
"""Metrics that the kernel of the loss returns: policy loss, value loss, entropy, KL and share of clipped ratios."""
Weights = tuple[float, float, float]
"""The clip range of PPO's ratio, and the weights of value loss and entropy beside the policy loss."""


def sample_actions(log_probs: Tensor, values: Tensor, noise: Tensor, moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Actions drawn with uniform noise (batch, 1), their log-probabilities, and values on the world's scale.

    `moments` are those of the value normaliser.
    """
    count, actions = log_probs.shape
    values = values.contiguous()
    chosen = log_probs.new_empty(count, dtype=torch.int64)
    chosen_log_probs = torch.empty_like(values)
    scaled_values = torch.empty_like(values)
    width = _power_of_two(actions)
    block = max(1, min(64, ROWS * 32 // width))
    kernels.sample_actions[(-(-count // block),)](
        log_probs.contiguous(),
        noise.contiguous(),
        values,
        moments,
        chosen,
        chosen_log_probs,
        scaled_values,
        count,
        ACTIONS=actions,
        WIDE=width,
        BLOCK=block,
    )
    return chosen, chosen_log_probs, scaled_values


def ppo_loss(
    log_probs: Tensor, values: Tensor, batch: Mapping[str, Tensor], moments: Tensor, weights: Weights
) -> tuple[Tensor, Tensor]:
    """PPO's loss over a minibatch, and its metrics; `moments` are those of the value normaliser."""
    given = [batch[name] for name in ("actions", "log_probs", "advantages", "returns")]
    loss, metrics = _PPOLoss.apply(log_probs, values, weights, *given, moments)  # type: ignore[no-untyped-call]
    return loss, metrics


class _PPOLoss(torch.autograd.Function):
    """The kernel computes the gradients together with the loss; `backward` only scales them."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, values: Tensor, weights: Weights, *given: Tensor) -> tuple[Tensor, Tensor]:
        count, actions = log_probs.shape
        log_probs = log_probs.contiguous()
        values = values.contiguous()
        dlog_probs = torch.empty_like(log_probs)
        dvalues = torch.empty_like(values)
        results = log_probs.new_empty(1 + METRICS)
        width = _power_of_two(actions)
        block = max(1, min(ROWS, ROWS * 32 // width))
        kernels.ppo_loss[(1,)](
            log_probs,
            values,
            *given,
            dlog_probs,
            dvalues,
            results,
            count,
            *weights,
            ACTIONS=actions,
            WIDE=width,
            BLOCK=block,
            num_warps=8,
        )
        ctx.save_for_backward(dlog_probs, dvalues)
        loss = results[0]
        metrics = results[1:]
        ctx.mark_non_differentiable(metrics)
        return loss, metrics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, _: Any) -> Any:
        dlog_probs, dvalues = ctx.saved_tensors
        return dlog_probs * dloss, dvalues * dloss, None, None, None, None, None, None


def fill_advantages(
    rewards: Tensor, ended: Tensor, values: Tensor, advantages: Tensor, returns: Tensor, gamma: float, gae_lambda: float
) -> None:
    """Generalised advantage estimation; writes normalised advantages, and returns, into the tensors given for them."""
    steps, count = rewards.shape
    block = min(1024, max(32, _power_of_two(count)))
    warps = min(8, block // 32)  # a thread has one environment, or several where there are many
    kernels.fill_advantages[(1,)](
        rewards,
        ended,
        values,
        advantages,
        returns,
        steps,
        count,
        gamma,
        gamma * gae_lambda,
        BLOCK=block,
        num_warps=warps,
    )


def update_moments(targets: Tensor, moments: Tensor, share: float) -> None:
    """Replace a share of the value normaliser's moments by those of some targets."""
    kernels.update_moments[(1,)](targets, moments, len(targets), share, BLOCK=1024)


def adam_step(
    flat: nn.Parameter,
    gradient: Tensor,
    norm: Tensor,
    max_norm: float,
    adam: torch.optim.Adam,
    bf16_copy: Tensor | None = None,
) -> None:
    """Clip a gradient of the given norm and take a step of Adam, in the state that torch's Adam keeps."""
    state = adam.state[flat]
    group = adam.param_groups[0]
    beta1, beta2 = group["betas"]
    state["step"].add_(1)
    size = len(flat)
    kernels.adam_step[(-(-size // 1024),)](
        gradient,
        norm,
        max_norm,
        flat.data,
        state["exp_avg"],
        state["exp_avg_sq"],
        state["step"],
        size,
        group["lr"],
        group["eps"],
        1 - beta1,
        1 - beta2,
        math.log(beta1),
        math.log(beta2),
        flat.data if bf16_copy is None else bf16_copy,
        HAS_BF16_COPY=bf16_copy is not None,
        BLOCK=1024,
    )


def _power_of_two(count: int) -> int:
    """The smallest power of two that is not below a count."""
    return 1 << (count - 1).bit_length()
