"""Triton kernels of norms of images: GroupNorm(1) with what precedes it, and two norms in a row (`fused_layers.py`).

Images lie in memory channels-last, one after the other; the number of channels is a power of two. An image is read
twice, first for its sums: what is read again is asked to stay in the cache, what is written last is not. Program p of n
takes the images p, p + n, ..., `BLOCK` numbers at a time; `WHOLE` says that the last block is full, too.
"""

import triton
import triton.language as tl

AGAIN = tl.constexpr("evict_last")
ONCE = tl.constexpr("evict_first")


@triton.jit
def _read(x, at, inside, WHOLE: tl.constexpr, KEEP: tl.constexpr):
    if WHOLE:
        return tl.load(x + at, eviction_policy=KEEP).to(tl.float32)
    return tl.load(x + at, mask=inside, other=0.0, eviction_policy=KEEP).to(tl.float32)


@triton.jit
def _write(x, at, value, inside, WHOLE: tl.constexpr, KEEP: tl.constexpr):
    if WHOLE:
        tl.store(x + at, value, eviction_policy=KEEP)
    else:
        tl.store(x + at, value, mask=inside, eviction_policy=KEEP)


@triton.jit
def _by_channel(sums, C: tl.constexpr, BLOCK: tl.constexpr):
    return tl.sum(tl.reshape(sums, (BLOCK // C, C)), 0)


@triton.jit
def norm(
    z, x, gain, shift, out, joined, means, scales, eps, count, size,
    C: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Picture by picture: v = relu(z) or z, plus x; out = v normalised over the whole picture."""
    offset = tl.arange(0, BLOCK)
    weight = tl.load(gain + offset % C)
    level = tl.load(shift + offset % C)
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        first = (tl.zeros((), tl.int64) + picture) * size
        total = tl.zeros((BLOCK,), tl.float32)
        square = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            value = _read(z, at, inside, WHOLE, ONCE if ADD else AGAIN)
            if RELU:
                value = tl.maximum(value, 0.0)
            if ADD:
                value += _read(x, at, inside, WHOLE, ONCE)
                value = value.to(joined.dtype.element_ty).to(tl.float32)
                _write(joined, at, value, inside, WHOLE, AGAIN)
            total += value
            square += value * value
        mean = tl.sum(total) / size
        scale = tl.rsqrt(tl.maximum(tl.sum(square) / size - mean * mean, 0.0) + eps)
        tl.store(means + picture, mean)
        tl.store(scales + picture, scale)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            value = _read(joined if ADD else z, at, inside, WHOLE, ONCE)
            if RELU and not ADD:
                value = tl.maximum(value, 0.0)
            _write(out, at, (value - mean) * (weight * scale) + level, inside, WHOLE, ONCE)


@triton.jit
def norm_back(
    dout, djoined, z, joined, gain, means, scales, dz, dx, shares, wide, count, size,
    C: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, SKIP: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Gradients of `norm`; those of gain and shift are left picture by picture, in rows `wide` numbers apart."""
    offset = tl.arange(0, BLOCK)
    weight = tl.load(gain + offset % C)
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        first = (tl.zeros((), tl.int64) + picture) * size
        mean = tl.load(means + picture)
        scale = tl.load(scales + picture)
        along = tl.zeros((BLOCK,), tl.float32)
        level = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            gradient = _read(dout, at, inside, WHOLE, AGAIN)
            value = _read(joined if ADD else z, at, inside, WHOLE, AGAIN)
            if RELU and not ADD:
                value = tl.maximum(value, 0.0)
            along += gradient * (value - mean) * scale
            level += gradient
        share = shares + picture * wide + tl.arange(0, C)
        tl.store(share, _by_channel(along, C, BLOCK))
        tl.store(share + C, _by_channel(level, C, BLOCK))
        turn = tl.sum(along * weight) / size
        lift = tl.sum(level * weight) / size
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            gradient = _read(dout, at, inside, WHOLE, ONCE) * weight
            raw = _read(z, at, inside, WHOLE, ONCE)
            if ADD:
                value = _read(joined, at, inside, WHOLE, ONCE)
            elif RELU:
                value = tl.maximum(raw, 0.0)
            else:
                value = raw
            gradient = scale * (gradient - lift - (value - mean) * scale * turn)
            if SKIP:
                gradient += _read(djoined, at, inside, WHOLE, ONCE)
            if ADD:
                _write(dx, at, gradient, inside, WHOLE, ONCE)
            if RELU:
                gradient = tl.where(raw > 0, gradient, 0.0)
            _write(dz, at, gradient, inside, WHOLE, ONCE)


@triton.jit
def twice(
    z, gain, shift, gain2, shift2, mid, out, sums, moments, eps, eps2, count, size,
    C: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Normalise z to mid and mid to out: the first's sums over each channel give the moments of the second."""
    offset = tl.arange(0, BLOCK)
    channel = tl.arange(0, C)
    many = size // C
    weight = tl.load(gain + offset % C)
    level = tl.load(shift + offset % C)
    weight2 = tl.load(gain2 + offset % C)
    level2 = tl.load(shift2 + offset % C)
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        first = (tl.zeros((), tl.int64) + picture) * size
        total = tl.zeros((BLOCK,), tl.float32)
        square = tl.zeros((BLOCK,), tl.float32)
        pivot = tl.load(z + first).to(tl.float32)  # sums are of what differs from it: nearly even pictures keep digits
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            value = _read(z, first + start + offset, inside, WHOLE, AGAIN) - pivot
            if not WHOLE:
                value = tl.where(inside, value, 0.0)
            total += value
            square += value * value
        mean = tl.sum(total) / size
        scale = tl.rsqrt(tl.maximum(tl.sum(square) / size - mean * mean, 0.0) + eps)
        # sums of the hats (z - mean) * scale and of their squares
        hats = (_by_channel(total, C, BLOCK) - many * mean) * scale
        squares = (_by_channel(square, C, BLOCK) * scale - 2 * mean * hats - many * mean * mean * scale) * scale
        mean += pivot
        tl.store(sums + 2 * picture * C + channel, hats)
        tl.store(sums + (2 * picture + 1) * C + channel, squares)
        by = tl.load(gain + channel)
        up = tl.load(shift + channel)
        mean2 = tl.sum(by * hats + up * many) / size
        square2 = tl.sum(by * by * squares + 2 * by * up * hats + up * up * many) / size
        scale2 = tl.rsqrt(tl.maximum(square2 - mean2 * mean2, 0.0) + eps2)
        tl.store(moments + 4 * picture, mean)
        tl.store(moments + 4 * picture + 1, scale)
        tl.store(moments + 4 * picture + 2, mean2)
        tl.store(moments + 4 * picture + 3, scale2)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            value = (_read(z, at, inside, WHOLE, ONCE) - mean) * (weight * scale) + level
            _write(mid, at, value, inside, WHOLE, ONCE)
            _write(out, at, (value - mean2) * (weight2 * scale2) + level2, inside, WHOLE, ONCE)


@triton.jit
def twice_back(
    dout, dmid, z, gain, shift, gain2, sums, moments, dz, shares, wide, count, size,
    C: tl.constexpr, SKIP: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Gradients of `twice` in two passes: the gradient at `mid` is linear in what is read, so its sums need no pass."""
    offset = tl.arange(0, BLOCK)
    channel = tl.arange(0, C)
    many = size // C
    for picture in range(tl.program_id(0), count, tl.num_programs(0)):
        first = (tl.zeros((), tl.int64) + picture) * size
        mean = tl.load(moments + 4 * picture)
        scale = tl.load(moments + 4 * picture + 1)
        mean2 = tl.load(moments + 4 * picture + 2)
        scale2 = tl.load(moments + 4 * picture + 3)
        flat = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        flat_mid = tl.zeros((BLOCK,), tl.float32)
        along_mid = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            hat = (_read(z, at, inside, WHOLE, AGAIN) - mean) * scale
            gradient = _read(dout, at, inside, WHOLE, AGAIN)
            flat += gradient
            along += gradient * hat
            if SKIP:
                gradient = _read(dmid, at, inside, WHOLE, AGAIN)
                flat_mid += gradient
                along_mid += gradient * hat
        by = tl.load(gain + channel)
        up = tl.load(shift + channel)
        by2 = tl.load(gain2 + channel)
        hats = tl.load(sums + 2 * picture * C + channel)
        squares = tl.load(sums + (2 * picture + 1) * C + channel)
        dshift2 = _by_channel(flat, C, BLOCK)
        dot = _by_channel(along, C, BLOCK)
        # the second norm's hats are a * hat + b
        a = by * scale2
        b = (up - mean2) * scale2
        dgain2 = a * dot + b * dshift2
        lift2 = tl.sum(by2 * dshift2) / size
        turn2 = tl.sum(by2 * dgain2) / size
        even = scale2 * (lift2 + turn2 * b)
        bent = scale2 * turn2 * a
        dshift = scale2 * by2 * dshift2 - even * many - bent * hats
        dgain = scale2 * by2 * dot - even * hats - bent * squares
        if SKIP:
            dshift += _by_channel(flat_mid, C, BLOCK)
            dgain += _by_channel(along_mid, C, BLOCK)
        lift = tl.sum(by * dshift) / size
        turn = tl.sum(by * dgain) / size
        share = shares + picture * wide + channel
        tl.store(share, dgain)
        tl.store(share + C, dshift)
        tl.store(share + 2 * C, dgain2)
        tl.store(share + 3 * C, dshift2)
        weight = tl.load(gain + offset % C)
        level = tl.load(shift + offset % C)
        weight2 = tl.load(gain2 + offset % C)
        for start in range(0, size, BLOCK):
            inside = start + offset < size
            at = first + start + offset
            hat = (_read(z, at, inside, WHOLE, ONCE) - mean) * scale
            gradient = scale2 * (_read(dout, at, inside, WHOLE, ONCE) * weight2 - lift2)
            gradient -= scale2 * scale2 * turn2 * (hat * weight + level - mean2)
            if SKIP:
                gradient += _read(dmid, at, inside, WHOLE, ONCE)
            _write(dz, at, scale * (gradient * weight - lift - hat * turn), inside, WHOLE, ONCE)
