"""Writing: many replies at once, each held to its form, choice by choice.

Most tokens of a form are certain: names of knobs, the rest of a value once it is clear which. They are fed to the model
in one go, so a reply costs about one pass a choice, not one a token. Rows go at their own pace: each pass feeds every
row what it has said since the last, padded at the left.
"""

from collections.abc import Sequence
from typing import Any

import torch

from curricle.designers.language.form import Form, Writer
from curricle.llm.sampling import Sampler


def write(
    sampler: Sampler, form: Form, prompts: Sequence[list[int]], per_text: int, temperature: float, seed: int
) -> list[Writer]:
    """One reply a prompt, drawn by the model's own odds among what its form allows."""
    writers = [Writer(form, per_text) for _ in prompts]
    luck = torch.Generator(sampler.causal.device).manual_seed(seed % 2**63)
    for start in range(0, len(prompts), sampler.batch):
        rows = slice(start, start + sampler.batch)
        with torch.no_grad(), sampler.speaking() as model:
            _batch(model, sampler.causal.context, form, prompts[rows], writers[rows], temperature, luck)
    return writers


def _batch(
    model: Any,
    context: int,
    form: Form,
    prompts: Sequence[list[int]],
    writers: Sequence[Writer],
    temperature: float,
    luck: torch.Generator,
) -> None:
    from transformers import DynamicCache

    device, cache = luck.device, DynamicCache()
    news = [list(prompt) + _certain(writer) for prompt, writer in zip(prompts, writers, strict=True)]
    seen = torch.zeros((len(news), 0), dtype=torch.long, device=device)
    while not all(writer.done for writer in writers):
        width = max(map(len, news))
        if seen.shape[1] + width > context:
            for writer in writers:
                writer.fault = writer.fault if writer.done else "too_long"
            return
        ids = torch.tensor([[form.ends[0]] * (width - len(new)) + new for new in news], device=device)
        fresh = torch.tensor([[0] * (width - len(new)) + [1] * len(new) for new in news], device=device)
        seen = torch.cat([seen, fresh], 1)
        places = (seen.cumsum(1) - 1).clamp(min=0)[:, -width:]
        out = model(
            input_ids=ids,
            attention_mask=seen,
            position_ids=places,
            past_key_values=cache,
            logits_to_keep=1,
            use_cache=True,
        )
        odds = (_masked(out.logits[:, -1].float(), writers) / temperature).softmax(-1)
        drawn = torch.multinomial(odds, 1, generator=luck).squeeze(1).tolist()
        news = []
        for writer, token in zip(writers, drawn, strict=True):
            if writer.done:
                news.append([])
                continue
            writer.hear(token)
            news.append([token, *_certain(writer)])


def _certain(writer: Writer) -> list[int]:
    """What can only come next, up to the next choice."""
    found = []
    while not writer.done and (allowed := writer.allowed()) is not None and len(allowed) == 1:
        writer.hear(allowed[0])
        found += allowed
    return found


def _masked(scores: torch.Tensor, writers: Sequence[Writer]) -> torch.Tensor:
    """What a reply may not say next has no chance."""
    masked = scores.clone()
    for row, writer in enumerate(writers):
        if writer.done:
            continue
        allowed = writer.allowed()
        if allowed is None:
            masked[row, writer.banned()] = -torch.inf
        else:
            masked[row] = -torch.inf
            masked[row, allowed] = scores[row, allowed]
    return masked
