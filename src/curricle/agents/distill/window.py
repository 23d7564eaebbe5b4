"""Window: the rollouts since the last distillation, their episodes, and the batches that are made of these.

Rollouts are short and environments many, so an episode may begin before one distillation and end after it. The window
therefore also keeps some steps from before the last distillation. Each episode is used once, after it has ended.

In: rollouts. Out: batches of indices, one array each, which say what rows of the window a step of learning takes and
which of them are compared. They are padded to a few sizes, so that a step can be replayed as a CUDA graph; for the same
reason the window's rows stay at the same place on the device.
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
from curricle.agents.ppo.rollout import RolloutBuffer, select_rows

Indices = NDArray[np.int64]
PadSize = Callable[[int], int]
"""The size that a batch of so many rows is padded to."""
POSITIVES_AND_NEGATIVES = slice(4, 6)
"""Their lines in a batch of indices; see `join_batch`."""
GRAPH_SIZES = (64, 128, 192, 256, 384, 512, 768, 1024)


def next_graph_size(count: int) -> int:
    """The next of a few sizes: for each a GPU searches for its fastest kernels once, and keeps a graph."""
    for size in GRAPH_SIZES:
        if count <= size:
            return size
    return -(-count // GRAPH_SIZES[-1]) * GRAPH_SIZES[-1]


@dataclass
class Episode:
    """A finished episode: its rows in the window, and the steps that were followed by an unlocked skill."""

    rows: Indices
    unlocks: Indices

    @cached_property
    def unlock_rows(self) -> Indices:
        """The rows before and after each unlock (2, unlocks)."""
        return np.stack([self.rows[self.unlocks], self.rows[self.unlocks + 1]])

    @cached_property
    def next_unlock(self) -> Indices:
        """For each row the number of the next unlock; after the last unlock, the number of unlocks."""
        return np.searchsorted(self.unlocks, np.arange(len(self.rows)))


def find_episodes(ended: NDArray[np.bool_], skills: NDArray[np.bool_], environment: int) -> Iterator[Episode]:
    """The whole episodes of one environment: those that began and ended in the window."""
    last_steps = np.flatnonzero(ended[:, environment])
    environments = ended.shape[1]
    for before, last in itertools.pairwise(last_steps):
        steps = np.arange(before + 1, last + 1)
        shown = np.concatenate([np.zeros((1, skills.shape[2]), np.bool_), skills[steps, environment]])
        changed = np.flatnonzero((shown[1:] != shown[:-1]).any(1))
        unlocks = changed[changed + 1 < len(steps)]  # nothing is seen after the last step
        yield Episode(steps * environments + environment, unlocks)


class Window:
    """The rollouts since the last distillation, as rows that stay at the same place on the device."""

    def __init__(self, buffer: RolloutBuffer, new_rows: int, old_steps: int, distribution_size: int) -> None:
        """Room for `new_rows` rows, and for `old_steps` steps from before the last distillation."""
        self.buffer = buffer
        self.max_old_steps = old_steps
        self.data: dict[str, Tensor] = {}
        rows = new_rows + old_steps * buffer.environments
        for name, tensor in buffer.flatten().items():
            if name not in ("log_probs", "advantages"):
                self.data[name] = torch.zeros(rows, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
        self.data["old_policy"] = torch.zeros(rows, distribution_size, device=buffer.device)
        self.clear()

    def clear(self) -> None:
        """Forget all rollouts."""
        self.used_rows = 0
        self.old_steps = 0
        self.ended: list[NDArray[np.bool_]] = []
        self.skills: list[NDArray[np.bool_]] = []

    def add(self, steps: int) -> None:
        """Copy the rollout that the buffer holds now."""
        rows = steps * self.buffer.environments
        for name, tensor in self.buffer.flatten().items():
            if name in self.data:
                self.data[name][self.used_rows : self.used_rows + rows] = tensor[:rows]
        self.used_rows += rows
        self.ended.append(self.buffer.ended[:steps].copy())
        self.skills.append(self.buffer.skills[:steps].copy())

    def new_episodes(self) -> list[Episode]:
        """Whole episodes with unlocks that have ended since the last distillation."""
        ended = np.concatenate(self.ended)
        skills = np.concatenate(self.skills)
        first_new_row = self.old_steps * self.buffer.environments
        found: list[Episode] = []
        for environment in range(ended.shape[1]):
            for episode in find_episodes(ended, skills, environment):
                if len(episode.unlocks) and episode.rows[-1] >= first_new_row:
                    found.append(episode)
        return found

    def start_next(self) -> None:
        """After a distillation: keep only what the unfinished episodes began in, at most `max_old_steps` steps."""
        ended = np.concatenate(self.ended)
        skills = np.concatenate(self.skills)
        environments = self.buffer.environments
        first = 0
        if ended.any(0).all():
            steps_since_end = np.argmax(ended[::-1], axis=0)
            first = len(ended) - steps_since_end.max(initial=0) - 1
        first = max(first, len(ended) - self.max_old_steps)
        first_row = first * environments
        for tensor in self.data.values():
            tensor[: self.used_rows - first_row] = tensor[first_row : self.used_rows].clone()
        self.used_rows -= first_row
        self.old_steps = len(ended) - first
        self.ended = [ended[first:]]
        self.skills = [skills[first:]]

    def observations(self, rows: Tensor) -> Observations:
        """Observations of some rows."""
        prefix = "observations."
        found: dict[str, Tensor] = {}
        for name, tensor in self.data.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = select_rows(tensor, rows)
        return found


def capacity(distill_every: int, steps: int, environments: int) -> int:
    """Rows that no window exceeds if distillations are spread evenly over a practice, `distill_every` rollouts apart.

    At most 1.5 times as many rollouts come together (when a practice is too short for a second distillation). Together
    they are at most one rollout longer than `steps` each, and one step each for what does not divide.
    """
    rollouts = -(-3 * distill_every // 2)
    return ((rollouts + 1) * steps + rollouts) * environments


def join_batch(rows: Indices, weights: Indices, pairs: Sequence[Indices], size: int) -> Indices:
    """The indices of a step of learning as one array (7, size), padded with rows of weight 0.

    - the rows of the window, and the weight of each in what holds policy and values where they were;
    - for each comparison the places among these rows, counted from 1, before and after an unlock (0 stands for zeros),
      and then the places of the positive and of the negative;
    - the weight of each comparison, 1.
    """
    batch = np.zeros((7, size), np.int64)
    lines = [rows, weights, *pairs, np.ones_like(pairs[0])]
    for target, line in zip(batch, lines, strict=True):
        target[: len(line)] = line
    return batch


def matching_batch(
    episode: Episode, held: Indices, anchors: Indices, positives: Indices, negatives: Indices, pad_size: PadSize
) -> Indices:
    """Unlocks of an episode beside matching and other unlocks of other episodes; policy and values at `held` are held.

    Anchors are unlocks of the episode by number, positives and negatives places among the unlocks of the caller.
    """
    count = len(episode.unlocks)
    rows = np.concatenate([*episode.unlock_rows, episode.rows[held]])
    weights = np.repeat([0, 1], [2 * count, len(held)])
    return join_batch(rows, weights, (1 + anchors, 1 + count + anchors, positives, negatives), pad_size(len(rows)))


def prediction_batch(episode: Episode, steps: Indices, others: Indices, pad_size: PadSize) -> Indices:
    """Steps of an episode and other steps, beside the unlock that follows the first; each row is there only once."""
    count = len(steps)
    last = len(episode.rows) - 1
    wanted: Sequence[Any] = (steps, others, episode.unlocks, [last], episode.unlocks + 1)
    used, places = np.unique(np.concatenate(wanted), return_inverse=True)
    weights = np.bincount(places[: 2 * count], minlength=len(used))
    before, after = np.split(1 + places[2 * count :], [len(episode.unlocks) + 1])
    after = np.append(after, 0)  # nothing is seen after the last row
    next_unlock = episode.next_unlock[steps]
    pairs = (before[next_unlock], after[next_unlock], places[:count], places[count : 2 * count])
    return join_batch(episode.rows[used], weights, pairs, pad_size(len(used)))


def chunks(indices: Indices, max_size: int) -> list[Indices]:
    """Cut an array into neighbouring pieces of at most this size."""
    return np.split(indices, range(max_size, len(indices), max_size))


def pad(rows: Indices, size: int) -> Indices:
    """Rows (..., n) to (..., size), padded with row 0."""
    padded = np.zeros((*rows.shape[:-1], size), np.int64)
    padded[..., : rows.shape[-1]] = rows
    return padded
