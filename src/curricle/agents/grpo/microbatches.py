"""Parts: which rows of an update go through the network together.

TRL shuffles the rows of an update and cuts them into parts of equally many. Here tries at a task stay together, for
they share its prompt (`packing.py`); tasks of like length do, for shorter ones would be padded; and all parts have
about as many tokens, so that memory is that of an average part, or of the longest task. All rows make one
update, so where each goes decides nothing as long as all tokens of an update weigh the same: in the loss, and, as TRL
takes means over parts of them, in the entropy bonus and in figures (`share`).

Parts have equally many rows, in the order they came, under a loss that is no mean over tokens, where there are fewer
tasks than parts, and where several ranks learn, which have to agree on shapes.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from curricle.scale import ranks

TOKENWISE = ("dapo", "cispo", "vespo")
"""TRL's losses that are a mean over all tokens of an update."""
MEANS = ("kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")
"""TRL's figures that are means over the tokens of a part."""
Batch = dict[str, Any]


@contextmanager
def laid_out(trainer: Any, loss: str, group: int) -> Iterator[None]:
    """Let TRL's module lay an update's rows out so."""
    before = {name: getattr(trainer, name) for name in ("shuffle_sequence_dict", "split_tensor_dict")}

    def cut(batch: Batch, count: int) -> list[Batch]:
        apart = loss in TOKENWISE and ranks.count() == 1 and len(batch["completion_mask"]) >= count * group
        parts: list[Batch] = split(batch, count, group) if apart else before["split_tensor_dict"](batch, count)
        return parts

    trainer.shuffle_sequence_dict = lambda batch: batch
    trainer.split_tensor_dict = cut
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(trainer, name, function)


def split(batch: Batch, count: int, group: int) -> list[Batch]:
    """The parts of an update, whole groups each; what is padding in all rows of a part is left out."""
    said = batch["completion_mask"].sum(1).view(-1, group).sum(1)
    tokens = (said + batch["prompt_mask"].sum(1)[::group]).cpu()
    order = tokens.argsort(stable=True)
    parts = order.split(shares(tokens[order].tolist(), count))
    return [_trimmed(batch, (part[:, None] * group + torch.arange(group)).flatten()) for part in parts]


def share(part: Batch, count: int) -> float:
    """How many times as many of the agent's own tokens a part has as the mean of all `count` parts."""
    own = part["completion_mask"] * part.get("tool_mask", 1)
    return float(own.sum() * count / part["num_items_in_batch"].clamp(min=1))


def _trimmed(batch: Batch, rows: torch.Tensor) -> Batch:
    """Some rows; prompts are padded at the left, replies at the right. TRL may have masked all of a reply."""
    asked, said = (max(1, int(batch[f"{name}_mask"][rows].sum(1).max())) for name in ("prompt", "completion"))
    columns = {True: slice(-asked, None), False: slice(said)}

    def some(name: str, value: torch.Tensor) -> torch.Tensor:
        if not value.ndim:
            return value
        return value[rows] if value.ndim == 1 else value[rows, columns[name.startswith("prompt")]]

    return {name: some(name, value) for name, value in batch.items()}


def shares(work: Sequence[float], count: int) -> list[int]:
    """How many pieces each of `count` parts takes, in their order, so that the largest has as little work as can be."""
    low = float(max(work))
    high = float(sum(work))
    while high - low > 0.5:  # work comes in whole tokens
        middle = (low + high) / 2
        low, high = (low, middle) if len(_filled(work, middle)) <= count else (middle, high)
    ends = [0, *itertools.accumulate(_filled(work, high))]
    while len(ends) <= count:  # cut the largest in two, where its pieces differ most
        wide = [(start, end) for start, end in itertools.pairwise(ends) if end - start > 1]
        start, end = max(wide, key=lambda one: sum(work[slice(*one)]))
        best = max(range(start + 1, end), key=lambda i: (work[i] / work[i - 1], -abs(2 * i - start - end)))
        ends = sorted([*ends, best])
    return [end - start for start, end in itertools.pairwise(ends)]


def _filled(work: Sequence[float], most: float) -> list[int]:
    """Pieces of each part if it takes them as long as there is room."""
    found = list[int]()
    room = 0.0
    for piece in work:
        if not found or piece > room:
            found.append(0)
            room = most
        found[-1] += 1
        room -= piece
    return found
