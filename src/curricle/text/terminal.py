"""What text may do on a terminal: be read, and no more.

Names, aims, reasons and paths come from language models and from folders of other people. Escape codes could move the
cursor, set the clipboard (OSC 52) or hide lines, and signs that turn the direction of writing could show another text
than the one that is there. Each such character is replaced by a sign that can be seen.
"""

import re
import unicodedata

_PLAIN = re.compile(r"[\t\n -~]*")
_BAD = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories: control, format (direction, zero width), halves, private use, unassigned, line separators."""
REPLACED = "\ufffd"
JOINERS = "\u200c\u200d"
"""Persian, Hindi and emoji need them, between signs of their own."""


def clean(text: str) -> str:
    """A text without what would act on a terminal; line breaks and tabs stay."""
    if _PLAIN.fullmatch(text):
        return text
    before = ""
    shown = list[str]()
    for char in text:
        joins = char in JOINERS and not before.isascii()
        shown.append(char if joins or char in "\n\t" or unicodedata.category(char) not in _BAD else REPLACED)
        before = char
    return "".join(shown)
