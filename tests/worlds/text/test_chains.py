"""The world of chains: its rules, its ladder, and the two sides of its tasks."""

from typing import Any

import numpy as np
import pytest

from curricle.errors import ValueRefused, WorldError
from curricle.records import Message
from curricle.seeds import for_test
from curricle.worlds.text import chains
from curricle.worlds.text.chains import LEVELS, SIGNS, Chains, ChainsOptions


def said(text):
    return [Message(role="assistant", content=text)]


def test_results_are_taken_modulo_eight_after_every_step():
    world = Chains()
    (task,) = world.tasks(world.setting({"level": 6}), 1, 3)
    signs, numbers, digit = task.id.split()
    result = int(digit)
    results = []
    for sign, written in zip(signs, numbers, strict=True):
        number = int(written)
        rules = {
            "+": (result + number) % 8,
            "-": (result - number) % 8,
            "~": abs(result - number),
            "*": result * number % 8,
            "^": max(result, number),
            "v": min(result, number),
        }
        result = rules[sign]
        results.append(result)
    assert task.gold == results
    assert world.solution(task) == ["".join(map(str, results))]
    assert world.verify(task, said(world.solution(task)[0])).reward == 1.0


def test_the_example_of_the_guide_is_answered_as_it_says():
    task = chains.read_chain(chains.EXAMPLE)
    assert Chains().verify(task, said(chains.ANSWER)).reward == 1.0
    assert chains.EXAMPLE in Chains.guide


def test_any_digit_will_do_for_a_dot():
    world = Chains()
    (task,) = world.tasks(world.setting({"level": 2}), 1, 3)
    gold: Any = task.gold
    start = "".join(map(str, gold))
    for filling in ("0000", "1234", "7777"):
        assert world.verify(task, said(start + filling)).reward == 1.0
    assert world.verify(task, said(start)).reward == 0.0


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


@pytest.mark.parametrize("answer", ["", "7", "720", "junk!!", "7200000", "72 000", "7,2,0,", "8" * 6, "\u0667" * 6])
def test_only_a_list_with_every_result_counts(answer):
    world = Chains(ChainsOptions(partial=0.5))
    (task,) = world.tasks(world.setting({"level": 3}), 1, 3)
    verdict = world.verify(task, said(answer))
    assert verdict.reward == 0.0 and verdict.skills == ()


def test_partial_reward_pays_for_right_results_and_shows_no_skill():
    world = Chains(ChainsOptions(partial=0.5))
    (task,) = world.tasks(world.setting({"level": 4}), 1, 3)
    gold: Any = task.gold
    wrong = [*gold[:3], (gold[3] + 1) % 8, 0, 0]
    verdict = world.verify(task, said("".join(map(str, wrong))))
    assert verdict.reward == pytest.approx(0.5 * 3 / 4) and verdict.skills == ()
    assert Chains().verify(task, said("".join(map(str, wrong)))).reward == 0.0
    assert world.verify(task, said("junk")).reward == 0.0


def test_no_chain_is_on_both_sides():
    world = Chains()
    setting = world.setting({"level": 2})
    practice = {task.id for seed in range(20) for task in world.tasks(setting, 50, seed)}
    tests = {task.id for seed in range(20) for task in world.tasks(setting, 50, for_test(seed))}
    assert practice and tests and not practice & tests


def test_the_two_lowest_levels_have_401_chains_outside_tests():
    """`experiments/coevolution/README.md` says so: they are all that the agent imitates there."""
    lowest = [f"+..... {a}..... {digit}" for a in range(1, 8) for digit in range(8)]
    lowest += [f"+-.... {a}{b}.... {digit}" for a in range(1, 8) for b in range(1, 8) for digit in range(8)]
    assert all(chains.read_chain(text).id == text for text in lowest)
    assert sum(not chains.is_held_out(text) for text in lowest) == 401


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


def test_tests_may_have_all_levels_and_the_headline_is_still_that_of_the_original():
    world = Chains(ChainsOptions(tested="all"))
    skills = [task.skill for task in world.tasks(world.original, 10, for_test(0))]
    assert skills == [f"level_{1 + i % LEVELS}" for i in range(10)]
    practised = world.tasks(world.original, 10, 0)
    assert {task.skill for task in practised} == {f"level_{LEVELS}"}
    assert world.headline({"level_1": 1.0, "level_6": 0.5}) == 50.0


@pytest.mark.parametrize("level", range(1, LEVELS + 1))
def test_a_chain_written_step_by_step_is_sound(level):
    """What `follows` offers, until it says that nothing more may come, is always a chain of some level."""
    rng = np.random.default_rng(level)
    for _ in range(50):
        text = ""
        while "" not in (pieces := chains.ChainsSetting.follows("task", text)):
            text += pieces[int(rng.integers(len(pieces)))]
        assert chains.read_chain(text.strip()).id == text.strip()
    assert chains.ChainsSetting.follows("level", "") is None


def test_a_written_chain_is_practised_as_it_is_and_only_outside_tests():
    world = Chains()
    held_out = next(task.id for task in world.tasks(world.setting({"level": 4}), 1, for_test(0)))
    with pytest.raises(ValueRefused, match="kept for tests"):
        world.setting({"task": held_out})
    (own,) = world.tasks(world.setting({"level": 2}), 1, 0)
    tasks = world.tasks(world.setting({"task": own.id}), 3, 5)
    assert [task.id for task in tasks] == [own.id] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("+~.... 45.... 3", "signs"),
        ("...... ...... 3", "signs"),
        ("+-~... 450... 3", "a number from 1 to 7"),
        ("+-~... 4523.. 3", "a number from 1 to 7"),
        ("+-~... 452... 9", "digit to start from"),
        ("+-~... 452...", "digit to start from"),
        ("+-~... 452... 3 1", "at most 15 characters"),
        ("junk", "signs"),
    ],
)
def test_a_chain_that_is_not_sound_is_refused_with_its_fault(text, message):
    with pytest.raises(ValueRefused, match=message):
        Chains().setting({"task": text})


def test_seed_tasks_are_of_every_level():
    world = Chains(ChainsOptions(examples=2))
    found = [chains.read_chain(str(values["task"])).skill for values in world.examples(1)]
    assert found == [f"level_{level}" for level in range(1, LEVELS + 1) for _ in range(2)]
    assert world.examples(1) == world.examples(2)
    few = Chains(ChainsOptions(examples=2, base=5))
    base = {task.id for seed in range(5) for task in few.tasks(few.original, 5, seed)}
    assert {str(values["task"]) for values in few.examples(1)[-2:]} <= base


@pytest.mark.parametrize(("knob", "value"), [("level", 0), ("level", LEVELS + 1), ("level", "top")])
def test_a_level_that_does_not_exist_is_refused_by_name(knob, value):
    with pytest.raises(ValueRefused, match=f"setting of chains-v1.*{knob}"):
        Chains().setting({knob: value})


def test_a_side_without_tasks_is_named(monkeypatch):
    monkeypatch.setattr(chains, "HELD_OUT", 10**9)
    world = Chains()
    with pytest.raises(WorldError, match="found 0 of 1 test tasks"):
        world.tasks(world.setting({"level": 1}), 1, for_test(0))
