"""Form: a setting as a few plain lines, and what holds a language model to them while it writes.

    family: sums
    digits: 3
    request: ```
    What is the weather in Rome tomorrow?
    ```

One line a knob. Where a knob has a list of values the model chooses among them, token by token, by its own odds; text
is free up to its closing fence. So every world's knobs can be written, any model can write them, and a setting is never
malformed: what is left to refuse is text, and rules across knobs. No grammar library is needed: a form is a chain of
choices, and the few lines below walk it with any tokenizer. Lines suit small models better than JSON does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from curricle.records import Knob, Value

FENCE = "```"
Choice = tuple[Value, list[int]]


class Form:
    """The lines of one world's knobs in one model's tokens."""

    def __init__(self, knobs: Sequence[Knob], tokenizer: Any, ends: Sequence[int], optional: bool = False) -> None:
        """With `optional`, text that is empty in the original world may stay empty."""
        self.knobs, self.tokenizer, self.ends, self.optional = tuple(knobs), tokenizer, list(ends), optional
        self.names = {k.name for k in knobs}
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
        found: list[int] = []
        for k in self.knobs:
            text = _text_lines(k, str(values[k.name])) if k.kind == "text" else _line(k, values[k.name])
            found += self.encode(text)
        return [*found, self.ends[0]]

    def chosen(self, reply: Sequence[int]) -> list[int]:
        """1 for the tokens of a reply that the model chose, 0 for those that the form left no choice about.

        Only the former are learnt: the others are said whatever the model's odds are, and would take up most of the way
        that it may go from what it began as.
        """
        writer, found = Writer(self, len(reply)), list[int]()
        for token in reply:
            options = [] if writer.done else writer.allowed()
            found.append(int(options is None or len(options) > 1))
            writer.hear(token)
        return found

    def encode(self, text: str) -> list[int]:
        """Text as tokens; marks of the chat format in it stay plain text."""
        return [int(i) for i in self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]]

    def _choices(self, k: Knob) -> list[Choice]:
        levels = [v for v in k.levels() if v != k.default]
        return [(_value(k, v), self.encode(_line(k, v))) for v in [k.default, *levels]]


class Writer:
    """Where one reply stands in its form, and what it has said so far."""

    def __init__(self, form: Form, per_text: int) -> None:
        self.form, self.per_text, self.values = form, per_text, dict[str, Value]()
        self.fault = ""
        self._todo = list(form.knobs)
        self._begin()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to say, or no use in going on."""
        return bool(self.fault) or not self._todo

    def allowed(self) -> list[int] | None:
        """Tokens that may come next; None: all but special ones (the last text may also end the reply)."""
        return sorted({tokens[self._at] for _, tokens in self._left}) if self._left else None

    @property
    def may_end(self) -> bool:
        """Whether the end of the reply may close the text that is being written."""
        return len(self._todo) == 1

    @property
    def unfinished(self) -> str:
        """The text that was being written when it ended, for the record."""
        return str(self.form.tokenizer.decode(self._text, skip_special_tokens=False))

    def _begin(self) -> None:
        """Turn to the next knob."""
        self._at, self._text = 0, list[int]()
        self._left: list[Choice] = []
        if self._todo:
            k = self._todo[0]
            self._left = list(self.form.choices.get(k.name) or [("", self.form.encode(f"{k.name}: {FENCE}\n"))])

    def hear(self, token: int) -> None:
        """Take in the next token."""
        if self.done:
            return
        k = self._todo[0]
        if self._left:
            self._left = [(v, tokens) for v, tokens in self._left if tokens[self._at] == token]
            self._at += 1
            if not self._left:
                self.fault = "malformed"  # only who ignores `allowed` can say this
            elif len(self._left[0][1]) == self._at:
                if k.kind == "text":
                    self._left = []  # the fence is open: text follows
                else:
                    self._close(self._left[0][0])
            return
        self._text.append(token)
        tail = self.form.tokenizer.decode(self._text[-8:], skip_special_tokens=False)
        if token in self.form.ends or f"\n{FENCE}" in f"\n{tail}" or FENCE + "\n" in tail:
            said = [t for t in self._text if t not in self.form.ends]
            whole = self.form.tokenizer.decode(said, skip_special_tokens=False)
            self._close(whole.partition(FENCE)[0].strip())
        elif len(self._text) >= self.per_text:
            self.fault = "endless"

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
        odd = any((ord(c) < 32 and c not in "\n\t") or 0xD800 <= ord(c) < 0xE000 or c == "\ufffd" for c in text)
        if odd or any(mark in text for mark in self.form.marks):
            return "hostile"  # half characters and control signs, or an attempt to speak for someone else in the chat
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
