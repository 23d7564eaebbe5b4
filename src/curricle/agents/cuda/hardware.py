"""Hardware: which device learns, its parameters in one row, graphs of its work, and its failures in words.

On a CPU everything runs with one torch thread a lane: results then do not depend on the machine's load. On a GPU the
network runs in bfloat16 where that is enough, and rollout and update are replayed as CUDA graphs of fixed shape.
"""

import ctypes
import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from curricle.agents.parallel.workers import shared_memory
from curricle.errors import AgentError

LOG = logging.getLogger("curricle")
HAS_TRITON = find_spec("triton") is not None
Device = Literal["auto", "cpu", "cuda"]


def choose_device(wanted: Device, who: str) -> torch.device:
    """The GPU if there is one; asking for one that is missing is an error."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise AgentError(f"{who}: device = 'cuda', but torch {torch.__version__} sees no GPU; use 'auto' or 'cpu'")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def can_fork(device: torch.device) -> bool:
    """Whether lanes can be processes: where torch sees a GPU, its autograd refuses to work in a fork."""
    if device.type == "cpu" and torch.cuda.device_count():
        LOG.info(
            "lanes are threads beside a GPU; hide it (CUDA_VISIBLE_DEVICES=) and they are processes, which is faster"
        )
    return device.type == "cpu" and not torch.cuda.device_count()


def bf16_autocast(device: torch.device, wanted: bool) -> AbstractContextManager[Any]:
    """Products in bfloat16 on a GPU; CPUs mostly emulate it."""
    if device.type == "cuda" and wanted:
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)  # a graph must not hold on to cast weights
    return nullcontext()


def keeps_bf16_copy(device: torch.device, halves: bool) -> bool:
    """Whether weights are kept in bfloat16 as well, for products that are made in it."""
    return device.type == "cuda" and halves


@functools.cache
def keep_freed_memory() -> None:
    """Ask the C library to keep freed memory: threads' heaps otherwise go back to the system after each minibatch.

    Measured: 880 page faults a minibatch without it, a third of the time. Only glibc knows these settings. There is one
    heap for all threads then: those of a world that ask for memory at every step would wait for each other.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for setting, size in ((-8, 1), (-1, 2**31 - 1), (-3, 2**30)):  # M_ARENA_MAX, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        mallopt(setting, size)


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """Let torch's operations run on the thread that calls them: lanes are the parallel part.

    On a GPU shapes are fixed, so the fastest convolution is worth looking for.
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


def matmul_weight(weight: Tensor) -> Tensor:
    """A weight as products take it here: its bf16_copy in bfloat16, where a row keeps one."""
    bf16_copy: Tensor | None = getattr(weight, "bf16_copy", None)
    return weight if bf16_copy is None or not torch.is_autocast_enabled("cuda") else bf16_copy


class FlatParameters:
    """All parameters of a network side by side in one tensor, shared by lanes; a gradient is one tensor too.

    With `bf16_copies` there is a second one in bfloat16, so that weights need not be cast in every pass: products
    take their weights from there (`matmul_weight`), and whatever changes the row other than
    `descend` has to `settle` it.
    """

    def __init__(self, network: nn.Module, *, bf16_copies: bool = False) -> None:
        self.pieces = list(network.parameters())
        self.sizes = [piece.numel() for piece in self.pieces]
        self.whole = nn.Parameter(shared_memory(torch.empty(sum(self.sizes), device=self.pieces[0].device)))
        for piece, view in zip(self.pieces, self._views(self.whole.data), strict=True):
            view.copy_(piece.data)
            piece.data = view
        for buffer in network.buffers():
            buffer.data = shared_memory(buffer.data)
        self.bf16_copy = self.whole.data.bfloat16() if bf16_copies else None
        self.bf16_copies = list[Tensor]()
        for piece, view in (
            zip(self.pieces, self._views(self.bf16_copy), strict=True) if self.bf16_copy is not None else ()
        ):
            self.bf16_copies.append(view.requires_grad_())
            piece.bf16_copy = view  # type: ignore[attr-defined]

    def settle(self) -> None:
        """Let the bf16_copy be what the row is."""
        if self.bf16_copy is not None:
            self.bf16_copy.copy_(self.whole.data)

    def gradient(self, loss: Tensor, out: Tensor | None = None) -> Tensor:
        """The gradient of a loss, in the order of the row."""
        found = torch.autograd.grad(loss, [*self.pieces, *self.bf16_copies], allow_unused=True)
        gradients = [
            plain if bf16_autocast is None else bf16_autocast if plain is None else plain + bf16_autocast
            for plain, bf16_autocast in itertools.zip_longest(found[: len(self.pieces)], found[len(self.pieces) :])
        ]
        whole = torch.empty_like(self.whole.data) if out is None else out
        views = self._views(whole)
        for view, gradient in zip(views, gradients, strict=True):
            if gradient is None:  # nothing of it was asked for
                view.zero_()
        pairs = [(view, gradient) for view, gradient in zip(views, gradients, strict=True) if gradient is not None]
        alike = [pair for pair in pairs if pair[0].stride() == pair[1].stride()]
        for kind in {gradient.dtype for _, gradient in alike}:  # on a GPU these are one copy
            some = [pair for pair in alike if pair[1].dtype == kind]
            torch._foreach_copy_([view for view, _ in some], [gradient for _, gradient in some])
        for view, gradient in pairs:
            if view.stride() != gradient.stride():
                view.copy_(gradient)
        return whole

    def descend(self, gradient: Tensor, adam: torch.optim.Adam, longest: float) -> None:
        """Shorten a gradient if it is too long, and let Adam take it; on a GPU in one kernel."""
        length = torch.linalg.vector_norm(gradient)
        if gradient.is_cuda and HAS_TRITON:
            state = adam.state[self.whole]
            group = adam.param_groups[0]
            descend(self.whole.data, gradient, length, state, group, longest, self.bf16_copy)
            return
        assert self.whole.grad is not None
        torch.mul(gradient, (longest / (length + 1e-6)).clamp(max=1.0), out=self.whole.grad)
        adam.step()
        self.settle()

    def _views(self, whole: Tensor) -> list[Tensor]:
        """A row's numbers in the shapes of the parameters; filters lie channels-last, as pictures do."""
        views = list[Tensor]()
        for piece, part in zip(self.pieces, whole.split(self.sizes), strict=True):  # type: ignore[no-untyped-call]
            flat = piece.ndim != 4
            views.append(part.view(piece.shape) if flat else part.view(*_last(piece.shape)).permute(0, 3, 1, 2))
        return views


def descend(
    whole: Tensor,
    gradient: Tensor,
    length: Tensor,
    state: Mapping[str, Tensor],
    group: Mapping[str, Any],
    longest: float,
    bf16_copy: Tensor | None = None,
) -> None:
    """A step of Adam in one kernel, over the state that torch's keeps; the bf16_copy follows."""
    from curricle.agents.cuda import kernels

    state["step"].add_(1)
    moments = state["exp_avg"], state["exp_avg_sq"], state["step"]
    betas = group["betas"]
    means = *(1 - beta for beta in betas), *(math.log(beta) for beta in betas)
    given = gradient, length, longest, whole, *moments, len(whole), group["lr"], group["eps"], *means
    both = (whole, False) if bf16_copy is None else (bf16_copy, True)
    kernels.adam[(-(-len(whole) // 1024),)](*given, *both, BLOCK=1024)


def _last(shape: Sequence[int]) -> tuple[int, ...]:
    out, inward, height, width = shape
    return out, height, width, inward


class GraphPool:
    """Memory that graphs share which never run at once, and whose results are used before the next one runs."""

    def __init__(self) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]


class CudaGraph:
    """A function of tensors replayed as one CUDA graph; it must always be called with the same shapes.

    Its first call runs it a few times to warm up: `undo` puts back what that changed.
    """

    def __init__(
        self, function: Callable[..., Any], undo: Sequence[Tensor] = (), pool: GraphPool | None = None
    ) -> None:
        self.function = function
        self.undo = undo
        self.pool = pool
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: Any = None

    def __call__(self, *inputs: Tensor | Mapping[str, Tensor]) -> Any:
        """Copy the inputs in, replay, and hand out the tensors of the result (overwritten by the next call)."""
        if self.graph is None:
            self._capture(inputs)
        for mine, given in zip(self.inputs, _flat(inputs), strict=True):
            if mine.numel():
                mine.copy_(given, non_blocking=True)
        assert self.graph is not None
        self.graph.replay()
        return self.outputs

    def _capture(self, inputs: Sequence[Any]) -> None:
        held = [{k: t.clone() for k, t in x.items()} if isinstance(x, Mapping) else x.clone() for x in inputs]
        self.inputs = _flat(held)
        kept = [tensor.clone() for tensor in self.undo]
        torch.cuda.synchronize()
        pool = self.pool or GraphPool()
        with torch.cuda.stream(pool.stream):
            for _ in range(3):
                self.function(*held)
        torch.cuda.synchronize()
        for tensor, before in zip(self.undo, kept, strict=True):
            tensor.copy_(before)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.handle, stream=pool.stream):
            self.outputs = self.function(*held)
        torch.cuda.synchronize()
        self.graph = graph


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU's on its way to a device, behind what was sent there before; nobody waits for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class PendingMetrics:
    """Numbers on their way from a device to the caller, who may do something else before asking for them."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.ready = None
        if tensor.is_cuda:
            self.tensor = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
            self.ready = torch.cuda.current_stream().record_event()

    def values(self) -> list[float]:
        """Wait until they are there."""
        if self.ready:
            self.ready.synchronize()
        numbers: list[float] = self.tensor.tolist()
        return numbers


class PinnedMemory:
    """Memory of another owner that a GPU may read by itself until it is closed; on a CPU there is nothing to do.

    Where the driver refuses, the GPU's copies are slower and as right.
    """

    def __init__(self, tensor: Tensor, device: torch.device) -> None:
        self.tensor = tensor
        self.open = False
        if device.type == "cuda" and tensor.nbytes:
            self.open = not int(torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))  # type: ignore[no-untyped-call]
            if not self.open:
                LOG.info("the driver pins no memory of the world; its observations take a little longer to the GPU")

    def close(self) -> None:
        """Give it back, before its owner lets it go."""
        if self.open:
            torch.cuda.cudart().cudaHostUnregister(self.tensor.data_ptr())  # type: ignore[no-untyped-call]
            self.open = False


def _flat(inputs: Sequence[Any]) -> list[Tensor]:
    return [t for x in inputs for t in (x.values() if isinstance(x, Mapping) else (x,))]
