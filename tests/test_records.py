"""Records are frozen and survive JSON and pickle unchanged."""

import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curricle.errors import ValueRefused
from curricle.loop import Schedule
from curricle.records import (
    Brief,
    Cycle,
    Design,
    Exchange,
    Frozen,
    Knob,
    Message,
    Outcome,
    Score,
    Scores,
    Skill,
    checked,
)

names = st.text(min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.dictionaries(
    names, st.booleans() | st.integers(-(10**9), 10**9) | numbers | st.text(max_size=20), max_size=5
)
designs = st.builds(
    Design, setting=values, aim=st.none() | names, why=st.text(), by=names, changed=st.lists(st.text()).map(tuple)
)
outcomes = st.builds(
    Outcome,
    design=designs,
    attempts=st.integers(10**6, 10**7),
    successes=st.integers(0, 10**6),
    skills=st.dictionaries(names, st.integers(0, 10**6), max_size=4),
    reward=numbers,
    spent=st.integers(0, 10**9),
)
scores = st.builds(Score, mean=numbers, std=numbers, n=st.integers(0, 100))
all_scores = st.builds(Scores, skills=st.dictionaries(names, scores, max_size=4), reward=scores)
knobs = st.builds(
    Knob, name=names, kind=st.just("float"), default=numbers, sentence=st.text(), low=numbers, high=numbers
)
cycles = st.builds(
    Cycle, number=st.integers(1, 50), designed=st.lists(outcomes, max_size=2).map(tuple), scores=all_scores
)
briefs = st.builds(
    Brief,
    world=names,
    guide=st.text(),
    skills=st.lists(st.builds(Skill, name=names, needs=st.lists(names).map(tuple), eased_by=values)).map(tuple),
    knobs=st.lists(knobs, max_size=2).map(tuple),
    original=values,
    cycle=st.integers(1, 9),
    cycles=st.integers(1, 9),
    past=st.lists(cycles, max_size=2).map(tuple),
)
exchanges = st.builds(
    Exchange,
    prompt=st.lists(st.builds(Message, role=names, content=st.text()), max_size=2).map(tuple),
    reply=st.text(),
    model=names,
    usage=st.dictionaries(names, numbers, max_size=2),
)


@given(designs | outcomes | all_scores | briefs | exchanges)
def test_json_and_pickle_round_trip(record):
    text = record.to_json()
    assert "\n" not in text
    again = type(record).from_json(text)
    assert again == record
    assert again.to_json() == text
    assert pickle.loads(pickle.dumps(record)) == record


@given(values)
def test_values_keep_their_types(setting):
    again = Design.from_json(Design(setting=setting).to_json()).setting
    assert {k: type(v) for k, v in again.items()} == {k: type(v) for k, v in setting.items()}


def test_records_cannot_be_changed():
    design = Design(setting={"depth": 1})
    with pytest.raises(ValidationError):
        design.aim = "x"  # type: ignore[misc]
    for change in (
        lambda: design.setting.__setitem__("depth", 2),
        lambda: design.setting.update(depth=2),  # type: ignore[attr-defined]
        lambda: design.setting.pop("depth"),  # type: ignore[attr-defined]
        lambda: design.setting.clear(),  # type: ignore[attr-defined]
    ):
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert design.setting == {"depth": 1}
    assert hash(design) == hash(Design(setting=Frozen(depth=1)))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_no_nan_in_a_record(reward):
    with pytest.raises(ValidationError):
        Outcome(design=Design(setting={}), attempts=1, successes=0, reward=reward)


def test_outcomes_of_one_design_add_up():
    design = Design(setting={"depth": 1}, aim="swim")
    first = Outcome(design=design, attempts=3, successes=1, skills={"swim": 1}, reward=1.5, spent=30)
    second = Outcome(design=design, attempts=1, successes=1, skills={"swim": 1, "dive": 1}, reward=2.0, spent=10)
    both = Outcome.merge([first, second])
    assert both == Outcome(design=design, attempts=4, successes=2, skills={"swim": 2, "dive": 1}, reward=3.5, spent=40)
    assert both.rate == 0.5
    assert both.share("dive") == 0.25
    assert Outcome(design=design, attempts=0, successes=0).rate is None
    with pytest.raises(ValidationError, match="more successes than attempts: 5 of 1"):
        Outcome(design=design, attempts=1, successes=5)
    with pytest.raises(ValueError, match="different designs"):
        Outcome.merge([first, second.model_copy(update={"design": Design(setting={"depth": 2})})])


def test_scores_are_taken_over_seeds_not_over_episodes():
    design = Design(setting={})
    many = Outcome(design=design, attempts=8, successes=8, skills={"swim": 8}, reward=8.0)
    few = Outcome(design=design, attempts=2, successes=0, skills={}, reward=0.0)
    unfinished = Outcome(design=design, attempts=0, successes=0)
    found = Scores.over([many, few, unfinished], ["swim", "dive"])
    assert found.skills["swim"] == Score(mean=0.5, std=math.sqrt(0.5), n=2)
    assert found.skills["dive"] == Score(mean=0.0, std=0.0, n=2)
    assert found.reward.mean == 0.5
    assert Scores.over([], ["swim"]).skills["swim"].n == 0


def test_a_skill_is_judged_by_the_tasks_that_are_about_it():
    design = Design(setting={})
    perfect = Outcome(
        design=design, attempts=4, successes=4, skills={"sums": 3, "words": 1}, tried={"sums": 3, "words": 1}
    )
    only_sums = Outcome(design=design, attempts=2, successes=1, skills={"sums": 1}, tried={"sums": 2})
    found = Scores.over([perfect, only_sums], ["sums", "words"])
    assert (found.skills["sums"].mean, found.skills["sums"].n) == (0.75, 2)
    assert (found.skills["words"].mean, found.skills["words"].n) == (1.0, 1), "no task, no judgement"
    assert Outcome.merge([perfect, only_sums]).share("sums") == 0.8


def test_half_characters_of_a_model_are_replaced():
    exchange = Exchange(prompt=(Message(role="user", content="\ud800?"),), reply="a\udfffb")
    assert exchange.reply == "a?b" and Exchange.from_json(exchange.to_json()) == exchange


def test_bad_values_are_named_with_what_was_meant():
    with pytest.raises(ValueRefused, match=r"unknown key 'cylces', did you mean 'cycles'\?"):
        checked(Schedule, {"cylces": 3}, "[schedule]")
    with pytest.raises(ValueRefused, match=r"designs = 0 is refused.*ratio = 'half' is refused.*colon"):
        checked(Schedule, {"designs": 0, "ratio": "half"}, "[schedule]")


def test_json_is_plain():
    line = Design(setting={"depth": 1.0, "name": "Teich ü"}, aim="swim").to_json()
    assert json.loads(line)["setting"] == {"depth": 1.0, "name": "Teich ü"}
