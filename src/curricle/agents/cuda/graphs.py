"""CUDA graphs: record a function of tensors once and replay it, so that launching its kernels costs next to nothing.

Shapes are fixed, and so is the memory that a graph reads and writes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Input = Tensor | Mapping[str, Tensor]


class GraphPool:
    """Memory for several graphs that never run at once and whose results are used before the next one runs."""

    def __init__(self) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]


class CudaGraph:
    """A function of tensors that is replayed as one CUDA graph; call it with the same shapes every time.

    The first call runs the function a few times to warm up, then restores the tensors in `undo`, which are those that
    the function changes in place.
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

    def __call__(self, *inputs: Input) -> Any:
        """Copy the inputs in and replay; the next call overwrites the tensors that this one returns."""
        if self.graph is None:
            self._capture(inputs)
        for recorded, given in zip(self.inputs, _flatten(inputs), strict=True):
            if recorded.numel():
                recorded.copy_(given, non_blocking=True)
        assert self.graph is not None
        self.graph.replay()
        return self.outputs

    def _capture(self, inputs: Sequence[Input]) -> None:
        """Record the function; the graph reads its inputs from copies that stay where they are."""
        recorded = [_clone(given) for given in inputs]
        self.inputs = _flatten(recorded)
        saved = [tensor.clone() for tensor in self.undo]
        torch.cuda.synchronize()
        pool = self.pool or GraphPool()
        with torch.cuda.stream(pool.stream):
            for _ in range(3):
                self.function(*recorded)
        torch.cuda.synchronize()
        for tensor, before in zip(self.undo, saved, strict=True):
            tensor.copy_(before)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.handle, stream=pool.stream):
            self.outputs = self.function(*recorded)
        torch.cuda.synchronize()
        self.graph = graph


def _clone(given: Input) -> Input:
    if isinstance(given, Mapping):
        return {name: tensor.clone() for name, tensor in given.items()}
    return given.clone()


def _flatten(inputs: Sequence[Input]) -> list[Tensor]:
    """All tensors of some inputs, in order."""
    tensors: list[Tensor] = []
    for given in inputs:
        if isinstance(given, Mapping):
            tensors.extend(given.values())
        else:
            tensors.append(given)
    return tensors
