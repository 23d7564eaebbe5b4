"""Parts: which rows of an update go through the network together.

TRL shuffles the rows of an update and cuts them into parts of equally many. Here tries at a task stay together, for
they share its prompt (`packing.py`); tasks of like length do, for shorter ones would be padded; and all parts have
about as many tokens, so that memory is that of an average part, not of the longest conversations. All rows make one
update, so where each goes decides nothing as long as the loss weighs all tokens of an update the same. Under a loss
that does not, parts have equally many rows, in the order they came.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

TOKENWISE = ("dapo", "cispo", "vespo")
"""TRL's losses that are a mean over all tokens of an update."""
Batch = dict[str, Any]


@contextmanager
def laid_out(trainer: Any, loss: str, group: int) -> Iterator[None]:
    """Let TRL's module lay an update's rows out so."""
    before = {name: getattr(trainer, name) for name in ("shuffle_sequence_dict", "split_tensor_dict")}
    trainer.shuffle_sequence_dict = lambda batch: batch
    if loss in TOKENWISE:
        trainer.split_tensor_dict = lambda batch, count: split(batch, count, group)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(trainer, name, function)


def split(batch: Batch, count: int, group: int) -> list[Batch]:
    """The parts of an update; a group is divided only where there are fewer groups than parts, or ranks share one."""
    said = batch["completion_mask"].sum(1).cpu()
    size = group if len(said) % group == 0 and len(said) // group >= count else 1
    tokens = said.view(-1, size).sum(1) + batch["prompt_mask"].sum(1).cpu().view(-1, size)[:, 0]
    order = tokens.argsort(stable=True)
    parts = order.split(shares(tokens[order].tolist(), count))
    rows = [(part[:, None] * size + torch.arange(size)).flatten() for part in parts]
    return [{key: value[some] if value.ndim else value for key, value in batch.items()} for some in rows]


def shares(work: Sequence[float], count: int) -> list[int]:
    """How many pieces each of `count` parts takes, in their order, so that the largest has as little work as can be."""
    low, high = float(max(work)), float(sum(work))
    while high - low > 0.5:  # work comes in whole tokens
        middle = (low + high) / 2
        low, high = (low, middle) if len(_filled(work, middle)) <= count else (middle, high)
    ends = set(itertools.accumulate(_filled(work, high)))
    while len(ends) < count:  # the more parts, the more alike each can be
        ends.add(max((i for i in range(1, len(work)) if i not in ends), key=lambda i: work[i] / work[i - 1]))
    return [end - start for start, end in itertools.pairwise([0, *sorted(ends)])]


def _filled(work: Sequence[float], most: float) -> list[int]:
    """Pieces of each part if it takes them as long as there is room."""
    found, room = list[int](), 0.0
    for piece in work:
        if not found or piece > room:
            found.append(0)
            room = most
        found[-1] += 1
        room -= piece
    return found
