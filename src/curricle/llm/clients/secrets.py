r"""A key is taken out of all that an endpoint sends, in every form in which it may send it back.

Forms: as it is, letter by letter as escapes (`\u0073`, `\x73`, octal), percent signs or HTML's entities, in any
mixture; as hexadecimal digits; and in Base64, alone or inside a longer text.
"""

import base64
import re
from functools import lru_cache

SHORTEST = 4
"""Characters from which on a key is one; anything shorter stands in every other text."""
_BACKSLASHES = r"(?:\\{1,8})"
"""As many as three levels of quoting make of one; a bound keeps the search linear."""
_BEARER = re.compile(r"(?i)\bbearer\s+[\w.~+/=-]{6,}")


def without_key(text: str, key: str) -> str:
    """A text with [key] wherever the key stood, and without whatever follows the word Bearer."""
    if len(key) >= SHORTEST:
        text = _forms(key).sub("[key]", text)
    return _BEARER.sub("Bearer [key]", text)


@lru_cache(8)
def _forms(key: str) -> re.Pattern[str]:
    """Every form of a key as one pattern."""
    letters = "".join(_letter(char) for char in key)
    hexadecimal = f"(?i:{key.encode().hex()})"
    return re.compile("|".join([letters, hexadecimal, *_in_base64(key)]))


def _letter(char: str) -> str:
    """One character, as it is or escaped."""
    code = ord(char)
    units = char.encode("utf-16-be")
    forms = [
        rf"{_BACKSLASHES}?{re.escape(char)}",
        "".join(rf"{_BACKSLASHES}u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2)),
        rf"{_BACKSLASHES}u\{{0{{0,6}}{code:x}\}}",
        "".join(rf"%(?:25){{0,3}}{byte:02x}" for byte in char.encode()),
        rf"&\#0{{0,6}}{code};?",
        rf"&\#x0{{0,6}}{code:x};?",
    ]
    if code < 256:
        forms += [rf"{_BACKSLASHES}x{code:02x}", rf"{_BACKSLASHES}0{{0,3}}{code:o}"]
    names = {'"': "quot", "&": "amp", "<": "lt", ">": "gt", "'": "apos"}
    if char in names:
        forms.append(f"&{names[char]};")
    first, *others = forms
    return f"(?:{first}|(?i:{'|'.join(others)}))"


def _in_base64(key: str) -> list[str]:
    """What is the same in Base64 wherever in a longer text the key begins; both alphabets, padded or not."""
    data = key.encode()
    found = []
    for before in range(3):
        written = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        start = -(-before * 8 // 6)
        end = (before + len(data)) * 8 // 6
        core = written[start:end]
        if len(core) >= SHORTEST:
            either = "".join({"+": "[+-]", "/": "[/_]"}.get(char, char) for char in core)
            found.append(rf"[\w+/-]{{0,2}}{either}[\w+/-]?=*")
    return found
