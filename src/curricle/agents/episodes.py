"""Episodes: what every RL agent needs around its learning: assign designs, count episodes, play test episodes.

In: designs and the steps of a `WorldVector`. Out: one `Outcome` a design, counted from the episodes that were played.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.errors import AgentError
from curricle.records import Design, Frozen, Outcome
from curricle.world import VectorWorld, World, WorldVector

LOG = logging.getLogger("curricle")
MAX_STEPS = 100_000
"""Steps that a test episode may take."""
WARN_STEPS = 10_000
"""Steps without the end of an episode after which a warning is logged."""
Act = Callable[[Any], NDArray[Any]]
"""From a batch of observations to a batch of actions."""
AfterStep = Callable[[NDArray[np.bool_], NDArray[np.bool_]], None]
"""Called after each step with which episodes ended, and the skills shown: for agents that remember."""


class Tally:
    """Counts, for every design, the episodes that ended in the sub-environments that belong to it."""

    def __init__(self, world: VectorWorld, designs: Sequence[Design], owners: Sequence[int]) -> None:
        self.world = world
        self.designs = designs
        self.owners = np.asarray(owners)
        self.attempts = np.zeros(len(designs), np.int64)
        self.successes = np.zeros(len(designs), np.int64)
        self.skills = np.zeros((len(designs), len(world.skills)), np.int64)
        self.reward = np.zeros(len(designs))
        self.spent = np.zeros(len(designs), np.int64)
        self.running = np.zeros(len(owners))  # return of each unfinished episode

    def add(
        self,
        rewards: NDArray[Any],
        ended: NDArray[np.bool_],
        skills: NDArray[np.bool_],
        counted: NDArray[np.bool_] | None = None,
    ) -> None:
        """Count one step of the sub-environments, or of those for which `counted` holds."""
        if counted is None:
            counted = np.ones(len(self.owners), np.bool_)
        self.running += rewards * counted
        np.add.at(self.spent, self.owners, counted)
        for index in np.flatnonzero(ended & counted):
            self._close(int(index), skills[index])

    def add_rollout(self, rewards: NDArray[Any], ended: NDArray[np.bool_], skills: NDArray[np.bool_]) -> list[float]:
        """Count many steps at once, time first; returns the returns of the episodes that ended, in no set order."""
        np.add.at(self.spent, self.owners, len(rewards))
        returns: list[float] = []
        for index in np.flatnonzero(ended.any(0)):
            start = 0
            for step in np.flatnonzero(ended[:, index]).tolist():
                self.running[index] += rewards[start : step + 1, index].sum(dtype=np.float64)
                returns.append(float(self.running[index]))
                self._close(int(index), skills[step, index])
                start = step + 1
            self.running[index] += rewards[start:, index].sum(dtype=np.float64)
        unbroken = ~ended.any(0)
        self.running[unbroken] += rewards[:, unbroken].sum(0, dtype=np.float64)
        return returns

    def _close(self, index: int, skills: NDArray[np.bool_]) -> None:
        """Count an episode that ended."""
        owner = int(self.owners[index])
        self.attempts[owner] += 1
        self.successes[owner] += self.world.succeeded(self.designs[owner].aim, self.world.names(skills))
        self.skills[owner] += skills
        self.reward[owner] += self.running[index]
        self.running[index] = 0.0

    def outcomes(self) -> list[Outcome]:
        """One outcome a design."""
        names = [skill.name for skill in self.world.skills]
        return [
            Outcome(
                design=design,
                attempts=int(self.attempts[i]),
                successes=int(self.successes[i]),
                skills=Frozen({name: int(n) for name, n in zip(names, self.skills[i], strict=True)}),
                reward=float(self.reward[i]),
                spent=int(self.spent[i]),
            )
            for i, design in enumerate(self.designs)
        ]


def perform(
    world: VectorWorld, design: Design, seed: int, act: Act, after_step: AfterStep = lambda ended, skills: None
) -> Iterator[WorldVector]:
    """Play one episode of a design for people to watch."""
    vector = world.vector([world.setting(design.setting)])
    try:
        observations, _ = vector.reset(seed=[seed % 2**31])
        yield vector
        for _ in range(MAX_STEPS):
            observations, _, terminated, truncated, info = vector.step(act(observations))
            after_step(terminated | truncated, info["skills"])
            if terminated[0] or truncated[0]:
                return
            yield vector
    finally:
        vector.close()


def vector_world(world: World, agent: str) -> VectorWorld:
    """Refuse a world that gives no simulators."""
    if not isinstance(world, VectorWorld):
        raise AgentError(f"{agent} acts step by step, but {world.id} is a world of text tasks; choose grpo")
    return world


def share_out(designs: int, environments: int) -> list[int]:
    """Say which design each sub-environment belongs to: as evenly as can be, at least one each."""
    return [i % designs for i in range(max(designs, environments))]


def play(
    world: VectorWorld,
    designs: Sequence[Design],
    seeds: Sequence[int],
    episodes: int,
    act: Act,
    after_step: AfterStep = lambda ended, skills: None,
) -> list[Outcome]:
    """Play `episodes` episodes in each design from the seed beside it; what is played on beyond them does not count."""
    vector = world.vector([world.setting(design.setting) for design in designs])
    try:
        tally = Tally(world, designs, range(len(designs)))
        observations, _ = vector.reset(seed=[seed % 2**31 for seed in seeds])
        while (tally.attempts < episodes).any():
            unfinished = tally.attempts < episodes
            observations, rewards, terminated, truncated, info = vector.step(act(observations))
            after_step(terminated | truncated, info["skills"])
            tally.add(rewards, terminated | truncated, info["skills"], unfinished)
            if not tally.attempts.any() and tally.spent[0] == WARN_STEPS:
                LOG.warning(
                    "%s: no test episode has ended in %d steps; does the world have a limit?", world.id, WARN_STEPS
                )
            if (tally.spent > MAX_STEPS * episodes).any():
                raise AgentError(
                    f"{world.id}: no episode ended within {MAX_STEPS} steps; give the world a limit of its own"
                )
        return tally.outcomes()
    finally:
        vector.close()
