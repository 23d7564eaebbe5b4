"""Credit: which turn of an episode earned what (GiGPO, arXiv 2505.10978).

Plain GRPO gives every token of an episode the same advantage. Episodes of one task often pass through the same state;
there, what each did next can be compared. A turn's return is the episode's reward, discounted by the turns after it;
turns that began in the same state form a group; a turn's advantage is its return against that group's, as in GRPO.
"""

from collections.abc import Sequence

import numpy as np

from curricle.agents.grpo.rollouts import Attempt

EPSILON = 1e-4
"""As in TRL's group advantage."""


def relative(values: Sequence[float]) -> list[float]:
    """GRPO's advantage inside a group: distance from the mean in (sample) standard deviations; alone: 0."""
    if len(values) < 2:
        return [0.0] * len(values)
    array = np.asarray(values, np.float64)
    return [float(x) for x in (array - array.mean()) / (array.std(ddof=1) + EPSILON)]


def step_advantages(attempts: Sequence[Attempt], discount: float) -> list[list[float]]:
    """One advantage a turn of every attempt; attempts at the same task are a group's."""
    groups: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
    for row, one in enumerate(attempts):
        for number, turn in enumerate(one.turns):
            earned = one.verdict.reward * discount ** (len(one.turns) - 1 - number)
            groups.setdefault((one.task.id, turn.state), []).append((row, number, earned))
    found = [[0.0] * len(one.turns) for one in attempts]
    for members in groups.values():
        for (row, number, _), value in zip(members, relative([m[2] for m in members]), strict=True):
            found[row][number] = value
    return found


def token_advantages(attempts: Sequence[Attempt], discount: float, width: int) -> list[list[float]]:
    """The same for every token, in rows of `width`; tokens of the world have none."""
    rows = []
    for one, steps in zip(attempts, step_advantages(attempts, discount), strict=True):
        row = [0.0] * width
        for turn, value in zip(one.turns, steps, strict=True):
            row[turn.start : turn.end] = [value] * (turn.end - turn.start)
        rows.append(row)
    return rows
