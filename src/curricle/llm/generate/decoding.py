"""Decoding: many replies at once in fixed shapes, so that a GPU replays each step as one CUDA graph.

Prompts begin at the left and are padded at the right, so plain causal attention reads them in, all but their last
token: that one opens the decoding. A prompt that several rows share is read once. From then on every row writes into
the same column of the cache, and a mask says which columns a row may look at. Heads that share keys are laid side by
side like queries, so keys are never copied for them. Shapes run one at a time, so all keep their columns in the same
memory, and a conversation's next turn seldom needs a capture. On a GPU columns that the mask hides are not read, all
those of rows that have ended among them (`kernels.py`). On a CPU the same steps run one by one, unpadded.

`replies` draws what rows say; `told` leaves it to its caller, who sees the scores of every next token.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

from curricle.llm.extras import kernels, needed
from curricle.llm.generate.rotary import turning
from curricle.llm.models.attention import KERNELS
from curricle.llm.models.rms_norm import fused

SHORTEST = 64
"""On a GPU prompts are padded to this length, or 1.5, 2, 3, 4, 6, ... times it: each new shape is captured anew."""
BYTES = 1 << 33
"""Most memory of a batch's cache, which has to fit beside two players."""
READ = 1 << 15
"""Most tokens of prompts that are read at a time, for a model's wide layers need much more memory than its cache."""
FEW = 64
"""Rows up to which a step takes as long for one as for all."""
KEPT = 64
"""Shapes that are kept, on a GPU as a graph each; those not used for longest make room."""
LOOK = 16
"""Steps between two looks at whether all rows have ended, on a GPU, which each look waits for."""
ATTENTION = "curricle-decoding"
Manner = Literal["drawn", "greedy", "told"]
"""Who chooses the next token."""
Tell = Callable[[Sequence[int]], Tensor]
"""From the next token of each row to the scores of the one after it."""


def suits(model: Any) -> bool:
    """Whether every layer of a model attends to all that came before, which is what this decoding does."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    plain = set(kinds) == {"full_attention"} if kinds else not getattr(config, "sliding_window", None)
    return plain and not getattr(config, "attn_logit_softcapping", None) and bool(getattr(model, "_supports_sdpa", 0))


class Decoder:
    """Decodes with one model; keeps what was captured for each shape."""

    def __init__(self, model: Any, ends: Sequence[int], pad: int, batch: int) -> None:
        self.model = model
        self.ends = list(ends)
        self.pad = pad
        self.batch = batch
        self.on_gpu = next(model.parameters()).is_cuda
        self.loops: dict[tuple[int, int, int, Manner], _Loop] = {}
        self.room = _Room(0)
        self.tokens = BYTES // _column(model)
        needed("transformers").AttentionInterface.register(ATTENTION, _attend)

    def replies(self, prompts: Sequence[list[int]], most: int, temperature: float) -> list[list[int]]:
        """For each prompt `most` tokens; what follows a row's end is padding."""
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
        found: dict[int, list[int]] = {}
        manner: Manner = "drawn" if temperature else "greedy"
        with _quickly(self.model):
            while order:
                rows, width = self._shape(len(order), len(prompts[order[0]]), most)
                part = order[:rows]
                order = order[rows:]
                said = self._loop((rows, width, most, manner)).run([prompts[i] for i in part], temperature)
                found |= zip(part, said, strict=True)
        return [found[i] for i in range(len(prompts))]

    @contextmanager
    def told(self, prompts: Sequence[list[int]], most: int) -> Iterator[tuple[int, Tell]]:
        """Read as many of the prompts as go at a time, all but their last tokens: how many, and what takes the rest."""
        rows, width = self._shape(len(prompts), max(map(len, prompts)), most)
        with _quickly(self.model):
            yield min(rows, len(prompts)), self._loop((rows, width, most, "told")).tell(prompts[:rows])

    def _shape(self, count: int, longest: int, most: int) -> tuple[int, int]:
        """Rows that go at a time, and how wide their prompts are."""
        width = max(SHORTEST, _ceiling(longest)) if self.on_gpu else max(2, longest)  # 1 would be no prompt
        wanted = _rows(count) if self.on_gpu else count
        return min(self.batch, _floor(self.tokens // _length(width, most)), wanted), width

    def _loop(self, key: tuple[int, int, int, Manner]) -> "_Loop":
        loop = self.loops.pop(key, None)
        if loop is None:
            tokens = key[0] * _length(*key[1:3])
            if tokens > self.room.tokens:  # what was captured knows the old place only
                self.loops.clear()
                self.room = _Room(max(tokens, min(_ceiling(tokens), self.tokens)) if self.on_gpu else tokens)
            elif len(self.loops) >= KEPT:
                del self.loops[next(iter(self.loops))]
            loop = _Loop(self, *key)
        self.loops[key] = loop
        return loop


class _Loop:
    """One shape: its buffers, its cache, and its step, on a GPU as a graph."""

    def __init__(self, owner: Decoder, rows: int, width: int, most: int, manner: Manner) -> None:
        model = owner.model
        kind = next(model.parameters()).dtype
        device = next(model.parameters()).device
        self.owner = owner
        self.rows = rows
        self.width = width
        self.most = most
        self.manner = manner
        self.length = _length(width, most)
        self.graph: Any = None
        self.cache = _Columns(owner.room, rows, self.length)
        self.token, self.place = (torch.zeros(rows, 1, dtype=torch.long, device=device) for _ in range(2))
        self.column, self.step = (torch.zeros(1, dtype=torch.long, device=device) for _ in range(2))
        self.said = torch.zeros(rows, most, dtype=torch.long, device=device)
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.mask = torch.zeros(rows, 1, 1, self.length, dtype=kind, device=device)
        self.ends = torch.tensor(owner.ends, dtype=torch.long, device=device)
        self.temperature = torch.ones((), device=device)
        self.scores = torch.empty(0)

    def run(self, prompts: Sequence[list[int]], temperature: float) -> list[list[int]]:
        """The tokens of each row."""
        advance = self._begun(prompts, temperature)
        for step in range(self.most):
            advance()
            if (step % LOOK == LOOK - 1 or not self.owner.on_gpu) and bool(self.done.all()):
                break
        told: list[list[int]] = self.said[: len(prompts)].tolist()
        return told

    def tell(self, prompts: Sequence[list[int]]) -> Tell:
        """What takes the next token of each row, the last of its prompt first."""
        advance = self._begun(prompts, 1.0)

        def tell(tokens: Sequence[int]) -> Tensor:
            self.token[: len(tokens)].copy_(torch.tensor(tokens)[:, None])
            advance()
            return self.scores[: len(tokens)]

        return tell

    def _begun(self, prompts: Sequence[list[int]], temperature: float) -> Callable[[], None]:
        """Take the prompts in; returns what makes a step."""
        self._read(prompts, temperature)
        if not self.said.is_cuda:
            return self._advance
        if self.graph is None:
            self.graph = self._captured()
            self._read(prompts, temperature)
        replay: Callable[[], None] = self.graph.replay
        return replay

    def _read(self, prompts: Sequence[list[int]], temperature: float) -> None:
        """Take the prompts in, all but their last tokens."""
        rows = [*prompts, *[prompts[-1]] * (self.rows - len(prompts))]
        lengths = torch.tensor([len(row) - 1 for row in rows])
        numbers = {tuple(row): number for number, row in enumerate(dict.fromkeys(map(tuple, rows)))}
        ids = torch.tensor([[*row[:-1], *[self.owner.pad] * (self.width + 1 - len(row))] for row in numbers])
        self.token.copy_(torch.tensor([[row[-1]] for row in rows]))
        self.place.copy_(lengths[:, None])
        hidden = torch.arange(self.length) >= lengths[:, None]
        self.mask.copy_(torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None])
        self.column.fill_(self.width)
        self.step.zero_()
        self.said.fill_(self.owner.pad)
        self.done.copy_(torch.arange(self.rows) >= len(prompts))
        self.temperature.fill_(temperature or 1.0)
        device = self.said.device
        each = max(1, READ // self.width)
        ids = ids.to(device)
        whose = torch.tensor([numbers[tuple(row)] for row in rows], device=device)
        places = torch.arange(self.width, device=device)
        self.cache.column = None
        for start in range(0, len(ids), each):
            part = ids[start : start + each]
            self.cache.readers = ((whose >= start) & (whose < start + each)).nonzero()[:, 0]
            self.cache.read = whose[self.cache.readers] - start
            self._pass(part, places.expand(len(part), -1), self.mask[:1, :, :, :1])  # any mask: attention is causal
        self.cache.column = self.column

    def _pass(self, ids: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        out = self.owner.model(
            input_ids=ids,
            position_ids=places,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1]
        return logits.float()

    def _advance(self) -> None:
        """One token more of every row."""
        self.mask.index_fill_(3, self.column, 0.0)
        logits = self._pass(self.token, self.place, self.mask)
        if self.manner == "told":
            self.scores = logits
        else:
            self._choose(logits)
        for count in (self.place, self.column, self.step):
            count += 1

    def _choose(self, logits: Tensor) -> None:
        if self.manner == "greedy":
            chosen = logits.argmax(-1)
        else:  # the largest of odds over exponentials is a draw by these odds
            odds = (logits / self.temperature).softmax(-1)
            chosen = (odds / torch.empty_like(odds).exponential_()).argmax(-1)
        chosen = torch.where(self.done, self.owner.pad, chosen)
        self.said.index_copy_(1, self.step, chosen[:, None])
        self.done |= (chosen[:, None] == self.ends).any(1)
        ended = self.done[:, None, None, None]  # who has looks at its newest column only
        self.mask.masked_fill_(ended, -torch.inf)
        self.token.copy_(chosen[:, None])

    def _captured(self) -> Any:
        """The step as a graph; its trials take no luck away, so that a seed always means the same draws."""
        luck = torch.cuda.get_rng_state()
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._advance()
                self.step.zero_()  # there may be room for one token only
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.cache.room.pool()):
            self._advance()
        torch.cuda.set_rng_state(luck)
        return graph


class _Room:
    """Memory for the columns of every shape, and for what their graphs work with: only one of them runs at a time."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.flat: dict[tuple[int, int], Tensor] = {}
        self.handle: Any = None

    def view(self, layer: int, which: int, like: Tensor, rows: int, length: int) -> Tensor:
        """Columns of a shape; zeros at first, since masked columns are multiplied all the same."""
        heads = like.shape[1]
        size = like.shape[3]
        if (layer, which) not in self.flat:
            self.flat[layer, which] = like.new_zeros(self.tokens * heads * size)
        return self.flat[layer, which][: rows * heads * length * size].view(rows, heads, length, size)

    def pool(self) -> Any:
        """Where graphs keep what lives within a step."""
        self.handle = self.handle or torch.cuda.graph_pool_handle()
        return self.handle


class _Columns:
    """Keys and values of all layers, one column a token."""

    def __init__(self, room: _Room, rows: int, length: int) -> None:
        self.room = room
        self.rows = rows
        self.length = length
        self.column: Tensor | None = None
        """Where the next token goes; None while prompts are read, which fill columns from the first on."""
        self.readers: Any = None
        """The rows whose prompts are being read,"""
        self.read: Any = None
        """and which of these prompts is each one's."""
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Take in new columns; returns what the new tokens may look at."""
        if layer not in self.layers:
            views = (self.room.view(layer, i, new, self.rows, self.length) for i, new in enumerate((keys, values)))
            self.layers[layer] = (next(views), next(views))
        kept = self.layers[layer]
        for whole, new in zip(kept, (keys, values), strict=True):
            if self.column is None:
                whole[:, :, : new.shape[2]].index_copy_(0, self.readers, new[self.read])
            else:
                whole.index_copy_(2, self.column, new)
        return (keys, values) if self.column is None else kept

    def get_seq_length(self, *_: Any) -> int:
        """Positions are always given, so nobody counts on this."""
        return 0


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: Any = None, **_: Any
) -> tuple[Tensor, None]:
    """Attention of prompts among themselves, or of one token a row to its columns."""
    rows, heads, width, size = query.shape
    shared = key.shape[1]
    if width > 1:
        with sdpa_kernel(KERNELS):
            out = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scaling, enable_gqa=heads != shared
            )
    else:
        side_by_side = query.reshape(rows, shared, heads // shared, size)
        if query.is_cuda and kernels() is not None and value.shape == key.shape:
            scale = size**-0.5 if scaling is None else scaling
            out = kernels().look(side_by_side, key, value, attention_mask[:, 0, 0], scale)
        else:
            out = F.scaled_dot_product_attention(side_by_side, key, value, attn_mask=attention_mask, scale=scaling)
        out = out.reshape(rows, heads, 1, -1)
    return out.transpose(1, 2).contiguous(), None


@contextmanager
def _quickly(model: Any) -> Iterator[None]:
    """Let a model attend our way for a while, and do in one kernel what takes it six or ten."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        with fused(model), turning(model):
            yield
    finally:
        config._attn_implementation = before


def _length(width: int, most: int) -> int:
    """Columns of a row."""
    return 16 * -(-(width + most) // 16)


def _rows(count: int) -> int:
    """The next power of two, or of four where rows are few: there, one too many costs less than another capture."""
    bits = (count - 1).bit_length()
    return 1 << (bits if count > FEW else 2 * -(-bits // 2))


def _ceiling(count: int) -> int:
    """The next power of two, or the one before it and a half."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def _column(model: Any) -> int:
    """Bytes of what all layers keep of a token."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * int(config.num_hidden_layers * heads * size) * int(next(model.parameters()).element_size())


def _floor(count: int) -> int:
    """The power of two before."""
    return 1 << max(0, count.bit_length() - 1)
