"""Heads: what turns latents into actions and values, for discrete and for continuous actions.

A head's parameters of a batch of distributions are one tensor, its "choice". Random numbers come in from outside, so
that a draw depends on nothing but the seed; `noisy` says how many an action takes, and `blank` is an action of zeros.
"""

import math
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from curricle.agents.devices import use_fused_kernels


def mean(values: Tensor, times: Tensor | None = None) -> Tensor:
    """The mean of values (batch,), each as often as `times` says."""
    return values.mean() if times is None else (values * times).sum() / times.sum()


class ValueNormaliser(nn.Module):
    """Running mean and deviation of value targets, each minibatch weighing 1 - `keep` (EWMA)."""

    def __init__(self, keep: float) -> None:
        super().__init__()
        self.keep = keep
        self.register_buffer("moments", torch.zeros(3))  # of the targets, of their squares, and the weight so far

    moments: Tensor

    def watch(self, targets: Tensor, times: Tensor | None = None) -> None:
        """Take a minibatch of targets in, each as often as `times` says; on a GPU in one kernel if all count once."""
        if use_fused_kernels(targets) and times is None:
            from curricle.agents.cuda.fused_ppo import update_moments

            update_moments(targets, self.moments, 1 - self.keep)
            return
        seen = torch.stack([mean(targets, times), mean(targets * targets, times), torch.ones_like(targets[0])])
        self.moments.lerp_(seen, 1 - self.keep)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation."""
        mean, square = self.moments[:2] / self.moments[2].clamp(min=1e-2)
        return mean, (square - mean**2).clamp(min=1e-2).sqrt()

    def inward(self, targets: Tensor) -> Tensor:
        """From the world's scale to the network's."""
        mean, deviation = self.scale()
        return (targets - mean) / deviation

    def outward(self, values: Tensor) -> Tensor:
        """From the network's scale to the world's."""
        mean, deviation = self.scale()
        return values * deviation + mean


class Categorical(nn.Module):
    """A head for discrete actions; its parameters are log-probabilities."""

    def __init__(self, inward: int, space: gymnasium.spaces.Discrete[Any]) -> None:
        super().__init__()
        self.start = int(space.start)
        self.noisy = 1
        self.blank = torch.zeros((), dtype=torch.int64)
        self.linear = head(inward, int(space.n), 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (batch, actions)."""
        return F.log_softmax(self.linear(x).float(), dim=-1)

    def sample(self, choice: Tensor, noise: Tensor) -> Tensor:
        """Turn uniform numbers (batch, 1) into actions."""
        return (choice.exp().cumsum(-1) < noise).sum(-1).clamp(max=choice.shape[-1] - 1)

    def best(self, choice: Tensor) -> Tensor:
        """The likeliest actions."""
        return choice.argmax(-1)

    def log_prob(self, choice: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of actions (batch,)."""
        return choice.gather(-1, actions[:, None])[:, 0]

    def entropy(self, choice: Tensor) -> Tensor:
        """Entropy (batch,)."""
        return -(choice.exp() * choice).sum(-1)

    def divergence(self, new: Tensor, old: Tensor) -> Tensor:
        """KL(new || old) (batch,)."""
        return (new.exp() * (new - old)).sum(-1)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random numbers for `sample`: uniform ones."""
        return rng.random((*shape, self.noisy), np.float32)

    def outward(self, actions: Any) -> Any:
        """What the world takes."""
        return actions + self.start


class Gaussian(nn.Module):
    """A head for continuous actions: a normal distribution a number, in units of half the action's range."""

    def __init__(self, inward: int, space: gymnasium.spaces.Box) -> None:
        super().__init__()
        self.space = space
        self.noisy = int(np.prod(space.shape, dtype=int))
        self.blank = torch.zeros(self.noisy)
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        low = np.where(bounded, space.low, -1.0)
        high = np.where(bounded, space.high, 1.0)
        self.middle = (low + high) / 2
        self.reach = (high - low) / 2
        self.linear = head(inward, self.noisy, 0.01)
        self.spread = nn.Parameter(torch.full((self.noisy,), -0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Means and log-deviations (batch, 2 * numbers)."""
        mean = self.linear(x).float()
        return torch.cat([mean, self.spread.expand_as(mean)], dim=-1)

    def sample(self, choice: Tensor, noise: Tensor) -> Tensor:
        """Turn normal numbers (batch, numbers) into actions."""
        mean, spread = choice.chunk(2, -1)
        return mean + spread.exp() * noise

    def best(self, choice: Tensor) -> Tensor:
        """The means."""
        return choice.chunk(2, -1)[0]

    def log_prob(self, choice: Tensor, actions: Tensor) -> Tensor:
        """Log-density of actions (batch,)."""
        mean, spread = choice.chunk(2, -1)
        return (-0.5 * ((actions - mean) / spread.exp()) ** 2 - spread - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, choice: Tensor) -> Tensor:
        """Entropy (batch,)."""
        return (choice.chunk(2, -1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def divergence(self, new: Tensor, old: Tensor) -> Tensor:
        """KL(new || old) (batch,)."""
        (m, s) = new.chunk(2, -1)
        (n, r) = old.chunk(2, -1)
        return (r - s + ((2 * s).exp() + (m - n) ** 2) / (2 * (2 * r).exp()) - 0.5).sum(-1)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random numbers for `sample`: normal ones."""
        return rng.standard_normal((*shape, self.noisy), np.float32)

    def outward(self, actions: Any) -> Any:
        """What the world takes: scaled, and cut off at its bounds."""
        wide = self.middle + self.reach * actions.reshape(len(actions), *self.space.shape)
        return np.clip(wide, self.space.low, self.space.high).astype(self.space.dtype)


def head(inward: int, outward: int, gain: float) -> nn.Linear:
    """A linear layer that begins orthogonal, with outputs near zero."""
    linear = nn.Linear(inward, outward)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear
