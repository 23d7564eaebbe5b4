"""Sampling: draws many replies at once.

    plain        batched `generate` with a growing cache; for models whose layers do not see all earlier tokens
    static       shared prompts are read once; on a GPU fixed shapes, each step a CUDA graph (`decoding.py`)
    continuous   transformers' continuous batching: finished rows make room for waiting ones; for lengths that differ

On one GPU a copy of the model in bfloat16 draws, with the adapter merged into it. `refresh` copies the trained weights
over; the copy's addresses never change, so graphs stay valid. Ranks that hold a part of the model each have such a copy
of the whole, and all `refresh` together. Replies are drawn from the model's own probabilities at `temperature`; 0 is
greedy. A call's seed decides all its draws.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from curricle.errors import ModelError, explained, needed
from curricle.llm.generate.decoding import Decoder, NextLogits, supports_decoding
from curricle.llm.models.layers import original_attention
from curricle.llm.models.model import CHECKPOINT_WRAPPER, CausalModel, named_parameters, whole

Kind = Literal["auto", "plain", "static", "continuous"]


@dataclass(frozen=True)
class Reply:
    """The tokens of one reply, the one that ended it included, and whether it ended by itself."""

    ids: list[int]
    ended: bool


class Sampler:
    """Draws replies from a player's model as it is at the last `refresh`; on a CPU, as it is now."""

    def __init__(self, causal: CausalModel, kind: Kind = "auto", batch: int = 64) -> None:
        self.causal = causal
        self.batch = batch
        on_gpu = causal.device.type == "cuda"
        on_one_gpu = on_gpu and not causal.options.spread_over_gpus
        supported = supports_decoding(causal.model)
        self.kind = kind
        if kind == "auto":
            self.kind = "static" if supported and (on_one_gpu or not on_gpu) else "plain"
        if self.kind == "static" and not supported:
            raise ModelError(f"sampler = 'static' does not know the attention of {causal.options.model!r}; use 'plain'")
        self.copy: Any = inference_copy(causal) if on_one_gpu or causal.sharded else None
        self.decoder: Decoder | None = None
        self.use_initial = False

    def refresh(self, *, initial: bool = False) -> None:
        """Draw from the model as it is now, or from the initial one."""
        self.use_initial = initial
        if self.copy is not None:
            with self._source() as model:
                copy_weights(model, self.copy)

    def _source(self) -> AbstractContextManager[Any]:
        """The model to draw from: as it is, or the initial one."""
        return self.causal.initial() if self.use_initial else nullcontext(self.causal.model)

    def sample(self, prompts: Sequence[list[int]], *, max_tokens: int, temperature: float, seed: int) -> list[Reply]:
        """Draw one reply a prompt."""
        devices = [self.causal.device] if self.causal.device.type == "cuda" else []
        advice = "lower its sample_batch, or the tokens of a reply"
        with (
            explained(self.causal.player, advice, ModelError),
            torch.random.fork_rng(devices=devices),
            torch.no_grad(),
            self.inference_model() as model,
        ):
            torch.manual_seed(seed)
            if self.kind == "continuous":
                return self._continuous(model, prompts, max_tokens, temperature)
            if self.kind == "static":
                drawn = self._decoder(model).replies(prompts, max_tokens, temperature)
                return [self._reply(ids) for ids in drawn]
            replies = list[Reply]()
            for start in range(0, len(prompts), self.batch):
                replies += self._generate(model, prompts[start : start + self.batch], max_tokens, temperature)
            return replies

    @contextmanager
    def steps(self, prompts: Sequence[list[int]], max_tokens: int) -> Iterator[tuple[int, NextLogits]]:
        """Let the caller choose every token: yields how many of the prompts go at a time, and what takes their tokens.

        Its first tokens are the last ones of the prompts; it takes `max_tokens` of each row.
        """
        advice = "lower its sample_batch, or the tokens of a text"
        with explained(self.causal.player, advice, ModelError), torch.no_grad(), self.inference_model() as model:
            if self.kind == "static":
                with self._decoder(model).steps(prompts, max_tokens) as steps:
                    yield steps
            else:
                batch = prompts[: self.batch]
                yield len(batch), _steps_with_growing_cache(model, batch, self.causal.tokenizer.pad_token_id)

    def _decoder(self, model: Any) -> Decoder:
        if self.decoder is None or self.decoder.model is not model:
            self.decoder = Decoder(model, self.causal.ends, self.causal.tokenizer.pad_token_id, self.batch)
        return self.decoder

    @contextmanager
    def inference_model(self) -> Iterator[Any]:
        """The model that draws, in evaluation mode for as long as the context lasts."""
        with self._source() if self.copy is None else nullcontext(self.copy) as model:
            was_training = model.training
            model.eval()
            try:
                yield model
            finally:
                model.train(was_training)

    def _generate(self, model: Any, prompts: Sequence[list[int]], max_tokens: int, temperature: float) -> list[Reply]:
        longest = max(map(len, prompts))
        pad = self.causal.tokenizer.pad_token_id
        ids = torch.full((len(prompts), longest), pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        device = self.causal.device
        settings = _generation_settings(max_tokens, temperature)
        out = model.generate(input_ids=ids.to(device), attention_mask=mask.to(device), **settings)
        return [self._reply(row[longest:].tolist()) for row in out.cpu()]

    def _continuous(self, model: Any, prompts: Sequence[list[int]], max_tokens: int, temperature: float) -> list[Reply]:
        GenerationConfig = needed("transformers").GenerationConfig

        config = GenerationConfig(
            eos_token_id=self.causal.ends,
            pad_token_id=self.causal.tokenizer.pad_token_id,
            **_generation_settings(max_tokens, temperature),
        )
        memory = _continuous_memory(prompts, max_tokens, self.batch)
        with original_attention(model):
            outputs = model.generate_batch(list(prompts), generation_config=config, progress_bar=False, **memory)
        by_number = sorted(outputs.items(), key=lambda pair: _number_in(pair[0]))
        return [self._reply(list(output.generated_tokens)) for _, output in by_number]

    def _reply(self, ids: list[int]) -> Reply:
        """Cut at the first end; what follows it is padding."""
        for place, token in enumerate(ids):
            if token in self.causal.ends:
                return Reply(ids[: place + 1], True)
        return Reply(ids, False)


def _generation_settings(max_tokens: int, temperature: float) -> dict[str, Any]:
    if not temperature:
        return {"do_sample": False, "max_new_tokens": max_tokens}
    return {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0, "max_new_tokens": max_tokens}


def _number_in(name: str) -> int:
    """Return the number in the name of a request, which transformers counts up."""
    return int("".join(c for c in name if c.isdigit()) or 0)


def _steps_with_growing_cache(model: Any, prompts: Sequence[list[int]], pad: int) -> NextLogits:
    """Any model's own attention, with prompts padded at the left and a cache that grows."""
    device = next(model.parameters()).device
    cache = needed("transformers").DynamicCache()
    longest = max(map(len, prompts)) - 1
    gaps = [longest + 1 - len(prompt) for prompt in prompts]
    ids = torch.tensor([[pad] * gap + prompt[:-1] for gap, prompt in zip(gaps, prompts, strict=True)], device=device)
    mask = torch.tensor([[0] * gap + [1] * (longest - gap) for gap in gaps], dtype=torch.long, device=device)

    def forward(ids: torch.Tensor) -> torch.Tensor:
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = out.logits[:, -1]
        return logits.float()

    def next_logits(tokens: Sequence[int]) -> torch.Tensor:
        nonlocal mask
        mask = torch.cat([mask, mask.new_ones(len(tokens), 1)], 1)
        return forward(torch.tensor(tokens, device=device)[:, None])

    if longest:
        forward(ids)
    return next_logits


def _continuous_memory(prompts: Sequence[list[int]], max_tokens: int, batch: int) -> dict[str, Any]:
    """Ask for memory for a batch of rows at a time; by default continuous batching takes nearly all there is."""
    Config = getattr(needed("transformers"), "ContinuousBatchingConfig", None)
    if Config is None or not prompts:
        return {}
    rows = min(len(prompts), batch)
    longest = max(map(len, prompts))
    defaults = Config()
    page = defaults.page_size if hasattr(defaults, "page_size") else defaults.block_size  # until transformers 5.17
    blocks = rows * (-(-(longest + max_tokens) // page) + 1)
    tokens = max(longest, min(8192, rows * longest))
    return {"continuous_batching_config": Config(num_blocks=blocks, max_batch_tokens=tokens)}


def inference_copy(causal: CausalModel) -> Any:
    """Return a copy for inference only, without an adapter, in bfloat16 on a GPU.

    It is built from the config: a deep copy would call what TRL puts around `forward`, which knows the original.
    """
    base = causal.model.get_base_model() if causal.options.lora else causal.model
    with torch.device(causal.device):
        if causal.sharded:
            made = needed("transformers").AutoModelForCausalLM.from_config(base.config, dtype=torch.float32)
        else:
            made = type(base)(copy.deepcopy(base.config))
    made.generation_config = copy.deepcopy(base.generation_config)
    made = made.to(causal.device).requires_grad_(False).eval()
    if causal.device.type == "cuda":
        for p in made.parameters():  # not the buffers: positions would be wrong
            p.data = p.data.to(torch.bfloat16)
    copy_weights(causal.model, made)
    return made


@torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
def copy_weights(model: Any, target: Any) -> None:
    """Copy weights in place, with the adapter's share added."""
    sources = dict(named_parameters(model, with_duplicates=True))
    layers = {name.replace(CHECKPOINT_WRAPPER, ""): layer for name, layer in model.named_modules()}
    prefix = "base_model.model." if hasattr(model, "peft_config") else ""
    for name, p in target.named_parameters():
        layer, _, leaf = (prefix + name).rpartition(".")
        base = sources.get(f"{layer}.base_layer.{leaf}")
        weight = whole(sources[prefix + name] if base is None else base)
        if base is not None and leaf == "weight" and not layers[layer].disable_adapters:
            weight = weight + whole(layers[layer].get_delta_weight(model.active_adapter))
        p.copy_(weight)
