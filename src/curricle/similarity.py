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


def words(text: str) -> list[str]:
    """The words of a text, in lower case; characters that look alike to a reader (full width, ligatures) are one."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def f1(answer: str, gold: str) -> float:
    """Harmonic mean of the share of the answer's words that are gold's and of gold's words that are the answer's."""
    said, wanted = words(answer), words(gold)
    shared = (Counter(said) & Counter(wanted)).total()
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


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
