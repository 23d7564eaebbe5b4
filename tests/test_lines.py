"""The line format: write and read are inverse for every world, and read makes the best of anything else."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import LADDER, VAULT, WORLDS
from pydantic import model_validator

from curricle.llm.lines import LONGEST, MOST_NOTES, grammar, prompt, read, write
from curricle.records import Cycle, Design, Outcome, Score, Scores
from curricle.setting import Setting, knob
from curricle.worlds.crafter import Crafter

CRAFTER = Crafter.Setting


class Odd(Setting):
    """Names that begin alike, words with signs in them, and text: what a line must keep apart."""

    wood: int = knob(0, "Wood.", ge=-5, le=500)
    wood_axe: int = knob(0, "Axes.", ge=0, le=9)
    Wood: float = knob(0.5, "Another one.", ge=-1.0, le=1e9)
    mood: Literal["a;b", "very_good", "very good", '"', "", "-1", "A", "a"] = knob("a", "Words.")
    original: bool = knob(True, "A knob by the name of the empty line.")
    title: str = knob("x", "Text.", max_length=30)

    @model_validator(mode="after")
    def _no_big_axes(self):
        if self.wood_axe > 8 and self.wood == 0:
            raise ValueError("axes need wood")
        return self


@st.composite
def odd(draw):
    values = {
        "wood": draw(st.integers(-5, 500)),
        "wood_axe": draw(st.integers(0, 8)),
        "Wood": draw(st.floats(-1.0, 1e9)),
        "mood": draw(st.sampled_from(Odd.knobs()[3].choices)),
        "original": draw(st.booleans()),
        "title": draw(st.text(max_size=30)),
    }
    return Odd.of(values).values


@given(odd())
def test_round_trip_of_odd_knobs(values):
    line = write(values, Odd.knobs(), Odd().values)
    assert "\n" not in line
    reading = read(line, Odd, Odd().values)
    assert (reading.values, reading.notes) == (values, ())


@pytest.mark.parametrize("world", WORLDS, ids=lambda cls: cls.id)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), other=st.booleans())
def test_round_trip_in_every_world(world, seed, other):
    rng = np.random.default_rng(seed)
    values, original = world.Setting.sample(rng).values, world.Setting().values
    if other:
        original = world.Setting.sample(rng).values
    reading = read(write(values, world.Setting.knobs(), original), world.Setting, original)
    assert (reading.values, reading.notes) == (values, ())


def test_only_what_differs_is_written():
    values = CRAFTER.of({"biome": "mountain", "iron": "very common", "start_stone_pickaxe": 1}).values
    line = write(values, CRAFTER.knobs(), CRAFTER().values)
    assert line == "biome mountain; iron very common; start_stone_pickaxe 1"
    assert write(CRAFTER().values, CRAFTER.knobs(), CRAFTER().values) == "original"
    assert read("original", CRAFTER, values).values == values


@pytest.mark.parametrize(
    ("text", "changed", "notes"),
    [
        ("Biome: Mountain; IRON = very_common.", {"biome": "mountain", "iron": "very common"}, 2),
        ("```\nbiome mountain\ncoal very  common\n```", {"biome": "mountain", "coal": "very common"}, 3),
        ("mountain; very common iron", {"biome": "mountain", "iron": "very common"}, 2),
        ("start wood pickaxe: 1; start_wood 12", {"start_wood_pickaxe": 1, "start_wood": 9}, 2),
        ("start_wood 3 pieces", {"start_wood": 3}, 1),
        ("Start-Sapling=-3; day length: 1e2", {"day_length": 100}, 2),
        ("food 4.6", {"food": 5}, 1),
        ("peaceful; table_nearby yes", {"peaceful": True, "table_nearby": True}, 0),
        ("iorn rare; biome beeches", {"iron": "rare", "biome": "beaches"}, 2),
        ("iron rare; iron common", {"iron": "rare"}, 1),
        ("iron rare; gold common; Sure! Here you go", {"iron": "rare"}, 2),
        ("biome beaches; water none", {"biome": "beaches"}, 1),
        ("biome grassland; coal very common; iron very common", {"coal": "very common", "iron": "very common"}, 1),
        ("zombie many; peaceful true; skeleton few", {"zombie": "many", "skeleton": "few"}, 1),
        ("drink nan; food 1e999; energy 3", {"energy": 3}, 2),
        ("original", {}, 0),
    ],
)
def test_what_is_plainly_meant_is_read(text, changed, notes):
    reading = read(text, CRAFTER, CRAFTER().values)
    assert reading.values == {**CRAFTER().values, **changed}
    assert len(reading.notes) == notes, reading.notes
    CRAFTER.of(reading.values)


@pytest.mark.parametrize("text", ["", "   \n", "I cannot help with that.", "{}[]", "\ud800" * 9, '"' * 99, ";" * 9999])
def test_a_line_that_says_nothing_is_no_setting(text):
    assert read(text, CRAFTER, CRAFTER().values).values is None


@settings(max_examples=150)
@given(
    st.text() | st.lists(st.sampled_from(["biome", "mountain", ";", " ", "start_", "wood", "1", '"', "\\", "-", "é"]))
)
def test_nothing_a_model_writes_raises(text):
    text = text if isinstance(text, str) else "".join(text)
    for setting in (CRAFTER, VAULT.Setting, Odd):
        reading = read(text, setting, setting().values)
        if reading.values is not None:
            assert setting.of(reading.values)


def test_endless_replies_are_cut():
    reading = read("biome mountain; " + "nonsense; " * 100_000, CRAFTER, CRAFTER().values)
    assert reading.values["biome"] == "mountain" and len(reading.notes) == MOST_NOTES
    assert f"first {LONGEST} characters" in reading.notes[0] and "more such remarks" in reading.notes[-1]


def test_the_grammar_has_every_knob_once_in_order():
    rules = dict(line.split(" ::= ") for line in grammar(LADDER.Setting).splitlines())
    assert rules["root"] == 'k0 r1 | k1 r2 | "original"'
    assert rules["k1"] == '"topic " ("both" | "sums" | "words")' and rules["r1"] == '("; " k1)? r2'


def test_the_prompt_tells_the_aim_its_needs_and_the_last_try():
    world = VAULT()
    design = Design(setting=world.setting({"alarm": 0.1}).values, aim="open_2")
    found = {"open_1": Score(mean=0.62, std=0, n=1), "open_2": Score(mean=0.03, std=0, n=1)}
    past = Cycle(
        number=1,
        designed=(Outcome(design=design, attempts=4, successes=1),),
        scores=Scores(skills=found, reward=Score(mean=0, std=0, n=1)),
    )
    brief = world.brief(2, 4, [past])
    system, user = prompt(brief, world.skills[1], taught=True)
    assert user.content.splitlines() == [
        "vault-v1. Aim: open_2, success 3%.",
        "Needs: open_1 62%.",
        "Last: alarm 0.1 -> 25%.",
    ]
    untaught = prompt(brief, world.skills[1], taught=False)
    assert untaught[1] == user and len(untaught[0].content) > len(system.content)
    assert "alarm: number from 0 to 1" in untaught[0].content
