"""The random agent: acts at random and learns nothing. The floor that every table needs."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from curricle.agent import Agent, Report
from curricle.agents.episodes import Tally, play, share_out, vector_world
from curricle.records import Design, Options, Outcome
from curricle.seeds import derive
from curricle.world import World


class RandomOptions(Options):
    """Options of the random agent."""

    environments: int = Field(8, ge=1, description="Sub-environments it acts in at a time.")


class RandomAgent(Agent):
    """Draws every action from the action space."""

    id = "random-v1"
    Options = RandomOptions
    options: RandomOptions

    def __init__(self, world: World, options: RandomOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self.vectors = vector_world(world, self.id)

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Act for the whole budget; the outcomes are those of chance."""
        world = self.vectors
        owners = share_out(len(designs), self.options.environments)
        vector = world.vector([world.setting(designs[owner].setting) for owner in owners])
        tally = Tally(world, designs, owners)
        vector.action_space.seed(derive(seed, "act") % 2**31)
        vector.reset(seed=[derive(seed, "world", i) % 2**31 for i in range(len(owners))])
        for _ in range(-(-budget // len(owners))):
            _, rewards, terminated, truncated, info = vector.step(vector.action_space.sample())
            tally.add(rewards, terminated | truncated, info["skills"])
        vector.close()
        report(budget, {"practice/episodes": float(tally.attempts.sum())})
        return tally.outcomes()

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Play at random from the given seeds."""
        world = self.vectors
        probe = world.vector([world.original])
        spaces = [copy.deepcopy(probe.single_action_space) for _ in seeds]
        probe.close()
        for space, seed in zip(spaces, seeds, strict=True):
            space.seed(derive(seed, "act") % 2**31)

        def act(observations: Any) -> NDArray[Any]:
            return np.stack([space.sample() for space in spaces])

        return play(world, designs, seeds, episodes, act)

    def save(self, folder: Path) -> None:
        """Nothing is learnt."""

    def load(self, folder: Path) -> None:
        """Nothing is learnt."""
