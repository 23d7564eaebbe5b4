"""A small model of random weights on chains: it learns the first level, and resumes with the same bytes."""

import gc
from typing import Any

import numpy as np
import pytest
from helpers.grpo_agents import scripted
from helpers.skips import skip_without
from helpers.sweep import quiet

from curricle.agents.grpo import GRPO
from curricle.errors import AgentError, ValueRefused
from curricle.worlds.text.chains import Chains

skip_without("llm")


def agent(level, **options):
    given: dict[str, Any] = {
        "model": "scratch",
        "device": "cpu",
        "learning_rate": 1e-3,
        "kl_coef": 0.0,
        "group_size": 4,
        "tasks_per_update": 4,
        "microbatch_size": 16,
        "max_tokens": 7,
        "imitation_tasks": 64,
        "imitation_learning_rate": 3e-3,
    }
    return GRPO(Chains(original=Chains.Setting(level=level)), GRPO.Options(**(given | options)), seed=0)


def weights(one):
    return [p.detach().numpy().copy() for _, p in one.causal.trained()]


@pytest.mark.slow
def test_it_learns_the_first_level_by_imitation():
    learnt = agent(1, imitation_tasks=128, imitation_updates=160)
    (outcome,) = learnt.measure([learnt.world.unaltered()], [1], 9)
    assert outcome.attempts == 9 and outcome.successes >= 8


@pytest.mark.slow
def test_a_checkpoint_between_two_practices_changes_no_byte(tmp_path):
    straight = agent(5, imitation_updates=2, imitation_settings=({"level": 1}, {"level": 2}))
    design = straight.world.unaltered().model_copy(update={"setting": straight.world.setting({"level": 2}).values})
    straight.practise([design], 32, seed=1, report=quiet)
    straight.save(tmp_path)
    straight.practise([design], 32, seed=2, report=quiet)
    resumed = agent(5, imitation_updates=2, imitation_settings=({"level": 1}, {"level": 2}))
    resumed.load(tmp_path)
    resumed.practise([design], 32, seed=2, report=quiet)
    expected = straight.causal.arrays()
    found = resumed.causal.arrays()
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_practice_leaves_garbage_collection_as_it_was():
    """What is frozen for the time of a practice would never be freed."""
    one = agent(1)
    one.practise([one.world.unaltered()], 16, seed=1, report=quiet)
    assert gc.get_freeze_count() == 0


def test_an_entropy_bonus_alone_changes_nothing(monkeypatch):
    """Nothing of level 6 is solved at first, so there is no signal."""
    one = agent(6, entropy_coef=0.1)
    before = weights(one)
    metrics: list[dict[str, float]] = []
    one.practise([one.world.unaltered()], 32, seed=1, report=lambda done, found: metrics.append(dict(found)))
    assert {found["practice/no_signal"] for found in metrics} == {1.0}
    assert all(np.array_equal(old, new) for old, new in zip(before, weights(one), strict=True))
    assert not one.trainer.has_signal
    right = one.world.tasks(one.world.setting({"level": 6}), 1, 0)
    scripted(one, *["0" * 6] * 3, *one.world.solution(right[0]))
    monkeypatch.setattr(one.task_world, "draw", lambda setting, n, seed: right * n)
    one.practise([one.world.unaltered()], 16, seed=1, report=quiet)
    assert one.trainer.has_signal, "one of four attempts is right"
    assert not all(np.array_equal(old, new) for old, new in zip(before, weights(one), strict=True))


def test_solutions_of_several_settings_are_imitated_in_equal_shares():
    drawn = agent(5, imitation_tasks=7, imitation_settings=({"level": 1}, {"level": 2}, {"level": 3}))._solved_tasks()
    assert sorted(task.skill for task in drawn) == ["level_1"] * 3 + ["level_2"] * 2 + ["level_3"] * 2


def test_a_level_that_does_not_exist_is_refused_before_anything_is_imitated():
    wrong = agent(5, imitation_updates=1, imitation_settings=({"level": 9},))
    with pytest.raises(ValueRefused, match="level"):
        wrong.measure([wrong.world.unaltered()], [1], 1)


def test_a_tokenizer_without_a_symbol_of_the_solutions_is_refused(monkeypatch):
    wrong = agent(1, imitation_updates=1)
    monkeypatch.setattr(Chains, "solution", lambda self, task: ["é"])
    with pytest.raises(AgentError, match="cannot write 'é'"):
        wrong.measure([wrong.world.unaltered()], [1], 1)
