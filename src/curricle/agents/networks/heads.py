"""Heads: what turns features into actions and values, for discrete and for continuous actions.

A policy head describes the distributions over actions of a batch by one tensor, `distribution`: log-probabilities, or
means and log-deviations. Noise comes in from outside, so that a sample depends on nothing but the seed.
"""

import math
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from curricle.agents.device import use_fused_kernels


def weighted_mean(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of values (batch,); without weights all count the same."""
    if weights is None:
        return values.mean()
    return (values * weights).sum() / weights.sum()


class ValueNormaliser(nn.Module):
    """Running mean and standard deviation of value targets; each minibatch weighs 1 - `decay`."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("moments", torch.zeros(3))  # of the targets, of their squares, and the weight so far

    moments: Tensor

    def update(self, targets: Tensor, weights: Tensor | None = None) -> None:
        """Take in a minibatch of targets; without weights a GPU does it in one kernel."""
        share = 1 - self.decay
        if use_fused_kernels(targets) and weights is None:
            from curricle.agents.cuda.fused_ppo import update_moments

            update_moments(targets, self.moments, share)
            return
        mean = weighted_mean(targets, weights)
        mean_square = weighted_mean(targets * targets, weights)
        self.moments.lerp_(torch.stack([mean, mean_square, torch.ones_like(targets[0])]), share)

    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """Running mean and standard deviation."""
        mean, mean_square = self.moments[:2] / self.moments[2].clamp(min=1e-2)
        return mean, (mean_square - mean**2).clamp(min=1e-2).sqrt()

    def normalise(self, targets: Tensor) -> Tensor:
        """From the world's scale to the network's."""
        mean, deviation = self.mean_and_deviation()
        return (targets - mean) / deviation

    def denormalise(self, values: Tensor) -> Tensor:
        """From the network's scale to the world's."""
        mean, deviation = self.mean_and_deviation()
        return values * deviation + mean


class Categorical(nn.Module):
    """A head for discrete actions; its distributions are log-probabilities."""

    def __init__(self, in_features: int, space: gymnasium.spaces.Discrete[Any]) -> None:
        super().__init__()
        self.first_action = int(space.start)
        self.noise_size = 1
        self.empty_action = torch.zeros((), dtype=torch.int64)
        self.linear = output_layer(in_features, int(space.n), 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (batch, actions)."""
        return F.log_softmax(self.linear(x).float(), dim=-1)

    def sample(self, distribution: Tensor, noise: Tensor) -> Tensor:
        """Turn uniform numbers (batch, 1) into actions."""
        return (distribution.exp().cumsum(-1) < noise).sum(-1).clamp(max=distribution.shape[-1] - 1)

    def mode(self, distribution: Tensor) -> Tensor:
        """The most likely actions."""
        return distribution.argmax(-1)

    def log_prob(self, distribution: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of actions (batch,)."""
        return distribution.gather(-1, actions[:, None])[:, 0]

    def entropy(self, distribution: Tensor) -> Tensor:
        """Entropy (batch,)."""
        return -(distribution.exp() * distribution).sum(-1)

    def kl(self, new: Tensor, old: Tensor) -> Tensor:
        """KL(new || old) (batch,)."""
        return (new.exp() * (new - old)).sum(-1)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random numbers for `sample`: uniform ones."""
        return rng.random((*shape, self.noise_size), np.float32)

    def to_world(self, actions: Any) -> Any:
        """The actions as the world numbers them."""
        return actions + self.first_action


class Gaussian(nn.Module):
    """A head for continuous actions: a normal distribution for each number, in units of half the action's range."""

    def __init__(self, in_features: int, space: gymnasium.spaces.Box) -> None:
        super().__init__()
        self.space = space
        self.noise_size = int(np.prod(space.shape, dtype=int))
        self.empty_action = torch.zeros(self.noise_size)
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        low = np.where(bounded, space.low, -1.0)
        high = np.where(bounded, space.high, 1.0)
        self.middle = (low + high) / 2
        self.half_range = (high - low) / 2
        self.linear = output_layer(in_features, self.noise_size, 0.01)
        self.spread = nn.Parameter(torch.full((self.noise_size,), -0.5))  # log-deviations; checkpoints have this name

    def forward(self, x: Tensor) -> Tensor:
        """Means and log-deviations (batch, 2 * numbers)."""
        mean = self.linear(x).float()
        return torch.cat([mean, self.spread.expand_as(mean)], dim=-1)

    def sample(self, distribution: Tensor, noise: Tensor) -> Tensor:
        """Turn normal numbers (batch, numbers) into actions."""
        mean, log_deviation = distribution.chunk(2, -1)
        return mean + log_deviation.exp() * noise

    def mode(self, distribution: Tensor) -> Tensor:
        """The means."""
        return distribution.chunk(2, -1)[0]

    def log_prob(self, distribution: Tensor, actions: Tensor) -> Tensor:
        """Log-density of actions (batch,)."""
        mean, log_deviation = distribution.chunk(2, -1)
        scaled = (actions - mean) / log_deviation.exp()
        return (-0.5 * scaled**2 - log_deviation - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, distribution: Tensor) -> Tensor:
        """Entropy (batch,)."""
        return (distribution.chunk(2, -1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl(self, new: Tensor, old: Tensor) -> Tensor:
        """KL(new || old) (batch,)."""
        new_mean, new_log = new.chunk(2, -1)
        old_mean, old_log = old.chunk(2, -1)
        distance = (2 * new_log).exp() + (new_mean - old_mean) ** 2
        return (old_log - new_log + distance / (2 * (2 * old_log).exp()) - 0.5).sum(-1)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random numbers for `sample`: normal ones."""
        return rng.standard_normal((*shape, self.noise_size), np.float32)

    def to_world(self, actions: Any) -> Any:
        """The actions on the world's scale, clipped to its bounds."""
        scaled = self.middle + self.half_range * actions.reshape(len(actions), *self.space.shape)
        return np.clip(scaled, self.space.low, self.space.high).astype(self.space.dtype)


def output_layer(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal initial weights and a bias of zero; a small gain makes its first outputs small."""
    linear = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear
