"""Devices: which one a network runs on, and how torch and the C library are set up for it.

On a CPU every worker runs torch on one thread, so results do not depend on the machine's load. On a GPU, products may
be taken in bfloat16, and `use_fused_kernels` sends some steps to the Triton kernels in `agents/cuda`. Those compute
what the plain PyTorch code beside each call computes, only faster: to read the algorithm, skip them.
"""

import ctypes
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from curricle.errors import AgentError

LOG = logging.getLogger("curricle")
HAS_TRITON = find_spec("triton") is not None
Device = Literal["auto", "cpu", "cuda"]

# glibc's numbers for the settings of mallopt
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8


def choose_device(wanted: Device, who: str) -> torch.device:
    """The GPU if there is one, unless the CPU is asked for; asking for a GPU that is missing is an error."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise AgentError(f"{who}: device = 'cuda', but torch {torch.__version__} sees no GPU; use 'auto' or 'cpu'")
    if wanted != "cpu" and torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def use_fused_kernels(tensor: Tensor) -> bool:
    """Whether to compute with the Triton kernels of `agents/cuda` rather than with plain PyTorch."""
    return tensor.is_cuda and HAS_TRITON


def can_fork(device: torch.device) -> bool:
    """Whether workers can be processes: where torch sees a GPU, its autograd refuses to work in a fork."""
    if device.type != "cpu":
        return False
    if torch.cuda.device_count():
        LOG.info(
            "workers are threads beside a GPU; hide it (CUDA_VISIBLE_DEVICES=) and they are processes, which is faster"
        )
        return False
    return True


def bf16_autocast(device: torch.device, wanted: bool) -> AbstractContextManager[None]:
    """Take products in bfloat16 on a GPU. On a CPU this does nothing: most CPUs only emulate bfloat16."""
    if device.type == "cuda" and wanted:
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)  # a graph must not hold on to cast weights
    return nullcontext()


def pin_memory(tensor: Tensor, device: torch.device) -> Tensor:
    """Memory that a GPU can read and write by itself; for a CPU the tensor as it is."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor from the CPU to a device without waiting for it to arrive; later work there comes after it."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor


def start_download(tensor: Tensor) -> Callable[[], list[float]]:
    """Begin to fetch the numbers of a tensor; the function that is returned waits for them and returns them."""
    if tensor.is_cuda:
        from curricle.agents.cuda.memory import Download

        return Download(tensor).values
    numbers: Callable[[], list[float]] = tensor.tolist
    return numbers


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, run torch's operations on the thread that calls them: the workers are what runs in parallel.

    On a GPU, let cuDNN search for its fastest convolutions instead: shapes are fixed, so the search pays off.
    """
    threads = torch.get_num_threads()
    search = torch.backends.cudnn.benchmark
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = search


@functools.cache
def keep_freed_memory() -> None:
    """Ask the C library to keep freed memory instead of handing it back to the system after each minibatch.

    Without this, a minibatch takes 880 page faults, a third of its time (measured). Only glibc knows these settings;
    elsewhere nothing happens. All threads then share one heap: those of a world that allocates at every step would
    wait for each other.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_MMAP_THRESHOLD, 2**30)
