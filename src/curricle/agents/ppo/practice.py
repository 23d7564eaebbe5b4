"""Practice: one call of an agent's `practise`, and what is carried over from it to the next.

In: designs and a budget. A `Course` cuts the budget into rollouts and holds what is noted down on the way; a `Scene` is
where the environments stood at its end, so that the next call in the same designs goes on there, resumed or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agent import Report
from curricle.agents.cuda.memory import PendingMetrics
from curricle.agents.episodes import Tally
from curricle.agents.networks.heads import Categorical, Gaussian
from curricle.agents.networks.spaces import Arrays
from curricle.agents.ppo.rollout import Rollout
from curricle.seeds import derive, generator

Settings = list[dict[str, Any]]


@dataclass
class Scene:
    """Where all environments stand: the state of each lane's worlds, and what the agent has in mind of them."""

    settings: Settings
    lanes: int
    arrays: Arrays

    @staticmethod
    def of(
        settings: Settings, tally: Tally, lanes: Sequence[tuple[Mapping[str, NDArray[Any]] | None, Arrays]]
    ) -> "Scene | None":
        """Put together what lanes brought: a snapshot of their worlds, None where there is none, and their mind."""
        arrays: Arrays = {"running": tally.running.copy()}
        for i, (world, _) in enumerate(lanes):
            if world is None:
                return None
            arrays |= {f"world.{i}/{name}": array for name, array in world.items()}
        minds = [mind for _, mind in lanes]
        return Scene(
            settings, len(lanes), arrays | {name: np.concatenate([m[name] for m in minds]) for name in minds[0]}
        )

    def world(self, lane: int) -> Arrays:
        """The snapshot of a lane's worlds."""
        head = f"world.{lane}/"
        return {name.removeprefix(head): array for name, array in self.arrays.items() if name.startswith(head)}


class Course:
    """One call of `practise`: its parts, and what lane 0 notes down on the way."""

    rollout: Rollout
    """What is played and learnt from."""
    figures: Tensor
    minibatches = 0
    told: PendingMetrics
    returns: list[float]
    extra: dict[str, float]
    """Of the last rollout: what learning said, returns of episodes that ended in it, and what else was learnt."""

    def __init__(self, settings: Settings, lanes: int, budget: int, steps: int, seed: int) -> None:
        self.settings = settings
        self.lanes = min(lanes, len(settings))
        self.budget = budget
        self.seed = seed
        self.total = -(-budget // len(settings))
        self.steps = steps
        self.count = max(1, self.total // steps)

    report: Report
    tally: Tally

    def begin(self, figures: int, device: torch.device) -> None:
        """A new account of what learning says."""
        self.figures = torch.zeros(figures, device=device)
        self.minibatches = 0

    def length(self, index: int) -> int:
        """Steps of a rollout: the first ones are a step longer where the budget does not divide."""
        return self.total // self.count + (index < self.total % self.count)

    def seeded(self, index: int) -> int:
        """The seed of a rollout."""
        return derive(self.seed, "rollout", index)

    def draw_noise(self, policy: Categorical | Gaussian, index: int, lanes: Sequence[int]) -> list[NDArray[np.float32]]:
        """What decides all draws of a rollout, for some lanes."""
        sizes = {lane: last - first for lane, (first, last) in zip(lanes, map(self.span, lanes), strict=True)}
        seed = self.seeded(index)
        steps = self.length(index)
        return [policy.draw_noise(generator(seed, "act", lane), (steps, size)) for lane, size in sizes.items()]

    def batches(self, index: int, passes: int, minibatches: int) -> Tensor:
        """The rows of every minibatch, in several passes over a rollout; as many in each, so a few are left out."""
        steps = self.length(index)
        seed = self.seeded(index)
        rows = steps * len(self.settings)
        full = self.steps * len(self.settings)
        size = max(1, min(rows, full) // minibatches if self.count == 1 else full // minibatches)
        orders = np.stack([generator(seed, "shuffle", number).permutation(rows) for number in range(passes)])
        return torch.from_numpy(orders[:, : rows // size * size].reshape(-1, size))

    def span(self, lane: int) -> tuple[int, int]:
        """First sub-environment of a lane, and the first of the next lane."""
        count = len(self.settings)
        return count * lane // self.lanes, count * (lane + 1) // self.lanes

    def continued(self, scene: Scene | None) -> Scene | None:
        """The scene, if this course goes on from it."""
        same = scene is not None and (scene.settings, scene.lanes) == (self.settings, self.lanes)
        return scene if same else None
