"""Hostile: what no text of a task may hold, since its readers would take it for more than text.

Marks of chat formats would let a task speak for someone else in the conversation; half characters cannot be written
down. Parsed data is looked at, so that no way of writing a sign (JSON's escapes, characters of full width) hides it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping

from curricle.worlds.text.schema import Json, shown

MARK = re.compile(
    r"<\|[^|<>]{1,40}\|>"  # <|im_end|>, <|eot_id|> and their like; a bar of full width is one, too
    r"|</?s>|<(?:bos|eos|pad|unk|mask)>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|\[(?:gMASK|/?SYSTEM_PROMPT)\]"
)
ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffd]")


def hostile(data: Json) -> str:
    """What is hostile in any text of plain data, in words; empty where nothing is."""
    for text in _texts(data):
        if odd := ODD.search(text):
            return f"{shown(odd[0])} is a control sign or half a character: {shown(text)}"
        if mark := MARK.search(unicodedata.normalize("NFKC", text)):
            return f"{shown(mark[0])} is a mark of a chat format: {shown(text)}"
    return ""


def _texts(data: Json) -> Iterator[str]:
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
