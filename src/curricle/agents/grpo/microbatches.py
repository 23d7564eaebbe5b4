"""Microbatches: which rows of an update go through the network together, and how rows with one prompt share it.

**By length.** TRL shuffles the rows of an update and cuts them into microbatches of equally many. Here attempts at one
task stay together, because they share its prompt. Tasks of like length go together, because shorter rows are padded.
And all microbatches have about as many tokens, so memory is that of an average one, or of the longest task. All rows
make one update, so where each goes changes nothing, as long as all tokens of the update weigh the same: in the loss,
and, where TRL takes means over a microbatch, in the entropy bonus and the metrics (`token_share`).

Microbatches have equally many rows, in the order of the tasks, where the loss is no mean over tokens, where there are
fewer tasks than microbatches, and where several ranks learn, which have to agree on shapes.

**Packing.** Attempts at one task share its prompt, so that it goes through the network once and not once an attempt.
Rows come as TRL has them, prompts padded at the left, replies at the right. They become one sequence a prompt,

    prompt without its last token | last token, reply without its own last | last token, another reply ... | ...

in which a reply sees the prompt and itself, at the positions it had in its own row. So the log-probabilities of all
tokens are those of the rows one by one, and so are the gradients. Where prompts are long and replies short, as in tool
calls, most of an update's work is gone. Few long replies share a sequence, because attention goes over all of it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.errors import needed
from curricle.llm.generate.decoding import supports_decoding
from curricle.scale import ranks

TOKEN_MEAN_LOSSES = ("dapo", "cispo", "vespo")
"""TRL's losses that are a mean over all tokens of an update."""
TOKEN_MEAN_METRICS = (
    "kl",
    "entropy",
    "clip_ratio/low_mean",
    "clip_ratio/high_mean",
    "clip_ratio/region_mean",
    "cispo_clip_ratio",
)
"""TRL's metrics that are means over the tokens of a microbatch."""
MAX_WORK = 0.8
"""Rows are packed if that leaves no more than this share of their work."""
ATTENTION_HALF = 4096
"""Tokens of a sequence at which attention takes half of the work, counted in multiplications of a small model."""
MAX_PACKED_TOKENS = 2048
"""Most tokens of a packed sequence, unless one reply alone has more: masks and attention grow with the square."""
MIN_LENGTH_RATIO = 0.7
"""Packed sequences go through the network together if the shortest has this share of the longest's tokens."""
Batch = dict[str, Any]
"""An update's rows, or a microbatch, as TRL has them: tensors with a row an attempt."""
Replies = list[NDArray[np.int64]]
SharedPrompt = tuple[tuple[int, ...], list[int]]
"""A prompt, and the rows that have it and go into one sequence."""


# -- by length ---------------------------------------------------------------------------------------------------------


def split(batch: Batch, count: int, group_size: int, loss: str) -> list[Batch]:
    """Split the rows of an update into microbatches: by length where that is exact, else into equally many rows."""
    rows = len(batch["completion_mask"])
    if loss in TOKEN_MEAN_LOSSES and ranks.count() == 1 and rows >= count * group_size:
        return split_by_length(batch, count, group_size)
    microbatches: list[Batch] = needed("trl.trainer.utils").split_tensor_dict(batch, count)
    return microbatches


def split_by_length(batch: Batch, count: int, group_size: int) -> list[Batch]:
    """Split into microbatches of whole groups with about as many tokens each, without columns that are all padding."""
    reply_tokens = batch["completion_mask"].sum(1).view(-1, group_size).sum(1)
    tokens = (reply_tokens + batch["prompt_mask"].sum(1)[::group_size]).cpu()
    order = tokens.argsort(stable=True)
    parts = order.split(balanced_sizes(tokens[order].tolist(), count))
    return [_select(batch, (groups[:, None] * group_size + torch.arange(group_size)).flatten()) for groups in parts]


def token_share(microbatch: Batch, count: int) -> float:
    """Return how many of the agent's own tokens a microbatch has, relative to the mean of all `count`."""
    own = microbatch["completion_mask"] * microbatch.get("tool_mask", 1)
    return float(own.sum() * count / microbatch["num_items_in_batch"].clamp(min=1))


def _select(batch: Batch, rows: Tensor) -> Batch:
    """Take some rows; prompts are padded at the left, replies at the right. TRL may have masked all of a reply."""
    prompt_width = max(1, int(batch["prompt_mask"][rows].sum(1).max()))
    reply_width = max(1, int(batch["completion_mask"][rows].sum(1).max()))
    selected = dict(batch)
    for name, value in batch.items():
        if value.ndim == 1:
            selected[name] = value[rows]
        elif value.ndim > 1 and name.startswith("prompt"):
            selected[name] = value[rows, -prompt_width:]
        elif value.ndim > 1:
            selected[name] = value[rows, :reply_width]
    return selected


def balanced_sizes(work: Sequence[float], count: int) -> list[int]:
    """Return how many pieces each of `count` parts takes, in order, with as little work as can be in the largest."""
    low = float(max(work))
    high = float(sum(work))
    while high - low > 0.5:  # work comes in whole tokens
        middle = (low + high) / 2
        if len(_fill(work, middle)) <= count:
            high = middle
        else:
            low = middle
    ends = [0, *itertools.accumulate(_fill(work, high))]
    while len(ends) <= count:  # cut the part with most work in two, where its pieces differ most
        parts = [(start, end) for start, end in itertools.pairwise(ends) if end - start > 1]
        start, end = max(parts, key=lambda part: sum(work[slice(*part)]))
        cut = max(range(start + 1, end), key=lambda i: (work[i] / work[i - 1], -abs(2 * i - start - end)))
        ends = sorted([*ends, cut])
    return [end - start for start, end in itertools.pairwise(ends)]


def _fill(work: Sequence[float], capacity: float) -> list[int]:
    """Return the pieces of each part if every part takes pieces as long as its capacity lasts."""
    sizes = list[int]()
    left = 0.0
    for piece in work:
        if not sizes or piece > left:
            sizes.append(0)
            left = capacity
        sizes[-1] += 1
        left -= piece
    return sizes


# -- packing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedSequences:
    """Sequences for a model, and where the tokens of the rows' replies lie in them."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    """(sequences, 1, tokens, tokens): which token sees which."""
    labels: Tensor
    """The token that follows each, -100 where none is scored."""
    rows: Tensor
    """The rows whose replies these are."""
    token_places: Tensor
    """(rows, tokens of a reply): places in the flattened sequences."""
    token_exists: Tensor
    """(rows, tokens of a reply): False where a row's reply has ended."""

    def log_probs(self, model: Any) -> tuple[Tensor, Tensor | None]:
        """Return log-probabilities of the replies' tokens, row by row, and entropies if the model gives them.

        The model has TRL's fused head.
        """
        out = model(
            input_ids=self.ids,
            position_ids=self.positions,
            attention_mask=self.mask,
            shift_labels=self.labels,
            fused_lm_head=True,
        )
        entropies = None if out.entropy is None else self._by_row(out.entropy)
        return self._by_row(out.log_probs), entropies

    def _by_row(self, values: Tensor) -> Tensor:
        """From the sequences' tokens to those of the rows' replies; 0 where there is none."""
        return values.flatten()[self.token_places] * self.token_exists


def supports_packing(model: Any) -> bool:
    """Whether a model's attention takes such a mask."""
    return supports_decoding(model) and "sdpa" in str(model.config._attn_implementation)


def packed_log_probs(packs: list[PackedSequences], model: Any) -> tuple[Tensor, Tensor | None]:
    """Return log-probabilities of all packs, and entropies if the model gives them, in the order of the rows."""
    order = torch.cat([pack.rows for pack in packs]).argsort()
    log_probs, entropies = zip(*(pack.log_probs(model) for pack in packs), strict=True)
    if entropies[0] is None:
        return torch.cat(log_probs)[order], None
    return torch.cat(log_probs)[order], torch.cat(entropies)[order]


def pack(ids: Tensor, mask: Tensor, reply_width: int, pad: int, *, by_length: bool = True) -> list[PackedSequences]:
    """Pack rows (rows, tokens) of which the last `reply_width` are replies; empty if it would save too little.

    Sequences of different lengths go through the network apart, `by_length`, but not where several ranks must pass the
    network equally often.
    """
    tokens = ids.cpu().numpy()
    exists = mask.cpu().numpy().astype(bool)
    rows_of_prompt: dict[tuple[int, ...], list[int]] = {}
    replies = Replies()
    for row in range(len(tokens)):
        prompt = tokens[row, :-reply_width][exists[row, :-reply_width]]
        rows_of_prompt.setdefault(tuple(prompt.tolist()), []).append(row)
        replies.append(tokens[row, -reply_width:][exists[row, -reply_width:]])
    if () in rows_of_prompt:
        return []
    sequences = list[SharedPrompt]()
    for one_prompt, rows in rows_of_prompt.items():
        sequences += _divide(one_prompt, rows, replies)
    batches = _group_by_length(sequences, replies, by_length)
    work = sum(_work(len(batch), _length(batch[0], replies)) for batch in batches)
    if work > MAX_WORK * _work(*tokens.shape):
        return []
    return [_PackedArrays(batch, replies, reply_width, pad).to_tensors(ids.device) for batch in batches]


def _divide(prompt: tuple[int, ...], rows: list[int], replies: Replies) -> list[SharedPrompt]:
    """Divide the rows of one prompt into sequences that are not too long."""
    sequences = list[SharedPrompt]()
    for row in rows:
        if not sequences or _length((prompt, [*sequences[-1][1], row]), replies) > MAX_PACKED_TOKENS:
            sequences.append((prompt, []))
        sequences[-1][1].append(row)
    return sequences


def _group_by_length(sequences: list[SharedPrompt], replies: Replies, by_length: bool) -> list[list[SharedPrompt]]:
    """Group sequences of like length, the longest first; all in one group if not `by_length`."""
    batches = list[list[SharedPrompt]]()
    for sequence in sorted(sequences, key=lambda one: -_length(one, replies)):
        is_shorter = bool(batches) and _length(sequence, replies) < MIN_LENGTH_RATIO * _length(batches[-1][0], replies)
        if not batches or (by_length and is_shorter):
            batches.append([])
        batches[-1].append(sequence)
    return batches


def _length(sequence: SharedPrompt, replies: Replies) -> int:
    """Tokens of a packed sequence."""
    prompt, rows = sequence
    return len(prompt) - 1 + sum(len(replies[row]) for row in rows)


def _work(sequences: int, tokens: int) -> float:
    return sequences * tokens * (1 + tokens / ATTENTION_HALF)


class _PackedArrays:
    """The arrays of `PackedSequences`, filled reply by reply; the first sequence is the longest."""

    def __init__(self, sequences: list[SharedPrompt], replies: Replies, reply_width: int, pad: int) -> None:
        shape = (len(sequences), _length(sequences[0], replies))
        self.rows = [row for _, rows in sequences for row in rows]
        self.ids = np.full(shape, pad, np.int64)
        self.labels = np.full(shape, -100, np.int64)
        self.positions = np.zeros(shape, np.int64)
        self.part = np.full(shape, -1)  # 0: the prompt; from 1 on: a reply; -1: padding
        self.token_places = np.zeros((len(self.rows), reply_width), np.int64)
        self.token_exists = np.zeros((len(self.rows), reply_width), np.bool_)
        line = 0
        for number, (prompt, rows) in enumerate(sequences):
            used = self._add_prompt(number, prompt)
            for row in rows:
                self._add_reply(number, used, line, prompt, replies[row])
                used += len(replies[row])
                line += 1

    def _add_prompt(self, number: int, prompt: tuple[int, ...]) -> int:
        """Begin a sequence with its prompt, all but the last token; returns how much of the sequence is used."""
        shared = len(prompt) - 1
        self.ids[number, :shared] = prompt[:-1]
        self.positions[number, :shared] = np.arange(shared)
        self.part[number, :shared] = 0
        return shared

    def _add_reply(self, number: int, used: int, line: int, prompt: tuple[int, ...], reply: NDArray[np.int64]) -> None:
        """Add a reply, which begins with the last token of its prompt, to a sequence."""
        count = len(reply)
        columns = slice(used, used + count)
        self.ids[number, columns] = [prompt[-1], *reply[:-1]][:count]
        self.labels[number, columns] = reply
        self.part[number, columns] = 1 + line
        self.positions[number, columns] = len(prompt) - 1 + np.arange(count)
        self.token_places[line, :count] = number * self.ids.shape[1] + used + np.arange(count)
        self.token_exists[line, :count] = True

    def to_tensors(self, device: torch.device) -> PackedSequences:
        """Move the arrays to a device; the mask is made there."""

        def move(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(device)

        part = move(self.part)
        one = part[:, :, None]
        other = part[:, None, :]
        earlier = torch.ones(part.shape[1], part.shape[1], dtype=torch.bool, device=device).tril()
        mask = earlier & ((one == other) | ((other == 0) & (one > 0)))
        return PackedSequences(
            ids=move(self.ids),
            positions=move(self.positions),
            mask=mask[:, None],
            labels=move(self.labels),
            rows=move(np.array(self.rows)),
            token_places=move(self.token_places),
            token_exists=move(self.token_exists),
        )
