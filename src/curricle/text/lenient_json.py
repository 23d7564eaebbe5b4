"""JSON as language models write it: comments, trailing commas, single quotes, `True`, bare words, unclosed brackets.

In: any text. Out: every object and list in it, read leniently (`read_all`). A text is read in one pass without
recursion, so the time is linear in its length. What is nested deeper than `MAX_DEPTH` is read as nothing. Nothing is
executed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 32
_OPENING = {"{": "{", "[": "[", "(": "["}
_CLOSING = {"}": "{", "]": "[", ")": "["}
"""Brackets, and the kind of container that each opens or closes."""
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}
"""Opening quotes with the closing ones."""
_START = re.compile(r"[{\[]")
_SPACE = re.compile(r"\s+")
_BARE_WORD = re.compile(r"(?:[^\s{}\[\](),:;=\"'`\u201c\u2018\u00ab#/]|(?<=\w)['\u2019](?=\w)|/(?![/*]))+")
_AFTER_STRING = re.compile(r"[ \t]*+(?:\r?\n|\Z|[,:;=}\])#]|//|/\*)")
"""What may follow a quoted string; a quote before anything else is part of the string."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,9})?")
_ELLIPSES = ("...", "\u2026")


class Truncated(dict[str, Any]):
    """An object whose end is missing."""

    mid_value = False
    """Whether the text ends in the middle of its last value."""


class _BareWords(list[str]):
    """Words without quotes: a constant, a number or a text."""


_NOTHING: Any = object()


@dataclass
class _Container:
    """An object or list that is still open: what it holds, and the value that was read last."""

    kind: str
    items: dict[str, Any] | list[Any]
    key: str | None = None
    pending: Any = _NOTHING
    """A value that was read and not yet put into `items`: it may be a key, or go on."""
    nameless: int = 0

    def read(self, value: Any, new_line: bool) -> None:
        """Take a value. It ends the one before, unless both are bare words on one line."""
        if isinstance(self.pending, _BareWords) and isinstance(value, _BareWords) and not new_line:
            self.pending += value
            return
        self.commit()
        self.pending = value

    def comma(self) -> None:
        """End the value before a comma; a key without a value is dropped."""
        self.commit()
        self.key = None

    def colon(self) -> None:
        """Take the value before a colon as a key."""
        if self.pending is not _NOTHING and self.kind == "{" and self.key is None:
            self.key = " ".join(self.pending) if isinstance(self.pending, _BareWords) else str(self.pending)
            self.pending = _NOTHING

    def commit(self) -> None:
        """Put the pending value into the container."""
        if self.pending is _NOTHING:
            return
        if not (isinstance(self.pending, _BareWords) and self.pending[0] in _ELLIPSES):
            value = _meaning(self.pending)
            if isinstance(self.items, list):
                self.items.append(value)
            elif self.key is not None:
                self.items[self.key] = value
            elif isinstance(value, dict | list):  # an object inside an object, without a name
                self.nameless += 1
                self.items[f"#{self.nameless}"] = value
        self.key = None
        self.pending = _NOTHING


def read_all(text: str) -> Iterator[Any]:
    """Read every object and list of a text, from left to right."""
    at = 0
    while match := _START.search(text, at):
        value, at = _container(text, match.start())
        yield value


def _container(text: str, at: int) -> tuple[Any, int]:
    """Read the container that begins here; returns its value and where it ends."""
    stack: list[_Container] = []
    too_deep = 0
    new_line = False
    mid_value = False
    while at < len(text):
        char = text[at]
        if space := _SPACE.match(text, at):
            new_line = new_line or "\n" in space[0]
            at = space.end()
            continue
        if (after := _comment_end(text, at)) > at:
            at = after
            continue
        if char in _OPENING:
            at += 1
            if too_deep or len(stack) >= MAX_DEPTH:
                too_deep += 1
            else:
                if stack:
                    stack[-1].read(_NOTHING, True)
                stack.append(_Container(_OPENING[char], {} if _OPENING[char] == "{" else []))
        elif char in _CLOSING:
            at += 1
            if too_deep:
                too_deep -= 1
            elif _close(stack, _CLOSING[char]):
                return stack[0].items, at
        elif char in _QUOTES:
            string, at, mid_value = _string(text, at)
            if not too_deep and not mid_value:
                stack[-1].read(string, new_line)
        elif char in ",;:=":
            at += 2 if text.startswith("=>", at) else 1
            if not too_deep:
                stack[-1].comma() if char in ",;" else stack[-1].colon()
        else:
            word = _BARE_WORD.match(text, at)
            if word and not too_deep:
                stack[-1].read(_BareWords([word[0]]), new_line)
            at = word.end() if word else at + 1
        new_line = False
    return _truncated(stack, mid_value), at


def _close(stack: list[_Container], kind: str) -> bool:
    """Close the innermost container of a kind and those open inside it; True if that was the outermost one."""
    if kind not in [container.kind for container in stack]:
        return False  # a bracket that nothing opened
    while True:
        container = stack[-1]
        container.commit()
        if len(stack) == 1:
            return True
        stack.pop()
        stack[-1].pending = container.items
        if container.kind == kind:
            return False


def _truncated(stack: list[_Container], mid_value: bool) -> Any:
    """The value of containers that are still open where the text ends; objects are marked as truncated."""
    inner: Any = _NOTHING
    for container in reversed(stack):
        if inner is _NOTHING:  # a key without a value, or a word that may go on
            lacks_value = container.key is not None and container.pending is _NOTHING
            mid_value = mid_value or lacks_value or isinstance(container.pending, _BareWords)
        else:
            container.pending = inner
        container.commit()
        inner = container.items
        if isinstance(inner, dict):
            inner = Truncated(inner)
            inner.mid_value = mid_value
    return inner


def _comment_end(text: str, at: int) -> int:
    """Where the comment that begins here ends; `at` itself if none does."""
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    if text.startswith("//", at) or text[at] == "#":
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    return at


def _string(text: str, at: int) -> tuple[str, int, bool]:
    """A quoted string, where it ends, and whether its end is missing."""
    close = _QUOTES[text[at]]
    start = at + 1
    at = at + 1
    while (end := text.find(close, at)) >= 0:
        before = end
        while before > start and text[before - 1] == "\\":
            before -= 1
        is_escaped = (end - before) % 2 == 1
        if not is_escaped and _AFTER_STRING.match(text, end + 1):
            return _unescaped(text[start:end]), end + 1, False
        at = end + 1
    return text[start:], len(text), True


def _unescaped(text: str) -> str:
    """A string with its escapes read; characters that are written as two surrogates become one."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda match: _character(match[1]), text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)


def _meaning(value: Any) -> Any:
    """The value that bare words stand for; other values as they are."""
    if not isinstance(value, _BareWords):
        return value
    text = " ".join(value)
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
