"""Tabular Q-learning (Watkins 1989) with numpy alone, for worlds whose observations can be counted.

Small, exact and quick: the agent of the examples and tests, and the file to imitate when you write one. It departs from
the textbook in two ways: all sub-environments step side by side and share one table, and values can start optimistic
(`initial_value`) so that what was never tried gets tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from curricle.agent import Agent, Report
from curricle.agents.episodes import Act, Tally, perform, play, share_out, vector_world
from curricle.errors import AgentError, RunDamaged
from curricle.records import Design, Options, Outcome
from curricle.seeds import derive, generator
from curricle.tracking import checkpoint
from curricle.world import World, WorldVector

MAX_OBSERVATIONS = 10_000_000
"""Observations that a table may have rows for."""


class TabularOptions(Options):
    """Options of the tabular agent."""

    renamed: ClassVar[Mapping[str, str]] = {
        "rate": "learning_rate",
        "discount": "gamma",
        "explore": "epsilon",
        "optimism": "initial_value",
    }

    environments: int = Field(8, ge=1, description="Number of sub-environments that are stepped in parallel.")
    learning_rate: float = Field(0.2, gt=0, le=1, description="Step size of each update towards its target.")
    gamma: float = Field(0.97, ge=0, lt=1, description="Discount factor.")
    epsilon: float = Field(0.1, ge=0, le=1, description="Share of random actions while practising.")
    initial_value: float = Field(0.0, description="Value of actions that have not been tried yet.")
    report_every: int = Field(1000, ge=1, description="Minimum number of steps between two reports.")


class Tabular(Agent):
    """One table of action values, learnt from every step of every sub-environment."""

    id = "tabular-v1"
    Options = TabularOptions
    options: TabularOptions

    def __init__(self, world: World, options: TabularOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self.vectors = vector_world(world, self.id)
        probe = self.vectors.vector([world.original])
        self.lowest, self.shape = _countable(probe.single_observation_space, world.id)
        actions = probe.single_action_space
        probe.close()
        if not isinstance(actions, gymnasium.spaces.Discrete):
            raise AgentError(f"{self.id} needs discrete actions; those of {world.id} are {actions}")
        self.first_action = int(actions.start)
        self.values = np.full((int(np.prod(self.shape)), int(actions.n)), self.options.initial_value)

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Q-learning, epsilon-greedy."""
        options = self.options
        owners = share_out(len(designs), options.environments)
        rng = generator(seed, "act")
        tie_rngs = [generator(seed, "ties", i) for i in range(len(owners))]
        vector = self.vectors.vector([self.vectors.setting(designs[owner].setting) for owner in owners])
        tally = Tally(self.vectors, designs, owners)
        observations, _ = vector.reset(seed=[derive(seed, "world", i) % 2**31 for i in range(len(owners))])
        states = self._states(observations)
        reported = 0
        for done in range(len(owners), budget + len(owners), len(owners)):
            explores = rng.random(len(owners)) < options.epsilon
            random_actions = rng.integers(self.values.shape[1], size=len(owners))
            actions = np.where(explores, random_actions, self._best(states, tie_rngs))
            observations, rewards, terminated, truncated, info = vector.step(actions + self.first_action)
            ended = terminated | truncated
            next_states = self._states(observations)
            reached = next_states.copy()
            for i in np.flatnonzero(ended):  # the last observation of an episode that ended; see WorldVector
                reached[i] = self._states(np.asarray(info["final_obs"][i])[None])[0]
            future = np.where(terminated, 0.0, self.values[reached].max(axis=1))
            targets = rewards + options.gamma * future
            for state, action, target in zip(states, actions, targets, strict=True):  # one by one: states may be equal
                self.values[state, action] += options.learning_rate * (target - self.values[state, action])
            tally.add(rewards, ended, info["skills"])
            states = next_states
            if done - reported >= options.report_every or done >= budget:
                reported = done
                report(min(done, budget), {"practice/episodes": float(tally.attempts.sum())})
        vector.close()
        return tally.outcomes()

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Play greedily."""
        return play(self.vectors, designs, seeds, episodes, self._greedy(seeds))

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode greedily, to be watched."""
        return perform(self.vectors, design, seed, self._greedy([seed]))

    def save(self, folder: Path) -> None:
        """Write the table."""
        checkpoint.write(folder, {"values": self.values}, {"world": self.world.id})

    def load(self, folder: Path) -> None:
        """Read the table."""
        arrays, _ = checkpoint.read(folder)
        if "values" not in arrays or arrays["values"].shape != self.values.shape:
            raise RunDamaged(f"checkpoint {folder} does not fit {self.id} in {self.world.id}")
        self.values = arrays["values"]

    def _greedy(self, seeds: Sequence[int]) -> Act:
        """The greedy policy for a batch; each seed breaks the ties of its own row."""
        tie_rngs = [generator(seed, "ties") for seed in seeds]

        def act(observations: Any) -> NDArray[np.int64]:
            return self._best(self._states(observations), tie_rngs) + self.first_action

        return act

    def _states(self, observations: Any) -> NDArray[np.int64]:
        """Number the observations of a batch."""
        flat = np.asarray(observations).reshape(len(observations), -1) - self.lowest
        return np.asarray(np.ravel_multi_index(tuple(flat.T), self.shape), np.int64)

    def _best(self, states: NDArray[np.int64], rngs: Sequence[np.random.Generator]) -> NDArray[np.int64]:
        """The best known action in each state; ties are broken at random, by a generator for each state."""
        values = self.values[states]
        is_best = values == values.max(axis=1, keepdims=True)
        noise = np.stack([rng.random(values.shape[1]) for rng in rngs])
        return np.asarray((is_best * noise).argmax(axis=1))


def _countable(space: gymnasium.Space[Any], world: str) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The lowest observation, and how many there are of each component."""
    if isinstance(space, gymnasium.spaces.Discrete) and space.n <= MAX_OBSERVATIONS:
        return np.array([space.start], np.int64), (int(space.n),)
    if (
        isinstance(space, gymnasium.spaces.MultiDiscrete)
        and space.nvec.ndim == 1
        and np.prod(space.nvec) <= MAX_OBSERVATIONS
    ):
        return np.asarray(space.start, np.int64), tuple(int(n) for n in space.nvec)
    raise AgentError(
        f"{Tabular.id} needs Discrete or small MultiDiscrete observations; of {world} they are {space}: use --agent ppo"
    )
