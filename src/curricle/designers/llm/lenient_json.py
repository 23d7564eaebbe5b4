"""JSON as models write it: comments, trailing commas, single quotes, `True`, bare words, brackets that never close.

`values(text)` finds every object and list in a text and reads it leniently, in one pass: its time is linear in the
text, it never recurses, and what is nested deeper than any design needs is read as nothing. Nothing is executed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DEEPEST = 32
_OPEN = {"{": "{", "[": "[", "(": "["}
_CLOSE = {"}": "{", "]": "[", ")": "["}
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}
_START = re.compile(r"[{\[]")
_SPACE = re.compile(r"\s+")
_BARE = re.compile(r"(?:[^\s{}\[\](),:;=\"'`\u201c\u2018\u00ab#/]|(?<=\w)['\u2019](?=\w)|/(?![/*]))+")
_ENDS = re.compile(r"[ \t]*+(?:\r?\n|\Z|[,:;=}\])#]|//|/\*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,9})?")


class Cut(dict[str, Any]):
    """An object whose end is missing; `torn` where its last word is missing, too."""

    torn = False


class _Words(list[str]):
    """Words without quotes, which may stand for something else than themselves."""


_NOTHING: Any = object()


@dataclass
class _Frame:
    """A container that is open: what it holds, and what was read last and belongs nowhere yet."""

    kind: str
    items: dict[str, Any] | list[Any]
    key: str | None = None
    held: Any = _NOTHING
    nameless: int = 0

    def take(self, value: Any, new_line: bool) -> None:
        """Hold a value; one that is held already is done, unless both are words of one phrase."""
        if isinstance(self.held, _Words) and isinstance(value, _Words) and not new_line:
            self.held += value
            return
        self.commit()
        self.held = value

    def comma(self) -> None:
        """What was held is done; a name without a value is nothing."""
        self.commit()
        self.key = None

    def colon(self) -> None:
        """What was held is a name."""
        if self.held is not _NOTHING and self.kind == "{" and self.key is None:
            self.key = " ".join(self.held) if isinstance(self.held, _Words) else str(self.held)
            self.held = _NOTHING

    def commit(self) -> None:
        """Put what is held where it belongs."""
        if self.held is not _NOTHING and not (isinstance(self.held, _Words) and self.held[0] in ("...", "\u2026")):
            value = _meaning(self.held)
            if isinstance(self.items, list):
                self.items.append(value)
            elif self.key is not None:
                self.items[self.key] = value
            elif isinstance(value, dict | list):  # an object inside an object, without a name
                self.nameless += 1
                self.items[f"#{self.nameless}"] = value
        if self.held is not _NOTHING:
            self.key = None
            self.held = _NOTHING


def values(text: str) -> Iterator[Any]:
    """Every object and list of a text, from left to right."""
    at = 0
    while match := _START.search(text, at):
        value, at = _container(text, match.start())
        yield value


def _container(text: str, at: int) -> tuple[Any, int]:
    """Read the container that begins here; gives its value and where it ends."""
    stack: list[_Frame] = []
    skipped = 0
    new_line = False
    torn = False
    while at < len(text):
        char = text[at]
        if space := _SPACE.match(text, at):
            new_line = new_line or "\n" in space[0]
            at = space.end()
            continue
        if (after := _comment(text, at)) > at:
            at = after
            continue
        if char in _OPEN:
            at += 1
            if skipped or len(stack) >= DEEPEST:
                skipped += 1
            else:
                if stack:
                    stack[-1].take(_NOTHING, True)
                stack.append(_Frame(_OPEN[char], {} if _OPEN[char] == "{" else []))
        elif char in _CLOSE:
            at += 1
            if skipped:
                skipped -= 1
            elif _close(stack, _CLOSE[char]):
                return stack[0].items, at
        elif char in _QUOTES:
            word, at, torn = _string(text, at)
            if not skipped and not torn:
                stack[-1].take(word, new_line)
        elif char in ",;:=":
            at += 2 if text.startswith("=>", at) else 1
            if not skipped:
                stack[-1].comma() if char in ",;" else stack[-1].colon()
        else:
            bare = _BARE.match(text, at)
            if bare and not skipped:
                stack[-1].take(_Words([bare[0]]), new_line)
            at = bare.end() if bare else at + 1
        new_line = False
    return _ended(stack, torn), at


def _close(stack: list[_Frame], kind: str) -> bool:
    """Close the innermost container of a kind, and those left open inside it; True when the outermost is closed."""
    if kind not in [frame.kind for frame in stack]:
        return False  # a bracket that nothing opened
    while True:
        frame = stack[-1]
        frame.commit()
        if len(stack) == 1:
            return True
        stack.pop()
        stack[-1].held = frame.items
        if frame.kind == kind:
            return False


def _ended(stack: list[_Frame], torn: bool) -> Any:
    """The text ended inside containers: give what there is, marked as cut."""
    inner: Any = _NOTHING
    for frame in reversed(stack):
        if inner is _NOTHING:  # a name without a value, or a word that may go on
            torn = torn or isinstance(frame.held, _Words) or (frame.key is not None and frame.held is _NOTHING)
        if inner is not _NOTHING:
            frame.held = inner
        frame.commit()
        inner = frame.items
        if isinstance(inner, dict):
            inner = Cut(inner)
            inner.torn = torn
    return inner


def _comment(text: str, at: int) -> int:
    """Where a comment that begins here ends."""
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    if text.startswith("//", at) or text[at] == "#":
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    return at


def _string(text: str, at: int) -> tuple[str, int, bool]:
    """A quoted text, where it ends, and whether its end is missing; a quote inside it does not end it."""
    close = _QUOTES[text[at]]
    start = at + 1
    at = at + 1
    while (end := text.find(close, at)) >= 0:
        before = end
        while before > start and text[before - 1] == "\\":
            before -= 1
        if (end - before) % 2 == 0 and _ENDS.match(text, end + 1):
            return _unescaped(text[start:end]), end + 1, False
        at = end + 1
    return text[start:], len(text), True


def _unescaped(text: str) -> str:
    """A quoted text with its escapes read; characters written in two halves are put together."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda match: _character(match[1]), text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)


def _meaning(value: Any) -> Any:
    """What a word without quotes stands for."""
    if not isinstance(value, _Words):
        return value
    text = " ".join(value)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
