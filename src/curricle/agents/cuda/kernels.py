"""Triton kernels: first convolution and pooling (`fused_layers.py`), PPO's arithmetic and Adam (`fused_ppo.py`).

Images lie in memory channels-last, one after the other; the number of channels is a power of two. The kernels of norms
are in `norm_kernels.py`. Both are loaded on a GPU only.
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
def ppo_loss(
    policy, values, actions, log_probs, advantages, returns, moments, dpolicy, dvalues, results,
    count, clip, value_coef, entropy_coef, ACTIONS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """PPO's loss, its gradient by log-probabilities (`policy`) and values, and its metrics; one program for all rows.

    Each log-probability is taken for a free variable: the log-softmax before it has a gradient of its own.
    """
    weight = tl.maximum(tl.load(moments + 2), 1e-2)
    mean = tl.load(moments) / weight
    deviation = tl.sqrt(tl.maximum(tl.load(moments + 1) / weight - mean * mean, 1e-2))
    policy_sum = 0.0
    value_sum = 0.0
    entropy_sum = 0.0
    kl_sum = 0.0
    clipped_sum = 0.0
    column = tl.arange(0, WIDE)[None, :]
    for start in range(0, count, BLOCK):
        row = start + tl.arange(0, BLOCK)
        is_row = row < count
        place = row[:, None] * ACTIONS + column
        is_action = is_row[:, None] & (column < ACTIONS)
        all_log_probs = tl.load(policy + place, mask=is_action, other=0.0)
        probs = tl.where(is_action, tl.exp(all_log_probs), 0.0)
        taken = column == tl.load(actions + row, mask=is_row, other=-1)[:, None]
        log_prob = tl.sum(tl.where(taken, all_log_probs, 0.0), 1)
        log_ratio = log_prob - tl.load(log_probs + row, mask=is_row, other=0.0)
        ratio = tl.exp(log_ratio)
        advantage = tl.load(advantages + row, mask=is_row, other=0.0)
        clipped_ratio = tl.minimum(tl.maximum(ratio, 1 - clip), 1 + clip)
        is_free = advantage * ratio <= advantage * clipped_ratio  # where the clipped term is the lower one, no gradient
        gradient = tl.where(is_free, -advantage * ratio, 0.0)
        target = (tl.load(returns + row, mask=is_row, other=0.0) - mean) / deviation
        value_error = tl.load(values + row, mask=is_row, other=0.0) - target
        dlog_probs = tl.where(taken, gradient[:, None], 0.0) + entropy_coef * probs * (all_log_probs + 1)
        tl.store(dpolicy + place, dlog_probs / count, mask=is_action)
        tl.store(dvalues + row, 2 * value_coef * value_error / count, mask=is_row)
        policy_sum -= tl.sum(tl.where(is_row, tl.minimum(advantage * ratio, advantage * clipped_ratio), 0.0), 0)
        value_sum += tl.sum(tl.where(is_row, value_error * value_error, 0.0), 0)
        entropy_sum -= tl.sum(tl.sum(probs * all_log_probs, 1), 0)
        kl_sum += tl.sum(tl.where(is_row, ratio - 1 - log_ratio, 0.0), 0)
        clipped_sum += tl.sum(tl.where(is_row & (ratio != clipped_ratio), 1.0, 0.0), 0)
    tl.store(results, (policy_sum + value_coef * value_sum - entropy_coef * entropy_sum) / count)
    tl.store(results + 1, policy_sum / count)
    tl.store(results + 2, value_sum / count)
    tl.store(results + 3, entropy_sum / count)
    tl.store(results + 4, kl_sum / count)
    tl.store(results + 5, clipped_sum / count)


@triton.jit
def fill_advantages(
    rewards, ended, values, advantages, returns, steps, count, gamma, decay, BLOCK: tl.constexpr,
):  # fmt: skip
    """Generalised advantages backwards through time, and returns; then advantages are normalised. One program.

    `decay` is gamma times lambda. A thread reads again only what it wrote itself.
    """
    offset = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        ok = start + offset < count
        advantage = tl.zeros((BLOCK,), tl.float32)
        next_value = tl.load(values + steps * count + start + offset, mask=ok, other=0.0)
        for back in range(1, steps + 1):
            at = (steps - back) * count + start + offset
            not_ended = 1.0 - tl.load(ended + at, mask=ok, other=0).to(tl.float32)
            value = tl.load(values + at, mask=ok, other=0.0)
            delta = tl.load(rewards + at, mask=ok, other=0.0) + gamma * next_value * not_ended - value
            advantage = tl.where(ok, delta + decay * not_ended * advantage, 0.0)
            next_value = value
            total += advantage
            tl.store(advantages + at, advantage, mask=ok)
            tl.store(returns + at, advantage + value, mask=ok)
    mean = tl.sum(total) / (steps * count)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        ok = start + offset < count
        for t in range(steps):
            at = t * count + start + offset
            difference = tl.where(ok, tl.load(advantages + at, mask=ok, other=0.0) - mean, 0.0)
            square += difference * difference
    deviation = tl.sqrt(tl.sum(square) / (steps * count)) + 1e-8
    for start in range(0, count, BLOCK):
        ok = start + offset < count
        for t in range(steps):
            at = t * count + start + offset
            tl.store(advantages + at, (tl.load(advantages + at, mask=ok, other=0.0) - mean) / deviation, mask=ok)


@triton.jit
def sample_actions(
    policy, noise, values, moments, actions, log_probs, scaled_values, count, ACTIONS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Sample actions from log-probabilities (`policy`) with uniform noise; bring values to the world's scale."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDE)[None, :]
    is_row = row < count
    is_action = is_row[:, None] & (column < ACTIONS)
    all_log_probs = tl.load(policy + row[:, None] * ACTIONS + column, mask=is_action, other=float("-inf"))
    uniform = tl.load(noise + row, mask=is_row, other=0.0)
    below = (tl.cumsum(tl.exp(all_log_probs), 1) < uniform[:, None]) & is_action
    action = tl.minimum(tl.sum(below.to(tl.int32), 1), ACTIONS - 1)
    log_prob = tl.sum(tl.where(column == action[:, None], all_log_probs, 0.0), 1)
    tl.store(actions + row, action.to(tl.int64), mask=is_row)
    tl.store(log_probs + row, log_prob, mask=is_row)
    weight = tl.maximum(tl.load(moments + 2), 1e-2)
    mean = tl.load(moments) / weight
    deviation = tl.sqrt(tl.maximum(tl.load(moments + 1) / weight - mean * mean, 1e-2))
    tl.store(scaled_values + row, tl.load(values + row, mask=is_row, other=0.0) * deviation + mean, mask=is_row)


@triton.jit
def update_moments(targets, moments, count, share, BLOCK: tl.constexpr):
    """Running means of targets and of their squares, and the weight so far: a share of each is replaced."""
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        row = start + tl.arange(0, BLOCK)
        value = tl.load(targets + row, mask=row < count, other=0.0)
        total += value
        square += value * value
    mean = tl.load(moments)
    mean_square = tl.load(moments + 1)
    weight = tl.load(moments + 2)
    tl.store(moments, mean + (tl.sum(total) / count - mean) * share)
    tl.store(moments + 1, mean_square + (tl.sum(square) / count - mean_square) * share)
    tl.store(moments + 2, weight + (1 - weight) * share)


@triton.jit
def adam_step(
    gradient, norm, max_norm, parameters, exp_avg, exp_avg_sq, step, size, rate, eps, share1, share2, log_beta1,
    log_beta2, bf16_copy, HAS_BF16_COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A step of Adam (Kingma and Ba 2015) with a clipped gradient; `step` counts this step, too.

    `share1` and `share2` are 1 - beta1 and 1 - beta2. The copy in bfloat16 gets the new parameters, too.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    steps = tl.load(step).to(tl.float64)
    scale = tl.minimum(max_norm / (tl.load(norm) + 1e-6), 1.0)
    bias_correction1 = 1 - tl.exp(log_beta1 * steps)
    bias_correction2 = 1 - tl.exp(log_beta2 * steps)
    clipped = tl.load(gradient + at, mask=ok, other=0.0) * scale
    mean = tl.load(exp_avg + at, mask=ok, other=0.0)
    square = tl.load(exp_avg_sq + at, mask=ok, other=0.0)
    mean += (clipped - mean) * share1
    square += (clipped * clipped - square) * share2
    deviation = tl.sqrt(square) / tl.sqrt(bias_correction2.to(tl.float32)) + eps
    change = mean / deviation * (rate / bias_correction1.to(tl.float32))
    new = tl.load(parameters + at, mask=ok, other=0.0) - change
    tl.store(parameters + at, new, mask=ok)
    if HAS_BF16_COPY:
        tl.store(bf16_copy + at, new, mask=ok)
    tl.store(exp_avg + at, mean, mask=ok)
    tl.store(exp_avg_sq + at, square, mask=ok)
