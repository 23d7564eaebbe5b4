"""Kernels on a GPU, in Triton: first convolution and pooling (`fused.py`; norms: `norms.py`), PPO's objective, Adam.

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
    picture = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    colour = at % PIXEL
    j = at // PIXEL % COLUMNS - 2
    i = at // (PIXEL * COLUMNS) - 2
    inside = (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH) & (colour < COLOURS)
    value = tl.load(x + picture * HEIGHT * WIDTH * COLOURS + (i * WIDTH + j) * COLOURS + colour, mask=inside, other=0)
    tl.store(y + picture * ROWS * COLUMNS * PIXEL + at, value.to(tl.float32), mask=at < ROWS * COLUMNS * PIXEL)


@triton.jit
def _across(
    here, column, line, top, middle, bottom, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PIXEL: tl.constexpr,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The largest of three neighbours in a line of the convolution, and which it is: a third of each pooling window."""
    COLUMNS: tl.constexpr = 2 * ((WIDTH + 1) // 2) + 4
    tap = tl.arange(0, 4 * PIXEL)
    best = tl.full((BLOCK, WIDE), float("-inf"), tl.float32)
    which = tl.full((BLOCK, WIDE), 0, tl.int32)
    for k in range(3):
        j = 2 * column - 1 + k
        inside = (line >= 0) & (line < HEIGHT) & (j >= 0) & (j < WIDTH)
        patch = here[:, None] + ((line + 1) * COLUMNS + k) * PIXEL + tap[None, :]
        seen = tl.dot(tl.load(patch), top, input_precision="ieee")
        seen = tl.dot(tl.load(patch + COLUMNS * PIXEL), middle, seen, input_precision="ieee")
        seen = tl.dot(tl.load(patch + 2 * COLUMNS * PIXEL), bottom, seen, input_precision="ieee")
        value = tl.where(inside[:, None], seen, float("-inf"))
        higher = value > best
        best = tl.where(higher, value, best)
        which = tl.where(higher, k, which)
    return best, which


@triton.jit
def _filters(
    weight, line: tl.constexpr, COLOURS: tl.constexpr, PIXEL: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr
):
    """One line of 3x3 filters over bytes (C, 3, 3, COLOURS), as four pixels of `PIXEL` numbers by `WIDE` channels."""
    tap = tl.arange(0, 4 * PIXEL)[:, None]
    channel = tl.arange(0, WIDE)[None, :]
    real = (tap // PIXEL < 3) & (tap % PIXEL < COLOURS) & (channel < C)
    at = ((channel * 3 + line) * 3 + tap // PIXEL) * COLOURS + tap % PIXEL
    return tl.load(weight + at, mask=real, other=0.0) / 255


@triton.jit
def enter(
    x, weight, bias, y, place, count, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, COLOURS: tl.constexpr,
    PIXEL: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, max-pooling and ReLU of `pad`: the largest picture of the network is never written down.

    A program takes neighbouring columns of pictures, some rows down: windows share a line with the ones below.
    """
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    near = tl.minimum(at, count * wide - 1)
    picture = (near // wide).to(tl.int64)
    column = near % wide
    here = x + picture * (2 * high + 4) * (2 * wide + 4) * PIXEL + 2 * column * PIXEL
    channel = tl.arange(0, WIDE)
    real = (channel < C)[None, :]
    top = _filters(weight, 0, COLOURS, PIXEL, C, WIDE).to(x.dtype.element_ty)
    middle = _filters(weight, 1, COLOURS, PIXEL, C, WIDE).to(x.dtype.element_ty)
    bottom = _filters(weight, 2, COLOURS, PIXEL, C, WIDE).to(x.dtype.element_ty)
    level = tl.load(bias + channel, mask=channel < C, other=0.0)[None, :]
    target = (picture * high * wide + column)[:, None] * C + channel[None, :]
    ok = (at < count * wide)[:, None] & real
    first = tl.program_id(1) * ROWS
    above, where = _across(here, column, 2 * first - 1, top, middle, bottom, HEIGHT, WIDTH, PIXEL, BLOCK, WIDE)
    for row in range(first, tl.minimum(first + ROWS, high)):
        best = above
        for half in tl.static_range(2):
            above, which = _across(here, column, 2 * row + half, top, middle, bottom, HEIGHT, WIDTH, PIXEL, BLOCK, WIDE)
            higher = above > best
            best = tl.where(higher, above, best)
            where = tl.where(higher, 3 * half + 3 + which, where)
        best += level
        tl.store(y + target + row * wide * C, tl.maximum(best, 0.0), mask=ok)
        tl.store(place + target + row * wide * C, tl.where(best > 0, where, NONE).to(tl.int8), mask=ok)
        where = which


@triton.jit
def _won(dy, place, source, ok, mine: tl.constexpr):
    """What windows hand to the one of their nine places that is asked about."""
    gradient = tl.load(dy + source, mask=ok, other=0.0)
    return tl.where(tl.load(place + source, mask=ok, other=NONE) == mine, gradient, 0.0)


@triton.jit
def enter_back(
    x, dy, place, dweight, dbias, count, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIXEL: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of filters and bias over every so many-th block of columns; programs' shares are added up afterwards.

    A pooling window begins at four outputs of the convolution; each gathers from all windows that it lies in.
    """
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    COLUMNS: tl.constexpr = 2 * wide + 4
    channel = tl.arange(0, WIDE)
    tap = tl.arange(0, 16 * PIXEL)
    reach = (tap // (4 * PIXEL) * COLUMNS * PIXEL + tap % (4 * PIXEL))[None, :]
    filters = tl.zeros((16 * PIXEL, WIDE), tl.float32)
    level = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, count * wide, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        near = tl.minimum(at, count * wide - 1)
        picture = (near // wide).to(tl.int64)
        column = near % wide
        here = x + picture * (2 * high + 4) * COLUMNS * PIXEL + 2 * column * PIXEL
        source = (picture * high * wide + column)[:, None] * C + channel[None, :]
        mine = (at < count * wide)[:, None] & (channel < C)[None, :]
        beside = mine & (column + 1 < wide)[:, None]
        for row in range(high):
            now = source + row * wide * C
            below = row + 1 < high
            gradient = tl.load(dy + now, mask=mine, other=0.0)
            won = tl.load(place + now, mask=mine, other=NONE)
            level += tl.where(won != NONE, gradient, 0.0).to(tl.float32)
            patch = here[:, None] + (2 * row + 1) * COLUMNS * PIXEL + PIXEL + reach
            given = tl.where(won == 4, gradient, 0.0)
            filters = tl.dot(tl.trans(tl.load(patch)), given.to(dy.dtype.element_ty), filters, input_precision="ieee")
            given = tl.where(won == 5, gradient, 0.0) + _won(dy, place, now + C, beside, 3)
            seen = tl.load(patch + PIXEL)
            filters = tl.dot(tl.trans(seen), given.to(dy.dtype.element_ty), filters, input_precision="ieee")
            given = tl.where(won == 7, gradient, 0.0) + _won(dy, place, now + wide * C, mine & below, 1)
            seen = tl.load(patch + COLUMNS * PIXEL)
            filters = tl.dot(tl.trans(seen), given.to(dy.dtype.element_ty), filters, input_precision="ieee")
            given = tl.where(won == 8, gradient, 0.0) + _won(dy, place, now + C, beside, 6)
            given += _won(dy, place, now + wide * C, mine & below, 2)
            given += _won(dy, place, now + (wide + 1) * C, beside & below, 0)
            seen = tl.load(patch + (COLUMNS + 1) * PIXEL)
            filters = tl.dot(tl.trans(seen), given.to(dy.dtype.element_ty), filters, input_precision="ieee")
    target = tl.program_id(0) * 16 * PIXEL * WIDE + tap[:, None] * WIDE + channel[None, :]
    tl.store(dweight + target, filters)
    tl.store(dbias + tl.program_id(0) * WIDE + channel, tl.sum(level, 0))


@triton.jit
def pool(z, bias, y, place, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Bias, max-pooling over 3x3 with stride 2 and ReLU, and where each maximum lay."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < high * wide * C
    channel = at % C
    column = (at // C) % wide
    row = at // (C * wide)
    z = z + picture * HEIGHT * WIDTH * C
    y = y + picture * high * wide * C
    place = place + picture * high * wide * C
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.full((BLOCK,), 0, tl.int32)
    for k in tl.static_range(9):
        i = 2 * row - 1 + k // 3
        j = 2 * column - 1 + k % 3
        inside = there & (i >= 0) & (i < HEIGHT) & (j >= 0) & (j < WIDTH)
        value = tl.load(z + (i * WIDTH + j) * C + channel, mask=inside, other=float("-inf"))
        higher = value.to(tl.float32) > best
        best = tl.where(higher, value.to(tl.float32), best)
        where = tl.where(higher, k, where)
    best += tl.load(bias + channel, mask=there, other=0.0)
    tl.store(y + at, tl.maximum(best, 0.0), mask=there)
    tl.store(place + at, tl.where(best > 0, where, NONE).to(tl.int8), mask=there)


@triton.jit
def pool_back(dy, place, dz, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Every input gathers from the (at most four) windows whose maximum it was."""
    high: tl.constexpr = (HEIGHT + 1) // 2
    wide: tl.constexpr = (WIDTH + 1) // 2
    picture = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < HEIGHT * WIDTH * C
    channel = at % C
    j = (at // C) % WIDTH
    i = at // (C * WIDTH)
    dz = dz + picture * HEIGHT * WIDTH * C
    dy = dy + picture * high * wide * C
    place = place + picture * high * wide * C
    gradient = tl.zeros((BLOCK,), tl.float32)
    for a in tl.static_range(2):
        for b in tl.static_range(2):
            row = (i + a) // 2
            column = (j + b) // 2
            window = there & (row < high) & (column < wide)
            if a == 1:
                window = window & (i % 2 == 1)  # an even row lies in one window only
            if b == 1:
                window = window & (j % 2 == 1)
            mine = (i - 2 * row + 1) * 3 + (j - 2 * column + 1)
            source = (row * wide + column) * C + channel
            won = tl.load(place + source, mask=window, other=NONE).to(tl.int32) == mine
            given = tl.load(dy + source, mask=window, other=0.0).to(tl.float32)  # all of a word, used or not
            gradient += tl.where(won, given, 0.0)
    tl.store(dz + at, gradient, mask=there)


@triton.jit
def clipped(
    choice, values, actions, log_probs, advantages, returns, moments, dchoice, dvalues, told,
    count, clip, value, entropy, ACTIONS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """PPO's loss, its gradient by log-probabilities and values, and its figures; one program takes all rows in turn.

    Each log-probability is taken for a free variable: what they are normalised by has a gradient of its own.
    """
    weight = tl.maximum(tl.load(moments + 2), 1e-2)
    mean = tl.load(moments) / weight
    spread = tl.sqrt(tl.maximum(tl.load(moments + 1) / weight - mean * mean, 1e-2))
    policy_sum = 0.0
    value_sum = 0.0
    entropy_sum = 0.0
    moved_sum = 0.0
    cut_sum = 0.0
    column = tl.arange(0, WIDE)[None, :]
    for start in range(0, count, BLOCK):
        row = start + tl.arange(0, BLOCK)
        ok = row < count
        place = row[:, None] * ACTIONS + column
        real = ok[:, None] & (column < ACTIONS)
        odds = tl.load(choice + place, mask=real, other=0.0)
        shares = tl.where(real, tl.exp(odds), 0.0)
        taken = column == tl.load(actions + row, mask=ok, other=-1)[:, None]
        moved = tl.sum(tl.where(taken, odds, 0.0), 1) - tl.load(log_probs + row, mask=ok, other=0.0)
        ratio = tl.exp(moved)
        gain = tl.load(advantages + row, mask=ok, other=0.0)
        kept = tl.minimum(tl.maximum(ratio, 1 - clip), 1 + clip)
        free = gain * ratio <= gain * kept  # where the clipped ratio is the lower one, nothing is to be gained
        gradient = tl.where(free, -gain * ratio, 0.0)
        off = tl.load(values + row, mask=ok, other=0.0) - (tl.load(returns + row, mask=ok, other=0.0) - mean) / spread
        down = tl.where(taken, gradient[:, None], 0.0) + entropy * shares * (odds + 1)
        tl.store(dchoice + place, down / count, mask=real)
        tl.store(dvalues + row, 2 * value * off / count, mask=ok)
        policy_sum -= tl.sum(tl.where(ok, tl.minimum(gain * ratio, gain * kept), 0.0), 0)
        value_sum += tl.sum(tl.where(ok, off * off, 0.0), 0)
        entropy_sum -= tl.sum(tl.sum(shares * odds, 1), 0)
        moved_sum += tl.sum(tl.where(ok, ratio - 1 - moved, 0.0), 0)
        cut_sum += tl.sum(tl.where(ok & (ratio != kept), 1.0, 0.0), 0)
    tl.store(told, (policy_sum + value * value_sum - entropy * entropy_sum) / count)
    tl.store(told + 1, policy_sum / count)
    tl.store(told + 2, value_sum / count)
    tl.store(told + 3, entropy_sum / count)
    tl.store(told + 4, moved_sum / count)
    tl.store(told + 5, cut_sum / count)


@triton.jit
def judge(
    rewards, ended, values, advantages, returns, steps, count, gamma, fade, BLOCK: tl.constexpr,
):  # fmt: skip
    """Generalised advantages backwards through time, and what they say the values should have been; one program.

    Then advantages are brought to mean 0 and deviation 1. A thread reads again only what it wrote itself.
    """
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        ok = start + lane < count
        later = tl.zeros((BLOCK,), tl.float32)
        following = tl.load(values + steps * count + start + lane, mask=ok, other=0.0)
        for back in range(1, steps + 1):
            at = (steps - back) * count + start + lane
            goes_on = 1.0 - tl.load(ended + at, mask=ok, other=0).to(tl.float32)
            value = tl.load(values + at, mask=ok, other=0.0)
            delta = tl.load(rewards + at, mask=ok, other=0.0) + gamma * following * goes_on - value
            later = tl.where(ok, delta + fade * goes_on * later, 0.0)
            following = value
            total += later
            tl.store(advantages + at, later, mask=ok)
            tl.store(returns + at, later + value, mask=ok)
    mean = tl.sum(total) / (steps * count)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        ok = start + lane < count
        for t in range(steps):
            off = tl.where(ok, tl.load(advantages + t * count + start + lane, mask=ok, other=0.0) - mean, 0.0)
            square += off * off
    spread = tl.sqrt(tl.sum(square) / (steps * count)) + 1e-8
    for start in range(0, count, BLOCK):
        ok = start + lane < count
        for t in range(steps):
            at = t * count + start + lane
            tl.store(advantages + at, (tl.load(advantages + at, mask=ok, other=0.0) - mean) / spread, mask=ok)


@triton.jit
def choose(
    choice, noise, values, moments, actions, log_probs, worths, count, ACTIONS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw actions by log-probabilities and uniform numbers; what these were, and values on the world's scale."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDE)[None, :]
    ok = row < count
    real = ok[:, None] & (column < ACTIONS)
    odds = tl.load(choice + row[:, None] * ACTIONS + column, mask=real, other=float("-inf"))
    luck = tl.load(noise + row, mask=ok, other=0.0)
    below = (tl.cumsum(tl.exp(odds), 1) < luck[:, None]) & real
    action = tl.minimum(tl.sum(below.to(tl.int32), 1), ACTIONS - 1)
    tl.store(actions + row, action.to(tl.int64), mask=ok)
    tl.store(log_probs + row, tl.sum(tl.where(column == action[:, None], odds, 0.0), 1), mask=ok)
    weight = tl.maximum(tl.load(moments + 2), 1e-2)
    mean = tl.load(moments) / weight
    spread = tl.sqrt(tl.maximum(tl.load(moments + 1) / weight - mean * mean, 1e-2))
    tl.store(worths + row, tl.load(values + row, mask=ok, other=0.0) * spread + mean, mask=ok)


@triton.jit
def watch(targets, moments, count, fresh, BLOCK: tl.constexpr):
    """Running means of targets and of their squares, and the weight so far: a share `fresh` of each is replaced."""
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        row = start + tl.arange(0, BLOCK)
        value = tl.load(targets + row, mask=row < count, other=0.0)
        total += value
        square += value * value
    mean = tl.load(moments)
    mean2 = tl.load(moments + 1)
    weight = tl.load(moments + 2)
    tl.store(moments, mean + (tl.sum(total) / count - mean) * fresh)
    tl.store(moments + 1, mean2 + (tl.sum(square) / count - mean2) * fresh)
    tl.store(moments + 2, weight + (1 - weight) * fresh)


@triton.jit
def adam(
    gradient, length, longest, whole, first, second, count, size, rate, eps, fresh, fresh2, fade, fade2,
    bf16_copy, TWIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A step of Adam (Kingma and Ba 2015) by a gradient that is shortened to `longest`; `count` has this step too.

    Of a mean each step replaces a share `fresh`, so that exp(`fade`) is kept. `bf16_copy` gets the new numbers too.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    done = tl.load(count).to(tl.float64)
    short = tl.minimum(longest / (tl.load(length) + 1e-6), 1.0)
    # how much of a mean is there yet
    begun = 1 - tl.exp(fade * done)
    begun2 = 1 - tl.exp(fade2 * done)
    down = tl.load(gradient + at, mask=there, other=0.0) * short
    mean = tl.load(first + at, mask=there, other=0.0)
    square = tl.load(second + at, mask=there, other=0.0)
    mean += (down - mean) * fresh
    square += (down * down - square) * fresh2
    deviation = tl.sqrt(square) / tl.sqrt(begun2.to(tl.float32)) + eps
    step = mean / deviation * (rate / begun.to(tl.float32))
    now = tl.load(whole + at, mask=there, other=0.0) - step
    tl.store(whole + at, now, mask=there)
    if TWIN:
        tl.store(bf16_copy + at, now, mask=there)
    tl.store(first + at, mean, mask=there)
    tl.store(second + at, square, mask=there)
