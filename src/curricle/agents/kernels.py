"""Kernels for images on a GPU, in Triton: what lies between two convolutions, in one pass over memory (`fused.py`).

Pictures lie channels-last, one after the other; the number of channels is a power of two. Loaded on a GPU only.
"""

import triton
import triton.language as tl

NONE = tl.constexpr(9)  # the place of a maximum that ReLU cut off; others are 0 to 8, row by row


@triton.jit
def _patch(
    x, i, j, there, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, COLOURS: tl.constexpr, K: tl.constexpr,
    kind: tl.constexpr,
):  # fmt: skip
    """What a 3x3 filter sees of bytes around (i, j), as rows of K numbers from 0 to 1: taps first, colours within."""
    k = tl.arange(0, K)
    a, b = i[:, None] - 1 + (k // COLOURS // 3)[None, :], j[:, None] - 1 + (k // COLOURS % 3)[None, :]
    inside = there[:, None] & (k < 9 * COLOURS)[None, :] & (a >= 0) & (a < HEIGHT) & (b >= 0) & (b < WIDTH)
    source = (a * WIDTH + b) * COLOURS + (k % COLOURS)[None, :]
    return (tl.load(x + source, mask=inside, other=0).to(tl.float32) / 255).to(kind)


@triton.jit
def enter(
    x, weight, bias, y, place, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    COLOURS: tl.constexpr, K: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, max-pooling and ReLU of bytes: the largest picture of the network is never written down."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, column, row = at < high * wide, at % wide, at // wide
    x, y, place = (
        x + picture * HEIGHT * WIDTH * COLOURS,
        y + picture * high * wide * C,
        place + picture * high * wide * C,
    )
    channel = tl.arange(0, WIDE)
    taken = tl.load(
        weight + tl.arange(0, K)[:, None] * C + channel[None, :],
        mask=(tl.arange(0, K) < 9 * COLOURS)[:, None] & (channel < C)[None, :], other=0.0,
    )  # fmt: skip
    best = tl.full((BLOCK, WIDE), float("-inf"), tl.float32)
    where = tl.full((BLOCK, WIDE), 0, tl.int32)
    for k in range(9):
        i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
        inside = there & (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH)
        seen = _patch(x, i, j, inside, HEIGHT, WIDTH, COLOURS, K, weight.dtype.element_ty)
        value = tl.where(inside[:, None], tl.dot(seen, taken, input_precision="ieee"), float("-inf"))
        higher = value > best
        best, where = tl.where(higher, value, best), tl.where(higher, k, where)
    best += tl.load(bias + channel, mask=channel < C, other=0.0)[None, :]
    target, ok = at[:, None] * C + channel[None, :], there[:, None] & (channel < C)[None, :]
    tl.store(y + target, tl.maximum(best, 0.0), mask=ok)
    tl.store(place + target, tl.where(best > 0, where, NONE).to(tl.int8), mask=ok)


@triton.jit
def enter_back(
    x, dy, place, dweight, dbias, count, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    COLOURS: tl.constexpr, K: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of filters and bias over every so many-th picture; programs' shares are added up afterwards."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    channel = tl.arange(0, WIDE)
    filters, level = tl.zeros((K, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        base = tl.zeros((), tl.int64) + picture  # many pictures reach beyond 32 bits
        for start in range(0, high * wide, BLOCK):
            at = start + tl.arange(0, BLOCK)
            there, column, row = at < high * wide, at % wide, at // wide
            source, ok = at[:, None] * C + channel[None, :], there[:, None] & (channel < C)[None, :]
            slope = tl.load(dy + base * high * wide * C + source, mask=ok, other=0.0)
            won = tl.load(place + base * high * wide * C + source, mask=ok, other=NONE)
            level += tl.where(won != NONE, slope, 0.0).to(tl.float32)
            for k in range(9):
                i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
                here = x + base * HEIGHT * WIDTH * COLOURS
                seen = _patch(here, i, j, there, HEIGHT, WIDTH, COLOURS, K, dy.dtype.element_ty)
                mine = tl.where(won == k, slope, 0.0).to(dy.dtype.element_ty)
                filters += tl.dot(tl.trans(seen), mine, input_precision="ieee")
    target = tl.program_id(0) * K * WIDE + tl.arange(0, K)[:, None] * WIDE + channel[None, :]
    tl.store(dweight + target, filters)
    tl.store(dbias + tl.program_id(0) * WIDE + channel, tl.sum(level, 0))


@triton.jit
def pool(z, bias, y, place, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Bias, max-pooling over 3x3 with stride 2 and ReLU, and where each maximum lay."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, channel, column, row = at < high * wide * C, at % C, (at // C) % wide, at // (C * wide)
    z, y, place = z + picture * HEIGHT * WIDTH * C, y + picture * high * wide * C, place + picture * high * wide * C
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.full((BLOCK,), 0, tl.int32)
    for k in tl.static_range(9):
        i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
        inside = there & (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH)
        value = tl.load(z + (i * WIDTH + j) * C + channel, mask=inside, other=float("-inf"))
        higher = value.to(tl.float32) > best
        best, where = tl.where(higher, value.to(tl.float32), best), tl.where(higher, k, where)
    best += tl.load(bias + channel, mask=there, other=0.0)
    tl.store(y + at, tl.maximum(best, 0.0), mask=there)
    tl.store(place + at, tl.where(best > 0, where, NONE).to(tl.int8), mask=there)


@triton.jit
def pool_back(dy, place, dz, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Every input gathers from the (at most four) windows whose maximum it was."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, channel, j, i = at < HEIGHT * WIDTH * C, at % C, (at // C) % WIDTH, at // (C * WIDTH)
    dz, dy, place = dz + picture * HEIGHT * WIDTH * C, dy + picture * high * wide * C, place + picture * high * wide * C
    slope = tl.zeros((BLOCK,), tl.float32)
    for a in tl.static_range(2):
        for b in tl.static_range(2):
            row, column = (i + a) // 2, (j + b) // 2
            window = there & (row < high) & (column < wide)
            if a == 1:
                window = window & (i % 2 == 1)  # an even row lies in one window only
            if b == 1:
                window = window & (j % 2 == 1)
            mine = (i - 2 * row + 1) * 3 + (j - 2 * column + 1)
            source = (row * wide + column) * C + channel
            won = tl.load(place + source, mask=window, other=NONE).to(tl.int32) == mine
            slope += tl.load(dy + source, mask=window & won, other=0.0).to(tl.float32)
    tl.store(dz + at, slope, mask=there)


@triton.jit
def norm(
    z, x, gain, shift, out, joined, means, scales, size, eps,
    C: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One picture a program: v = relu(z) or z, plus x; out = v normalised over the whole picture."""
    first, lane = tl.program_id(0).to(tl.int64) * size, tl.arange(0, BLOCK)
    total, square = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        there, at = start + lane < size, first + start + lane
        value = tl.load(z + at, mask=there, other=0.0).to(tl.float32)
        if RELU:
            value = tl.maximum(value, 0.0)
        if ADD:
            value += tl.load(x + at, mask=there, other=0.0).to(tl.float32)
            value = value.to(joined.dtype.element_ty).to(tl.float32)
            tl.store(joined + at, value, mask=there)
        total += value
        square += value * value
    mean = tl.sum(total) / size
    scale = tl.rsqrt(tl.maximum(tl.sum(square) / size - mean * mean, 0.0) + eps)
    tl.store(means + tl.program_id(0), mean)
    tl.store(scales + tl.program_id(0), scale)
    slope, level = tl.load(gain + lane % C) * scale, tl.load(shift + lane % C)
    for start in range(0, size, BLOCK):
        there, at = start + lane < size, first + start + lane
        if ADD:
            value = tl.load(joined + at, mask=there, other=0.0).to(tl.float32)
        else:
            value = tl.load(z + at, mask=there, other=0.0).to(tl.float32)
            if RELU:
                value = tl.maximum(value, 0.0)
        tl.store(out + at, (value - mean) * slope + level, mask=there)


@triton.jit
def norm_back(
    dout, djoined, z, joined, gain, means, scales, dz, dx, shares, size,
    C: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, SKIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of `norm`; those of gain and shift are left picture by picture, to be added up in a fixed order."""
    first, lane = tl.program_id(0).to(tl.int64) * size, tl.arange(0, BLOCK)
    mean, scale = tl.load(means + tl.program_id(0)), tl.load(scales + tl.program_id(0))
    weight = tl.load(gain + lane % C)
    along, level = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        there, at = start + lane < size, first + start + lane
        slope = tl.load(dout + at, mask=there, other=0.0).to(tl.float32)
        if ADD:
            value = tl.load(joined + at, mask=there, other=0.0).to(tl.float32)
        else:
            value = tl.load(z + at, mask=there, other=0.0).to(tl.float32)
            if RELU:
                value = tl.maximum(value, 0.0)
        along += slope * (value - mean) * scale
        level += slope
    share = shares + 2 * tl.program_id(0) * C + tl.arange(0, C)
    tl.store(share, tl.sum(tl.reshape(along, (BLOCK // C, C)), 0))
    tl.store(share + C, tl.sum(tl.reshape(level, (BLOCK // C, C)), 0))
    turn, lift = tl.sum(along * weight) / size, tl.sum(level * weight) / size
    for start in range(0, size, BLOCK):
        there, at = start + lane < size, first + start + lane
        slope = tl.load(dout + at, mask=there, other=0.0).to(tl.float32) * weight
        raw = tl.load(z + at, mask=there, other=0.0).to(tl.float32)
        if ADD:
            value = tl.load(joined + at, mask=there, other=0.0).to(tl.float32)
        elif RELU:
            value = tl.maximum(raw, 0.0)
        else:
            value = raw
        slope = scale * (slope - lift - (value - mean) * scale * turn)
        if SKIP:
            slope += tl.load(djoined + at, mask=there, other=0.0).to(tl.float32)
        if ADD:
            tl.store(dx + at, slope, mask=there)
        if RELU:
            slope = tl.where(raw > 0, slope, 0.0)
        tl.store(dz + at, slope, mask=there)
