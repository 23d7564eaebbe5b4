"""Search: find the setting of the highest value under the forecast.

In: choices to draw from, a forecast that predicts success, a weight for each skill. An evolutionary search of a few
rounds: the best settings are mixed knob by knob, and now and then a knob is drawn anew from the choices. The value of a
setting is the skill's weight times the expected gain (how near to alpha) at its aim, plus a share of the same for all
other skills. Each knob that differs from the original lowers the value, since what is learned has to carry over. A
little of the log-probability under the choices is added: a KL penalty, which leaves knobs of no use as they are in the
original.
"""

from collections.abc import Callable, Sequence

import numpy as np

from curricle.designers.policy.choices import Choices
from curricle.designers.policy.forecast import Forecast
from curricle.designers.policy.space import Rows
from curricle.designers.reward import Floats, Reward

POPULATION = 384
ELITE = 48
LOG_PROB_COEF = 0.02
"""Value of one unit of log-probability under the choices."""
MAX_DRAWS = 1000


class Search:
    """Searches settings for one design."""

    def __init__(
        self,
        choices: Choices,
        forecast: Forecast,
        gain: Reward,
        allowed: Callable[[Rows], bool],
        rounds: int,
        other_skills_weight: float,
        change_discount: float,
    ) -> None:
        self.choices = choices
        self.forecast = forecast
        self.gain = gain
        self.allowed = allowed
        self.rounds = rounds
        self.other_skills_weight = other_skills_weight
        self.change_discount = change_discount

    def draw(self, rng: np.random.Generator, skill_weights: Floats, taken: Sequence[Rows]) -> tuple[Rows, int]:
        """Draw one setting and its aim from the choices; a taken one is repeated only where no other is found."""
        taken_rows = {row.tobytes() for row in taken}
        fallback = self.choices.space.original_row
        for _ in range(MAX_DRAWS):
            (aim,) = self._draw_aims(rng, skill_weights, 1)
            (row,) = self.choices.sample(rng, np.array([aim]))
            if self.allowed(row):
                if row.tobytes() not in taken_rows:
                    return row, int(aim)
                fallback = row
        return fallback, int(aim)

    def best(
        self, rng: np.random.Generator, skill_weights: Floats, known: Sequence[Rows], taken: Sequence[Rows]
    ) -> tuple[Rows, int]:
        """The setting of the highest value, and the skill that adds most to the value: its aim."""
        taken_rows = {row.tobytes() for row in taken}
        drawn = self.choices.sample(rng, self._draw_aims(rng, skill_weights, POPULATION))
        rows = np.concatenate([drawn, self.choices.space.original_row[None], *(row[None] for row in known)])
        for _ in range(self.rounds):
            elite, aims = self._elite(rows, skill_weights, taken_rows)
            rows = np.concatenate([elite, self._children(rng, elite, aims)])
        elite, aims = self._elite(rows, skill_weights, taken_rows)
        return elite[0], int(aims[0])

    def _draw_aims(self, rng: np.random.Generator, skill_weights: Floats, count: int) -> Rows:
        """Draw aims by their weights, and by how well designs for them have come to alpha so far."""
        chance = skill_weights / skill_weights.sum() + self.choices.aim_probabilities
        return rng.choice(len(chance), count, p=chance / chance.sum())

    def _elite(self, rows: Rows, skill_weights: Floats, taken: set[bytes]) -> tuple[Rows, Rows]:
        """The best settings that the world allows, best first, with their aims.

        Where all of these are taken, one comes again. The original is always allowed.
        """
        rows = np.unique(rows, axis=0)
        original = self.choices.space.original_row
        changed = (rows != original).sum(1, keepdims=True)
        skill_values = skill_weights * self.forecast.expected(rows, self.gain) * self.change_discount**changed
        aims = skill_values.argmax(1)
        share = self.other_skills_weight
        values = share * skill_values.sum(1) + (1 - share) * skill_values.max(1)
        values = values + LOG_PROB_COEF * self.choices.log_prob(rows, aims)
        found = list[int]()
        repeated = list[int]()
        for index in np.argsort(-values, kind="stable").tolist():
            if self.allowed(rows[index]):
                if rows[index].tobytes() in taken:
                    repeated.append(index)
                else:
                    found.append(index)
            if len(found) == ELITE:
                break
        if not found:
            found = repeated[:1] or np.flatnonzero((rows == original).all(1)).tolist()
        return rows[found], aims[found]

    def _children(self, rng: np.random.Generator, elite: Rows, aims: Rows) -> Rows:
        """Mix pairs of the elite; about two knobs of each child are drawn anew, for the aim of its first parent."""
        first = rng.integers(len(elite), size=POPULATION)
        second = rng.integers(len(elite), size=POPULATION)
        children = np.where(rng.random((POPULATION, elite.shape[1])) < 0.5, elite[first], elite[second])
        fresh = self.choices.sample(rng, aims[first])
        return np.where(rng.random(children.shape) < 2 / children.shape[1], fresh, children)
