"""Device: the backend that an agent computes with, and how torch and the C library are set up for it.

`Backend` is what an RL agent asks of its device. The one here is for a CPU, where each answer is plain: memory is
memory, nothing runs later, and a function is called as it is written. The one for a GPU is in `agents/cuda/backend.py`
and is imported only there. It computes the same, only faster: to read an algorithm, skip it.

On a CPU every worker runs torch on one thread, so results do not depend on the machine's load.
"""

import ctypes
import functools
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from curricle.errors import AgentError

LOG = logging.getLogger("curricle")
HAS_TRITON = find_spec("triton") is not None
Device = Literal["auto", "cpu", "cuda"]
F = TypeVar("F", bound=Callable[..., Any])

# glibc's numbers for the settings of mallopt
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8


class Backend:
    """What an agent asks of its device, on a CPU."""

    bf16 = False
    """Whether products are taken in bfloat16. Most CPUs only emulate it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    # -- set-up --------------------------------------------------------------------------------------------------------

    def workers(self, wanted: int) -> int:
        """How many workers share the environments and the minibatches."""
        return wanted

    def session(self) -> AbstractContextManager[None]:
        """What learning and playing run in: here, torch on a single thread."""
        return single_thread()

    def autocast(self) -> AbstractContextManager[None]:
        """What networks run in: under bfloat16 if the backend takes it."""
        return nullcontext()

    # -- memory --------------------------------------------------------------------------------------------------------

    def host_memory(self, tensor: Tensor) -> Tensor:
        """A tensor on the CPU that the device reads and writes by itself."""
        return tensor

    def lend(self, tensor: Tensor) -> Callable[[], None]:
        """Let the device read memory that a world owns; call what is returned before the world frees it."""
        return lambda: None

    def upload(self, tensor: Tensor) -> Tensor:
        """Send a tensor from the CPU to the device, without waiting for it to arrive."""
        return tensor

    def download(self, tensor: Tensor) -> Callable[[], list[float]]:
        """Begin to fetch the numbers of a tensor; the function that is returned waits for them and returns them."""
        numbers: Callable[[], list[float]] = tensor.tolist
        return numbers

    # -- work ----------------------------------------------------------------------------------------------------------

    def event(self) -> "Event":
        """A point in the device's work to wait for."""
        return Event()

    def wait(self) -> None:
        """Wait until the device has done all its work."""

    def fastest(self, function: F) -> F:
        """What computes the same as a function of the algorithm, in the way that is fastest on the device."""
        return function

    def run(
        self,
        key: Hashable,
        function: Callable[..., Any],
        *inputs: Tensor,
        changes: Callable[[], Sequence[Tensor]],
        brief: bool = False,
    ) -> Any:
        """Call a function of tensors. For one key it is always the same function, with inputs of the same shapes.

        So a GPU can record it once and replay it: `changes` returns the tensors that the function changes in place.
        What is returned holds until the next call; with `brief`, until the next call of any function with `brief`.
        """
        return function(*inputs)

    def forget_recordings(self) -> None:
        """Forget what `run` keeps: the tensors that the functions use are no longer there."""

    def padded_size(self, count: int) -> int:
        """The size to which a batch of so many rows is padded."""
        return count


class Event:
    """A point in the work of a CPU, which has always been reached."""

    def record(self) -> None:
        """Set the point: all that was begun so far."""

    def synchronize(self) -> None:
        """Wait until the point is reached."""


def choose_backend(wanted: Device, who: str, *, bf16: bool, graphs: bool) -> Backend:
    """The backend of the device that is wanted; `bf16` and `graphs` are for a GPU."""
    device = choose_device(wanted, who)
    if device.type == "cuda":
        from curricle.agents.cuda.backend import CudaBackend

        return CudaBackend(device, bf16=bf16, graphs=graphs)
    keep_freed_memory()
    return Backend(device)


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


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch's operations on the thread that calls them: the workers are what runs in parallel."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
