"""Form: a setting as a few plain lines, and sampling that keeps a language model to them.

    family: sums
    digits: 3
    request: ```
    What is the weather in Rome tomorrow?
    ```

One line a knob. Where a knob has a list of values, the model chooses among them, token by token, by its own
probabilities. Text is free up to its closing fence, or held to what its world allows next (`Setting.follows`). So every
world's knobs can be written by any model, and a setting is never malformed. What is left to refuse is what texts say,
and rules across knobs. No grammar library is needed: a form is a chain of choices, and `Writer` walks it with any
tokenizer. Small models write lines better than JSON.

Most tokens of a form are certain: names of knobs, the rest of a value once it is clear which. `write` feeds the model
one token of every row at a step. Only rows whose certain tokens are all fed look at the logits and draw.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from curricle.llm.generate.decoding import NextLogits
from curricle.llm.generate.sampling import Sampler
from curricle.records import Knob, Value
from curricle.setting import Span
from curricle.text.unsafe import find_unsafe

FENCE = "```"
MAX_CACHED = 100_000
"""Pieces of text whose tokens are cached."""
Choice = tuple[Value, list[int]]
"""A value, and the tokens that say it."""
Rule = tuple[Span | None, bool]
"""What a text is held to: a span, and whether it begins; or no span, and whether the reply may end in it."""
Follows = Callable[[str, str], Sequence[str] | Span | None]
"""What may come next in a text knob; see `Setting.follows`."""


def _anything(name: str, written: str) -> None:
    """Allow any text."""


class Form:
    """The lines of one world's knobs in one model's tokens."""

    def __init__(
        self,
        knobs: Sequence[Knob],
        tokenizer: Any,
        ends: Sequence[int],
        optional: bool = False,
        follows: Follows = _anything,
    ) -> None:
        """With `optional`, text that is empty in the original world may stay empty."""
        self.knobs = tuple(knobs)
        self.tokenizer = tokenizer
        self.ends = list(ends)
        self.optional = optional
        self._follows = follows
        self._banned = dict[Rule, frozenset[int]]()
        self._tokens = dict[str, list[int]]()
        self.names = {k.name for k in knobs}
        self.vocabulary = frozenset(int(i) for i in tokenizer.get_vocab().values())
        self.special = sorted({int(i) for i in tokenizer.all_special_ids} | set(ends))
        self.special_texts = [str(text) for text in tokenizer.all_special_tokens]
        self.choices = {k.name: self._choices(k) for k in knobs if k.kind != "text"}

    def write(self, values: Mapping[str, Value]) -> str:
        """Return a setting in lines."""
        lines = ""
        for k in self.knobs:
            value = values[k.name]
            lines += _text_lines(k, str(value)) if k.kind == "text" else _line(k, value)
        return lines

    def tokens(self, values: Mapping[str, Value]) -> list[int]:
        """Return a setting as the reply that would have said it, with its end."""
        parts = list[str]()
        for k in self.knobs:
            if k.kind != "text":
                parts.append(_line(k, values[k.name]))
                continue
            pieces = self._pieces(k, str(values[k.name]))
            if pieces is None:
                parts.append(_text_lines(k, str(values[k.name])))
            else:
                parts += [f"{k.name}: {FENCE}\n", *pieces, f"{FENCE}\n"]
        return [*(token for part in parts for token in self.encode(part)), self.ends[0]]

    def _pieces(self, k: Knob, text: str) -> list[str] | None:
        """Cut a text where its writer would have to choose; None if it is free, or breaks its rules."""
        written = ""
        rest = f"{text}\n" if text else ""
        pieces = list[str]()
        while True:
            allowed = self.follows(k, written)
            if allowed is None:
                return None
            if not rest:
                return pieces
            piece = _span_of(rest, allowed) if isinstance(allowed, Span) else _piece_of(rest, allowed)
            if not piece:
                return None
            pieces.append(piece)
            written = written + piece
            rest = rest[len(piece) :]

    def follows(self, k: Knob, written: str) -> Sequence[str] | Span | None:
        """Return what may come next in a text."""
        allowed = self._follows(k.name, written)
        if allowed is None or isinstance(allowed, Span):
            return allowed
        may_be_empty = not written and self.optional and not k.default
        return [*allowed, ""] if may_be_empty else allowed

    def banned(self, rule: Rule) -> frozenset[int]:
        """Return the tokens that may not come next in a text.

        In free text these are special tokens, but for the end token where the text may end the reply. In a span also
        those that go on after its end or hold a character that it may not, and at its start, where it must say
        something, those that are blank.
        """
        span, flag = rule
        if rule in self._banned:
            return self._banned[rule]
        banned = set(self.special)
        if span is None:
            banned -= set(self.ends) if flag else set()
        else:
            ids = sorted(self.vocabulary)
            texts = self.tokenizer.batch_decode([[i] for i in ids])
            must_say = flag and not span.blank
            banned |= {i for i, text in zip(ids, texts, strict=True) if _breaks(text, span, must_say)}
        self._banned[rule] = frozenset(banned)
        return self._banned[rule]

    def longest(self, per_text: int) -> int:
        """Return the most tokens that a reply may take."""
        texts = [len(self.encode(f"{k.name}: {FENCE}\n")) + per_text for k in self.knobs if k.kind == "text"]
        return sum(texts) + sum(max(len(tokens) for _, tokens in choices) for choices in self.choices.values())

    def choice_mask(self, reply: Sequence[int]) -> list[int]:
        """Return 1 for the tokens of a reply that the model chose, 0 for those that the form left no choice about.

        Only the former are learnt. The others are written whatever the model's probabilities are, and would take up
        most of the divergence that the model may have from the initial one.
        """
        writer = Writer(self, len(reply))
        mask = list[int]()
        for token in reply:
            allowed = [] if writer.done else writer.allowed()
            mask.append(int(allowed is None or len(allowed) > 1))
            writer.add(token)
        return mask

    def encode(self, text: str) -> list[int]:
        """Return text as tokens; special tokens of the chat format that are written out in it stay plain text."""
        if text not in self._tokens:
            if len(self._tokens) > MAX_CACHED:  # words of requests, which never come again
                self._tokens.clear()
            ids = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            self._tokens[text] = [int(i) for i in ids]
        return self._tokens[text]

    def _choices(self, k: Knob) -> list[Choice]:
        """Return the values of a knob, the default first, each with the tokens of its line."""
        others = [value for value in k.levels() if value != k.default]
        return [(_written_value(k, value), self.encode(_line(k, value))) for value in [k.default, *others]]


class Writer:
    """Where one reply stands in its form, and the values it has written so far."""

    def __init__(self, form: Form, per_text: int) -> None:
        self.form = form
        self.per_text = per_text
        self.values = dict[str, Value]()
        self.fault = ""
        self._knobs_left = list(form.knobs)
        self._begin_knob()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to write, or no use in going on."""
        return bool(self.fault) or not self._knobs_left

    def allowed(self) -> list[int] | None:
        """Return the tokens of which one must come next; None: all but those that the `rule` bans."""
        if not self._choices_left:
            return None
        return sorted({tokens[self._place] for _, tokens in self._choices_left})

    @property
    def rule(self) -> Rule:
        """What the text that is being written is held to."""
        if self._span:
            return (self._span, not self._text_tokens)
        return (None, len(self._knobs_left) == 1)

    @property
    def unfinished(self) -> str:
        """The text that was being written when it ended, for the record."""
        return self._text + str(self.form.tokenizer.decode(self._text_tokens, skip_special_tokens=False))

    def _begin_knob(self) -> None:
        """Turn to the next knob."""
        self._choices_left = list[Choice]()
        self._place = 0  # in the tokens of the choices that are left
        self._text = ""  # of a text knob, so far, without `_text_tokens`
        self._text_tokens = list[int]()  # of the piece that is being written
        self._characters = 0  # in these tokens, rather too many than too few
        self._token_count = 0  # of a text knob
        self._in_text = False
        self._span: Span | None = None
        if self._knobs_left:
            k = self._knobs_left[0]
            opening: list[Choice] = [("", self.form.encode(f"{k.name}: {FENCE}\n"))]
            self._choices_left = list(self.form.choices.get(k.name) or opening)

    def _begin_piece(self) -> None:
        """Turn to the next piece of a text."""
        self._place = 0
        self._text_tokens = []
        self._characters = 0
        self._span = None
        self._in_text = True
        allowed = self.form.follows(self._knobs_left[0], self._text)
        if isinstance(allowed, Span):
            self._span = allowed
        elif allowed is not None:
            self._choices_left = [(piece, self.form.encode(piece or f"{FENCE}\n")) for piece in allowed]

    def add(self, token: int) -> None:
        """Take in the next token."""
        if self.done:
            return
        self._token_count += self._in_text
        if self._choices_left:
            self._add_to_choice(token)
        elif self._span:
            self._add_to_span(token, self._span)
        else:
            self._add_to_free_text(token)
        if not self.done and (self._token_count >= self.per_text or self._is_too_long()):
            self.fault = "endless"

    def _is_too_long(self) -> bool:
        """Whether a text is already longer than its knob allows; its closing fence may be half-written."""
        most = (self._knobs_left[0].high or 0) + len(FENCE) + 2  # a token may be half a character
        if not self._in_text or len(self._text) + self._characters <= most:
            return False
        return len(self.unfinished.strip()) > most

    def _add_to_choice(self, token: int) -> None:
        self._choices_left = [(v, tokens) for v, tokens in self._choices_left if tokens[self._place] == token]
        self._place += 1
        if not self._choices_left:
            self.fault = "malformed"  # only who ignores `allowed` gets here
            return
        value, tokens = self._choices_left[0]
        if len(tokens) > self._place:
            return
        self._choices_left = []
        if self._knobs_left[0].kind != "text":
            self._end_knob(value)
        elif self._in_text and not value:  # the empty piece ends a text
            self._end_knob(self._text.strip())
        else:
            self._text += str(value)
            self._begin_piece()

    def _add_to_span(self, token: int, span: Span) -> None:
        banned = token in self.form.banned(self.rule)
        text = self._append(token)
        if banned:
            self.fault = "malformed"
        elif text.endswith(span.until):
            self._text += text
            self._begin_piece()

    def _add_to_free_text(self, token: int) -> None:
        self._append(token)
        ends = self.form.ends
        tail = self.form.tokenizer.decode(self._text_tokens[-8:], skip_special_tokens=False)
        if token in ends or f"\n{FENCE}" in f"\n{tail}" or FENCE + "\n" in tail:
            tokens = [t for t in self._text_tokens if t not in ends]
            text = self.form.tokenizer.decode(tokens, skip_special_tokens=False)
            self._end_knob(text.partition(FENCE)[0].strip())

    def _append(self, token: int) -> str:
        """Add a token to the piece that is being written; returns its text."""
        decode = self.form.tokenizer.decode
        self._text_tokens.append(token)
        self._characters += len(decode([token], skip_special_tokens=False))
        if self._span is None:
            return ""
        return str(decode(self._text_tokens, skip_special_tokens=False))

    def _end_knob(self, value: Value) -> None:
        """One knob is written."""
        k = self._knobs_left.pop(0)
        if k.kind == "text":
            self.fault = self._text_fault(str(value), k)
        self.values[k.name] = value
        self._begin_knob()

    def _text_fault(self, text: str, k: Knob) -> str:
        """Why a text cannot be used, whatever its world may say."""
        if not text:
            return "" if self.form.optional and not k.default else "empty"
        if len(text) > (k.high or 0):
            return "endless"
        if find_unsafe(text) or any(special in text for special in self.form.special_texts):
            return "hostile"  # such as an attempt to speak for someone else in the chat
        return ""


# -- sampling ----------------------------------------------------------------------------------------------------------


def write(
    sampler: Sampler, form: Form, prompts: Sequence[list[int]], per_text: int, temperature: float, seed: int
) -> list[Writer]:
    """Sample one reply a prompt, by the model's own probabilities among what its form allows."""
    writers = [Writer(form, per_text) for _ in prompts]
    context = sampler.causal.context
    generator = torch.Generator(sampler.causal.device).manual_seed(seed % 2**63)
    token_sampler = _TokenSampler(form, temperature, generator)
    left = [row for row, prompt in enumerate(prompts) if len(prompt) <= context]
    while left:
        batch = [prompts[row] for row in left[: sampler.batch]]
        max_tokens = min(form.longest(per_text), context + 1 - max(map(len, batch)))
        with sampler.steps(batch, max_tokens) as (count, next_logits):
            _write_batch(next_logits, max_tokens, batch[:count], [writers[row] for row in left[:count]], token_sampler)
        left = left[count:]
    for writer in writers:
        writer.fault = writer.fault if writer.done else "too_long"
    return writers


def _write_batch(
    next_logits: NextLogits,
    max_tokens: int,
    prompts: Sequence[list[int]],
    writers: Sequence[Writer],
    token_sampler: "_TokenSampler",
) -> None:
    """Let rows write until all are done, or the model can take no more tokens."""
    to_feed = [[prompt[-1], *_certain_tokens(writer)] for prompt, writer in zip(prompts, writers, strict=True)]
    padding = token_sampler.form.ends[0]
    for _ in range(max_tokens):
        if all(writer.done for writer in writers):
            return
        logits = next_logits([tokens.pop(0) if tokens else padding for tokens in to_feed])
        rows = [row for row, writer in enumerate(writers) if not to_feed[row] and not writer.done]
        for row, token in zip(rows, token_sampler.sample(logits, rows, writers), strict=True):
            writers[row].add(token)
            to_feed[row] = [token, *_certain_tokens(writers[row])]


def _certain_tokens(writer: Writer) -> list[int]:
    """Write the tokens without an alternative, up to the next choice; returns them."""
    certain = list[int]()
    while not writer.done:
        allowed = writer.allowed()
        if allowed is None or len(allowed) != 1:
            break
        writer.add(allowed[0])
        certain += allowed
    return certain


class _TokenSampler:
    """Samples tokens among those that may come next."""

    def __init__(self, form: Form, temperature: float, generator: torch.Generator) -> None:
        self.form = form
        self.temperature = temperature
        self.generator = generator
        self.masks = dict[Rule, Tensor]()

    def sample(self, logits: Tensor, rows: Sequence[int], writers: Sequence[Writer]) -> list[int]:
        """Return a token for each of some rows."""
        if not rows:
            return []
        logits = logits[torch.tensor(rows, device=logits.device)] / self.temperature
        masked = torch.full_like(logits, -torch.inf)
        choices = list[tuple[int, int]]()  # (line of `logits`, token)
        by_rule = dict[Rule, list[int]]()
        for line, row in enumerate(rows):
            allowed = writers[row].allowed()
            if allowed is None:
                by_rule.setdefault(writers[row].rule, []).append(line)
            else:
                choices += [(line, token) for token in allowed]
        if choices:
            lines, tokens = torch.tensor(choices, device=logits.device).T
            masked[lines, tokens] = logits[lines, tokens]
        for rule, of_rule in by_rule.items():
            lines = torch.tensor(of_rule, device=logits.device)
            masked[lines] = logits[lines].masked_fill(self.banned(rule, logits), -torch.inf)
        drawn: list[int] = torch.multinomial(masked.softmax(-1), 1, generator=self.generator).squeeze(1).tolist()
        return drawn

    def banned(self, rule: Rule, logits: Tensor) -> Tensor:
        """Return what a rule bans as a mask; a model may have more logits than its tokenizer has tokens."""
        if rule not in self.masks:
            mask = torch.ones(logits.shape[1], dtype=torch.bool)
            mask[sorted(self.form.vocabulary - self.form.banned(rule))] = False
            self.masks[rule] = mask.to(logits.device)
        return self.masks[rule]


# -- lines and spans ---------------------------------------------------------------------------------------------------


def _line(k: Knob, value: Value) -> str:
    return f"{k.name}: {_value_text(k, value)}\n"


def _text_lines(k: Knob, text: str) -> str:
    return f"{k.name}: {FENCE}\n{text}\n{FENCE}\n"


def _value_text(k: Knob, value: Value) -> str:
    if k.kind == "bool":
        return "yes" if value else "no"
    return f"{value:.4g}" if k.kind == "float" else str(value)


def _written_value(k: Knob, value: Value) -> Value:
    """Return the value that a line says: numbers are rounded in it, inside their bounds."""
    if k.kind != "float" or value in (k.low, k.high):
        return value
    return min(max(float(_value_text(k, value)), k.low or 0.0), k.high or 0.0)


def _span_of(text: str, span: Span) -> str:
    """Return the beginning of a text that fills a span, with its end; empty if it breaks the span's rule."""
    head, end, _ = text.partition(span.until)
    return head + end if end and not set(head) & set(span.never) else ""


def _piece_of(text: str, pieces: Sequence[str]) -> str:
    """Return the piece that a text begins with; empty if there is none."""
    for piece in pieces:
        if piece and text.startswith(piece):
            return piece
    return ""


def _breaks(text: str, span: Span, must_say: bool) -> bool:
    """Whether a token's text may not come next in a span, which `must_say` something at its start."""
    head = text.removesuffix(span.until)
    return not text or span.until in head or bool(set(head) & set(span.never)) or (must_say and not head.strip())
