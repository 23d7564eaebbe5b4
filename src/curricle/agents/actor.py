"""Actor: the network that plays in practice.

It is the network that learns, or, where the next rollout is played while the last one is still learnt (`ahead`), a copy
that follows it from one rollout to the next. On a GPU a lane's pass through it is one CUDA graph; a copy works in a
stream that goes before the one that learns, for its passes are short and the worlds wait for them.
"""

import copy
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from curricle.agents.hardware import Graph, Pool, Row, halved, has_twins
from curricle.agents.lane import Sight
from curricle.agents.nets import Network, Seen
from curricle.agents.objective import chosen
from curricle.agents.rollout import Rollout


class Actor:
    """Looks, remembers and chooses for the lanes of a practice."""

    def __init__(self, network: Network, device: torch.device, *, ahead: bool, bf16: bool) -> None:
        self.network, self.device, self.bf16 = copy.deepcopy(network) if ahead else network, device, bf16
        self.row = Row(self.network, twins=has_twins(device, bf16)) if ahead else None
        self.stream = torch.cuda.Stream(priority=-1) if ahead and device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def follow(self, network: Network, row: Row) -> None:
        """Become what the network that learns is now."""
        if self.row:
            self.row.whole.data.copy_(row.whole.data)
            self.row.settle()
            for mine, learnt in zip(self.network.buffers(), network.buffers(), strict=True):
                mine.copy_(learnt)

    @contextmanager
    def stage(self) -> Iterator[None]:
        """Where lanes play: all in one stream, which sees what was done before and is done when they leave."""
        if self.stream is None:
            yield
            return
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            yield
            self.stream.synchronize()

    def look(
        self, seen: Seen, memory: Tensor, before: Tensor, unlocked: Tensor, fresh: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """One forward pass of the rollout; see `lane.Think`."""
        with torch.no_grad():
            with halved(self.device, self.bf16):
                latents = self.network.encode(seen).float()
            memory = self.network.recall(memory, before, latents, unlocked, fresh)
            choice, values = self.network.decide(latents, memory)
            return latents, memory, *chosen(self.network, choice, values, noise)

    def sight(self, known: MutableMapping[Any, Sight], rollout: Rollout, here: slice, *, captures: bool) -> Sight:
        """A sight of some sub-environments; one that was captured as a graph is kept."""
        key = ("sight", here.start, here.stop)
        if key in known:
            return known[key]
        made = Sight(self.look, self.network, rollout, here)
        if captures:
            graph = Graph(made.work, undo=made.changing(), pool=Pool(priority=-1) if self.stream else None)
            graph()
            known[key], made.graph = made, graph
        return made

    def worth(self, seen: Seen, memory: Tensor) -> Tensor:
        """Values of observations, on the world's scale.

        On a GPU a batch is filled up to a power of two: for each new size the fastest convolution would be looked for.
        """
        count = len(memory)
        if self.device.type == "cuda":
            rows = torch.arange(1 << (count - 1).bit_length(), device=self.device).clamp(max=count - 1)
            seen, memory = {name: tensor[rows] for name, tensor in seen.items()}, memory[rows]
        with torch.no_grad():
            with halved(self.device, self.bf16):
                latents = self.network.encode(seen).float()
            _, values = self.network.decide(latents, memory)
            return self.network.scale.outward(values)[:count]
