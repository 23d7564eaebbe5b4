"""Kernels: microseconds of what lies between the convolutions of the image network, for many shapes of launch.

    python benchmarks/kernels.py [--images 512] [--best 4] [--only norm_back]
    python benchmarks/kernels.py --floor

On a GPU, for the papers' network over 64x64 pictures in bfloat16. For every kernel and stage: what `fused_layers.py`
launches now, the time in which as many bytes can be copied (each read and written once), and the fastest shapes:
numbers (of the first convolution: columns) a program takes at a time, warps, programs (of `enter`: rows a program
takes). Then the convolutions, searched among cuDNN's first ten ways and among all.
Compiles first, on all cores. `--floor` looks for no shapes: it adds up what a minibatch of the network takes, in the
convolutions and in all that lies between them, as it is and if that were nothing but copies; and EnvGen's run of it.
"""

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.testing import do_bench

from curricle.agents.cuda import fused_layers as fused
from curricle.agents.cuda import kernels
from curricle.agents.cuda import norm_kernels as norms

STAGES = {"32x32x64": (64, 32), "16x16x128": (128, 16), "8x8x128": (128, 8)}
BLOCKS = (1024, 2048, 4096, 8192, 16_384)
WARPS = (4, 8, 16)
CONVOLUTIONS = ((64, 64, 32, 4), (64, 128, 32, 1), (128, 128, 16, 5), (128, 128, 8, 4))
"""Channels in and out, the side of the picture, and how often; the first, of bytes, is a kernel of ours."""
HOW = None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1


class Case(NamedTuple):
    """A kernel at a stage: how it is launched, what is launched now, and how many pictures it must move."""

    name: str
    launch: Callable[[int, int, int], Any]
    now: tuple[int, int, int]
    shapes: list[tuple[int, int, int]]
    moves: int
    """Bytes read and written."""
    times: int = 1
    """How often a minibatch needs it."""


def cases(images: int) -> Iterator[Case]:
    """All kernels with tensors to work on."""
    for stage, (channels, side) in STAGES.items():
        yield from _norms(images, stage, channels, side)
    yield from _entry(images)
    for stage, (channels, side) in {"32x32x128": (128, 32), "16x16x128": (128, 16)}.items():
        yield from _pools(images, stage, channels, side)


def _norms(images: int, stage: str, channels: int, side: int) -> Iterator[Case]:
    size = channels * side * side
    like = torch.randn(images, channels, side, side, device="cuda", dtype=torch.bfloat16)
    a, b, c, d, e, f = (like.clone(memory_format=torch.channels_last) for _ in range(6))
    gain, shift, gain2, shift2 = torch.rand(4, channels, device="cuda")
    means, scales = torch.rand(2, images, device="cuda")
    sums = torch.rand(images, 4, channels, device="cuda")
    moments = torch.rand(images, 4, device="cuda")
    blocks = [block for block in BLOCKS if channels <= block <= size]
    grids = sorted({min(images, grid) for grid in (132, 264, 528, images)})
    shapes = [s for s in itertools.product(blocks, WARPS, grids) if 4 <= s[0] // (32 * s[1]) <= 32]

    def now(kind: str) -> tuple[int, int, int]:
        grid, named = fused._shape(a, kind, channels)
        return named["BLOCK"], named["num_warps"], grid[0]

    def how(block: int, warps: int) -> dict[str, Any]:
        return {"size": size, "C": channels, "BLOCK": block, "WHOLE": size % block == 0, "num_warps": warps}

    def forward(relu: bool, add: bool) -> Callable[[int, int, int], Any]:
        given = a, b, gain, shift, c, d, means, scales, 1e-5, images
        return lambda block, warps, grid: norms.norm[(grid,)](*given, RELU=relu, ADD=add, **how(block, warps))

    def backward(relu: bool, add: bool) -> Callable[[int, int, int], Any]:
        given = a, b, c, d, gain, means, scales, e, f, sums, 4 * channels, images
        named = {"RELU": relu, "ADD": add, "SKIP": add}
        return lambda block, warps, grid: norms.norm_back[(grid,)](*given, **named, **how(block, warps))

    whole = a.numel() * a.element_size()
    joins = 2 if side > 8 else 1  # no norm follows the last sum
    yield Case(f"norm relu {stage}", forward(True, False), now("norm"), shapes, 2 * whole, 2)
    yield Case(f"norm join {stage}", forward(True, True), now("norm"), shapes, 4 * whole, joins)
    yield Case(f"norm_back relu {stage}", backward(True, False), now("norm_back"), shapes, 3 * whole, 2)
    yield Case(f"norm_back join {stage}", backward(True, True), now("norm_back"), shapes, 6 * whole, joins)
    given = a, gain, shift, gain2, shift2, b, c, sums, moments, 1e-5, 1e-5, images
    yield Case(
        f"twice {stage}",
        lambda block, warps, grid: norms.twice[(grid,)](*given, **how(block, warps)),
        now("twice"),
        shapes,
        3 * whole,
    )
    back = a, b, c, gain, shift, gain2, sums, moments, d, sums.clone(), 4 * channels, images
    yield Case(
        f"twice_back {stage}",
        lambda block, warps, grid: norms.twice_back[(grid,)](*back, SKIP=True, **how(block, warps)),
        now("twice_back"),
        shapes,
        4 * whole,
    )


def _entry(images: int) -> Iterator[Case]:
    picture = {"HEIGHT": 64, "WIDTH": 64, "PIXEL": 4}
    x = torch.randint(0, 256, (images, 64, 64, 3), dtype=torch.uint8, device="cuda")
    padded = torch.zeros(images, 68, 68, 4, dtype=torch.bfloat16, device="cuda")
    taps = torch.rand(64, 3, 3, 3, device="cuda")
    bias = torch.rand(64, device="cuda")
    y = torch.randn(images, 32, 32, 64, device="cuda").bfloat16()
    place = torch.randint(0, 10, y.shape, dtype=torch.int8, device="cuda")
    yield Case(
        "pad",
        lambda block, warps, _: kernels.pad[(-(-padded[0].numel() // block), images)](
            x, padded, COLOURS=3, BLOCK=block, num_warps=warps, **picture
        ),
        (1024, 4, 0),
        [(block, warps, 0) for block in (512, 1024, 2048) for warps in (2, 4, 8)],
        x.numel() + 2 * padded.numel(),
    )
    shape = {"C": 64, "WIDE": 64, **picture}
    blocks = [(block, warps) for block in (32, 64, 128) for warps in (4, 8) if block <= 32 * warps]
    tile = fused._tile(torch.bfloat16)
    usual = tile["BLOCK"], tile["num_warps"]

    def how(block: int, warps: int) -> dict[str, int]:
        return {**shape, **tile, "BLOCK": block, "num_warps": warps}

    yield Case(
        "enter",
        lambda block, warps, lines: kernels.enter[(-(-images * 32 // block), -(-32 // lines))](
            padded, taps, bias, y, place, images, COLOURS=3, ROWS=lines, **how(block, warps)
        ),
        (*usual, fused.LINES),
        [(*some, lines) for some in blocks for lines in (4, 8, 16, 32)],
        2 * padded.numel() + 3 * y.numel(),
    )

    def back(block: int, warps: int, grid: int) -> Any:
        dweight = torch.empty(grid, 64, 64, device="cuda")
        dbias = torch.empty(grid, 64, device="cuda")
        given = padded, y, place, dweight, dbias, images
        return kernels.enter_back[(grid,)](*given, num_stages=1, **how(block, warps))

    shapes = [(*some, grid) for some in blocks for grid in (132, 264, 528)]
    yield Case("enter_back", back, (*usual, fused.PROGRAMS), shapes, 2 * padded.numel() + 3 * y.numel())


def _pools(images: int, stage: str, channels: int, side: int) -> Iterator[Case]:
    z = torch.randn(images, side, side, channels, device="cuda").bfloat16()
    y = torch.randn(images, side // 2, side // 2, channels, device="cuda").bfloat16()
    place = torch.randint(0, 10, y.shape, dtype=torch.int8, device="cuda")
    bias = torch.zeros(channels, device="cuda")
    shape = {"HEIGHT": side, "WIDTH": side, "C": channels}
    shapes = [(block, warps, 0) for block in (512, 1024, 2048, 4096) for warps in (2, 4, 8)]

    def grid(like: Tensor, block: int) -> tuple[int, int]:
        return -(-like[0].numel() // block), images

    moves = 2 * z.numel() + 3 * y.numel()
    yield Case(
        f"pool {stage}",
        lambda block, warps, _: kernels.pool[grid(y, block)](z, bias, y, place, BLOCK=block, num_warps=warps, **shape),
        (1024, 4, 0),
        shapes,
        moves,
    )
    yield Case(
        f"pool_back {stage}",
        lambda block, warps, _: kernels.pool_back[grid(z, block)](y, place, z, BLOCK=block, num_warps=warps, **shape),
        (1024, 4, 0),
        shapes,
        moves,
    )


def floor(images: int) -> None:
    """What a minibatch takes at least, with these convolutions."""
    convolve = torch.nn.functional.conv2d
    back = torch.ops.aten.convolution_backward
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    convolved = 0.0
    for inward, outward, side, times in CONVOLUTIONS:
        x, w, dy = _convolution(images, inward, outward, side)
        both = partial(back, dy, x, w, *HOW, (True, True, False))
        convolved += times * (do_bench(partial(convolve, x, w, padding=1)) + do_bench(both))
    found = list(cases(images))
    speed = copied()
    between = sum(case.times * do_bench(partial(case.launch, *case.now)) for case in found)
    moved = sum(case.times * case.moves for case in found) / speed / 1000
    print(f"{images} pictures: convolutions {convolved:.2f} ms, between them {between:.2f}, as copies {moved:.2f}")
    for name, spent in {"as it is": convolved + between, "at least": convolved + moved}.items():
        print(f"{name}: {spent:.2f} ms; 1.96M steps, three passes: {spent / 1000 * 3 * 1_960_000 / images:.1f} s")


def copied() -> float:
    """Bytes that are read and written in a microsecond."""
    a, b = torch.empty(2, 2**28, dtype=torch.int8, device="cuda")
    return 2 * a.numel() / float(do_bench(lambda: b.copy_(a))) / 1000


def compile_all(images: int, only: str) -> None:
    """Fill Triton's cache from as many processes as there are cores."""
    command = [sys.executable, __file__, "--images", "16", "--only", only]
    cores = os.cpu_count() or 1
    for process in [subprocess.Popen([*command, "--part", str(i), str(cores)]) for i in range(cores)]:
        process.wait()


def _convolution(images: int, inward: int, outward: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures, filters and a gradient, channels-last."""
    shapes = (images, inward, side, side), (outward, inward, 3, 3), (images, outward, side, side)
    made = [torch.randn(shape, device="cuda").bfloat16().to(memory_format=torch.channels_last) for shape in shapes]
    return made[0], made[1], made[2]


def convolutions(images: int) -> None:
    """Each convolution forth and back, as cuDNN does it."""
    convolve = torch.nn.functional.conv2d
    back = torch.ops.aten.convolution_backward
    torch.backends.cudnn.benchmark = True
    for inward, outward, side, _ in CONVOLUTIONS:
        x, w, dy = _convolution(images, inward, outward, side)
        work = 18 * images * side * side * inward * outward
        for limit in (10, 0):
            torch.backends.cudnn.benchmark_limit = limit
            ways = (
                partial(convolve, x, w, padding=1),
                partial(back, dy, x, w, *HOW, (True, False, False)),
                partial(back, dy, x, w, *HOW, (False, True, False)),
            )
            took = [do_bench(way) for way in ways]
            cells = (f"{1000 * t:.0f} us ({work / t / 1e9:.0f} TFLOP/s)" for t in took)
            print(f"conv {inward} to {outward} at {side}x{side}, {limit or 'all'} ways:", ", ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--best", type=int, default=4, help="How many of the fastest shapes are printed.")
    parser.add_argument("--only", default="", help="Kernels whose name contains this.")
    parser.add_argument("--floor", action="store_true", help="Only add up what a minibatch takes.")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.floor:
        floor(given.images)
        return
    if not given.part:
        compile_all(given.images, given.only)
        speed = copied()
    found = [case for case in cases(given.images) if given.only in case.name]
    if given.part:  # only compiles
        kinds = sorted({(case.name, block, warps) for case in found for block, warps, _ in [case.now, *case.shapes]})
        mine = {kind for i, kind in enumerate(kinds) if i % given.part[1] == given.part[0]}
        for case in found:
            for block, warps in {shape[:2] for shape in case.shapes} | {case.now[:2]}:
                if (case.name, block, warps) in mine:
                    case.launch(block, warps, 2)
        return
    for case in found:
        took = {s: 1000 * do_bench(partial(case.launch, *s), warmup=3, rep=12) for s in {case.now, *case.shapes}}
        best = sorted((us, shape) for shape, us in took.items())[: given.best]
        listed = ", ".join(f"{us:.1f} {shape}" for us, shape in best)
        print(f"{case.name}: {took[case.now]:.1f} {case.now} now; copied in {case.moves / speed:.1f}; best {listed}")
    if not given.only:
        convolutions(given.images)


if __name__ == "__main__":
    main()
