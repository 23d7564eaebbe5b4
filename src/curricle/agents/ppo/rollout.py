"""Rollouts: the plan that cuts a practice into rollouts, and the buffer that holds one.

In: a budget; then what actors (`actors.py`) write into the buffer. Out: rows for the update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agent import Report
from curricle.agents.device import Backend
from curricle.agents.episodes import Tally
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.heads import Categorical, Gaussian
from curricle.agents.networks.spaces import Arrays, InputSpec
from curricle.agents.parallel.workers import shared_memory
from curricle.seeds import derive, generator
from curricle.setting import Setting


class RolloutPlan:
    """How one practice is cut into rollouts, and its environments into slices, one for each actor."""

    def __init__(self, environments: int, slices: int, budget: int, min_steps: int, seed: int) -> None:
        """`budget` counts the steps of all environments; a rollout has at least `min_steps` of each, if there are."""
        self.environments = environments
        self.slices = min(slices, environments)
        self.budget = budget
        self.seed = seed
        self.min_steps = min_steps
        self.total_steps = -(-budget // environments)
        self.rollouts = max(1, self.total_steps // min_steps)

    def steps(self, index: int) -> int:
        """Steps of a rollout: the first ones are a step longer where the budget does not divide."""
        return self.total_steps // self.rollouts + (index < self.total_steps % self.rollouts)

    def budget_used(self, rollouts: int) -> int:
        """Steps of all environments in the first rollouts, as far as the budget counts them."""
        steps = sum(self.steps(index) for index in range(rollouts))
        return min(self.budget, steps * self.environments)

    def slice_of(self, number: int) -> slice:
        """The environments of one actor."""
        first = self.environments * number // self.slices
        last = self.environments * (number + 1) // self.slices
        return slice(first, last)

    def noise(self, policy: Categorical | Gaussian, index: int, number: int) -> NDArray[np.float32]:
        """The noise (steps, environments, ...) by which one actor samples its actions in a rollout."""
        here = self.slice_of(number)
        rng = generator(self._rollout_seed(index), "act", number)
        return policy.draw_noise(rng, (self.steps(index), here.stop - here.start))

    def minibatches(self, index: int, epochs: int, minibatches: int) -> Tensor:
        """The rows of every minibatch of a rollout, (minibatches of all epochs, size).

        All have the same size, also those of longer rollouts, so a few rows may be left out in each epoch.
        """
        rows = self.steps(index) * self.environments
        shortest = self.min_steps * self.environments
        if self.rollouts == 1:
            shortest = min(rows, shortest)
        size = max(1, shortest // minibatches)
        used = rows // size * size
        seed = self._rollout_seed(index)
        orders = [generator(seed, "shuffle", epoch).permutation(rows)[:used] for epoch in range(epochs)]
        return torch.from_numpy(np.stack(orders).reshape(-1, size))

    def _rollout_seed(self, index: int) -> int:
        return derive(self.seed, "rollout", index)


class RolloutBuffer:
    """What happened in up to `max_steps` steps of many environments; time is the first axis of every array.

    Arrays have a row more, for the observation that follows the last step and its value.
    """

    def __init__(self, network: Network, backend: Backend, max_steps: int, environments: int, skills: int) -> None:
        self.max_steps = max_steps
        self.environments = environments
        self.backend = backend
        self.device = backend.device

        def zeros(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device = self.device) -> Tensor:
            return shared_memory(torch.zeros(max_steps + 1, environments, *shape, dtype=dtype, device=device))

        empty_action = network.policy.empty_action
        self.observations: dict[str, Tensor] = {}
        for name, spec in network.inputs.items():
            self.observations[name] = zeros(*spec.shape, dtype=torch_dtype(spec))
        self.memory = zeros(network.memory_size)
        self.actions = zeros(*empty_action.shape, dtype=empty_action.dtype)
        self.log_probs = zeros()
        self.values = zeros()
        self.advantages = zeros()
        self.returns = zeros()
        # what the environments return stays on the CPU
        cpu = torch.device("cpu")
        self.rewards: NDArray[np.float32] = zeros(device=cpu).numpy()
        self.ended: NDArray[np.bool_] = zeros(dtype=torch.bool, device=cpu).numpy()
        self.skills: NDArray[np.bool_] = zeros(skills, dtype=torch.bool, device=cpu).numpy()

    def flatten(self) -> dict[str, Tensor]:
        """All steps of all environments as rows of tensors, which are views, not copies."""
        tensors = {f"observations.{name}": tensor for name, tensor in self.observations.items()}
        tensors["memory"] = self.memory
        tensors["actions"] = self.actions
        tensors["log_probs"] = self.log_probs
        tensors["advantages"] = self.advantages
        tensors["returns"] = self.returns
        return {name: tensor[: self.max_steps].flatten(0, 1) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Practice:
    """One call of `practise`."""

    plan: RolloutPlan
    settings: Sequence[Setting]
    """Of each environment."""
    setting_values: list[dict[str, Any]]
    """The same as plain data."""
    buffer: RolloutBuffer
    tally: Tally
    """Counts the episodes, on the leader."""
    report: Report


@dataclass(frozen=True)
class FinishedRollout:
    """What there is to report when a rollout has been learnt from."""

    budget_used: int
    losses: Callable[[], list[float]]
    """Waits for a GPU; returns the means of the loss and its metrics, and a 1 if all parameters are finite."""
    metrics: dict[str, float]


class TruncatedEpisode:
    """An episode that a time limit ended: at which step, in which environment, and the last observation."""

    def __init__(self, step: int, environment: int, observation: Arrays) -> None:
        self.step = step
        self.environment = environment
        self.observation = {name: array.copy() for name, array in observation.items()}


def concatenate(episodes: Sequence[TruncatedEpisode], name: str) -> NDArray[Any]:
    """One input of the last observations, as a batch."""
    return np.concatenate([episode.observation[name] for episode in episodes])


def select_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor."""
    return tensor.index_select(0, rows)


def torch_dtype(spec: InputSpec) -> torch.dtype:
    """The type of an input in torch."""
    return torch.from_numpy(np.zeros(0, spec.dtype)).dtype
