"""PPO's objective over a minibatch: the clipped policy loss, the value loss and the entropy; and how actions are drawn.

In plain torch, and for discrete actions on a GPU as one kernel each, which for the objective makes the gradient too: of
the hundred small steps of the plain one each takes longer to begin there than to compute.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from curricle.agents.devices import use_fused_kernels
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.heads import Categorical

FIGURES = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clipped")


class Weights(NamedTuple):
    """How far a ratio of policies may go, and what value loss and entropy count beside the policy's loss."""

    clip: float
    value: float
    entropy: float


def chosen(network: Network, choice: Tensor, values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Actions drawn by some noise, their log-probabilities, and values on the world's scale."""
    if use_fused_kernels(choice) and isinstance(network.policy, Categorical):
        from curricle.agents.cuda.fused_ppo import sample_actions

        return sample_actions(choice, values, noise, network.scale.moments)
    actions = network.policy.sample(choice, noise)
    return actions, network.policy.log_prob(choice, actions), network.scale.outward(values)


def objective(
    network: Network, choice: Tensor, values: Tensor, batch: Mapping[str, Tensor], weights: Weights
) -> tuple[Tensor, Tensor]:
    """The loss of what a network chose and valued, and its figures (`FIGURES`)."""
    if use_fused_kernels(choice) and isinstance(network.policy, Categorical):
        from curricle.agents.cuda.fused_ppo import ppo_loss

        return ppo_loss(choice, values, batch, network.scale.moments, weights)
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
