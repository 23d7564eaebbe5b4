"""Hostile: what no text that a model wrote may hold, since its readers would take it for more than text.

Marks of chat formats would let it speak for someone else in the conversation, signs that nobody sees would tell a model
what no person reads, and half characters cannot be written down. Parsed data is looked at, so that no way of writing a
sign (JSON's escapes, characters of full width) hides it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping

MARK = re.compile(
    r"<\|[^|<>]{1,40}\|>"  # <|im_end|>, <|eot_id|> and their like; a bar of full width is one, too
    r"|</?s>|<(?:bos|eos|pad|unk|mask|unused\d+|[se]op|extra_id_\d+|(?:BOS|EOS|PAD|UNK|MASK)_TOKEN)>"
    r"|<(?:start|end)_of_turn>|</?(?:think|tool_call|tool_response|function_call|function_response)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK)\]|<</?SYS>>|\[[gs]MASK\]"
)
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Categories of Unicode: control signs, format signs, half characters, nobody's characters, breaks of lines."""
BLANK = re.compile(
    "[\ufffd\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164"
    "\ufe00-\ufe0e\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Signs of other categories that show nothing, and what stands for a broken one."""
JOINERS = "\u200c\u200d"
"""Signs that tell how what stands before them is joined: Persian, Hindi and emoji are written with them."""


def hostile(data: object) -> str:
    """What is hostile in any text of plain data, in words; empty where nothing is."""
    for text in _texts(data):
        if odd := min((sign for sign in filter(_unseen, set(text)) if not _joins(text, sign)), default=""):
            return f"{odd!a} is a sign that nobody sees or half a character: {_shown(text)}"
        plain = unicodedata.normalize("NFKC", text).translate(dict.fromkeys(map(ord, JOINERS)))
        if mark := MARK.search(plain):
            return f"{_shown(mark[0])} is a mark of a chat format: {_shown(text)}"
    return ""


def _unseen(sign: str) -> bool:
    return sign not in "\n\t" and (unicodedata.category(sign) in UNSEEN or bool(BLANK.match(sign)))


def _joins(text: str, sign: str) -> bool:
    """Whether an unseen sign has a use wherever it stands: a joiner after a letter or symbol, a CR before a LF."""
    if sign == "\r":
        return "\r" not in text.replace("\r\n", "")
    places = (place for place, one in enumerate(text) if one == sign)
    return sign in JOINERS and all(place and unicodedata.category(text[place - 1])[0] in "LMS" for place in places)


def _shown(text: str, most: int = 60) -> str:
    """A text as a short line of plain ASCII."""
    return ascii(text) if len(text) <= most else f"{text[:most]!a}..."


def _texts(data: object) -> Iterator[str]:
    """All texts of data, the names of its parts included."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from _texts(name)
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for part in data:
            yield from _texts(part)
