"""Writing: many replies at once, each held to its form, choice by choice.

Most tokens of a form are certain: names of knobs, the rest of a value once it is clear which. Each step feeds the model
one token of every row; only rows that have said all that was certain look at what came out, and draw.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from curricle.designers.language.form import Form, Rule, Writer
from curricle.llm.generate.decoding import NextLogits
from curricle.llm.generate.sampling import Sampler


def write(
    sampler: Sampler, form: Form, prompts: Sequence[list[int]], per_text: int, temperature: float, seed: int
) -> list[Writer]:
    """One reply a prompt, drawn by the model's own odds among what its form allows."""
    writers = [Writer(form, per_text) for _ in prompts]
    context = sampler.causal.context
    dice = _Dice(form, temperature, torch.Generator(sampler.causal.device).manual_seed(seed % 2**63))
    left = [row for row, prompt in enumerate(prompts) if len(prompt) <= context]
    while left:
        some = [prompts[row] for row in left[: sampler.batch]]
        most = min(form.longest(per_text), context + 1 - max(map(len, some)))
        with sampler.steps(some, most) as (count, tell):
            _batch(tell, most, some[:count], [writers[row] for row in left[:count]], dice)
        left = left[count:]
    for writer in writers:
        writer.fault = writer.fault if writer.done else "too_long"
    return writers


def _batch(tell: NextLogits, most: int, prompts: Sequence[list[int]], writers: Sequence[Writer], dice: "_Dice") -> None:
    """Let rows write until all are done, or the model can take no more."""
    left = [[prompt[-1], *_certain(writer)] for prompt, writer in zip(prompts, writers, strict=True)]
    for _ in range(most):
        if all(writer.done for writer in writers):
            return
        scores = tell([tokens.pop(0) if tokens else dice.form.ends[0] for tokens in left])
        asked = [row for row, writer in enumerate(writers) if not left[row] and not writer.done]
        for row, token in zip(asked, dice.drawn(scores, asked, writers), strict=True):
            writers[row].hear(token)
            left[row] = [token, *_certain(writers[row])]


def _certain(writer: Writer) -> list[int]:
    """What can only come next, up to the next choice."""
    found = []
    while not writer.done and (allowed := writer.allowed()) is not None and len(allowed) == 1:
        writer.hear(allowed[0])
        found += allowed
    return found


class _Dice:
    """Draws among what may come next; what a reply may not say has no chance."""

    def __init__(self, form: Form, temperature: float, luck: torch.Generator) -> None:
        self.form = form
        self.temperature = temperature
        self.luck = luck
        self.bans = dict[Rule, Tensor]()

    def drawn(self, scores: Tensor, asked: Sequence[int], writers: Sequence[Writer]) -> list[int]:
        """A token for each of the rows that are asked."""
        if not asked:
            return []
        scores = scores[torch.tensor(asked, device=scores.device)] / self.temperature
        masked = torch.full_like(scores, -torch.inf)
        listed = list[tuple[int, int]]()
        ruled = dict[Rule, list[int]]()
        for at, row in enumerate(asked):
            allowed = writers[row].allowed()
            if allowed is None:
                ruled.setdefault(writers[row].rule, []).append(at)
            else:
                listed += [(at, token) for token in allowed]
        if listed:
            some, tokens = torch.tensor(listed, device=scores.device).T
            masked[some, tokens] = scores[some, tokens]
        for rule, rows in ruled.items():
            some = torch.tensor(rows, device=scores.device)
            masked[some] = scores[some].masked_fill(self._ban(rule, scores), -torch.inf)
        found: list[int] = torch.multinomial(masked.softmax(-1), 1, generator=self.luck).squeeze(1).tolist()
        return found

    def _ban(self, rule: Rule, scores: Tensor) -> Tensor:
        """All but the tokens that a rule leaves, as a mask; a model may know numbers that are no token."""
        if rule not in self.bans:
            mask = torch.ones(scores.shape[1], dtype=torch.bool)
            mask[sorted(self.form.known - self.form.banned(rule))] = False
            self.bans[rule] = mask.to(scores.device)
        return self.bans[rule]
