"""Kernels for images on a GPU, in Triton: the first convolution, and pooling (`fused.py`; norms: `norms.py`).

Pictures lie channels-last, one after the other; the number of channels is a power of two. Loaded on a GPU only.
"""

import triton
import triton.language as tl

NONE = tl.constexpr(9)  # the place of a maximum that ReLU cut off; others are 0 to 8, row by row


@triton.jit
def pad(
    x, y, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, COLOURS: tl.constexpr, PIXEL: tl.constexpr, BLOCK: tl.constexpr
):
    """Bytes as numbers, two empty rows and columns before them and some after, `PIXEL` numbers a pixel.

    So a 3x3 filter anywhere in a pooling window reads whole words, and asks nowhere whether it is still inside.
    """
    ROWS: tl.constexpr = 2 * ((HEIGHT + 1) // 2) + 4
    COLUMNS: tl.constexpr = 2 * ((WIDTH + 1) // 2) + 4
    picture, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    colour, j, i = at % PIXEL, at // PIXEL % COLUMNS - 2, at // (PIXEL * COLUMNS) - 2
    inside = (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH) & (colour < COLOURS)
    value = tl.load(x + picture * HEIGHT * WIDTH * COLOURS + (i * WIDTH + j) * COLOURS + colour, mask=inside, other=0)
    tl.store(y + picture * ROWS * COLUMNS * PIXEL + at, value.to(tl.float32), mask=at < ROWS * COLUMNS * PIXEL)


@triton.jit
def _patch(x, row, column, k, WIDTH: tl.constexpr, PIXEL: tl.constexpr):
    """What the filter at place `k` of each pooling window sees of a padded picture: 4x4 pixels, of which 3x3 count."""
    COLUMNS: tl.constexpr = 2 * ((WIDTH + 1) // 2) + 4
    tap = tl.arange(0, 16 * PIXEL)
    start = ((2 * row + k // 3) * COLUMNS + 2 * column + k % 3) * PIXEL
    return tl.load(x + start[:, None] + (tap // (4 * PIXEL) * COLUMNS * PIXEL + tap % (4 * PIXEL))[None, :])


@triton.jit
def enter(
    x, weight, bias, y, place, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIXEL: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, max-pooling and ReLU of `pad`: the largest picture of the network is never written down."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, near = at < high * wide, tl.minimum(at, high * wide - 1)
    column, row = near % wide, near // wide
    x, y, place = (
        x + picture * (2 * high + 4) * (2 * wide + 4) * PIXEL,
        y + picture * high * wide * C,
        place + picture * high * wide * C,
    )
    channel = tl.arange(0, WIDE)
    taken = tl.load(
        weight + tl.arange(0, 16 * PIXEL)[:, None] * C + channel[None, :], mask=(channel < C)[None, :], other=0.0
    )
    best = tl.full((BLOCK, WIDE), float("-inf"), tl.float32)
    where = tl.full((BLOCK, WIDE), 0, tl.int32)
    for k in range(9):
        i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
        inside = (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH)
        seen = tl.dot(_patch(x, row, column, k, WIDTH, PIXEL), taken, input_precision="ieee")
        value = tl.where(inside[:, None], seen, float("-inf"))
        higher = value > best
        best, where = tl.where(higher, value, best), tl.where(higher, k, where)
    best += tl.load(bias + channel, mask=channel < C, other=0.0)[None, :]
    target, ok = at[:, None] * C + channel[None, :], there[:, None] & (channel < C)[None, :]
    tl.store(y + target, tl.maximum(best, 0.0), mask=ok)
    tl.store(place + target, tl.where(best > 0, where, NONE).to(tl.int8), mask=ok)


@triton.jit
def enter_back(
    x, dy, place, dweight, dbias, count, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIXEL: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of filters and bias over every so many-th picture; programs' shares are added up afterwards."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    channel = tl.arange(0, WIDE)
    filters, level = tl.zeros((16 * PIXEL, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        base = tl.zeros((), tl.int64) + picture  # many pictures reach beyond 32 bits
        here = x + base * (2 * high + 4) * (2 * wide + 4) * PIXEL
        for start in range(0, high * wide, BLOCK):
            at = start + tl.arange(0, BLOCK)
            there, near = at < high * wide, tl.minimum(at, high * wide - 1)
            source, ok = at[:, None] * C + channel[None, :], there[:, None] & (channel < C)[None, :]
            slope = tl.load(dy + base * high * wide * C + source, mask=ok, other=0.0)
            won = tl.load(place + base * high * wide * C + source, mask=ok, other=NONE)
            level += tl.where(won != NONE, slope, 0.0).to(tl.float32)
            for k in range(9):
                seen = _patch(here, near // wide, near % wide, k, WIDTH, PIXEL)
                mine = tl.where(won == k, slope, 0.0).to(dy.dtype.element_ty)
                filters += tl.dot(tl.trans(seen), mine, input_precision="ieee")
    target = tl.program_id(0) * 16 * PIXEL * WIDE + tl.arange(0, 16 * PIXEL)[:, None] * WIDE + channel[None, :]
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
            given = tl.load(dy + source, mask=window, other=0.0).to(tl.float32)  # all of a word, used or not
            slope += tl.where(won, given, 0.0)
    tl.store(dz + at, slope, mask=there)
