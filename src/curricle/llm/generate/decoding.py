"""Decoding: many replies at once in fixed shapes, so that a GPU replays each step as one CUDA graph.

Prompts begin at the left and are padded at the right, so plain causal attention prefills the cache with all of a prompt
but its last token. That one starts the decoding. A prompt that several rows share is read once. From then on every row
writes into the same column of the cache, and a mask says which columns a row may see. Heads that share keys are laid
side by side like queries, so keys are never copied for them. Only one shape runs at a time, so all shapes use the same
cache memory, and a conversation's next turn seldom needs a new graph. On a GPU columns that the mask hides are not
read, and neither are those of rows that have ended (`kernels.py`). On a CPU the same steps run one by one, unpadded.

`Decoder.replies` chooses the tokens itself. With `Decoder.steps` the caller chooses them from the logits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

from curricle.errors import needed
from curricle.llm.models.layers import SDPA_BACKENDS, fused_norms, fused_rotary, kernels

MIN_WIDTH = 64
"""On a GPU prompts are padded to this length, or 1.5, 2, 3, 4, 6, ... times it: each new shape needs a new graph."""
CACHE_BYTES = 1 << 33
"""Most memory of a batch's cache, which has to fit beside two players."""
PREFILL_TOKENS = 1 << 15
"""Most tokens of prompts that are read at a time: a model's wide layers need much more memory than its cache."""
FEW_ROWS = 64
"""Up to so many rows a step takes as long for one as for all."""
MAX_LOOPS = 64
"""Shapes that are kept, on a GPU as a graph each; those not used for longest are dropped."""
CHECK_EVERY = 16
"""On a GPU, steps between two checks whether all rows have ended: each check waits for the GPU."""
ATTENTION = "curricle-decoding"
Choice = Literal["sample", "greedy", "caller"]
"""Who chooses the next token: a draw, the largest logit, or the caller."""
NextLogits = Callable[[Sequence[int]], Tensor]
"""From the next token of each row to the logits of the one after it."""


def supports_decoding(model: Any) -> bool:
    """Whether every layer of a model attends to all earlier tokens, as this decoding does."""
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        full_attention = set(layer_types) == {"full_attention"}
    else:
        full_attention = not getattr(config, "sliding_window", None)
    softcapped = bool(getattr(config, "attn_logit_softcapping", None))
    return full_attention and not softcapped and bool(getattr(model, "_supports_sdpa", 0))


class Decoder:
    """Decodes with one model; keeps the graph of each shape."""

    def __init__(self, model: Any, ends: Sequence[int], pad: int, batch: int) -> None:
        self.model = model
        self.ends = list(ends)
        self.pad = pad
        self.batch = batch
        self.on_gpu = next(model.parameters()).is_cuda
        self.loops: dict[tuple[int, int, int, Choice], _Loop] = {}
        self.memory = _CacheMemory(0)
        self.max_cache_tokens = CACHE_BYTES // _bytes_per_token(model)
        needed("transformers").AttentionInterface.register(ATTENTION, _attend)

    def replies(self, prompts: Sequence[list[int]], max_tokens: int, temperature: float) -> list[list[int]]:
        """Return `max_tokens` tokens for each prompt; what follows a row's end is padding."""
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
        replies: dict[int, list[int]] = {}
        choice: Choice = "sample" if temperature else "greedy"
        with _fast_layers(self.model):
            while order:
                rows, width = self._shape(len(order), len(prompts[order[0]]), max_tokens)
                batch = order[:rows]
                order = order[rows:]
                loop = self._loop((rows, width, max_tokens, choice))
                replies |= zip(batch, loop.run([prompts[i] for i in batch], temperature), strict=True)
        return [replies[i] for i in range(len(prompts))]

    @contextmanager
    def steps(self, prompts: Sequence[list[int]], max_tokens: int) -> Iterator[tuple[int, NextLogits]]:
        """Read as many prompts as fit, without their last tokens; yields how many, and what takes the next tokens."""
        rows, width = self._shape(len(prompts), max(map(len, prompts)), max_tokens)
        with _fast_layers(self.model):
            loop = self._loop((rows, width, max_tokens, "caller"))
            yield min(rows, len(prompts)), loop.start(prompts[:rows])

    def _shape(self, count: int, longest: int, max_tokens: int) -> tuple[int, int]:
        """Return how many rows go at a time, and how wide their prompts are."""
        if self.on_gpu:
            width = max(MIN_WIDTH, _round_up(longest))
            wanted = _round_up_rows(count)
        else:
            width = max(2, longest)  # 1 would be no prompt
            wanted = count
        fitting = _power_of_two_below(self.max_cache_tokens // _columns(width, max_tokens))
        return min(self.batch, fitting, wanted), width

    def _loop(self, key: tuple[int, int, int, Choice]) -> "_Loop":
        """Return the loop of a shape, newly made or kept; the newest stand last."""
        loop = self.loops.pop(key, None)
        if loop is None:
            rows, width, max_tokens, choice = key
            cache_tokens = rows * _columns(width, max_tokens)
            if cache_tokens > self.memory.tokens:
                self._grow_memory(cache_tokens)
            elif len(self.loops) >= MAX_LOOPS:
                del self.loops[next(iter(self.loops))]
            loop = _Loop(self, rows, width, max_tokens, choice)
        self.loops[key] = loop
        return loop

    def _grow_memory(self, tokens: int) -> None:
        self.loops.clear()  # their graphs point to the old memory
        if self.on_gpu:
            tokens = max(tokens, min(_round_up(tokens), self.max_cache_tokens))
        self.memory = _CacheMemory(tokens)


class _Loop:
    """The loop over tokens for one shape: its buffers, its cache, and its step, on a GPU as a graph."""

    def __init__(self, decoder: Decoder, rows: int, width: int, max_tokens: int, choice: Choice) -> None:
        model = decoder.model
        dtype = next(model.parameters()).dtype
        device = next(model.parameters()).device
        self.decoder = decoder
        self.rows = rows
        self.width = width
        self.max_tokens = max_tokens
        self.choice = choice
        self.columns = _columns(width, max_tokens)
        self.graph: Any = None
        self.cache = _KeyValueCache(decoder.memory, rows, self.columns)
        self.token = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.output = torch.zeros(rows, max_tokens, dtype=torch.long, device=device)
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.mask = torch.zeros(rows, 1, 1, self.columns, dtype=dtype, device=device)
        self.ends = torch.tensor(decoder.ends, dtype=torch.long, device=device)
        self.temperature = torch.ones((), device=device)
        self.logits = torch.empty(0)

    def run(self, prompts: Sequence[list[int]], temperature: float) -> list[list[int]]:
        """Return the tokens of each row."""
        advance = self._begin(prompts, temperature)
        for step in range(self.max_tokens):
            advance()
            check = step % CHECK_EVERY == CHECK_EVERY - 1 or not self.decoder.on_gpu
            if check and bool(self.done.all()):
                break
        output: list[list[int]] = self.output[: len(prompts)].tolist()
        return output

    def start(self, prompts: Sequence[list[int]]) -> NextLogits:
        """Return what takes the next token of each row, the last of its prompt first."""
        advance = self._begin(prompts, 1.0)

        def next_logits(tokens: Sequence[int]) -> Tensor:
            self.token[: len(tokens)].copy_(torch.tensor(tokens)[:, None])
            advance()
            return self.logits[: len(tokens)]

        return next_logits

    def _begin(self, prompts: Sequence[list[int]], temperature: float) -> Callable[[], None]:
        """Prefill the cache; returns the function that makes a step."""
        self._prefill(prompts, temperature)
        if not self.output.is_cuda:
            return self._advance
        if self.graph is None:
            self.graph = self._capture()
            self._prefill(prompts, temperature)
        replay: Callable[[], None] = self.graph.replay
        return replay

    def _prefill(self, prompts: Sequence[list[int]], temperature: float) -> None:
        """Read the prompts, all but their last tokens; rows that are left over repeat the last prompt."""
        rows = [*prompts, *[prompts[-1]] * (self.rows - len(prompts))]
        lengths = torch.tensor([len(row) - 1 for row in rows])
        numbers = {tuple(row): number for number, row in enumerate(dict.fromkeys(map(tuple, rows)))}
        ids = torch.tensor([[*row[:-1], *[self.decoder.pad] * (self.width + 1 - len(row))] for row in numbers])
        self.token.copy_(torch.tensor([[row[-1]] for row in rows]))
        self.position.copy_(lengths[:, None])
        hidden = torch.arange(self.columns) >= lengths[:, None]
        self.mask.copy_(torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None])
        self.column.fill_(self.width)
        self.step.zero_()
        self.output.fill_(self.decoder.pad)
        self.done.copy_(torch.arange(self.rows) >= len(prompts))
        self.temperature.fill_(temperature or 1.0)
        device = self.output.device
        at_a_time = max(1, PREFILL_TOKENS // self.width)
        ids = ids.to(device)
        prompt_of_row = torch.tensor([numbers[tuple(row)] for row in rows], device=device)
        positions = torch.arange(self.width, device=device)
        self.cache.column = None
        for start in range(0, len(ids), at_a_time):
            part = ids[start : start + at_a_time]
            in_part = (prompt_of_row >= start) & (prompt_of_row < start + at_a_time)
            self.cache.readers = in_part.nonzero()[:, 0]
            self.cache.read = prompt_of_row[self.cache.readers] - start
            any_mask = self.mask[:1, :, :, :1]  # not used: attention among prompts is causal
            self._forward(part, positions.expand(len(part), -1), any_mask)
        self.cache.column = self.column

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        out = self.decoder.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1]
        return logits.float()

    def _advance(self) -> None:
        """Decode one more token of every row."""
        self.mask.index_fill_(3, self.column, 0.0)
        logits = self._forward(self.token, self.position, self.mask)
        if self.choice == "caller":
            self.logits = logits
        else:
            self._choose(logits)
        for count in (self.position, self.column, self.step):
            count += 1

    def _choose(self, logits: Tensor) -> None:
        if self.choice == "greedy":
            chosen = logits.argmax(-1)
        else:  # the argmax of probabilities over exponential noise is a draw by these probabilities
            probabilities = (logits / self.temperature).softmax(-1)
            chosen = (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1)
        chosen = torch.where(self.done, self.decoder.pad, chosen)
        self.output.index_copy_(1, self.step, chosen[:, None])
        self.done |= (chosen[:, None] == self.ends).any(1)
        ended = self.done[:, None, None, None]  # a row that has ended sees its newest column only
        self.mask.masked_fill_(ended, -torch.inf)
        self.token.copy_(chosen[:, None])

    def _capture(self) -> Any:
        """Capture the step as a graph; the generator is put back, so that a seed always means the same draws."""
        rng_state = torch.cuda.get_rng_state()
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._advance()
                self.step.zero_()  # there may be room for one token only
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.cache.memory.graph_pool()):
            self._advance()
        torch.cuda.set_rng_state(rng_state)
        return graph


class _CacheMemory:
    """Memory for the caches of all shapes, and for their graphs: only one of them runs at a time."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.flat: dict[tuple[int, int], Tensor] = {}
        self.pool: Any = None

    def view(self, layer: int, which: int, like: Tensor, rows: int, columns: int) -> Tensor:
        """Return the keys (0) or values (1) of a layer; zeros at first, because masked columns are multiplied, too."""
        heads = like.shape[1]
        size = like.shape[3]
        if (layer, which) not in self.flat:
            self.flat[layer, which] = like.new_zeros(self.tokens * heads * size)
        return self.flat[layer, which][: rows * heads * columns * size].view(rows, heads, columns, size)

    def graph_pool(self) -> Any:
        """Return where graphs keep what lives within a step."""
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        return self.pool


class _KeyValueCache:
    """Keys and values of all layers, one column a token; has what transformers' models ask of a cache."""

    def __init__(self, memory: _CacheMemory, rows: int, columns: int) -> None:
        self.memory = memory
        self.rows = rows
        self.columns = columns
        self.column: Tensor | None = None
        """Where the next token goes; None while prompts are read, which fill columns from the first on."""
        self.readers: Any = None
        """The rows whose prompts are being read,"""
        self.read: Any = None
        """and which of these prompts each one has."""
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store new columns; returns what the new tokens may see."""
        if layer not in self.layers:
            self.layers[layer] = (
                self.memory.view(layer, 0, keys, self.rows, self.columns),
                self.memory.view(layer, 1, values, self.rows, self.columns),
            )
        stored = self.layers[layer]
        for all_columns, new in zip(stored, (keys, values), strict=True):
            if self.column is None:
                all_columns[:, :, : new.shape[2]].index_copy_(0, self.readers, new[self.read])
            else:
                all_columns.index_copy_(2, self.column, new)
        return (keys, values) if self.column is None else stored

    def get_seq_length(self, *_: Any) -> int:
        """Return 0: positions are always given, so nobody needs it."""
        return 0


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: Any = None, **_: Any
) -> tuple[Tensor, None]:
    """Attention of prompts among themselves, or of one token a row to its columns."""
    rows, heads, width, size = query.shape
    key_heads = key.shape[1]
    if width > 1:
        with sdpa_kernel(SDPA_BACKENDS):
            out = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scaling, enable_gqa=heads != key_heads
            )
    else:
        grouped = query.reshape(rows, key_heads, heads // key_heads, size)
        if query.is_cuda and kernels() is not None and value.shape == key.shape:
            scale = size**-0.5 if scaling is None else scaling
            out = kernels().decode_attention(grouped, key, value, attention_mask[:, 0, 0], scale)
        else:
            out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
        out = out.reshape(rows, heads, 1, -1)
    return out.transpose(1, 2).contiguous(), None


@contextmanager
def _fast_layers(model: Any) -> Iterator[None]:
    """Use our attention for a while, and one kernel where a model takes six or ten."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        with fused_norms(model), fused_rotary(model):
            yield
    finally:
        config._attn_implementation = before


def _columns(width: int, max_tokens: int) -> int:
    """Columns of a row, a multiple of 16."""
    return 16 * -(-(width + max_tokens) // 16)


def _round_up_rows(count: int) -> int:
    """Round up to a power of two, or of four where rows are few: there an extra row costs less than another graph."""
    bits = (count - 1).bit_length()
    return 1 << (bits if count > FEW_ROWS else 2 * -(-bits // 2))


def _round_up(count: int) -> int:
    """Round up to a power of two, or to one and a half times the power before it."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def _bytes_per_token(model: Any) -> int:
    """Bytes that all layers keep of a token."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * int(config.num_hidden_layers * heads * size) * int(next(model.parameters()).element_size())


def _power_of_two_below(count: int) -> int:
    """The largest power of two that is not above `count`, at least 1."""
    return 1 << max(0, count.bit_length() - 1)
