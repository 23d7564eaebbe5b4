"""Packing: tries at the same task share its prompt, so that it passes through the network once and not once a try.

In: rows of tokens as TRL has them, prompts padded at the left, replies at the right. Out: one sequence a prompt,

    prompt without its last token | last token, reply without its own last | last token, another reply ... | ...

in which a reply looks at the prompt and at itself, and stands where it stood in its own row. So the odds of every token
are those of the rows one by one, and so are the gradients. Where prompts are long and replies short, as in tool calls,
most of an update's work is gone. Long replies share a sequence with few others, for attention looks over all of it.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.llm.generate.decoding import suits

WORTH = 0.8
"""Rows are packed if that leaves no more than this share of their work."""
EVEN = 4096
"""Tokens of a sequence at which attention is as much work as all else, by counting products: so in small models."""
LONGEST = 2048
"""Tokens of a packed sequence, unless one reply alone has more: a mask has as many squared, and so has attention."""
LIKE = 0.7
"""Sequences go through the network together if the shortest has this share of the longest's tokens."""
Shared = tuple[tuple[int, ...], list[int]]
"""A prompt, and the rows that have it and go into one sequence."""


@dataclass(frozen=True)
class Packed:
    """Sequences for a model, and where the tokens of the rows' replies lie in them."""

    ids: Tensor
    places: Tensor
    mask: Tensor
    """(sequences, 1, tokens, tokens): who may look at whom."""
    labels: Tensor
    """The token that follows each, -100 where nobody asks."""
    rows: Tensor
    """The rows whose replies these are."""
    where: Tensor
    """(rows, tokens of a reply): places in the flattened sequences."""
    real: Tensor
    """Which of them there are."""

    def scored(self, model: Any) -> tuple[Tensor, Tensor | None]:
        """Log-odds of the replies' tokens, row by row, and entropies if asked for, by a model with TRL's fused head."""
        out = model(
            input_ids=self.ids,
            position_ids=self.places,
            attention_mask=self.mask,
            shift_labels=self.labels,
            fused_lm_head=True,
        )
        return self._rows(out.log_probs), None if out.entropy is None else self._rows(out.entropy)

    def _rows(self, values: Tensor) -> Tensor:
        """From the sequences' tokens to those of the rows' replies; 0 where there is none."""
        return values.flatten()[self.where] * self.real


def packs(model: Any) -> bool:
    """Whether a model's attention takes such a mask."""
    return suits(model) and "sdpa" in str(model.config._attn_implementation)


def scored(packs: list[Packed], model: Any) -> tuple[Tensor, Tensor | None]:
    """What `Packed.scored` says, in the order of the rows."""
    order = torch.cat([pack.rows for pack in packs]).argsort()
    odds, entropies = zip(*(pack.scored(model) for pack in packs), strict=True)
    return torch.cat(odds)[order], None if entropies[0] is None else torch.cat(entropies)[order]


def packed(ids: Tensor, seen: Tensor, keep: int, pad: int, *, apart: bool = True) -> list[Packed]:
    """Rows (rows, tokens) of which the last `keep` are replies; nothing if packing them is not worth it.

    Sequences of unlike lengths may go `apart`, but not where several ranks must pass the network equally often.
    """
    tokens = ids.cpu().numpy()
    real = seen.cpu().numpy().astype(bool)
    every: dict[tuple[int, ...], list[int]] = {}
    for row, (line, there) in enumerate(zip(tokens[:, :-keep], real[:, :-keep], strict=True)):
        every.setdefault(tuple(line[there].tolist()), []).append(row)
    replies = [line[there] for line, there in zip(tokens[:, -keep:], real[:, -keep:], strict=True)]
    if () in every:
        return []
    parts = list[tuple[int, list[Shared]]]()
    shared = [one for prompt, rows in every.items() for one in _divided(prompt, rows, replies)]
    for one in sorted(shared, key=lambda one: -_length(one, replies)):
        length = _length(one, replies)
        if not parts or (apart and length < LIKE * parts[-1][0]):
            parts.append((length, []))
        parts[-1][1].append(one)
    work = sum(_work(len(sequences), longest) for longest, sequences in parts)
    if work > WORTH * _work(*tokens.shape):
        return []
    return [_Sheet(longest, sequences, replies, keep, pad).packed(ids.device) for longest, sequences in parts]


def _divided(prompt: tuple[int, ...], rows: list[int], replies: list[NDArray[np.int64]]) -> list[Shared]:
    """Rows of one prompt in sequences that are not too long."""
    found = list[Shared]()
    for row in rows:
        if not found or _length((prompt, [*found[-1][1], row]), replies) > LONGEST:
            found.append((prompt, []))
        found[-1][1].append(row)
    return found


def _length(one: Shared, replies: list[NDArray[np.int64]]) -> int:
    """Tokens of a packed sequence."""
    return len(one[0]) - 1 + sum(len(replies[row]) for row in one[1])


def _work(sequences: int, tokens: int) -> float:
    return sequences * tokens * (1 + tokens / EVEN)


class _Sheet:
    """The arrays of a `Packed`."""

    def __init__(
        self, longest: int, shared: list[Shared], replies: list[NDArray[np.int64]], keep: int, pad: int
    ) -> None:
        self.rows = [row for _, rows in shared for row in rows]
        self.ids, self.labels = (np.full((len(shared), longest), value, np.int64) for value in (pad, -100))
        self.places = np.zeros((len(shared), longest), np.int64)
        self.part = np.full((len(shared), longest), -1)  # 0: the prompt; from 1 on: a reply; -1: padding
        self.where = np.zeros((len(self.rows), keep), np.int64)
        self.real = np.zeros((len(self.rows), keep), np.bool_)
        line = itertools.count()
        for number, (prompt, rows) in enumerate(shared):
            used = self._begin(number, prompt)
            for row in rows:
                used = self._add(number, used, next(line), prompt, replies[row])

    def _begin(self, number: int, prompt: tuple[int, ...]) -> int:
        """A new sequence; returns how much of it is used."""
        shared = len(prompt) - 1
        self.ids[number, :shared] = prompt[:-1]
        self.places[number, :shared] = np.arange(shared)
        self.part[number, :shared] = 0
        return shared

    def _add(self, number: int, used: int, line: int, prompt: tuple[int, ...], reply: NDArray[np.int64]) -> int:
        """One reply more."""
        count = len(reply)
        here = slice(used, used + count)
        self.ids[number, here] = [prompt[-1], *reply[:-1]][:count]
        self.labels[number, here] = reply
        self.part[number, here] = 1 + line
        self.places[number, here] = len(prompt) - 1 + np.arange(count)
        self.where[line, :count] = number * self.ids.shape[1] + used + np.arange(count)
        self.real[line, :count] = True
        return used + count

    def packed(self, device: torch.device) -> Packed:
        """As tensors; the mask is made where it is used."""

        def there(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(device)

        part = there(self.part)
        one = part[:, :, None]
        other = part[:, None, :]
        earlier = torch.ones(part.shape[1], part.shape[1], dtype=torch.bool, device=device).tril()
        mask = earlier & ((one == other) | ((other == 0) & (one > 0)))
        rows = there(np.array(self.rows))
        others = (there(self.where), there(self.real))
        return Packed(there(self.ids), there(self.places), mask[:, None], there(self.labels), rows, *others)
