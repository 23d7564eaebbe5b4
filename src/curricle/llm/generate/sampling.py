"""Sampling: many replies at once, as fast as the hardware allows.

    plain        batched `generate` with a growing cache; for models that look at less than all that came before
    static       prompts that rows share are read once; on a GPU fixed shapes, each step a CUDA graph (`decoding.py`)
    continuous   transformers' continuous batching: finished rows make room for waiting ones; for lengths that differ

On one GPU a copy of the model in bfloat16 speaks, with the adapter merged into it; `refresh` copies the trained weights
over. The copy's addresses never change, so what was captured stays valid. Of several ranks that hold a part of the
model each, every one speaks with such a copy of the whole, and all `refresh` together. Replies are drawn from the
model's own odds at `temperature`, 0 being greedy. A call's seed decides all its draws.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from curricle.errors import ModelError, explained
from curricle.llm.extras import needed
from curricle.llm.generate.decoding import Decoder, Tell, suits
from curricle.llm.models.attention import unmended
from curricle.llm.models.model import CausalModel
from curricle.llm.models.sharding import WRAPPED, named, whole

Kind = Literal["auto", "plain", "static", "continuous"]


@dataclass(frozen=True)
class Reply:
    """The tokens of one reply, the one that ended it included, and whether it ended by itself."""

    ids: list[int]
    ended: bool


class Sampler:
    """Draws replies from a player's model as it is now."""

    def __init__(self, causal: CausalModel, kind: Kind = "auto", batch: int = 64) -> None:
        self.causal = causal
        self.batch = batch
        on_gpu = causal.device.type == "cuda"
        alone = on_gpu and not causal.options.spread_over_gpus
        fits = suits(causal.model) and (alone or not on_gpu)
        self.kind = kind
        if kind == "auto":
            self.kind = "static" if fits else "plain"
        if self.kind == "static" and not suits(causal.model):
            raise ModelError(f"sampler = 'static' does not know the attention of {causal.options.model!r}; use 'plain'")
        self.speaker: Any = merged(causal) if alone or causal.sharded else None
        self.decoder: Decoder | None = None
        self.began = False

    def refresh(self, *, began: bool = False) -> None:
        """Take over what was learnt since the last time, or what the model began as; on a CPU that itself speaks."""
        self.began = began
        if self.speaker is not None:
            with self._chosen() as model:
                _copy_over(model, self.speaker)

    def _chosen(self) -> AbstractContextManager[Any]:
        """The model whose odds count: as it is, or as it began."""
        return self.causal.origin() if self.began else nullcontext(self.causal.model)

    def sample(self, prompts: Sequence[list[int]], *, most: int, temperature: float, seed: int) -> list[Reply]:
        """One reply a prompt, of at most `most` tokens."""
        devices = [self.causal.device] if self.causal.device.type == "cuda" else []
        told = explained(self.causal.who, "lower its sample_batch, or the tokens of a reply", ModelError)
        with told, torch.random.fork_rng(devices=devices), torch.no_grad(), self.speaking() as model:
            torch.manual_seed(seed)
            if self.kind == "continuous":
                return self._continuous(model, prompts, most, temperature)
            if self.kind == "static":
                return [self._reply(ids) for ids in self._decoding(model).replies(prompts, most, temperature)]
            parts = [prompts[start : start + self.batch] for start in range(0, len(prompts), self.batch)]
            return [reply for part in parts for reply in self._batch(model, part, most, temperature)]

    @contextmanager
    def told(self, prompts: Sequence[list[int]], most: int) -> Iterator[tuple[int, Tell]]:
        """For who chooses every token: how many of the prompts go at a time, and what takes `most` tokens of each.

        What it takes first is the last token of each prompt.
        """
        told = explained(self.causal.who, "lower its sample_batch, or the tokens of a text", ModelError)
        with told, torch.no_grad(), self.speaking() as model:
            if self.kind == "static":
                with self._decoding(model).told(prompts, most) as found:
                    yield found
            else:
                part = prompts[: self.batch]
                yield len(part), _growing(model, part, self.causal.tokenizer.pad_token_id)

    def _decoding(self, model: Any) -> Decoder:
        if self.decoder is None or self.decoder.model is not model:
            self.decoder = Decoder(model, self.causal.ends, self.causal.tokenizer.pad_token_id, self.batch)
        return self.decoder

    @contextmanager
    def speaking(self) -> Iterator[Any]:
        """The model that speaks, in the right mode."""
        with self._chosen() if self.speaker is None else nullcontext(self.speaker) as model:
            was_training = model.training
            model.eval()
            try:
                yield model
            finally:
                model.train(was_training)

    def _batch(self, model: Any, prompts: Sequence[list[int]], most: int, temperature: float) -> list[Reply]:
        longest = max(map(len, prompts))
        pad = self.causal.tokenizer.pad_token_id
        ids = torch.full((len(prompts), longest), pad)
        seen = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            seen[row, longest - len(prompt) :] = 1
        device = self.causal.device
        out = model.generate(
            input_ids=ids.to(device), attention_mask=seen.to(device), **self._manner(most, temperature)
        )
        return [self._reply(row[longest:].tolist()) for row in out.cpu()]

    def _continuous(self, model: Any, prompts: Sequence[list[int]], most: int, temperature: float) -> list[Reply]:
        GenerationConfig = needed("transformers").GenerationConfig

        manner = GenerationConfig(
            eos_token_id=self.causal.ends,
            pad_token_id=self.causal.tokenizer.pad_token_id,
            **self._manner(most, temperature),
        )
        room = _room(prompts, most, self.batch)
        with unmended(model):  # it knows attention by name, and pads nothing
            done = model.generate_batch(list(prompts), generation_config=manner, progress_bar=False, **room)
        by_number = sorted(done.items(), key=lambda pair: int("".join(c for c in pair[0] if c.isdigit()) or 0))
        return [self._reply(list(output.generated_tokens)) for _, output in by_number]

    def _manner(self, most: int, temperature: float) -> dict[str, Any]:
        if not temperature:
            return {"do_sample": False, "max_new_tokens": most}
        return {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0, "max_new_tokens": most}

    def _reply(self, ids: list[int]) -> Reply:
        """Cut at the first end; what follows it is padding."""
        for place, token in enumerate(ids):
            if token in self.causal.ends:
                return Reply(ids[: place + 1], True)
        return Reply(ids, False)


def _growing(model: Any, prompts: Sequence[list[int]], pad: int) -> Tell:
    """Any model's own attention, with prompts padded at the left and a cache that grows."""
    device = next(model.parameters()).device
    cache = needed("transformers").DynamicCache()
    longest = max(map(len, prompts)) - 1
    gaps = [longest + 1 - len(prompt) for prompt in prompts]
    ids = torch.tensor([[pad] * gap + prompt[:-1] for gap, prompt in zip(gaps, prompts, strict=True)], device=device)
    seen = torch.tensor([[0] * gap + [1] * (longest - gap) for gap in gaps], dtype=torch.long, device=device)

    def passed(ids: torch.Tensor) -> torch.Tensor:
        places = (seen.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        manner = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        scores: torch.Tensor = model(input_ids=ids, attention_mask=seen, position_ids=places, **manner).logits[:, -1]
        return scores.float()

    def tell(tokens: Sequence[int]) -> torch.Tensor:
        nonlocal seen
        seen = torch.cat([seen, seen.new_ones(len(tokens), 1)], 1)
        return passed(torch.tensor(tokens, device=device)[:, None])

    if longest:
        passed(ids)
    return tell


def _room(prompts: Sequence[list[int]], most: int, batch: int) -> dict[str, Any]:
    """Memory for as many rows at a time as are asked for; left to itself it would take nearly all there is."""
    Config = getattr(needed("transformers"), "ContinuousBatchingConfig", None)
    if Config is None or not prompts:
        return {}
    rows = min(len(prompts), batch)
    longest = max(map(len, prompts))
    usual = Config()
    page = usual.page_size if hasattr(usual, "page_size") else usual.block_size  # its name until transformers 5.17
    blocks = rows * (-(-(longest + most) // page) + 1)
    tokens = max(longest, min(8192, rows * longest))
    return {"continuous_batching_config": Config(num_blocks=blocks, max_batch_tokens=tokens)}


def merged(causal: CausalModel) -> Any:
    """A model of the same shape for speaking only, in bfloat16, without an adapter.

    It is built from the config: a copy would speak through what TRL puts around `forward`, which knows the original.
    """
    base = causal.model.get_base_model() if causal.options.lora else causal.model
    with torch.device(causal.device):
        if causal.sharded:
            speaker = needed("transformers").AutoModelForCausalLM.from_config(base.config, dtype=torch.float32)
        else:
            speaker = type(base)(copy.deepcopy(base.config))
    speaker.generation_config = copy.deepcopy(base.generation_config)
    speaker = speaker.to(causal.device).requires_grad_(False).eval()
    for p in speaker.parameters() if causal.device.type == "cuda" else ():  # buffers stay: positions would be wrong
        p.data = p.data.to(torch.bfloat16)
    _copy_over(causal.model, speaker)
    return speaker


@torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
def _copy_over(model: Any, speaker: Any) -> None:
    """Copy weights in place, an adapter's share added."""
    sources = dict(named(model, twice=True))
    layers = {name.replace(WRAPPED, ""): layer for name, layer in model.named_modules()}
    prefix = "base_model.model." if hasattr(model, "peft_config") else ""
    for name, target in speaker.named_parameters():
        layer, _, leaf = (prefix + name).rpartition(".")
        base = sources.get(f"{layer}.base_layer.{leaf}")
        weight = whole(sources[prefix + name] if base is None else base)
        if base is not None and leaf == "weight" and not layers[layer].disable_adapters:
            weight = weight + whole(layers[layer].get_delta_weight(model.active_adapter))
        target.copy_(weight)
