"""Fused layers: what lies between the convolutions of an image network, as torch functions over Triton kernels.

On a GPU the convolutions take half of the network's time, and reading and writing images of 64 channels takes the rest.
Fused into one kernel each, forward and backward, are: ReLU, the sum with the residual stream and GroupNorm(1); bias,
max-pooling and ReLU; and, if the input is bytes, the first convolution with its pooling. They compute what
`encoders.Stage` does in plain PyTorch, which is what a CPU runs and what the tests compare them with.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from curricle.agents.cuda import kernels
from curricle.agents.cuda import norm_kernels as norms
from curricle.agents.networks.flat_parameters import matmul_weight

if TYPE_CHECKING:
    from curricle.agents.networks.encoders import Layer, Stage

PROGRAMS = 528  # four for each processor of a large GPU
PIXEL = 4  # numbers that an image has for each pixel in the fused first convolution: at most so many colours
WIDEST = 64  # channels that the fused first convolution makes at most
LINES = 8  # rows of the pooled image that a program of the first convolution makes
MOST = 16_384  # numbers in an image that the last norm takes at once
LARGE = 65_536  # numbers from which on an image is large: a norm then takes more of them at a time
RESIDENT = 264, PROGRAMS  # programs of a norm: of large images, and of others
SHAPES = {
    "norm": ((8192, 8), (4096, 16)),
    "norm_back": ((16_384, 16), (4096, 4)),
    "twice": ((8192, 4), (8192, 4)),
    "twice_back": ((4096, 8), (4096, 8)),  # four sums at once
}
"""Numbers that a norm takes at a time, and its warps: for large images, for others (`benchmarks/kernels.py`, H200)."""


class _FirstConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n, height, width, colours = x.shape
        channels = len(weight)
        kind = _compute_dtype(weight)
        high = (height + 1) // 2
        wide = (width + 1) // 2
        padded = torch.empty(n, 2 * high + 4, 2 * wide + 4, PIXEL, dtype=kind, device=x.device)
        picture = {"HEIGHT": height, "WIDTH": width, "PIXEL": PIXEL}
        kernels.pad[_grid(padded)](x.contiguous(), padded, COLOURS=colours, BLOCK=1024, **picture)
        taps = weight.permute(0, 2, 3, 1).contiguous()  # filters lie so already (`FlatParameters`)
        y = torch.empty((n, high, wide, channels), dtype=kind, device=x.device)
        place = torch.empty_like(y, dtype=torch.int8)
        shape = {"C": channels, "WIDE": max(16, channels), **picture, **_tile(kind)}
        blocks = -(-n * wide // shape["BLOCK"])
        given = padded, taps, bias, y, place, n
        kernels.enter[(blocks, -(-high // LINES))](*given, COLOURS=colours, ROWS=LINES, **shape)
        ctx.save_for_backward(padded, place)
        ctx.launch = shape
        ctx.colours = colours
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        padded, place = ctx.saved_tensors
        dy = dy.permute(0, 2, 3, 1).contiguous()
        shape = ctx.launch
        (n, _, wide, _) = dy.shape
        programs = min(-(-n * wide // shape["BLOCK"]), PROGRAMS)
        channels = shape["C"]
        wide_channels = shape["WIDE"]
        dweight = torch.empty(programs, 16 * PIXEL, wide_channels, device=dy.device)
        dbias = torch.empty(programs, wide_channels, device=dy.device)
        kernels.enter_back[(programs,)](padded, dy, place, dweight, dbias, n, num_stages=1, **shape)
        taps = _column_sums(dweight).view(4, 4, PIXEL, wide_channels)[:3, :3, : ctx.colours, :channels] / 255
        return None, taps.permute(3, 2, 0, 1), _column_sums(dbias)[:channels]


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor | None) -> Tensor:
        z = z.contiguous(memory_format=torch.channels_last)
        n, channels, height, width = z.shape
        added = _constant_row(0.0, channels, z.device) if bias is None else bias
        y = _empty_channels_last(z, n, channels, (height + 1) // 2, (width + 1) // 2)
        place = torch.empty_like(y, dtype=torch.int8)
        kernels.pool[_grid(y)](z, added, y, place, HEIGHT=height, WIDTH=width, C=channels, BLOCK=1024)
        ctx.save_for_backward(place)
        ctx.shape = z.shape
        ctx.biased = bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        (place,) = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        dz = _empty_channels_last(dy, *ctx.shape)
        (_, channels, height, width) = ctx.shape
        kernels.pool_back[_grid(dz)](dy, place, dz, HEIGHT=height, WIDTH=width, C=channels, BLOCK=1024)
        dbias = torch.where(place != 9, dy, 0).sum((0, 2, 3), dtype=torch.float32) if ctx.biased else None
        return dz, dbias


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        x: Tensor | None,
        gain: Tensor,
        shift: Tensor,
        eps: float,
        share: "_Columns",
        relu: bool,
    ) -> Any:
        ctx.set_materialize_grads(False)
        z = z.contiguous(memory_format=torch.channels_last)
        x = None if x is None else x.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(z)
        joined = z if x is None else torch.empty_like(z)
        add = x is not None
        means, scales = torch.empty(2, len(z), device=z.device)
        grid, shape = _shape(z, "norm", len(gain))
        given = z, z if x is None else x, gain, shift
        norms.norm[grid](*given, out, joined, means, scales, eps, len(z), RELU=relu, ADD=add, **shape)
        ctx.save_for_backward(z, joined, gain, means, scales)
        ctx.kind = {"RELU": relu, "ADD": add}
        ctx.share = share
        return (out, joined) if add else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor, djoined: Tensor | None = None) -> Any:
        z, *_ = ctx.saved_tensors
        dout = dout.contiguous(memory_format=torch.channels_last)
        skip = djoined is not None
        djoined = djoined.contiguous(memory_format=torch.channels_last) if djoined is not None else dout
        (grid, shape) = _shape(z, "norm_back", ctx.share.channels)
        dz = torch.empty_like(z)
        add = ctx.kind["ADD"]
        dx = torch.empty_like(z) if add else dz
        given = dout, djoined, *ctx.saved_tensors
        norms.norm_back[grid](*given, dz, dx, *ctx.share.target(z), len(z), SKIP=skip, **ctx.kind, **shape)
        return dz, dx if add else None, *ctx.share.placeholders(2), None, None, None


class _TwoNorms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        gain: Tensor,
        shift: Tensor,
        gain2: Tensor,
        shift2: Tensor,
        share: "_Columns",
        *eps: float,
    ) -> Any:
        ctx.set_materialize_grads(False)
        z = z.contiguous(memory_format=torch.channels_last)
        mid = torch.empty_like(z)
        out = torch.empty_like(z)
        sums = torch.empty(len(z), 2, z.shape[1], device=z.device)
        moments = torch.empty(len(z), 4, device=z.device)
        grid, shape = _shape(z, "twice", z.shape[1])
        norms.twice[grid](z, gain, shift, gain2, shift2, mid, out, sums, moments, *eps, len(z), **shape)
        ctx.save_for_backward(z, gain, shift, gain2, sums, moments)
        ctx.share = share
        return out, mid

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor, dmid: Tensor | None = None) -> Any:
        z, *_ = ctx.saved_tensors
        dout = dout.contiguous(memory_format=torch.channels_last)
        dz = torch.empty_like(z)
        skip = dmid is not None
        dmid = dmid.contiguous(memory_format=torch.channels_last) if dmid is not None else dout
        grid, shape = _shape(z, "twice_back", z.shape[1])
        norms.twice_back[grid](dout, dmid, *ctx.saved_tensors, dz, *ctx.share.target(z), len(z), SKIP=skip, **shape)
        return dz, *ctx.share.placeholders(4), None, None, None


class _CollectNorms(torch.autograd.Function):
    """Gains and shifts of all norms; the images' gradients of all of them are added up here in one product."""

    @staticmethod
    def forward(ctx: Any, shares: "_NormGradients", *vectors: Tensor) -> tuple[Tensor, ...]:
        ctx.shares = shares
        ctx.sizes = [len(vector) for vector in vectors]
        return tuple(vector.view_as(vector) for vector in vectors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> Any:
        return None, *_column_sums(ctx.shares.rows).split(ctx.sizes)


class _NormGradients:
    """Each image's gradients of all gains and shifts: one row an image, allocated when the first norm writes there."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = torch.empty(0)


class _Columns(NamedTuple):
    """The columns of one norm, or of two in a row."""

    shares: _NormGradients
    first: int
    channels: int

    def target(self, z: Tensor) -> tuple[Tensor, int]:
        """Where the first image's gradients begin, and the distance to the next image's."""
        s = self.shares
        if len(s.rows) != len(z):
            s.rows = torch.zeros(len(z), s.width, device=z.device)
        return s.rows[:, self.first :], s.width

    def placeholders(self, count: int) -> list[Tensor]:
        """Stand-ins for the gradients that `_CollectNorms` computes from the rows."""
        return [torch.empty(self.channels, device=self.shares.rows.device)] * count


class Norm(NamedTuple):
    """A GroupNorm(1) whose gradients are added up with those of others."""

    gain: Tensor
    shift: Tensor
    eps: float
    share: _Columns


class _Recast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        return _recast(weights, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *_recast(gradients, torch.float32)


def _recast(tensors: Sequence[Tensor], kind: torch.dtype) -> tuple[Tensor, ...]:
    made = [torch.empty_like(tensor, dtype=kind) for tensor in tensors]
    torch._foreach_copy_(made, list(tensors))
    return tuple(made)


def _column_sums(shares: Tensor) -> Tensor:
    """The sum over the first axis; a product with ones is faster than torch's sum along columns."""
    return (_constant_row(1.0, len(shares), shares.device) @ shares.flatten(1)).view(shares.shape[1:])


@functools.cache
def _constant_row(value: float, count: int, device: torch.device) -> Tensor:
    """A constant row, made once: filling one would take as long as the product that needs it."""
    return torch.full((1, count), value, device=device)


def _compute_dtype(like: Tensor) -> torch.dtype:
    """The type in which a convolution would compute here."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype


def _empty_channels_last(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _grid(like: Tensor) -> tuple[int, int]:
    return -(-like[0].numel() // 1024), len(like)


def _shape(z: Tensor, kind: str, channels: int) -> tuple[tuple[int], dict[str, Any]]:
    """How a norm is launched: its programs, and how many numbers each takes at a time (whole pixels)."""
    size = z[0].numel()
    block, warps = SHAPES[kind][size < LARGE]
    if channels > block:
        block = channels
        warps = 16
    block = max(channels, min(block, 1 << (size - 1).bit_length()))
    named = {"size": size, "C": channels, "BLOCK": block, "WHOLE": size % block == 0, "num_warps": warps}
    return (min(len(z), RESIDENT[size < LARGE]),), named


def _tile(kind: torch.dtype) -> dict[str, int]:
    """What a program of the first convolution takes at a time; single precision needs more registers."""
    return {"BLOCK": 64, "num_warps": 4} if kind != torch.float32 else {"BLOCK": 32, "num_warps": 8}


def recast(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Weights in the type of the convolutions, cast together unless they have copies in bfloat16; so are gradients."""
    weights = [matmul_weight(weight) for weight in weights]
    kind = _compute_dtype(weights[0]) if weights else torch.float32
    return _Recast.apply(kind, *weights) if weights and kind != weights[0].dtype else weights


def first_convolution(x: Tensor, layer: torch.nn.Conv2d) -> Tensor:
    """relu(max_pool(conv(x / 255))) of bytes (batch, height, width, colours); x itself gets no gradient."""
    assert layer.bias is not None
    if x.shape[3] > PIXEL or len(layer.weight) > WIDEST:  # more than the registers of a program hold
        kind = _compute_dtype(layer.weight)
        return pool(F.conv2d(x.permute(0, 3, 1, 2).to(kind) / 255, layer.weight.to(kind), padding=1), layer.bias)
    out: Tensor = _FirstConvolution.apply(x, layer.weight, layer.bias)
    return out


def pool(z: Tensor, bias: Tensor | None) -> Tensor:
    """relu(max_pool(z + bias)) over 3x3 windows, stride 2."""
    out: Tensor = _Pool.apply(z, bias)
    return out


def collect_norms(norms_: Sequence[torch.nn.GroupNorm | torch.nn.LayerNorm]) -> list[Norm]:
    """Norms for one pass, each to be used once; for `normalise_twice` the second has to follow the first."""
    shares = _NormGradients(2 * sum(len(norm.weight) for norm in norms_))
    gains_and_shifts = [vector for norm in norms_ for vector in (norm.weight, norm.bias)]
    vectors = _CollectNorms.apply(shares, *gains_and_shifts)
    first = 0
    found: list[Norm] = []
    for norm, gain, shift in zip(norms_, vectors[::2], vectors[1::2], strict=True):
        found.append(Norm(gain, shift, norm.eps, _Columns(shares, first, len(gain))))
        first += 2 * len(gain)
    return found


def normalise(z: Tensor, norm: Norm, *, relu: bool) -> Tensor:
    """The norm of z, or of relu(z)."""
    out: Tensor = _Norm.apply(z, None, *norm, relu)
    return out


def add_and_normalise(x: Tensor, z: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """The norm of x + relu(z), and x + relu(z) itself."""
    out, total = _Norm.apply(z, x, *norm, True)
    return out, total


def normalise_twice(z: Tensor, norm: Norm, after: Norm) -> tuple[Tensor, Tensor]:
    """The second norm of the first, and the first."""
    out, mid = _TwoNorms.apply(z, norm.gain, norm.shift, after.gain, after.shift, norm.share, norm.eps, after.eps)
    return out, mid


def image_network(stages: Sequence["Stage"], last: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    """The stages of an image network over bytes and a last norm; all between two convolutions is one kernel.

    A norm over all numbers of an image, each with a gain of its own, is one over as many channels of one pixel.
    """
    modules = [module for stage in stages for module in stage.modules()]
    later_layers = [module for module in modules if isinstance(module, torch.nn.Conv2d)][1:]
    weights = dict(zip(later_layers, recast([layer.weight for layer in later_layers]), strict=True))
    norms_: list[Any] = [module for module in modules if isinstance(module, torch.nn.GroupNorm)]
    count = last.normalized_shape[0]
    fuses_last = len(stages[-1].blocks) > 0 and count & (count - 1) == 0 and count <= MOST
    if fuses_last:
        norms_.append(last)
    norm = dict[torch.nn.Module, Norm](zip(norms_, collect_norms(norms_), strict=True))
    for stage, next_stage in zip(stages, [*stages[1:], None], strict=True):
        enter = cast(torch.nn.Conv2d, stage.enter.layer)
        blocks = [cast("tuple[Layer, Layer]", block) for block in stage.blocks]
        # the norms that follow each sum: those of the blocks, then the next stage's or the last one
        following = [norm[one.norm] for one, _ in blocks]
        following.append(norm.get(next_stage.enter.norm if next_stage else last))
        if enter in weights:
            x = pool(F.conv2d(x, weights[enter], padding=1), enter.bias)
        else:
            x = first_convolution(x, enter)
        first = following[0]
        if first:
            inner, x = normalise_twice(x, norm[stage.norm], first)
        else:
            x = normalise(x, norm[stage.norm], relu=False)
            inner = x
        for (one, two), after in zip(blocks, following[1:], strict=True):
            middle = normalise(_convolved(inner, weights, one), norm[two.norm], relu=True)
            z = _convolved(middle, weights, two)
            if after:
                inner, x = add_and_normalise(x, z, after)
            else:
                x = x + F.relu(z)
                inner = x
        x = inner
    x = x.permute(0, 2, 3, 1).flatten(1)
    return x if fuses_last else last(x)


def _convolved(x: Tensor, weights: Mapping[torch.nn.Conv2d, Tensor], layer: "Layer") -> Tensor:
    return F.conv2d(x, weights[cast(torch.nn.Conv2d, layer.layer)], padding=1)
