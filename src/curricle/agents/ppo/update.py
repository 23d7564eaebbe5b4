"""PPO's objective over a minibatch: the clipped policy loss, the value loss and the entropy; and how actions are drawn.

In plain torch, and for discrete actions on a GPU as one kernel each, which for the objective makes the gradient too: of
the hundred small steps of the plain one each takes longer to begin there than to compute.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from curricle.agents.cuda.hardware import HAS_TRITON
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.heads import Categorical

FIGURES = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clipped")
ROWS = 256  # that the kernel takes at a time


class Weights(NamedTuple):
    """How far a ratio of policies may go, and what value loss and entropy count beside the policy's loss."""

    clip: float
    value: float
    entropy: float


def chosen(network: Network, choice: Tensor, values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Actions drawn by some noise, their log-probabilities, and values on the world's scale."""
    if choice.is_cuda and HAS_TRITON and isinstance(network.policy, Categorical):
        return drawn(choice, values, noise, network.scale.moments)
    actions = network.policy.sample(choice, noise)
    return actions, network.policy.log_prob(choice, actions), network.scale.outward(values)


def drawn(choice: Tensor, values: Tensor, noise: Tensor, moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for discrete actions, in one kernel."""
    from curricle.agents.cuda.kernels import choose

    count, actions = choice.shape
    choice = choice.contiguous()
    values = values.contiguous()
    noise = noise.contiguous()
    made = choice.new_empty(count, dtype=torch.int64), torch.empty_like(values), torch.empty_like(values)
    wide = 1 << (actions - 1).bit_length()
    block = max(1, min(64, ROWS * 32 // wide))
    choose[(-(-count // block),)](choice, noise, values, moments, *made, count, ACTIONS=actions, WIDE=wide, BLOCK=block)
    return made


def objective(
    network: Network, choice: Tensor, values: Tensor, batch: Mapping[str, Tensor], weights: Weights
) -> tuple[Tensor, Tensor]:
    """The loss of what a network chose and valued, and its figures (`FIGURES`)."""
    if choice.is_cuda and HAS_TRITON and isinstance(network.policy, Categorical):
        return fused(choice, values, batch, network.scale.moments, weights)
    moved = network.policy.log_prob(choice, batch["actions"]) - batch["log_probs"]
    policy, clipped = clipped_loss(moved, batch["advantages"], weights.clip)
    value = (values - network.scale.inward(batch["returns"])).square().mean()
    entropy = network.policy.entropy(choice).mean()
    ratio = moved.detach()
    figures = torch.stack([policy, value, entropy, (ratio.exp() - 1 - ratio).mean(), clipped]).detach()
    return policy + weights.value * value - weights.entropy * entropy, figures


def clipped_loss(moved: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """PPO's policy loss from log-ratios, and the share of ratios outside the clip range."""
    ratio = moved.exp()
    kept = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(advantages * ratio, advantages * kept).mean(), (ratio != kept).float().mean()


def fused(
    choice: Tensor, values: Tensor, batch: Mapping[str, Tensor], moments: Tensor, weights: Weights
) -> tuple[Tensor, Tensor]:
    """The same in one kernel; `choice` has log-probabilities, `moments` are the value normaliser's."""
    given = [batch[name] for name in ("actions", "log_probs", "advantages", "returns")]
    loss, figures = _Objective.apply(choice, values, weights, *given, moments)  # type: ignore[no-untyped-call]
    return loss, figures


class _Objective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, choice: Tensor, values: Tensor, weights: Weights, *given: Tensor) -> tuple[Tensor, Tensor]:
        from curricle.agents.cuda.kernels import clipped

        count, actions = choice.shape
        choice = choice.contiguous()
        values = values.contiguous()
        dchoice = torch.empty_like(choice)
        dvalues = torch.empty_like(values)
        told = choice.new_empty(1 + len(FIGURES))
        wide = 1 << (actions - 1).bit_length()
        shape = {"ACTIONS": actions, "WIDE": wide, "BLOCK": max(1, min(ROWS, ROWS * 32 // wide)), "num_warps": 8}
        clipped[(1,)](choice, values, *given, dchoice, dvalues, told, count, *weights, **shape)
        ctx.save_for_backward(dchoice, dvalues)
        loss = told[0]
        figures = told[1:]
        ctx.mark_non_differentiable(figures)
        return loss, figures

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, _: Any) -> Any:
        dchoice, dvalues = ctx.saved_tensors
        return dchoice * dloss, dvalues * dloss, *[None] * 6
