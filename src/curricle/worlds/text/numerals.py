"""Numerals: compare the numbers of two texts that are equal without , . / - _ * ^ and spaces.

Such texts have the same digits in the same order. Separators and signs may differ, and they matter: "1.5 kg" is not
"15 kg", "2024-1-12" is not "2024-11-2", "-5 C" is not "5 C". Commas between thousands do not count. Nor do the
separators of a long number, such as a telephone number or a date: "555-1234" is "5551234", "1/12/2024" is "1-12-2024".
A comma may separate thousands or items, so "100,200" is "100200" and also "100, 200".
"""

import re
from collections.abc import Iterator

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
SIGNED_CURRENCY = re.compile(r"(?<!-)(-+)([$€£¥])(?=[\d.])")
"""A minus sign before a currency sign; it is no separator."""
NUMERAL = re.compile(r"(?<![ ,./\-_*^])([ ,./\-_*^]*)(\d+(?:[ ,./\-_*^]+\d+)*)")
"""What stands before a numeral, and its digits with their separators."""
PARTS = re.compile(r"\d+([-/._ ])\d+(?:\1\d+)*")
"""A number in parts with one separator throughout."""
PHONE_NUMBER = re.compile(r"\d+(?:[- ]\d+)+")
"""A long number in parts, +1 555-123-4567."""
LONG = 7
"""Digits from which a number is long: a telephone number."""


def same_numbers(one: str, other: str) -> bool:
    """Whether two texts that are equal without their separators have the same numbers."""
    pairs = zip(_numerals(one), _numerals(other), strict=True)
    return all(
        _same_sign(a, b) and (_same_number(x, y) or _same_number(THOUSANDS.sub("", x), THOUSANDS.sub("", y)))
        for (a, x), (b, y) in pairs
    )


def _numerals(text: str) -> Iterator[tuple[str, str]]:
    """Each numeral of a text: its sign and point, "?" for a dash that may be a sign or join words; and its digits."""
    plain = SIGNED_CURRENCY.sub(r"\2\1", text).replace("**", "^")
    for found in NUMERAL.finditer(plain):
        before, digits = found.groups()
        sign = before[len(before.rstrip("-.")) :]
        word = plain[max(0, found.start() - 2) : found.start()]
        if sign == before and word[-1:].isalnum() and not re.fullmatch(r"\d[eE]", word):
            sign = ""  # Covid-19, No.5
        yield sign or "?" * ("-" in before), digits


def _same_sign(one: str, other: str) -> bool:
    """Whether two signs may be the same; a dash may be a minus, or no sign."""
    return one == other or ("?" in (one, other) and "." not in one + other)


def _same_number(one: str, other: str) -> bool:
    """Whether equal digits with these separators are the same number or numbers."""
    if _tidy(one) == _tidy(other):
        return True
    parts = re.findall(r"\d+", one)
    others = re.findall(r"\d+", other)
    long = sum(map(len, parts)) >= LONG
    for text in (one, other):
        if not (text.isdecimal() or PARTS.fullmatch(text) or (long and PHONE_NUMBER.fullmatch(text))):
            return False
    if parts == others and len(parts) > 2:
        return True
    decimal = any(len(found) == 2 and "." in text for found, text in ((parts, one), (others, other)))
    return long and (parts == others or 1 in (len(parts), len(others))) and not decimal


def _tidy(digits: str) -> str:
    """Digits without spaces around separators; a comma counts as a space."""
    return re.sub(r" *([./\-_*^]+) *| +", lambda gap: gap[1] or " ", re.sub(r"[ ,]+", " ", digits))
