"""Characters and marks that no text written by a model may contain: its readers would take them for more than text.

Marks of chat formats would let the text speak for someone else in a conversation. Invisible characters would tell a
model what no person sees. Broken characters (lone surrogates) cannot be written to a file. The check takes parsed data
and normalises it, so JSON escapes and full-width letters hide nothing.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping

CHAT_MARK = re.compile(
    r"<\|[^|<>]{1,40}\|>"  # <|im_end|>, <|eot_id|> and the like; normalising turns a full-width bar into this one
    r"|</?s>|<(?:bos|eos|pad|unk|mask|unused\d+|[se]op|extra_id_\d+|(?:BOS|EOS|PAD|UNK|MASK)_TOKEN)>"
    r"|<(?:start|end)_of_turn>|</?(?:think|tool_call|tool_response|function_call|function_response)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK)\]|<</?SYS>>|\[[gs]MASK\]"
)
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Unicode categories: control, format, surrogates, private use, line and paragraph separators."""
INVISIBLE = re.compile(
    "[\ufffd\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164"
    "\ufe00-\ufe0e\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters of other categories that show nothing, and the one that replaces broken ones."""
JOINERS = "\u200c\u200d"
"""They say how the character before them is joined to the next: Persian, Hindi and emoji need them."""


def find_unsafe(data: object) -> str:
    """Describe the first unsafe character or mark in any text of plain data; empty where there is none."""
    for text in _texts(data):
        invisible = [character for character in set(text) if _is_invisible(character)]
        misplaced = [character for character in invisible if not _is_well_placed(text, character)]
        if misplaced:
            return f"{min(misplaced)!a} is a sign that nobody sees or half a character: {_shown(text)}"
        plain = unicodedata.normalize("NFKC", text).translate(dict.fromkeys(map(ord, JOINERS)))
        if mark := CHAT_MARK.search(plain):
            return f"{_shown(mark[0])} is a mark of a chat format: {_shown(text)}"
    return ""


def _is_invisible(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) in INVISIBLE_CATEGORIES or bool(INVISIBLE.match(character))


def _is_well_placed(text: str, character: str) -> bool:
    """Whether an invisible character has a use wherever it stands: a joiner after a letter, a CR before a LF."""
    if character == "\r":
        return "\r" not in text.replace("\r\n", "")
    if character not in JOINERS:
        return False
    for place, found in enumerate(text):
        if found == character and (place == 0 or unicodedata.category(text[place - 1])[0] not in "LMS"):
            return False
    return True


def _shown(text: str, length: int = 60) -> str:
    """The beginning of a text in plain ASCII."""
    return ascii(text) if len(text) <= length else f"{text[:length]!a}..."


def _texts(data: object) -> Iterator[str]:
    """All texts in nested data, keys of mappings included."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from _texts(name)
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _texts(item)
