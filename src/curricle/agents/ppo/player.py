"""Player: a network that plays test episodes side by side and learns nothing.

In: batches of observations, and what each step showed. Out: actions. Every row draws its own luck from its own seed, so
an episode does not depend on which others are played beside it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curricle.agents.devices import bf16_autocast
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.spaces import split
from curricle.seeds import generator


class Player:
    """Plays a batch of test episodes, each row with luck of its own."""

    stock = 128
    """Steps for which luck is drawn at a time."""

    def __init__(
        self, network: Network, device: torch.device, seeds: Sequence[int], *, bf16: bool, greedy: bool
    ) -> None:
        self.network = network
        self.device = device
        self.bf16 = bf16
        self.greedy = greedy
        self.n = len(seeds)
        self.rngs = [generator(seed, "act") for seed in seeds]
        self.luck = np.zeros((self.n, 0, network.policy.noisy), np.float32)
        self.at = 0
        self.memory = torch.zeros(self.n, network.memory, device=device)
        self.before = torch.zeros(self.n, network.hidden if network.memory else 0, device=device)
        self.marks = torch.zeros(2, self.n, 1, dtype=torch.bool, device=device)
        self.shown: NDArray[np.bool_] | None = None

    def act(self, observations: Any) -> NDArray[Any]:
        """Choose an action for every row."""
        if self.at == self.luck.shape[1]:
            shape = (self.stock,)
            self.luck = np.stack([self.network.policy.draw_noise(rng, shape) for rng in self.rngs])
            self.at = 0
        net = self.network
        seen = split(observations, self.network.parts, self.n)
        noise = torch.from_numpy(self.luck[:, self.at]).to(self.device)
        self.at += 1
        with torch.no_grad():
            with bf16_autocast(self.device, self.bf16):
                latents = net.encode({name: torch.from_numpy(x).to(self.device) for name, x in seen.items()}).float()
            self.memory = net.recall(self.memory, self.before, latents, self.marks[0], self.marks[1])
            choice, _ = net.decide(latents, self.memory)
            if net.memory:
                self.before = latents
            actions = net.policy.best(choice) if self.greedy else net.policy.sample(choice, noise)
        return np.asarray(net.policy.outward(actions.cpu().numpy()))

    def saw(self, ended: NDArray[np.bool_], skills: NDArray[np.bool_]) -> None:
        """Mark what memory needs to know of the step."""
        before = self.shown if self.shown is not None else np.zeros_like(skills)
        marks = np.stack([(skills != before).any(1), ended])[..., None]
        self.marks = torch.from_numpy(marks).to(self.device)
        self.shown = skills & ~ended[:, None]
