"""Form: a setting as a few plain lines, and what holds a language model to them while it writes.

    family: sums
    digits: 3
    request: ```
    What is the weather in Rome tomorrow?
    ```

One line a knob. Where a knob has a list of values the model chooses among them, token by token, by its own odds; text
is free up to its closing fence, or held to what its world says may come next (`Setting.follows`). So every world's
knobs can be written, any model can write them, and a setting is never malformed: what is left to refuse is what texts
say, and rules across knobs. No grammar library is needed: a form is a chain of choices, and the few lines below walk it
with any tokenizer. Lines suit small models better than JSON does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from curricle.records import Knob, Value
from curricle.setting import Span
from curricle.text.unsafe import find_unsafe

FENCE = "```"
MOST_KEPT = 100_000
"""Pieces whose tokens are kept."""
Choice = tuple[Value, list[int]]
Rule = tuple[Span | None, bool]
"""What a text is held to: a span, and whether it begins; or none, and whether the reply may end in it."""
Follows = Callable[[str, str], Sequence[str] | Span | None]
"""What may come next in a text knob; see `Setting.follows`."""


def _free(name: str, said: str) -> None:
    """Whatever the model likes."""


class Form:
    """The lines of one world's knobs in one model's tokens."""

    def __init__(
        self,
        knobs: Sequence[Knob],
        tokenizer: Any,
        ends: Sequence[int],
        optional: bool = False,
        follows: Follows = _free,
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
        self.known = frozenset(int(i) for i in tokenizer.get_vocab().values())
        self.special = sorted({int(i) for i in tokenizer.all_special_ids} | set(ends))
        self.marks = [str(mark) for mark in tokenizer.all_special_tokens]
        self.choices = {k.name: self._choices(k) for k in knobs if k.kind != "text"}

    def write(self, values: Mapping[str, Value]) -> str:
        """A setting in lines."""
        return "".join(
            _text_lines(k, str(values[k.name])) if k.kind == "text" else _line(k, values[k.name]) for k in self.knobs
        )

    def tokens(self, values: Mapping[str, Value]) -> list[int]:
        """A setting as the reply that would have said it, its end included."""
        parts: list[str] = []
        for k in self.knobs:
            if k.kind != "text":
                parts.append(_line(k, values[k.name]))
            elif (pieces := self._pieces(k, str(values[k.name]))) is not None:
                parts += [f"{k.name}: {FENCE}\n", *pieces, f"{FENCE}\n"]
            else:
                parts.append(_text_lines(k, str(values[k.name])))
        return [*(token for part in parts for token in self.encode(part)), self.ends[0]]

    def _pieces(self, k: Knob, text: str) -> list[str] | None:
        """A text cut where its writer would have to choose; None for one that is free, or breaks its rules."""
        said = ""
        rest = f"{text}\n" if text else ""
        found = list[str]()
        while (what := self.follows(k, said)) is not None and rest:
            if isinstance(what, Span):
                head, sign, _ = rest.partition(what.until)
                piece = head + sign if sign and not set(head) & set(what.never) else ""
            else:
                piece = next((piece for piece in what if piece and rest.startswith(piece)), "")
            if not piece:
                return None
            found.append(piece)
            said = said + piece
            rest = rest[len(piece) :]
        return None if what is None else found

    def follows(self, k: Knob, said: str) -> Sequence[str] | Span | None:
        """What may come next in a text."""
        what = self._follows(k.name, said)
        may_be_empty = not said and self.optional and not k.default
        return [*what, ""] if may_be_empty and what is not None and not isinstance(what, Span) else what

    def banned(self, rule: Rule) -> frozenset[int]:
        """Tokens that may not come next in a text: special ones, but for the end where the last knob is free.

        In a span those too that go on after its end or hold a wrong sign; where it has to say something, it may not
        begin with nothing.
        """
        span, flag = rule
        if rule not in self._banned:
            if span is None:
                self._banned[rule] = frozenset(self.special) - (set(self.ends) if flag else set())
            else:
                ids = sorted(self.known)
                texts = zip(ids, self.tokenizer.batch_decode([[i] for i in ids]), strict=True)
                wrong = {i for i, text in texts if _overruns(text, span, flag and not span.blank)}
                self._banned[rule] = frozenset(wrong | set(self.special))
        return self._banned[rule]

    def longest(self, per_text: int) -> int:
        """Tokens that a whole reply may take."""
        texts = [len(self.encode(f"{k.name}: {FENCE}\n")) + per_text for k in self.knobs if k.kind == "text"]
        return sum(texts) + sum(max(len(tokens) for _, tokens in found) for found in self.choices.values())

    def chosen(self, reply: Sequence[int]) -> list[int]:
        """1 for the tokens of a reply that the model chose, 0 for those that the form left no choice about.

        Only the former are learnt: the others are said whatever the model's odds are, and would take up most of the way
        that it may go from what it began as.
        """
        writer = Writer(self, len(reply))
        found = list[int]()
        for token in reply:
            options = [] if writer.done else writer.allowed()
            found.append(int(options is None or len(options) > 1))
            writer.hear(token)
        return found

    def encode(self, text: str) -> list[int]:
        """Text as tokens; marks of the chat format in it stay plain text."""
        if text not in self._tokens:
            if len(self._tokens) > MOST_KEPT:  # words of requests, which never come again
                self._tokens.clear()
            found = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            self._tokens[text] = [int(i) for i in found]
        return self._tokens[text]

    def _choices(self, k: Knob) -> list[Choice]:
        levels = [v for v in k.levels() if v != k.default]
        return [(_value(k, v), self.encode(_line(k, v))) for v in [k.default, *levels]]


class Writer:
    """Where one reply stands in its form, and what it has said so far."""

    def __init__(self, form: Form, per_text: int) -> None:
        self.form = form
        self.per_text = per_text
        self.values = dict[str, Value]()
        self.fault = ""
        self._todo = list(form.knobs)
        self._begin()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to say, or no use in going on."""
        return bool(self.fault) or not self._todo

    def allowed(self) -> list[int] | None:
        """Tokens of which one must come next; None: all but those that the `rule` bans."""
        return sorted({tokens[self._at] for _, tokens in self._left}) if self._left else None

    @property
    def rule(self) -> Rule:
        """What the text is held to that is being written."""
        return (self._span, not self._text) if self._span else (None, len(self._todo) == 1)

    @property
    def unfinished(self) -> str:
        """The text that was being written when it ended, for the record."""
        return self._said + str(self.form.tokenizer.decode(self._text, skip_special_tokens=False))

    def _begin(self) -> None:
        """Turn to the next knob."""
        self._at = 0
        self._said = ""
        self._text = list[int]()
        self._signs = 0
        self._length = 0
        self._left = list[Choice]()
        self._open = False
        self._span = None
        if self._todo:
            k = self._todo[0]
            self._left = list(self.form.choices.get(k.name) or [("", self.form.encode(f"{k.name}: {FENCE}\n"))])

    _span: Span | None

    def _go_on(self) -> None:
        """Turn to the next piece of a text."""
        self._at = 0
        self._text = []
        self._signs = 0
        self._span = None
        self._open = True
        what = self.form.follows(self._todo[0], self._said)
        if isinstance(what, Span):
            self._span = what
        elif what is not None:
            self._left = [(piece, self.form.encode(piece or f"{FENCE}\n")) for piece in what]

    def hear(self, token: int) -> None:
        """Take in the next token."""
        if self.done:
            return
        self._length += self._open
        if self._left:
            self._hear_piece(token)
        else:
            self._hear_text(token)
        if not self.done and (self._length >= self.per_text or self._outgrown()):
            self.fault = "endless"

    def _outgrown(self) -> bool:
        """Whether a text is longer already than its knob takes, its closing fence allowed for."""
        most = (self._todo[0].high or 0) + len(FENCE) + 2  # or half a character
        if not self._open or len(self._said) + self._signs <= most:  # signs are too many rather than too few
            return False
        return len(self.unfinished.strip()) > most

    def _hear_piece(self, token: int) -> None:
        self._left = [(v, tokens) for v, tokens in self._left if tokens[self._at] == token]
        self._at += 1
        if not self._left:
            self.fault = "malformed"  # only who ignores `allowed` can say this
            return
        value, tokens = self._left[0]
        if len(tokens) > self._at:
            return
        self._left = []
        if self._todo[0].kind != "text":
            self._close(value)
        elif self._open and not value:
            self._close(self._said.strip())
        else:
            self._said += str(value)
            self._go_on()

    def _hear_text(self, token: int) -> None:
        decode = self.form.tokenizer.decode
        wrong = self._span is not None and token in self.form.banned(self.rule)
        self._text.append(token)
        self._signs += len(decode([token], skip_special_tokens=False))
        if self._span:
            text = decode(self._text, skip_special_tokens=False)
            if wrong:
                self.fault = "malformed"
            elif text.endswith(self._span.until):
                self._said += text
                self._go_on()
            return
        tail = decode(self._text[-8:], skip_special_tokens=False)
        if token in self.form.ends or f"\n{FENCE}" in f"\n{tail}" or FENCE + "\n" in tail:
            whole = decode([t for t in self._text if t not in self.form.ends], skip_special_tokens=False)
            self._close(whole.partition(FENCE)[0].strip())

    def _close(self, value: Value) -> None:
        """One knob is written."""
        k = self._todo.pop(0)
        if k.kind == "text":
            self.fault = self._complaint(str(value), k)
        self.values[k.name] = value
        self._begin()

    def _complaint(self, text: str, k: Knob) -> str:
        """Why a text cannot be used, whatever its world may say."""
        if not text:
            return "" if self.form.optional and not k.default else "empty"
        if len(text) > (k.high or 0):
            return "endless"
        if find_unsafe(text) or any(mark in text for mark in self.form.marks):
            return "hostile"  # an attempt to speak for someone else in the chat, among others
        return ""


def _line(k: Knob, value: Value) -> str:
    return f"{k.name}: {_said(k, value)}\n"


def _text_lines(k: Knob, text: str) -> str:
    return f"{k.name}: {FENCE}\n{text}\n{FENCE}\n"


def _said(k: Knob, value: Value) -> str:
    if k.kind == "bool":
        return "yes" if value else "no"
    return f"{value:.4g}" if k.kind == "float" else str(value)


def _value(k: Knob, value: Value) -> Value:
    """The value that a line says: numbers are rounded in it, inside their bounds."""
    if k.kind != "float" or value in (k.low, k.high):
        return value
    return min(max(float(_said(k, value)), k.low or 0.0), k.high or 0.0)


def _overruns(text: str, span: Span, begins: bool) -> bool:
    """Whether a token's text may not come next in a span."""
    head = text.removesuffix(span.until)
    return not text or span.until in head or bool(set(head) & set(span.never)) or (begins and not head.strip())
