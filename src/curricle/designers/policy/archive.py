"""Archive: every design that was tried, with what the agent showed in it each time it came up.

A design that was too hard once may be at the edge later, and one that was mastered may be forgotten; the archive gives
them back as candidates for another visit, and its counts, older ones less, are what a policy is fitted to.
"""

from collections.abc import Sequence

import numpy as np

from curricle.designers.reward import Floats
from curricle.records import Outcome, Values


class Archive:
    """Outcomes with the cycle they are from, in the order they came."""

    def __init__(self, capacity: int, fade: float) -> None:
        self.capacity = capacity
        self.fade = fade
        self.entries: list[tuple[int, Outcome]] = []

    def add(self, cycle: int, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes of a cycle; the oldest ones leave when there is no more room."""
        self.entries = [*self.entries, *((cycle, outcome) for outcome in outcomes)][-self.capacity :]

    @property
    def outcomes(self) -> list[Outcome]:
        """All outcomes."""
        return [outcome for _, outcome in self.entries]

    def freshness(self) -> Floats:
        """What each outcome still counts: 1 in the newest cycle, less by `fade` with each one since."""
        newest = max((cycle for cycle, _ in self.entries), default=0)
        return np.array([self.fade ** (newest - cycle) for cycle, _ in self.entries])

    def settings(self) -> list[Values]:
        """Each setting once, the newest first."""
        return list(dict.fromkeys(outcome.design.setting for outcome in reversed(self.outcomes)))

    def to_json(self) -> list[list[int | str]]:
        """Plain data for a checkpoint."""
        return [[cycle, outcome.to_json()] for cycle, outcome in self.entries]

    def load(self, plain: Sequence[tuple[int, str]]) -> None:
        """Take up what `to_json` gave."""
        self.entries = [(int(cycle), Outcome.from_json(text)) for cycle, text in plain]
