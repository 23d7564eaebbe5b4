"""Rollouts: what was seen, done and got in some steps of many sub-environments (`lane.py` plays them), and its worth.

In: rewards, ends and values. Out: advantages and returns, on a GPU in one kernel.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agents.devices import to_device, use_fused_kernels
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.spaces import Arrays, InputSpec
from curricle.agents.parallel.workers import shared_memory


class Rollout:
    """What happened in `steps` steps of `count` sub-environments; time comes first in every array."""

    def __init__(self, network: Network, device: torch.device, steps: int, count: int, skills: int) -> None:
        self.steps = steps
        self.count = count
        self.device = device

        def room(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device = device) -> Tensor:
            return shared_memory(torch.zeros(steps + 1, count, *shape, dtype=dtype, device=device))

        self.seen = {name: room(*part.shape, dtype=dtype_of(part)) for name, part in network.parts.items()}
        self.memory = room(network.memory)
        self.actions = room(*network.policy.blank.shape, dtype=network.policy.blank.dtype)
        self.log_probs = room()
        self.values = room()
        self.advantages = room()
        self.returns = room()
        host = torch.device("cpu")
        flag = torch.bool
        self.rewards: NDArray[np.float32] = room(device=host).numpy()
        self.ended: NDArray[np.bool_] = room(dtype=flag, device=host).numpy()
        self.shown: NDArray[np.bool_] = room(skills, dtype=flag, device=host).numpy()

    def rows(self) -> dict[str, Tensor]:
        """All steps of all sub-environments as rows; views, not copies."""
        whole = {f"seen.{name}": tensor for name, tensor in self.seen.items()}
        whole |= {name: getattr(self, name) for name in ("memory", "actions", "log_probs", "advantages", "returns")}
        return {name: tensor[: self.steps].flatten(0, 1) for name, tensor in whole.items()}

    def judge(
        self, steps: int, cut: Sequence["Cut"], look_on: Callable[..., Tensor], gamma: float, trace: float
    ) -> None:
        """Fill in advantages and returns; an episode cut short goes on in the value of its last observation."""
        rewards = self.rewards[:steps].copy()
        if cut:
            seen = {name: np.concatenate([one.seen[name] for one in cut]) for name in self.seen}
            at = [one.at for one in cut]
            who = [one.who for one in cut]
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in seen.items()}
            rewards[at, who] += gamma * look_on(tensors, self.memory[at, who]).cpu().numpy()
        if use_fused_kernels(self.values):  # a GPU is still at the last looks, and need not be waited for
            from curricle.agents.cuda.fused_ppo import fill_advantages

            got, ended = (
                to_device(torch.from_numpy(some), self.device) for some in (rewards, self.ended[:steps].copy())
            )
            fill_advantages(got, ended, self.values, self.advantages, self.returns, gamma, trace)
            return
        values = self.values[: steps + 1].cpu().numpy()
        advantages = gae(rewards, values, self.ended[:steps], gamma, trace)
        self.returns[:steps] = torch.from_numpy(advantages + values[:-1]).to(self.device)
        spread = advantages.std() + 1e-8
        self.advantages[:steps] = torch.from_numpy((advantages - advantages.mean()) / spread).to(self.device)


class Cut:
    """An episode that a time limit ended: when, where, and what was seen last."""

    def __init__(self, at: int, who: int, seen: Arrays) -> None:
        self.at = at
        self.who = who
        self.seen = {name: array.copy() for name, array in seen.items()}


def gae(
    rewards: NDArray[Any], values: NDArray[Any], ended: NDArray[np.bool_], gamma: float, trace: float
) -> NDArray[np.float32]:
    """Generalised advantages (Schulman et al. 2016); `values` has one row more, for what follows the last step."""
    goes_on = np.float32(1) - ended
    deltas = rewards + np.float32(gamma) * values[1:] * goes_on - values[:-1]
    fade = np.float32(gamma * trace) * goes_on
    advantages = np.empty_like(deltas)
    later = np.zeros(deltas.shape[1], np.float32)
    for t in range(len(deltas) - 1, -1, -1):
        later = advantages[t] = deltas[t] + fade[t] * later
    return np.asarray(advantages, np.float32)


def picked(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor; bytes are fetched eight at a time, which a GPU does several times faster."""
    wide = tensor.flatten(1) if tensor.ndim > 1 else tensor
    if tensor.dtype != torch.uint8 or tensor.ndim < 2 or wide.shape[1] % 8:
        return tensor[rows]
    return wide.view(torch.int64)[rows].view(torch.uint8).view(len(rows), *tensor.shape[1:])


def dtype_of(part: InputSpec) -> torch.dtype:
    """In torch's words."""
    return torch.from_numpy(np.zeros(0, part.dtype)).dtype
