"""Networks of the RL agents: an encoder for each input, one dense layer over them, and the heads of `heads.py`.

In: a batch of observations as a dict of tensors (`spaces.py`). Out: a policy's distributions, and values.
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
from numpy.typing import NDArray
from torch import Tensor, nn

from curricle.agents.networks.flat_parameters import matmul_weight
from curricle.agents.networks.heads import Categorical, Gaussian, ValueNormaliser, output_layer
from curricle.agents.networks.spaces import InputSpec

try:
    from numba import njit
except ImportError:  # torch has embedding bags, too
    njit: Any = None  # type: ignore[no-redef]

Observations = Mapping[str, Tensor]
"""A batch of observations, by the names of the inputs."""


class Layer(nn.Module):
    """Normalisation, then a layer whose units begin with weights of length `gain`, then ReLU."""

    def __init__(self, norm: nn.Module | None, layer: nn.Conv2d | nn.Linear, gain: float, relu: bool = True) -> None:
        super().__init__()
        self.norm = norm or nn.Identity()
        self.layer = layer
        self.relu = relu
        with torch.no_grad():
            lengths = torch.linalg.vector_norm(layer.weight.flatten(1), dim=1)
            layer.weight.mul_((gain / lengths).view(-1, *[1] * (layer.weight.ndim - 1)))
            if layer.bias is not None:
                layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Shapes are those of the layer."""
        return self.after_norm(self.norm(x))

    def after_norm(self, x: Tensor) -> Tensor:
        """The layer and ReLU."""
        if isinstance(self.layer, nn.Linear):
            x = F.linear(x, matmul_weight(self.layer.weight), self.layer.bias)
        else:
            x = self.layer(x)
        return F.relu(x) if self.relu else x


def conv(in_channels: int, out_channels: int, gain: float, norm: bool = True) -> Layer:
    """A 3x3 convolution, mostly with GroupNorm(1) before it."""
    layer = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=not norm)
    return Layer(nn.GroupNorm(1, in_channels) if norm else None, layer, gain)


def dense(in_features: int, out_features: int, gain: float) -> Layer:
    """A dense layer with LayerNorm before it."""
    return Layer(nn.LayerNorm(in_features), nn.Linear(in_features, out_features, bias=False), gain)


class Stage(nn.Module):
    """Convolve, halve the image, then apply residual blocks."""

    def __init__(self, in_channels: int, out_channels: int, blocks: int, gain: float, is_first: bool) -> None:
        super().__init__()
        self.enter = conv(in_channels, out_channels, 1.0, norm=not is_first)
        self.norm = nn.GroupNorm(1, out_channels)
        layer_gain = math.sqrt(gain / math.sqrt(max(blocks, 1)))  # a block's two layers share its gain
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            first = conv(out_channels, out_channels, layer_gain)
            second = conv(out_channels, out_channels, layer_gain)
            self.blocks.append(nn.Sequential(first, second))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, h, w) to (batch, out_channels, h/2, w/2)."""
        x = self.norm(F.max_pool2d(self.enter(x), 3, stride=2, padding=1))
        for block in self.blocks:
            x = x + block(x)
        return x


class Pixels(nn.Module):
    """An IMPALA network over bytes (batch, height, width, colours)."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], blocks: int, width: int) -> None:
        super().__init__()
        rows, columns, in_channels = shape
        gain = 1 / math.sqrt(len(channels))
        stages: list[nn.Module] = []
        for i, out_channels in enumerate(channels):
            stages.append(Stage(in_channels, out_channels, blocks, gain, is_first=i == 0))
            in_channels = out_channels
            rows = (rows + 1) // 2
            columns = (columns + 1) // 2
        self.stages = nn.Sequential(*stages)
        self.dense = dense(in_channels * rows * columns, width, 1.4)
        powers_of_two = all(c & (c - 1) == 0 for c in channels)
        self.fused = find_spec("triton") is not None and powers_of_two

    def forward(self, x: Tensor) -> Tensor:
        """To (batch, width). Images lie in memory pixel by pixel (channels-last), as the world hands them over."""
        if x.is_cuda and self.fused:
            from curricle.agents.cuda.fused_layers import image_network

            stages = cast(list[Stage], list(self.stages))
            return self.dense.after_norm(image_network(stages, cast(nn.LayerNorm, self.dense.norm), x))
        x = self.stages(x.permute(0, 3, 1, 2).float() / 255)
        out: Tensor = self.dense(x.permute(0, 2, 3, 1).flatten(1))
        return out


class Symbols(nn.Module):
    """The sum of an embedding for each column's value; value 0 adds nothing.

    Ordinal columns of at least `ordinal_from` values are taken as numbers instead.
    """

    ordinal_from = 64

    def __init__(self, highest: Sequence[int], width: int, ordinal: bool = True) -> None:
        super().__init__()
        top = np.asarray(highest)
        is_number = (top >= self.ordinal_from) & ordinal
        symbols = np.flatnonzero(~is_number)
        numbers = np.flatnonzero(is_number)
        counts = top[symbols] + 1
        first_rows = np.concatenate([[0], np.cumsum(counts)])
        codes = [torch.arange(count) for count in counts] or [torch.zeros(0)]
        self.only_symbols = len(symbols) == len(top)  # then no columns have to be selected
        self._constant("symbols", torch.from_numpy(symbols))
        self._constant("first_row", torch.from_numpy(first_rows[:-1].copy()))
        # for each row of the table: the column and the value that it stands for
        self._constant("row_column", torch.from_numpy(np.repeat(symbols, counts)))
        self._constant("row_code", torch.cat(codes))
        self._constant("numbers", torch.from_numpy(numbers))
        self._constant("highest_number", torch.from_numpy(top[numbers].astype(np.float32)))
        self.tables = nn.Parameter(torch.randn(int(first_rows[-1]), width) / math.sqrt(max(len(symbols), 1)))
        self.dense = None if self.only_symbols else nn.Linear(len(numbers), width, bias=False)
        self.norm = nn.LayerNorm(width)

    symbols: Tensor
    first_row: Tensor
    row_column: Tensor
    row_code: Tensor
    numbers: Tensor
    highest_number: Tensor

    def _constant(self, name: str, tensor: Tensor) -> None:
        self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, columns) of whole numbers to (batch, width)."""
        x = x.flatten(1)
        if x.device.type == "cpu":
            codes = x if self.only_symbols else x.index_select(1, self.symbols)
            out = sum_embeddings(codes, self.first_row, self.tables)
        else:  # a GPU is fastest at a product with ones and zeros
            is_value = (x.index_select(1, self.row_column) == self.row_code) & (self.row_code > 0)
            out = is_value.float() @ self.tables
        if self.dense is not None:
            out = out + self.dense(x.index_select(1, self.numbers).float() / self.highest_number)
        return F.relu(self.norm(out))


class Numbers(nn.Module):
    """Numbers of any size, brought to one scale by their running mean and standard deviation."""

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

    def update_scale(self, x: Tensor) -> None:
        """Take a rollout's numbers into mean and standard deviation."""
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
    """Encoders side by side, one dense layer over them, and two heads, which see the memory beside the features.

    This network has no memory; `update_memory` says how one would be kept. The names of its modules are the names of
    arrays in checkpoints.
    """

    def __init__(
        self,
        inputs: Mapping[str, InputSpec],
        actions: gymnasium.Space[Any],
        *,
        channels: Sequence[int],
        blocks: int,
        width: int,
        hidden: int,
        value_norm_decay: float,
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.memory_size = self.choose_memory_size(hidden)
        self.encoders = nn.ModuleList()
        for spec in inputs.values():
            if spec.kind == "image":
                self.encoders.append(Pixels(spec.shape, channels, blocks, width))
            elif spec.kind == "symbols":
                self.encoders.append(Symbols(spec.highest, width, spec.ordinal))
            else:
                self.encoders.append(Numbers(spec.shape, width))
        self.dense = dense(width * len(inputs), hidden, 1.0)
        self.make_heads(actions, hidden + self.memory_size, value_norm_decay)

    def choose_memory_size(self, hidden: int) -> int:
        """How many numbers the agent remembers from step to step."""
        return 0

    def make_heads(self, actions: gymnasium.Space[Any], in_features: int, value_norm_decay: float) -> None:
        """Policy and value."""
        self.policy: Categorical | Gaussian
        if isinstance(actions, gymnasium.spaces.Discrete):
            self.policy = Categorical(in_features, actions)
        else:
            self.policy = Gaussian(in_features, cast(gymnasium.spaces.Box, actions))
        self.value = output_layer(in_features, 1, 0.1)
        self.scale = ValueNormaliser(value_norm_decay)

    def encode(self, observations: Observations) -> Tensor:
        """Observations to features (batch, hidden)."""
        encoded = [encoder(observations[name]) for name, encoder in zip(self.inputs, self.encoders, strict=True)]
        out: Tensor = self.dense(torch.cat(encoded, dim=-1) if len(encoded) > 1 else encoded[0])
        return out

    def policy_and_value(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Features to the policy's distributions, and values on the network's scale (batch,)."""
        x = torch.cat([features.float(), memory], dim=-1) if self.memory_size else features
        return self.policy(x), self.value(x).float().squeeze(-1)

    def update_memory(self, memory: Tensor, before: Tensor, after: Tensor, unlocked: Tensor, first: Tensor) -> Tensor:
        """The memory after a step that led from features `before` to features `after`.

        `unlocked` says where the step unlocked a skill, `first` where a new episode began.
        """
        return memory

    def update_scales(self, observations: Observations) -> None:
        """Let encoders of plain numbers learn their scale from a rollout."""
        for (name, spec), encoder in zip(self.inputs.items(), self.encoders, strict=True):
            if isinstance(encoder, Numbers):
                encoder.update_scale(observations[name].reshape(-1, *spec.shape))


# -- sums of embeddings on a CPU ------------------------------------------------------------------------------------


def sum_embeddings(codes: Tensor, first_row: Tensor, tables: Tensor) -> Tensor:
    """Sum `tables[first_row[c] + codes[:, c]]` over the columns c whose code is not 0; row 0 must belong to a code 0.

    Two numba kernels do forward and backward, three times as fast as torch's own embedding bags (measured: 4 us for an
    observation of 144 columns instead of 13).
    """
    if njit is not None:
        summed: Tensor = _SumEmbeddings.apply(codes.contiguous(), first_row, tables)  # type: ignore[no-untyped-call]
        return summed
    rows = torch.where(codes > 0, codes.long() + first_row, 0)
    return F.embedding_bag(rows, tables, mode="sum", padding_idx=0)


class _SumEmbeddings(torch.autograd.Function):
    """The two kernels as one operation; observations have no gradient."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, first_row: Tensor, tables: Tensor) -> Tensor:
        out = torch.zeros(len(codes), tables.shape[1])
        _gather(codes.numpy(), first_row.numpy(), tables.detach().numpy(), out.numpy())
        ctx.save_for_backward(codes, first_row)
        ctx.table_shape = tables.shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, None, Tensor]:
        codes, first_row = ctx.saved_tensors
        table_gradient = torch.zeros(ctx.table_shape)
        _scatter(codes.numpy(), first_row.numpy(), gradients[0].contiguous().numpy(), table_gradient.numpy())
        return None, None, table_gradient


def _gather(codes: NDArray[Any], first: NDArray[np.int64], tables: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Sum the rows of every observation."""
    for b in range(codes.shape[0]):
        total = out[b]
        for column in range(codes.shape[1]):
            code = np.int64(codes[b, column])
            if code != 0:
                row = tables[first[column] + code]
                for k in range(row.shape[0]):
                    total[k] += row[k]


def _scatter(codes: NDArray[Any], first: NDArray[np.int64], gradients: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Add every observation's gradient to the rows that it took."""
    for b in range(codes.shape[0]):
        gradient = gradients[b]
        for column in range(codes.shape[1]):
            code = np.int64(codes[b, column])
            if code != 0:
                row = out[first[column] + code]
                for k in range(row.shape[0]):
                    row[k] += gradient[k]


if njit is not None:
    _gather = njit(cache=True, nogil=True)(_gather)
    _scatter = njit(cache=True, nogil=True)(_scatter)
