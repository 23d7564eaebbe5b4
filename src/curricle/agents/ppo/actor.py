"""Actor: the network that learns, as it plays in practice. On a GPU a lane's pass through it is one CUDA graph."""

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor

from curricle.agents.cuda.graphs import CudaGraph
from curricle.agents.devices import bf16_autocast
from curricle.agents.networks.encoders import Network, Observations
from curricle.agents.ppo.lane import Sight
from curricle.agents.ppo.rollout import Rollout
from curricle.agents.ppo.update import chosen


class Actor:
    """Looks, remembers and chooses for the lanes of a practice."""

    def __init__(self, network: Network, device: torch.device, *, bf16: bool) -> None:
        self.network = network
        self.device = device
        self.bf16 = bf16

    def look(
        self, seen: Observations, memory: Tensor, before: Tensor, unlocked: Tensor, fresh: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """One forward pass of the rollout; see `lane.Think`."""
        with torch.no_grad():
            with bf16_autocast(self.device, self.bf16):
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
            graph = CudaGraph(made.work, undo=made.changing())
            graph()
            known[key] = made
            made.graph = graph
        return made

    def worth(self, seen: Observations, memory: Tensor) -> Tensor:
        """Values of observations, on the world's scale.

        On a GPU a batch is filled up to a power of two: for each new size the fastest convolution would be looked for.
        """
        count = len(memory)
        if self.device.type == "cuda":
            rows = torch.arange(1 << (count - 1).bit_length(), device=self.device).clamp(max=count - 1)
            seen = {name: tensor[rows] for name, tensor in seen.items()}
            memory = memory[rows]
        with torch.no_grad():
            with bf16_autocast(self.device, self.bf16):
                latents = self.network.encode(seen).float()
            _, values = self.network.decide(latents, memory)
            return self.network.scale.outward(values)[:count]
