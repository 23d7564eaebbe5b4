"""Numerals: whether the numbers of two texts are the same, where the texts are equal without , . / - _ * ^ and spaces.

Such texts have the same digits in the same order; what may differ is how they are set apart, and a sign. So "1.5 kg" is
not "15 kg", "2024-1-12" not "2024-11-2" and "-5 C" not "5 C". Commas of thousands do not count, nor does how the parts
of a long number (a telephone's, a date) are set apart, or whether: "555-1234" is "5551234", "1/12/2024" is "1-12-2024".
What a comma is nobody can tell, so "100,200" is "100200", and "100, 200" as well.
"""

import re
from collections.abc import Iterator

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
CHARGED = re.compile(r"(?<!-)(-+)([$€£¥])(?=[\d.])")
"""A sign before a currency's, which is no gap of the text."""
NUMERAL = re.compile(r"(?<![ ,./\-_*^])([ ,./\-_*^]*)(\d+(?:[ ,./\-_*^]+\d+)*)")
"""What leads a numeral, and its digits with what sets them apart."""
PARTS = re.compile(r"\d+([-/._ ])\d+(?:\1\d+)*")
"""A number in parts that are all set apart in one way."""
DIALLED = re.compile(r"\d+(?:[- ]\d+)+")
"""A long number in parts, +1 555-123-4567."""
LONG = 7
"""Digits of a telephone number."""


def agree(one: str, other: str) -> bool:
    """Whether two texts that are equal without their gaps have the same numbers."""
    pairs = zip(_numerals(one), _numerals(other), strict=True)
    return all(
        _signed(a, b) and (_equal(x, y) or _equal(THOUSANDS.sub("", x), THOUSANDS.sub("", y)))
        for (a, x), (b, y) in pairs
    )


def _numerals(text: str) -> Iterator[tuple[str, str]]:
    """Each numeral of a text: its sign and point, "?" for a dash that may be a sign or join words; and its digits."""
    plain = CHARGED.sub(r"\2\1", text).replace("**", "^")
    for found in NUMERAL.finditer(plain):
        before, digits = found.groups()
        sign = before[len(before.rstrip("-.")) :]
        word = plain[max(0, found.start() - 2) : found.start()]
        if sign == before and word[-1:].isalnum() and not re.fullmatch(r"\d[eE]", word):
            sign = ""  # Covid-19, No.5
        yield sign or "?" * ("-" in before), digits


def _signed(one: str, other: str) -> bool:
    """Whether two signs may be the same; a dash may be a minus, or nothing."""
    return one == other or ("?" in (one, other) and "." not in one + other)


def _equal(one: str, other: str) -> bool:
    """Whether equal digits are the same number, or numbers, by how they are set apart."""
    if _tight(one) == _tight(other):
        return True
    parts = re.findall(r"\d+", one)
    others = re.findall(r"\d+", other)
    long = sum(map(len, parts)) >= LONG
    for text in (one, other):
        if not (text.isdecimal() or PARTS.fullmatch(text) or (long and DIALLED.fullmatch(text))):
            return False
    if parts == others and len(parts) > 2:
        return True
    decimal = any(len(found) == 2 and "." in text for found, text in ((parts, one), (others, other)))
    return long and (parts == others or 1 in (len(parts), len(others))) and not decimal


def _tight(digits: str) -> str:
    """Digits without spaces around what sets them apart; a comma is a space."""
    return re.sub(r" *([./\-_*^]+) *| +", lambda gap: gap[1] or " ", re.sub(r"[ ,]+", " ", digits))
