"""Windows: the rollouts since the last distillation, their episodes, and the lessons that are made of these.

What came shortly before is kept, too: of short rollouts in many environments, many episodes begin before the last
distillation and end after it. Each is told of once, when it has ended.

In: rollouts (`rollout.py`). Out: whole numbers that say which rows of the window a step of learning takes, and how they
belong together: a `lesson`. A lesson is all that goes to the device for a step. Lessons of few sizes, filled up with
rows that count 0 times, can be replayed as CUDA graphs; the window's rows lie still on the device for the same reason.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agents.networks.encoders import Observations
from curricle.agents.ppo.rollout import Rollout, picked

Rows = NDArray[np.int64]
Size = Callable[[int], int]
SIZES = (64, 128, 192, 256, 384, 512, 768, 1024)


def roomy(count: int) -> int:
    """The next of a few sizes: a GPU looks for its fastest kernels, and keeps a graph, once for each."""
    return next((size for size in SIZES if count <= size), -(-count // SIZES[-1]) * SIZES[-1])


@dataclass
class Episode:
    """Rows of a finished episode in a window of rollouts, and the steps after which something was unlocked."""

    rows: Rows
    goals: Rows

    @cached_property
    def ends(self) -> Rows:
        """The rows before and after each unlock (2, unlocks)."""
        return np.stack([self.rows[self.goals], self.rows[self.goals + 1]])

    @cached_property
    def following(self) -> Rows:
        """For each row the number of the next unlock; the last stretch has none and gets the number past the last."""
        return np.searchsorted(self.goals, np.arange(len(self.rows)))


def episodes(ended: NDArray[np.bool_], shown: NDArray[np.bool_], env: int) -> Iterator[Episode]:
    """Whole episodes of one sub-environment: those that began and ended in the window."""
    lasts = np.flatnonzero(ended[:, env])
    count = ended.shape[1]
    for before, last in itertools.pairwise(lasts):
        steps = np.arange(before + 1, last + 1)
        skills = np.concatenate([np.zeros((1, shown.shape[2]), np.bool_), shown[steps, env]])
        changed = np.flatnonzero((skills[1:] != skills[:-1]).any(1))
        yield Episode(steps * count + env, changed[changed + 1 < len(steps)])


class Window:
    """Room for the rollouts between two distillations, as rows that stay where they are on the device."""

    def __init__(self, rollout: Rollout, most: int, before: int, choice: int) -> None:
        """`most` rows at a time, and `before` steps that came before them."""
        self.rollout = rollout
        self.before = before
        self.data = dict[str, Tensor]()
        most += before * rollout.count
        for name, tensor in rollout.rows().items():
            if name not in ("log_probs", "advantages"):
                self.data[name] = torch.zeros(most, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
        self.data["old"] = torch.zeros(most, choice, device=rollout.device)
        self.clear()

    def clear(self) -> None:
        """Forget all rollouts."""
        self.used = 0
        self.known = 0
        self.ended = list[NDArray[np.bool_]]()
        self.shown = list[NDArray[np.bool_]]()

    def turn(self) -> None:
        """Keep what open episodes began in, `before` steps at most; what has ended has been told of."""
        ended = np.concatenate(self.ended)
        shown = np.concatenate(self.shown)
        count = self.rollout.count
        since = len(ended) - np.argmax(ended[::-1], axis=0).max(initial=0) - 1 if ended.any(0).all() else 0
        first = max(since, len(ended) - self.before)
        for tensor in self.data.values():
            tensor[: self.used - first * count] = tensor[first * count : self.used].clone()
        self.used = self.used - first * count
        self.known = len(ended) - first
        self.ended = [ended[first:]]
        self.shown = [shown[first:]]

    def add(self, steps: int) -> None:
        """Take in what the rollout holds now."""
        rows = steps * self.rollout.count
        for name, tensor in self.rollout.rows().items():
            if name in self.data:
                self.data[name][self.used : self.used + rows] = tensor[:rows]
        self.used += rows
        self.ended.append(self.rollout.ended[:steps].copy())
        self.shown.append(self.rollout.shown[:steps].copy())

    def told(self) -> list[Episode]:
        """Whole episodes with unlocks that have ended since the last turn."""
        ended = np.concatenate(self.ended)
        shown = np.concatenate(self.shown)
        new = self.known * self.rollout.count
        found = (one for env in range(ended.shape[1]) for one in episodes(ended, shown, env))
        return [one for one in found if len(one.goals) and one.rows[-1] >= new]

    def seen(self, rows: Tensor) -> Observations:
        """Observations of some rows."""
        return {n.removeprefix("seen."): picked(t, rows) for n, t in self.data.items() if n.startswith("seen.")}


def capacity(every: int, steps: int, count: int) -> int:
    """Rows that no window exceeds if distillations are spread evenly over a practice, about `every` rollouts apart.

    At most 1.5 times as many come together (when a practice is too short for a second distillation), and together they
    are at most one rollout longer than `steps` each, and a step each for what does not divide.
    """
    rollouts = -(-3 * every // 2)
    return ((rollouts + 1) * steps + rollouts) * count


def lesson(rows: Rows, times: Rows, *pairs: Rows, size: int) -> Rows:
    """What a step of learning takes, as lines of one array (7, size); what is filled up counts 0 times.

    Rows of the window; how often the policy is held at each; then for each comparison the places among the rows, from 1
    on, of what is seen before and after an unlock (0: nothing is); of the right and the wrong answer; and a 1.
    """
    made = np.zeros((7, size), np.int64)
    for line, part in zip(made, (rows, times, *pairs, np.ones_like(pairs[0])), strict=True):
        line[: len(part)] = part
    return made


def matching(episode: Episode, held: Rows, mine: Rows, right: Rows, wrong: Rows, *, size: Size) -> Rows:
    """Unlocks of an episode beside the same and other ones of other episodes; the policy is held at `held`."""
    count = len(episode.goals)
    rows = np.concatenate([*episode.ends, episode.rows[held]])
    times = np.repeat([0, 1], [2 * count, len(held)])
    return lesson(rows, times, 1 + mine, 1 + count + mine, right, wrong, size=size(len(rows)))


def prediction(episode: Episode, chosen: Rows, other: Rows, *, size: Size) -> Rows:
    """Steps of an episode and other ones beside the unlock that follows; each row is there once, however often used."""
    count = len(chosen)
    last = len(episode.rows) - 1
    wanted: Sequence[Any] = (chosen, other, episode.goals, [last], episode.goals + 1)
    used, places = np.unique(np.concatenate(wanted), return_inverse=True)
    before, after = np.split(1 + places[2 * count :], [len(episode.goals) + 1])
    following = episode.following[chosen]
    times = np.bincount(places[: 2 * count], minlength=len(used))
    pairs = before[following], np.append(after, 0)[following], places[:count], places[count : 2 * count]
    return lesson(episode.rows[used], times, *pairs, size=size(len(used)))
