"""Similarity of texts by rules that need no model: exact copies, near copies, shared words, variety.

Worlds score free text with it, designers refuse copies with it, and reports count variety with it.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+")
"""A word, or a number with its points and commas."""
TERM = re.compile(
    r"(?:(?<![\w)\]%.+-])[+-]+)?"  # a sign, which does not join two words
    r"(?:\w*\d(?:[.,:/^*+-]\d\w*)+|\w+|(?<![\w.])\.\d\w*)"  # 3:30, 1/2 and 2024-01-12 are one each; a word; .5
    r"(?:[+#-]++(?!\w))?|[<>≤≥≠]"  # C++, C#, A-
)
DECIMAL = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d*)(?:\.(\d+))?")
CURRENCY = re.compile(r"(?<!\w)[$€£¥₹]\s?")
ALIKE = str.maketrans("\u2212\u2044", "-/")
"""The minus sign and the fraction slash."""


def words(text: str) -> list[str]:
    """The words of a text, in lower case; characters that look alike to a reader (full width, ligatures) are one."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def terms(text: str) -> list[str]:
    """The words of a text as answers are scored: signs that tell values apart stay, and a number has one form.

    `$2,860.00` is `2860`; `-5`, `1/2`, `3:30` and `C++` are not `5`, `1 2`, `3 30` and `C`.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().translate(ALIKE)
    return [_number(term) or term for term in TERM.findall(CURRENCY.sub("", plain))]


def _number(term: str) -> str:
    """A number in its one form; empty for a term that is none. By its digits, so that any length is exact."""
    found = DECIMAL.fullmatch(term)
    if not found or not any(map(str.isdecimal, term)):
        return ""
    whole, part = found[2].replace(",", "").lstrip("0") or "0", (found[3] or "").rstrip("0")
    sign = "-" if found[1] == "-" and (whole != "0" or part) else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def numeric(text: str) -> bool:
    """Whether a text is numbers and nothing else."""
    return bool(found := terms(text)) and all(map(_number, found))


def overlap(answer: str, gold: str) -> float:
    """Harmonic mean of the share of the answer's terms that are gold's and of gold's terms that are the answer's."""
    return _overlap(terms(answer), terms(gold))


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> float:
    shared = (Counter(said) & Counter(wanted)).total()
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


def f1(answer: str, gold: str) -> float:
    """How good an answer in words is: its `overlap` with gold, but all or nothing for one word, or numbers alone.

    Who lists all days has named none, and half of a number is another number.
    """
    said, wanted = terms(answer), terms(gold)
    if len(wanted) == 1 or all(map(_number, wanted)):
        return float(bool(wanted) and said == wanted)
    return _overlap(said, wanted)


def grams(text: str, n: int = 3) -> frozenset[tuple[str, ...]]:
    """All runs of n words; a shorter text is one run."""
    said = words(text)
    return frozenset(tuple(said[i : i + n]) for i in range(max(1, len(said) - n + 1)))


def jaccard(one: str, other: str, n: int = 3) -> float:
    """Shared runs of n words over all runs of both texts: 1 for copies, 0 for texts without a run in common."""
    a, b = grams(one, n), grams(other, n)
    return len(a & b) / len(a | b)


def distinct(texts: Sequence[str], n: int = 2) -> float:
    """Share of the texts' runs of n words that are different from each other (distinct-n); 0 without a text."""
    counts = Counter(run for text in texts for run in _runs(text, n))
    return len(counts) / counts.total() if counts else 0.0


def _runs(text: str, n: int) -> Iterable[tuple[str, ...]]:
    said = words(text)
    return (tuple(said[i : i + n]) for i in range(len(said) - n + 1))


class Copies:
    """Texts seen so far, to ask whether a new one is a copy; answers are exact, never by chance."""

    def __init__(self, near: float = 0.8, n: int = 3, texts: Iterable[str] = ()) -> None:
        """Texts count as near copies from a `jaccard` of `near` on."""
        self.near, self.n = near, n
        self.texts: list[str] = []
        self._runs: list[frozenset[tuple[str, ...]]] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}  # a run of words -> who has it
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Remember a text."""
        runs = grams(text, self.n)
        for run in runs:
            self._holders.setdefault(run, []).append(len(self.texts))
        self.texts.append(text)
        self._runs.append(runs)

    def nearest(self, text: str, least: float = 0.0) -> tuple[float, str]:
        """The most similar text so far with its `jaccard`; (0, "") where none is as similar as `least`.

        Who is that similar has so many of the runs that one of the rarest is among them: only holders of those are
        looked at, which keeps a question fast among tens of thousands of texts that all begin alike.
        """
        runs = grams(text, self.n)
        shared = max(1, math.ceil(least * len(runs) - 1e-9))
        rare = sorted(runs, key=lambda run: len(self._holders.get(run, ())))[: len(runs) - shared + 1]
        likely = {holder for run in rare for holder in self._holders.get(run, ())}
        found = ((len(runs & self._runs[i]) / len(runs | self._runs[i]), -i) for i in likely)
        likeness, place = max(found, default=(0.0, 0))
        return (likeness, self.texts[-place]) if likeness and likeness >= least else (0.0, "")

    def refusal(self, text: str) -> str:
        """Why a text is no new one, in words; empty where it is."""
        likeness, other = self.nearest(text, self.near)
        if not likeness:
            return ""
        kind = "a copy" if words(text) == words(other) else f"a near copy ({likeness:.2f})"
        return f"{kind} of an earlier text"
