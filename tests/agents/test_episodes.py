"""Episodes: what a tally counts."""

import numpy as np
from helpers.sweep import VAULT

from curricle.agents.episodes import Tally


def test_counting_a_rollout_equals_counting_step_by_step():
    world, rng = VAULT(), np.random.default_rng(0)
    designs = [world.unaltered(), world.unaltered().model_copy(update={"aim": "open_1"})]
    at_once, by_step = (Tally(world, designs, [0, 1, 0]) for _ in range(2))
    for _ in range(3):
        rewards, ended = rng.integers(0, 5, (7, 3)).astype(float), rng.random((7, 3)) < 0.3
        skills = rng.random((7, 3, 3)) < 0.5
        at_once.add_rollout(rewards, ended, skills)
        for t in range(7):
            by_step.add(rewards[t], ended[t], skills[t])
    assert at_once.outcomes() == by_step.outcomes()
    assert at_once.running.tolist() == by_step.running.tolist()
