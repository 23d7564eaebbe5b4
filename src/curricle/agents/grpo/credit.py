"""Credit: advantages by turn, for conversations (GiGPO, arXiv 2505.10978).

Plain GRPO gives every token of an attempt the same advantage. Attempts at one task often pass through the same state,
and what each did next there can be compared. A turn's return is the attempt's reward, discounted by the turns after it.
Turns that began in the same state form a group. A turn's advantage is its return against that group's, as in GRPO.
"""

from collections.abc import Sequence

import numpy as np

from curricle.agents.grpo.rollouts import Attempt

EPSILON = 1e-4
"""As in TRL's group advantage."""


def group_advantages(values: Sequence[float]) -> list[float]:
    """Return GRPO's advantages inside a group: distance from the mean in (sample) standard deviations; alone: 0."""
    if len(values) < 2:
        return [0.0] * len(values)
    array = np.asarray(values, np.float64)
    return [float(x) for x in (array - array.mean()) / (array.std(ddof=1) + EPSILON)]


def turn_advantages(attempts: Sequence[Attempt], discount: float) -> list[list[float]]:
    """Return an advantage for every turn of every attempt; attempts at the same task are compared."""
    groups: dict[tuple[str, str], list[tuple[int, int, float]]] = {}  # (row, turn, return) of those in the same state
    for row, one in enumerate(attempts):
        for number, turn in enumerate(one.turns):
            turns_after = len(one.turns) - 1 - number
            turn_return = one.verdict.reward * discount**turns_after
            groups.setdefault((one.task.id, turn.state), []).append((row, number, turn_return))
    advantages = [[0.0] * len(one.turns) for one in attempts]
    for members in groups.values():
        returns = [turn_return for _, _, turn_return in members]
        for (row, number, _), advantage in zip(members, group_advantages(returns), strict=True):
            advantages[row][number] = advantage
    return advantages


def token_advantages(attempts: Sequence[Attempt], discount: float, width: int) -> list[list[float]]:
    """Return the same for every token, in rows of `width`; tokens of the world get 0."""
    rows = []
    for one, advantages in zip(attempts, turn_advantages(attempts, discount), strict=True):
        row = [0.0] * width
        for turn, advantage in zip(one.turns, advantages, strict=True):
            row[turn.start : turn.end] = [advantage] * (turn.end - turn.start)
        rows.append(row)
    return rows
