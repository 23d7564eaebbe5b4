"""Similarity of texts by rules that need no model: exact copies, near copies, shared words, variety.

Worlds score answers in words with it, designers refuse copies with it, and metrics count variety with it.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+")
"""A word, or a number with its points and commas."""
TERM = re.compile(
    r"(?:(?<![\w)\]%.+-])[+-]++(?=\.?\d))?"  # the sign of a number, which does not join two words
    r"(?:(?:\d++(?:\.\d++)?|(?<![\w.])\.\d++)e-?\d++(?!\w|[.:/^*+-]\d)"  # 1e-3
    r"|\w*\d(?:[.:/^*+-]\d\w*)+|\w+|(?<![\w.])\.\d\w*)"  # 3:30, 1/2 and 2024-01-12 are one each; a word; .5
    r"(?:[+#]++(?!\w)|(?:(?<=\b[^\W\d_])|(?<=\b[^\W\d_]{2}))-++(?!\w))?|[<>≤≥≠]"  # C++, C#, A-, but not well-
)
MEASURED = re.compile(r"([+-]*\.?\d(?:[.:/^*+-]?\d)*)([^\W\d_]+)")
"""A number and the letters that follow it: 5km, 3:30pm."""
DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d+))?")
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)")
"""2,860, and not 1,2,3."""
TIDY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<!\w)_++|(?<!_)_++(?!\w)"), ""),  # _Paris_
    (re.compile(r"(?<!\w)[$€£¥₹]\s?"), ""),
    (re.compile(r"(?<=\d)\s+([-/:])\s+(?=\d)"), r"\1"),  # 2019 - 2020, and not 5 -3
    (re.compile(r"(?<=\de)\+(?=\d)"), ""),  # 1e+3
)
"""Spellings that are unified before terms are searched."""
DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-") | {"\u2044": "/"})
"""Hyphens, the dash of ranges, the minus sign and the fraction slash."""


def words(text: str) -> list[str]:
    """The words of a text, in lower case; characters that look alike to a reader (full width, ligatures) are one."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def terms(text: str) -> list[str]:
    """The words of a text for scoring answers: signs that distinguish values stay, and a number has one form.

    `$2,860.00` is `2860`, and `5km` is `5 km`; `-5`, `1/2`, `3:30` and `C++` are not `5`, `1 2`, `3 30` and `C`.
    """
    parts = (part for term in _written(text) for part in _measured(term))
    return [_number(part) or part for part in parts]


def _written(text: str) -> list[str]:
    """The terms of a text as they are written; a number and its unit are one term."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(DASHES)
    plain = THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain)
    for untidy, tidy in TIDY:
        plain = untidy.sub(tidy, plain)
    return TERM.findall(plain)


def _measured(term: str) -> tuple[str, ...]:
    """A number and its unit as two terms."""
    found = MEASURED.fullmatch(term)
    return found.groups() if found else (term,)


def _number(term: str) -> str:
    """The one form of a number; empty for a term that is none. It is built from digits, so any length is exact.

    `01` is `1`, but `0042` is a code and not `42`.
    """
    found = DECIMAL.fullmatch(term)
    if not found or not any(map(str.isdecimal, term)):
        return ""
    whole = found[2]
    part = (found[3] or "").rstrip("0")
    if len(whole) < 3 or found[3]:
        whole = whole.lstrip("0") or "0"
    sign = "-" if found[1] == "-" and (whole.strip("0") or part) else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def overlap(answer: str, gold: str) -> float:
    """Harmonic mean of the share of the answer's terms that are gold's and of gold's terms that are the answer's."""
    return _overlap(terms(answer), terms(gold))


def _overlap(answer_terms: Sequence[str], gold_terms: Sequence[str]) -> float:
    shared = (Counter(answer_terms) & Counter(gold_terms)).total()
    return 2 * shared / (len(answer_terms) + len(gold_terms)) if shared else 0.0


def f1(answer: str, gold: str) -> float:
    """The score of an answer in words: its `overlap` with gold, or all or nothing if gold is one word or only numbers.

    A list of all days names no day, and a part of a number is another number. So all terms of gold with a digit must be
    in the answer as they are: 17 km is not half of 5 km.
    """
    answer_terms = terms(answer)
    gold_terms = terms(gold)
    if single(gold) or all(map(_number, gold_terms)):
        return float(bool(gold_terms) and answer_terms == gold_terms)
    with_digits = Counter(term for term in gold_terms if any(map(str.isdecimal, term)))
    return _overlap(answer_terms, gold_terms) if with_digits <= Counter(answer_terms) else 0.0


def single(text: str) -> bool:
    """Whether a text is one term: a word, a number, a time, or a number with its unit and no space."""
    return len(_written(text)) == 1


def grams(text: str, n: int = 3) -> frozenset[tuple[str, ...]]:
    """All n-grams of words; a shorter text is one."""
    said = words(text)
    return frozenset(tuple(said[i : i + n]) for i in range(max(1, len(said) - n + 1)))


def jaccard(one: str, other: str, n: int = 3) -> float:
    """Shared n-grams over all n-grams of both texts: 1 for copies, 0 for texts without a common one."""
    a = grams(one, n)
    b = grams(other, n)
    return len(a & b) / len(a | b)


def distinct(texts: Sequence[str], n: int = 2) -> float:
    """Share of different n-grams among all n-grams of the texts (distinct-n); 0 without a text."""
    counts = Counter(run for text in texts for run in _ngrams(text, n))
    return len(counts) / counts.total() if counts else 0.0


def _ngrams(text: str, n: int) -> Iterable[tuple[str, ...]]:
    said = words(text)
    return (tuple(said[i : i + n]) for i in range(len(said) - n + 1))


class Copies:
    """Texts seen so far, to find out whether a new one is a copy. The result is exact."""

    def __init__(self, near: float = 0.8, n: int = 3, texts: Iterable[str] = ()) -> None:
        """Texts count as near copies from a `jaccard` of `near` on."""
        self.near = near
        self.n = n
        self.texts: list[str] = []
        self._grams: list[frozenset[tuple[str, ...]]] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}  # which texts have an n-gram
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Remember a text."""
        runs = grams(text, self.n)
        for run in runs:
            self._holders.setdefault(run, []).append(len(self.texts))
        self.texts.append(text)
        self._grams.append(runs)

    def nearest(self, text: str, least: float = 0.0) -> tuple[float, str]:
        """The most similar text so far with its `jaccard`; (0, "") where none is as similar as `least`.

        A text that is as similar as `least` shares so many n-grams that one of the rarest must be among them. So only
        texts with one of those are compared, which is fast even among tens of thousands that all begin alike.
        """
        runs = grams(text, self.n)
        shared = max(1, math.ceil(least * len(runs) - 1e-9))
        rare = sorted(runs, key=lambda run: len(self._holders.get(run, ())))[: len(runs) - shared + 1]
        likely = {holder for run in rare for holder in self._holders.get(run, ())}
        found = ((len(runs & self._grams[i]) / len(runs | self._grams[i]), -i) for i in likely)
        likeness, place = max(found, default=(0.0, 0))
        return (likeness, self.texts[-place]) if likeness and likeness >= least else (0.0, "")

    def refusal(self, text: str) -> str:
        """Why a text is a copy, in words; empty if it is new."""
        likeness, other = self.nearest(text, self.near)
        if not likeness:
            return ""
        kind = "a copy" if words(text) == words(other) else f"a near copy ({likeness:.2f})"
        return f"{kind} of an earlier text"
