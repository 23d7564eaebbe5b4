"""Search: find the setting that the forecast thinks most worth practising.

In: a policy to draw from, a forecast to judge by, what each skill is worth. A few rounds of breeding: the best settings
are mixed knob by knob, and now and then a knob is drawn anew from the policy. A setting's value is worth times expected
gain (how near to alpha) at its aim, plus a share of the same for all other skills, less for each knob that is moved
away from the original (what is learnt has to carry over), plus a little of the policy's log-probability: that
is the KL penalty to the policy, and keeps knobs of no use as they are in the original.
"""

from collections.abc import Callable, Sequence

import numpy as np

from curricle.designers.policy.choices import Choices
from curricle.designers.policy.forecast import Forecast
from curricle.designers.policy.space import Rows
from curricle.designers.reward import Floats, Reward

POPULATION = 384
ELITE = 48
PENALTY = 0.02
"""Worth of one unit of log-probability under the policy."""


class Search:
    """Looks for settings in one cycle."""

    def __init__(
        self,
        choices: Choices,
        forecast: Forecast,
        edge: Reward,
        allowed: Callable[[Rows], bool],
        rounds: int,
        others: float,
        close: float,
    ) -> None:
        self.choices = choices
        self.forecast = forecast
        self.edge = edge
        self.allowed = allowed
        self.rounds = rounds
        self.others = others
        self.close = close

    def gain(self, rows: Rows) -> Floats:
        """How near to alpha each skill is expected to be, 0 to 1: (settings, skills)."""
        return self.forecast.expected(rows, self.edge)

    def draw(self, rng: np.random.Generator, worth: Floats, taken: Sequence[Rows]) -> tuple[Rows, int]:
        """One setting from the policy as it is, and its aim; one of the cycle's own only where no other is found."""
        taboo = {row.tobytes() for row in taken}
        again = self.choices.space.home
        for _ in range(1000):
            (aim,) = self._aims(rng, worth, 1)
            (row,) = self.choices.sample(rng, np.array([aim]))
            if self.allowed(row):
                if row.tobytes() not in taboo:
                    return row, int(aim)
                again = row
        return again, int(aim)

    def best(
        self, rng: np.random.Generator, worth: Floats, known: Sequence[Rows], taken: Sequence[Rows]
    ) -> tuple[Rows, int]:
        """The setting of most value, and the skill that makes most of it: its aim."""
        taboo = {row.tobytes() for row in taken}
        rows = self.choices.sample(rng, self._aims(rng, worth, POPULATION))
        rows = np.concatenate([rows, self.choices.space.home[None], *(row[None] for row in known)])
        for _ in range(self.rounds):
            elite, aims, _ = self._elite(rows, worth, taboo)
            rows = np.concatenate([elite, self._children(rng, elite, aims)])
        elite, aims, _ = self._elite(rows, worth, taboo)
        return elite[0], int(aims[0])

    def _aims(self, rng: np.random.Generator, worth: Floats, count: int) -> Rows:
        """Draw aims by what they are worth and by how well they could be brought to alpha so far."""
        chance = worth / worth.sum() + self.choices.aims
        return rng.choice(len(chance), count, p=chance / chance.sum())

    def _elite(self, rows: Rows, worth: Floats, taboo: set[bytes]) -> tuple[Rows, Rows, Floats]:
        """The best settings that the world allows, best first, with their aims and values.

        Where all that it allows are taboo one of them comes again; the original is always allowed.
        """
        rows = np.unique(rows, axis=0)
        parts = worth * self.gain(rows) * self.close ** (rows != self.choices.space.home).sum(1, keepdims=True)
        aims = parts.argmax(1)
        values = self.others * parts.sum(1) + (1 - self.others) * parts.max(1) + PENALTY * self.choices.log(rows, aims)
        found = list[int]()
        again = list[int]()
        for index in np.argsort(-values, kind="stable").tolist():
            if self.allowed(rows[index]):
                (again if rows[index].tobytes() in taboo else found).append(index)
            if len(found) == ELITE:
                break
        found = found or again[:1] or np.flatnonzero((rows == self.choices.space.home).all(1)).tolist()
        return rows[found], aims[found], values[found]

    def _children(self, rng: np.random.Generator, elite: Rows, aims: Rows) -> Rows:
        """Mix pairs of the elite; about two knobs of each child are drawn anew, for the aim of its first parent."""
        first, second = (rng.integers(len(elite), size=POPULATION) for _ in range(2))
        children = np.where(rng.random((POPULATION, elite.shape[1])) < 0.5, elite[first], elite[second])
        fresh = self.choices.sample(rng, aims[first])
        return np.where(rng.random(children.shape) < 2 / children.shape[1], fresh, children)
