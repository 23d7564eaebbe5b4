"""The backend of a GPU (`agents/device.py` has the contract, and the one of a CPU).

One worker plays all environments and takes whole minibatches. It never waits for the GPU where it can prepare something
meanwhile: copies go through pinned memory, and events say when something is done. What has fixed shapes is recorded
once as a CUDA graph and replayed. `FASTEST` has the functions of the algorithms that are computed in another way here;
each gets the plain function first, for what it does not cover itself.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from curricle.agents.cuda.graphs import CudaGraph, GraphPool
from curricle.agents.cuda.memory import Download, PinnedMemory
from curricle.agents.device import HAS_TRITON, Backend, Event, F
from curricle.agents.networks.heads import Categorical

GRAPH_SIZES = (64, 128, 192, 256, 384, 512, 768, 1024)
"""Sizes of batches: for each a GPU searches for its fastest kernels once, and keeps a graph."""


class CudaBackend(Backend):
    """What an agent asks of its device, on a GPU."""

    def __init__(self, device: torch.device, *, bf16: bool, graphs: bool) -> None:
        super().__init__(device)
        self.bf16 = bf16
        self.uses_graphs = graphs
        self.recordings: dict[Hashable, CudaGraph] = {}
        self.brief_pool: GraphPool | None = None

    # -- set-up --------------------------------------------------------------------------------------------------------

    def workers(self, wanted: int) -> int:
        """One: while it steps the environments of one actor, the GPU computes the policy of another."""
        return 1

    def session(self) -> AbstractContextManager[None]:
        """Let cuDNN search for its fastest convolutions: shapes are fixed, so the search pays off."""
        return search_convolutions()

    def autocast(self) -> AbstractContextManager[None]:
        """Take products in bfloat16."""
        if self.bf16:
            return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)  # a graph must not keep cast weights
        return nullcontext()

    # -- memory --------------------------------------------------------------------------------------------------------

    def host_memory(self, tensor: Tensor) -> Tensor:
        """Pinned memory."""
        return tensor.pin_memory()

    def lend(self, tensor: Tensor) -> Callable[[], None]:
        """Pin the world's memory."""
        return PinnedMemory(tensor).close

    def upload(self, tensor: Tensor) -> Tensor:
        """By way of pinned memory; later work on the GPU comes after it."""
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def download(self, tensor: Tensor) -> Callable[[], list[float]]:
        """Into pinned memory."""
        return Download(tensor).values

    # -- work ----------------------------------------------------------------------------------------------------------

    def event(self) -> Event:
        """A CUDA event, which has the same methods."""
        return cast(Event, torch.cuda.Event())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until the GPU has done all its work."""
        torch.cuda.synchronize()

    def fastest(self, function: F) -> F:
        """The version of `FASTEST`, if there is one."""
        version = FASTEST.get(function.__name__)
        return function if version is None else cast(F, partial(version, function))

    def run(
        self,
        key: Hashable,
        function: Callable[..., Any],
        *inputs: Tensor,
        changes: Callable[[], Sequence[Tensor]],
        brief: bool = False,
    ) -> Any:
        """Replay the CUDA graph of a key; the first call records it."""
        if not self.uses_graphs:
            return function(*inputs)
        if key not in self.recordings:
            pool = self._brief_pool() if brief else None
            self.recordings[key] = CudaGraph(function, changes(), pool)
        return self.recordings[key](*inputs)

    def forget_recordings(self) -> None:
        """Free the graphs and their memory."""
        self.recordings.clear()

    def padded_size(self, count: int) -> int:
        """The next of a few sizes."""
        return next_graph_size(count)

    def _brief_pool(self) -> GraphPool:
        if self.brief_pool is None:
            self.brief_pool = GraphPool()
        return self.brief_pool


@contextmanager
def search_convolutions() -> Iterator[None]:
    """Let cuDNN try which convolution is fastest, once for each shape."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def next_graph_size(count: int) -> int:
    """The next of a few sizes."""
    for size in GRAPH_SIZES:
        if count <= size:
            return size
    return -(-count // GRAPH_SIZES[-1]) * GRAPH_SIZES[-1]


# -- functions of the algorithms that a GPU computes in another way ----------------------------------------------------


def select_rows(plain: Callable[..., Tensor], tensor: Tensor, rows: Tensor) -> Tensor:
    """Fetch bytes eight at a time, which is several times faster."""
    if tensor.dtype != torch.uint8 or tensor.ndim < 2:
        return tensor[rows]
    flat = tensor.flatten(1)
    if flat.shape[1] % 8:
        return tensor[rows]
    return flat.view(torch.int64)[rows].view(torch.uint8).view(len(rows), *tensor.shape[1:])


def write_row(plain: Callable[..., None], target: Tensor, environments: slice, step: Tensor, values: Tensor) -> None:
    """Write bytes eight at a time, which is several times faster."""
    place = target[:, environments]
    row = values[None]
    if row.dtype == torch.uint8 and row[0, 0].numel() % 8 == 0:
        place = place.flatten(2).view(torch.int64)
        row = row.flatten(2).view(torch.int64)
    place.index_copy_(0, step, row)


def estimate_values(
    plain: Callable[..., Tensor], network: Any, backend: Backend, observations: dict[str, Tensor], memory: Tensor
) -> Tensor:
    """Fill the batch up to a power of two: the fastest convolution is searched for once for each size."""
    count = len(memory)
    rows = torch.arange(1 << (count - 1).bit_length(), device=memory.device).clamp(max=count - 1)
    observations = {name: tensor[rows] for name, tensor in observations.items()}
    return plain(network, backend, observations, memory[rows])[:count]


def sample_actions(
    plain: Callable[..., Any], network: Any, distribution: Tensor, values: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """In one kernel, for discrete actions."""
    if not isinstance(network.policy, Categorical):
        sampled: tuple[Tensor, Tensor, Tensor] = plain(network, distribution, values, noise)
        return sampled
    from curricle.agents.cuda import fused_ppo

    return fused_ppo.sample_actions(distribution, values, noise, network.scale.moments)


def ppo_loss(
    plain: Callable[..., Any],
    network: Any,
    distribution: Tensor,
    values: Tensor,
    minibatch: dict[str, Tensor],
    options: Any,
) -> tuple[Tensor, Tensor]:
    """In one kernel together with its gradient, for discrete actions."""
    if not isinstance(network.policy, Categorical):
        loss: tuple[Tensor, Tensor] = plain(network, distribution, values, minibatch, options)
        return loss
    from curricle.agents.cuda import fused_ppo

    coefficients = (options.clip, options.value_coef, options.entropy_coef)
    return fused_ppo.ppo_loss(distribution, values, minibatch, network.scale.moments, coefficients)


def fill_advantages(plain: Callable[..., None], buffer: Any, rewards: Any, gamma: float, gae_lambda: float) -> None:
    """In one kernel: the GPU is still at the last values, and the CPU need not wait for them."""
    from curricle.agents.cuda import fused_ppo

    upload = buffer.backend.upload
    device_rewards = upload(torch.from_numpy(rewards))
    device_ended = upload(torch.from_numpy(buffer.ended[: len(rewards)].copy()))
    fused_ppo.fill_advantages(
        device_rewards, device_ended, buffer.values, buffer.advantages, buffer.returns, gamma, gae_lambda
    )


FASTEST: dict[str, Callable[..., Any]] = {
    "select_rows": select_rows,
    "write_row": write_row,
    "estimate_values": estimate_values,
}
"""By the name of the plain function."""
if HAS_TRITON:
    FASTEST["sample_actions"] = sample_actions
    FASTEST["ppo_loss"] = ppo_loss
    FASTEST["fill_advantages"] = fill_advantages
