"""Profiles: which kernels a GPU spends its time in."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

LEAST = 1 / 1500
"""Kernels that take a smaller share than this are not listed."""


def kernels(work: Callable[[], Any], times: int, name: str) -> None:
    """Print what a GPU does in some work that does something `times` times: milliseconds each, kernel by kernel."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    spent = 1000 * (time.perf_counter() - start) / times
    took = sorted(
        ((e.device_time_total / 1000 / times, e.count / times, e.key) for e in seen.key_averages()), reverse=True
    )
    total = sum(ms for ms, _, _ in took)
    print(f"{total:.1f} ms of kernels a {name}, which took {spent:.1f} ms with the profiler on")
    for ms, count, key in took:
        if ms >= LEAST * total:
            print(f"{ms:8.2f} ms in {count:6.1f} calls, {1000 * ms / count:7.1f} us each: {key[:90]}")
