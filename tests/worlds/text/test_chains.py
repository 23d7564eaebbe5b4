"""The world of chains: its rules, its ladder, and the two sides of its tasks."""

from typing import Any

import pytest

from curricle.errors import ValueRefused, WorldError
from curricle.records import Message
from curricle.seeds import for_test
from curricle.worlds.text import chains
from curricle.worlds.text.chains import LEVELS, SIGNS, Chains, ChainsOptions


def said(text):
    return [Message(role="assistant", content=text)]


def test_results_are_the_last_digits_of_every_step():
    world = Chains()
    (task,) = world.tasks(world.setting({"level": 6}), 1, 3)
    *steps, digit = task.id.split()
    result = int(digit)
    results = []
    for step in steps:
        number = int(step[1:])
        rules = {
            "+": (result + number) % 10,
            "-": (result - number) % 10,
            "~": abs(result - number),
            "*": result * number % 10,
            "^": max(result, number),
            "v": min(result, number),
        }
        result = rules[step[0]]
        results.append(result)
    assert task.gold == results
    assert world.solution(task) == [", ".join(map(str, results))]
    assert world.judge(task, said(world.solution(task)[0])).reward == 1.0


@pytest.mark.parametrize("level", range(1, LEVELS + 1))
def test_each_level_adds_a_sign_that_lower_levels_never_show(level):
    world = Chains()
    signs = set()
    for task in world.tasks(world.setting({"level": level}), 50, 0):
        signs |= set(task.id) & set(SIGNS)
        assert task.skill == f"level_{level}"
    assert signs == set(SIGNS[:level])


def test_rows_are_equally_long_up_to_the_original():
    world = Chains()
    lengths = set()
    for level in range(1, 6):
        lengths |= {len(task.id) for task in world.tasks(world.setting({"level": level}), 20, 0)}
    assert len(lengths) == 1


@pytest.mark.parametrize("answer", ["", "7", "7 1", "junk", "7, 1, 1, 1", "a, b, c", "7,1,1", "\u0667, \u0661, \u0661"])
def test_only_a_list_with_every_result_counts(answer):
    world = Chains(ChainsOptions(partial=0.5))
    (task,) = world.tasks(world.setting({"level": 3}), 1, 3)
    verdict = world.judge(task, said(answer))
    assert verdict.reward == 0.0 and verdict.skills == ()


def test_partial_reward_pays_for_right_results_and_shows_no_skill():
    world = Chains(ChainsOptions(partial=0.5))
    (task,) = world.tasks(world.setting({"level": 4}), 1, 3)
    gold: Any = task.gold
    wrong = [*gold[:3], (gold[3] + 1) % 10]
    verdict = world.judge(task, said(", ".join(map(str, wrong))))
    assert verdict.reward == pytest.approx(0.5 * 3 / 4) and verdict.skills == ()
    assert Chains().judge(task, said(", ".join(map(str, wrong)))).reward == 0.0


def test_no_chain_is_on_both_sides():
    world = Chains()
    setting = world.setting({"level": 2})
    practice = {task.id for seed in range(20) for task in world.tasks(setting, 50, seed)}
    tests = {task.id for seed in range(20) for task in world.tasks(setting, 50, for_test(seed))}
    assert practice and tests and not practice & tests


def test_a_limited_base_gives_the_same_tasks_to_practice_alone():
    world = Chains(ChainsOptions(base=20))
    seen = {task.id for seed in range(30) for task in world.tasks(world.original, 8, seed)}
    assert len(seen) == 20
    easier = world.setting({"level": 3})
    assert len({task.id for seed in range(30) for task in world.tasks(easier, 8, seed)}) > 100
    tested = {task.id for seed in range(30) for task in world.tasks(world.original, 8, for_test(seed))}
    assert len(tested) > 100 and not tested & seen


def test_the_headline_is_success_at_the_level_of_the_original():
    world = Chains(original=Chains.Setting(level=3))
    assert world.headline({"level_3": 0.25, "level_1": 1.0}) == 25.0


@pytest.mark.parametrize(("knob", "value"), [("level", 0), ("level", LEVELS + 1), ("level", "top")])
def test_a_level_that_does_not_exist_is_refused_by_name(knob, value):
    with pytest.raises(ValueRefused, match=f"setting of chains-v1.*{knob}"):
        Chains().setting({knob: value})


def test_a_side_without_tasks_is_named(monkeypatch):
    monkeypatch.setattr(chains, "HELD_OUT", 10**9)
    world = Chains()
    with pytest.raises(WorldError, match="found 0 of 1 test tasks"):
        world.tasks(world.setting({"level": 1}), 1, for_test(0))
