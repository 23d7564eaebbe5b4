"""Fused layers: what lies between the convolutions of an image network, as torch functions over Triton's kernels.

The convolutions are half of the network's time on a GPU; the rest goes by in reading and writing pictures of 64
channels. So ReLU, the sum with the residual stream and GroupNorm(1) are one pass, and so are bias, max-pooling and
ReLU, forth and back; of bytes, the first convolution too. They compute what `nets.Stage` says in plain torch, which is
what a CPU runs and what the tests compare them with.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from curricle.agents import kernels

PROGRAMS = 528  # four for each of a large GPU's processors


class _Entered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n, height, width, colours = x.shape
        channels, kind = len(weight), _kind(weight)
        high, wide = (height + 1) // 2, (width + 1) // 2
        y = torch.empty((n, high, wide, channels), dtype=kind, device=x.device)
        place = torch.empty_like(y, dtype=torch.int8)
        taps = weight.permute(2, 3, 1, 0).to(kind).contiguous()
        shape = {"COLOURS": colours, "K": _power(9 * colours), "C": channels, "WIDE": _power(channels)}
        shape |= {"HEIGHT": height, "WIDTH": width, "BLOCK": 64}
        kernels.enter[(-(-high * wide // 64), n)](x, taps, bias, y, place, **shape)
        ctx.save_for_backward(x, place)
        ctx.launch, ctx.shape = shape, weight.shape
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, place = ctx.saved_tensors
        dy = dy.permute(0, 2, 3, 1).contiguous()
        shape, (channels, colours, *_) = ctx.launch, ctx.shape
        programs = min(len(x), PROGRAMS)
        dweight = torch.empty(programs, shape["K"], shape["WIDE"], device=x.device)
        dbias = torch.empty(programs, shape["WIDE"], device=x.device)
        kernels.enter_back[(programs,)](x, dy, place, dweight, dbias, len(x), num_warps=2, **shape)
        taps = _added(dweight)[: 9 * colours, :channels].reshape(3, 3, colours, channels)
        return None, taps.permute(3, 2, 0, 1), _added(dbias)[:channels]


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor | None) -> Tensor:
        z = z.contiguous(memory_format=torch.channels_last)
        n, channels, height, width = z.shape
        added = torch.zeros(channels, device=z.device) if bias is None else bias
        y = _room(z, n, channels, (height + 1) // 2, (width + 1) // 2)
        place = torch.empty_like(y, dtype=torch.int8)
        kernels.pool[_grid(y)](z, added, y, place, HEIGHT=height, WIDTH=width, C=channels, BLOCK=1024)
        ctx.save_for_backward(place)
        ctx.shape, ctx.biased = z.shape, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        (place,) = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        dz, (_, channels, height, width) = _room(dy, *ctx.shape), ctx.shape
        kernels.pool_back[_grid(dz)](dy, place, dz, HEIGHT=height, WIDTH=width, C=channels, BLOCK=1024)
        dbias = torch.where(place != 9, dy, 0).sum((0, 2, 3), dtype=torch.float32) if ctx.biased else None
        return dz, dbias


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, x: Tensor | None, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> Any:
        ctx.set_materialize_grads(False)
        z = z.contiguous(memory_format=torch.channels_last)
        x = None if x is None else x.contiguous(memory_format=torch.channels_last)
        count, channels = z.shape[:2]
        out, joined = torch.empty_like(z), z if x is None else torch.empty_like(z)
        means, scales = torch.empty(2, count, device=z.device)
        size, add = z[0].numel(), x is not None
        shape = {"C": channels, "RELU": relu, "ADD": add, **_block(channels, size)}
        kernels.norm[(count,)](z, z if x is None else x, gain, shift, out, joined, means, scales, size, eps, **shape)
        ctx.save_for_backward(z, joined, gain, means, scales)
        ctx.launch = shape
        return (out, joined) if add else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor, djoined: Tensor | None = None) -> Any:
        z, joined, gain, means, scales = ctx.saved_tensors
        dout = dout.contiguous(memory_format=torch.channels_last)
        skip = djoined is not None
        djoined = djoined.contiguous(memory_format=torch.channels_last) if djoined is not None else dout
        add, dz = ctx.launch["ADD"], torch.empty_like(z)
        dx = torch.empty_like(z) if add else dz
        shares = torch.empty(len(z), 2, z.shape[1], device=z.device)
        kernels.norm_back[(len(z),)](
            dout, djoined, z, joined, gain, means, scales, dz, dx, shares, z[0].numel(), SKIP=skip, **ctx.launch
        )
        dgain, dshift = _added(shares)
        return dz, dx if add else None, dgain, dshift, None, None


def _added(shares: Tensor) -> Tensor:
    """The sum over the first axis; a product with ones is faster than torch's sum along columns."""
    return (shares.new_ones(1, len(shares)) @ shares.flatten(1)).view(shares.shape[1:])


def _power(size: int) -> int:
    """The next power of two, and no less than a matrix product takes."""
    return max(16, 1 << (size - 1).bit_length())


def _kind(like: Tensor) -> torch.dtype:
    """What a convolution would compute in here."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype


def _room(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _grid(like: Tensor) -> tuple[int, int]:
    return -(-like[0].numel() // 1024), len(like)


def _block(channels: int, size: int) -> dict[str, int]:
    """What a program handles at a time: whole pixels, and no more than there are. Measured on an H200."""
    large = size >= 65_536
    block = min(16_384 if large else 8_192, 1 << (size - 1).bit_length())
    return {"BLOCK": max(channels, block), "num_warps": 16 if large else 8}


def entered(x: Tensor, layer: torch.nn.Module) -> Tensor:
    """relu(max_pool(conv(x / 255))) of bytes (batch, height, width, colours); x itself gets no gradient."""
    assert layer.bias is not None
    out: Tensor = _Entered.apply(x, layer.weight, layer.bias)
    return out


def pooled(z: Tensor, bias: Tensor | None) -> Tensor:
    """relu(max_pool(z + bias)) over 3x3 windows, stride 2."""
    out: Tensor = _Pooled.apply(z, bias)
    return out


def normed(z: Tensor, norm: torch.nn.Module, *, relu: bool) -> Tensor:
    """The norm of z, or of relu(z)."""
    out: Tensor = _Normed.apply(z, None, norm.weight, norm.bias, norm.eps, relu)
    return out


def joined(x: Tensor, z: Tensor, norm: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """The norm of x + relu(z), and x + relu(z) itself."""
    out, total = _Normed.apply(z, x, norm.weight, norm.bias, norm.eps, True)
    return out, total
