"""Networks of the agents that learn by gradient: encoders for images, symbols and numbers, under heads (`heads.py`).

In: a batch of observations as a dict of tensors (`spaces.py`). Out: parameters of a policy, and a value.
Images go through the IMPALA network of Moon et al. 2023 (arXiv 2307.03486): stages of [64, 128, 128] channels with two
residual blocks each, GroupNorm(1), dense 256 -> 1024: 3.95M parameters. Symbols go through summed embeddings and one
layer of 256, which two CPU cores can train.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, cast

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from curricle.agents.networks.embedding_bag import bag
from curricle.agents.networks.flat_parameters import matmul_weight
from curricle.agents.networks.heads import Categorical, Gaussian, ValueNormaliser, head
from curricle.agents.networks.spaces import InputSpec

Observations = Mapping[str, Tensor]
"""A batch of observations, part by part."""


class Layer(nn.Module):
    """Norm, then a layer whose units begin with weights of length `gain`, then ReLU."""

    def __init__(self, norm: nn.Module | None, layer: nn.Conv2d | nn.Linear, gain: float, active: bool = True) -> None:
        super().__init__()
        self.norm = norm or nn.Identity()
        self.layer = layer
        self.active = active
        with torch.no_grad():
            lengths = torch.linalg.vector_norm(layer.weight.flatten(1), dim=1)
            layer.weight.mul_((gain / lengths).view(-1, *[1] * (layer.weight.ndim - 1)))
            if layer.bias is not None:
                layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Shapes as the layer's."""
        return self.after(self.norm(x))

    def after(self, x: Tensor) -> Tensor:
        """What follows the norm."""
        if isinstance(self.layer, nn.Linear):
            x = F.linear(x, matmul_weight(self.layer.weight), self.layer.bias)
        else:
            x = self.layer(x)
        return F.relu(x) if self.active else x


def _conv(inward: int, outward: int, gain: float, normed: bool = True) -> Layer:
    layer = nn.Conv2d(inward, outward, 3, padding=1, bias=not normed)
    return Layer(nn.GroupNorm(1, inward) if normed else None, layer, gain)


def dense(inward: int, outward: int, gain: float) -> Layer:
    """A normed dense layer."""
    return Layer(nn.LayerNorm(inward), nn.Linear(inward, outward, bias=False), gain)


class Stage(nn.Module):
    """Halve the picture, then residual blocks."""

    def __init__(self, inward: int, outward: int, blocks: int, gain: float, first: bool) -> None:
        super().__init__()
        self.enter = _conv(inward, outward, 1.0, normed=not first)
        self.norm = nn.GroupNorm(1, outward)
        half = math.sqrt(gain / math.sqrt(max(blocks, 1)))  # a block's two layers share its gain
        self.blocks = nn.ModuleList(
            nn.Sequential(_conv(outward, outward, half), _conv(outward, outward, half)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inward, h, w) to (batch, outward, h/2, w/2)."""
        x = self.norm(F.max_pool2d(self.enter(x), 3, stride=2, padding=1))
        for block in self.blocks:
            x = x + block(x)
        return x


class Pixels(nn.Module):
    """An IMPALA network over bytes (batch, height, width, colours)."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], blocks: int, width: int) -> None:
        super().__init__()
        height, wide, inward = shape
        stages = list[nn.Module]()
        gain = 1 / math.sqrt(len(channels))
        for i, outward in enumerate(channels):
            stages.append(Stage(inward, outward, blocks, gain, first=i == 0))
            inward = outward
            height = (height + 1) // 2
            wide = (wide + 1) // 2
        self.stages = nn.Sequential(*stages)
        self.dense = dense(inward * height * wide, width, 1.4)
        self.fused = find_spec("triton") is not None and all(c & (c - 1) == 0 for c in channels)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures lie in memory colour by colour of each pixel (channels-last), as the world hands them over."""
        if x.is_cuda and self.fused:
            from curricle.agents.cuda.fused_layers import through

            x = self.dense.after(through(cast(list[Stage], list(self.stages)), cast(nn.LayerNorm, self.dense.norm), x))
        else:
            x = self.dense(self.stages(x.permute(0, 3, 1, 2).float() / 255).permute(0, 2, 3, 1).flatten(1))
        return x


class Symbols(nn.Module):
    """A row of the table for each column's value; value 0 adds nothing. Graded columns of `many` values are numbers."""

    many = 64

    def __init__(self, highest: Sequence[int], width: int, graded: bool = True) -> None:
        super().__init__()
        top = np.asarray(highest)
        amounts = (top >= self.many) & graded
        sorts = np.flatnonzero(~amounts)
        numbers = np.flatnonzero(amounts)
        first = np.concatenate([[0], np.cumsum(top[sorts] + 1)])
        self.whole = len(sorts) == len(top)  # then no column has to be picked
        self.register_buffer("sorts", torch.from_numpy(sorts), persistent=False)
        self.register_buffer("first", torch.from_numpy(first[:-1].copy()), persistent=False)
        self.register_buffer("column", torch.from_numpy(np.repeat(sorts, top[sorts] + 1)), persistent=False)
        self.register_buffer(
            "code", torch.cat([torch.arange(n + 1) for n in top[sorts]] or [torch.zeros(0)]), persistent=False
        )
        self.register_buffer("numbers", torch.from_numpy(numbers), persistent=False)
        self.register_buffer("top", torch.from_numpy(top[numbers].astype(np.float32)), persistent=False)
        self.tables = nn.Parameter(torch.randn(int(first[-1]), width) / math.sqrt(max(len(sorts), 1)))
        self.dense = None if self.whole else nn.Linear(len(numbers), width, bias=False)
        self.norm = nn.LayerNorm(width)

    sorts: Tensor
    first: Tensor
    column: Tensor
    code: Tensor
    numbers: Tensor
    top: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(batch, columns) of whole numbers to (batch, width)."""
        x = x.flatten(1)
        if x.device.type == "cpu":
            out = bag(x if self.whole else x.index_select(1, self.sorts), self.first, self.tables)
        else:  # a product with ones and zeros is what a GPU does best
            out = ((x.index_select(1, self.column) == self.code) & (self.code > 0)).float() @ self.tables
        if self.dense is not None:
            out = out + self.dense(x.index_select(1, self.numbers).float() / self.top)
        return F.relu(self.norm(out))


class Numbers(nn.Module):
    """Numbers of any size, brought to one scale by their running mean and deviation."""

    def __init__(self, shape: Sequence[int], width: int) -> None:
        super().__init__()
        count = int(np.prod(shape, dtype=int))
        self.dense = nn.Linear(count, width)
        nn.init.orthogonal_(self.dense.weight, math.sqrt(2))
        nn.init.zeros_(self.dense.bias)
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("square", torch.ones(count, dtype=torch.float64))

    count: Tensor
    mean: Tensor
    square: Tensor

    def watch(self, x: Tensor) -> None:
        """Take a rollout's numbers into mean and deviation."""
        x = x.reshape(-1, len(self.mean)).double()
        share = len(x) / (self.count + len(x))
        self.mean.lerp_(x.mean(0), share)
        self.square.lerp_((x * x).mean(0), share)
        self.count += len(x)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, width)."""
        deviation = (self.square - self.mean**2).clamp(min=1e-8).sqrt()
        scaled = ((x.flatten(1) - self.mean) / deviation).clamp(-10, 10).float()
        return F.relu(self.dense(scaled))


class Network(nn.Module):
    """Encoders side by side, one dense layer over them, and two heads; `memory` numbers are put beside its output."""

    def __init__(
        self,
        parts: Mapping[str, InputSpec],
        actions: gymnasium.Space[Any],
        *,
        channels: Sequence[int],
        blocks: int,
        width: int,
        hidden: int,
        keep: float,
    ) -> None:
        super().__init__()
        self.parts = parts
        self.hidden = hidden
        self.memory = self.remembered(hidden)
        self.encoders = nn.ModuleList()
        for part in parts.values():
            if part.kind == "image":
                self.encoders.append(Pixels(part.shape, channels, blocks, width))
            elif part.kind == "symbols":
                self.encoders.append(Symbols(part.highest, width, part.graded))
            else:
                self.encoders.append(Numbers(part.shape, width))
        self.dense = dense(width * len(parts), hidden, 1.0)
        self.make_heads(actions, hidden + self.memory, keep)

    def remembered(self, hidden: int) -> int:
        """How many numbers the agent carries from step to step."""
        return 0

    def make_heads(self, actions: gymnasium.Space[Any], width: int, keep: float) -> None:
        """Policy and value."""
        discrete = isinstance(actions, gymnasium.spaces.Discrete)
        self.policy: Categorical | Gaussian = Categorical(width, actions) if discrete else Gaussian(width, actions)  # type: ignore[arg-type]
        self.value = head(width, 1, 0.1)
        self.scale = ValueNormaliser(keep)

    def encode(self, seen: Observations) -> Tensor:
        """Observations to latents (batch, hidden)."""
        coded = [encoder(seen[name]) for name, encoder in zip(self.parts, self.encoders, strict=True)]
        out: Tensor = self.dense(torch.cat(coded, dim=-1) if len(coded) > 1 else coded[0])
        return out

    def decide(self, latents: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Latents to parameters of the policy, and values on the network's scale (batch,)."""
        full = torch.cat([latents.float(), memory], dim=-1) if self.memory else latents
        return self.policy(full), self.value(full).float().squeeze(-1)

    def recall(self, memory: Tensor, before: Tensor, after: Tensor, unlocked: Tensor, fresh: Tensor) -> Tensor:
        """What is remembered after a step from latents `before` to `after`; `fresh` begins a new episode."""
        return memory

    def watch(self, seen: Observations) -> None:
        """Let encoders of plain numbers learn their scale from a rollout."""
        for (name, part), encoder in zip(self.parts.items(), self.encoders, strict=True):
            if isinstance(encoder, Numbers):
                encoder.watch(seen[name].reshape(-1, *part.shape))
