"""The careful reader: a corpus of replies as models give them, each with what becomes of it."""

import tomllib
from pathlib import Path
from typing import Literal, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import model_validator

from curricle.designers.llm.prompts import again
from curricle.designers.llm.replies import read
from curricle.records import Brief, Exchange, Message, Skill
from curricle.setting import Setting, knob

CORPUS = tomllib.loads(Path(__file__).with_name("replies.toml").read_text(encoding="utf-8"))["reply"]


class Pond(Setting):
    depth: float = knob(2.0, "Depth of the water.", ge=0.5, le=9.0, harder="up")
    fish: Literal["very common", "common", "rare"] = knob("common", "How rare fish are.", harder="up")
    frogs: int = knob(0, "Frogs on the shore.", ge=0, le=9, harder="down")
    start_boat: int = knob(0, "A boat at the start.", ge=0, le=1)
    frozen: bool = knob(False, "Ice on the water.")
    shore: Literal["reed", "sand", "none"] = knob("reed", "What grows on the shore.")
    luck: float = knob(0.5, "Chance of a bite.", ge=0.0, le=1.0)
    sign: str = knob("", "What the sign says.", max_length=20)

    @model_validator(mode="after")
    def _ice(self) -> Self:
        if self.frozen and self.fish == "very common":
            raise ValueError("fish = 'very common' contradicts frozen = true")
        return self


BRIEF = Brief(
    world="pond-v1",
    guide="A pond.",
    skills=(Skill(name="catch_fish"), Skill(name="see_frog"), Skill(name="cross", needs=("see_frog",))),
    knobs=Pond.knobs(),
    original=Pond().values,
    cycle=1,
    cycles=4,
)


def reading(text, n=2, finish="stop"):
    exchange = Exchange(prompt=(), reply=text, finish=finish)
    return read(exchange, BRIEF, n, lambda found: Pond.of({**BRIEF.original, **found}).values)


def differs(design):
    return {name: value for name, value in design.setting.items() if value != BRIEF.original[name]}


def test_the_corpus_is_large():
    assert len(CORPUS) >= 60 and len({case["name"] for case in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_what_becomes_of_a_reply(case):
    text = case["text"]
    if repeat := case.get("repeat"):
        text = text.replace(repeat["mark"], repeat["text"] * repeat["times"])
    found = reading(text, case.get("n", 2), case.get("finish", "stop"))
    wanted = case.get("want", [])
    assert [(differs(d), d.aim) for d in found.designs] == [(w["setting"], w.get("aim")) for w in wanted]
    for design, want in zip(found.designs, wanted, strict=True):
        assert "why" not in want or design.why == want["why"]
        assert Pond.of(design.setting) and type(design).from_json(design.to_json()) == design
        assert all(type(v) is type(BRIEF.original[k]) for k, v in design.setting.items())
    said = "\n".join([*found.problems, *(note for d in found.designs for note in d.changed)])
    for words in case.get("says", []):
        assert words in said, said
    if case.get("clean"):
        assert not said, "nothing was repaired"
    assert wanted or found.problems, "nothing is refused without a word"
    assert len(said) < 20_000, "and not with too many"


class Odd(Setting):
    goal: Literal["fish", "frog"] = knob("fish", "A knob with the name of a part.")
    description: str = knob("", "Another.", max_length=30)
    name: int = knob(0, "Another.", ge=0, le=9)
    environment: bool = knob(False, "Another.")


@pytest.mark.parametrize(
    "text",
    [
        '{"setting": {"goal": "frog", "description": "wet", "name": 3,"environment": true}, "aim": "cross","why":"w"}',
        '{"goal": "frog", "description": "wet", "name": 3, "environment": true, "aim": "cross", "why": "w"}',
        '{"description": "wet", "environment": true, "goal": "frog", "target": "cross", "name": 3, "reason": "w"}',
    ],
    ids=["nested", "flat", "flat, in other words"],
)
def test_knobs_with_the_names_of_parts_are_knobs(text):
    brief = BRIEF.model_copy(update={"knobs": Odd.knobs(), "original": Odd().values})
    exchange = Exchange(prompt=(), reply=text)
    (design,) = read(exchange, brief, 1, lambda found: Odd.of({**brief.original, **found}).values).designs
    assert design.setting == {"goal": "frog", "description": "wet", "name": 3, "environment": True}
    assert (design.aim, design.why, design.changed) == ("cross", "w", ())


def test_what_a_model_is_told_of_its_mistakes_stays_short():
    found = reading('{"designs": [' + '{"setting": {"zzz": 1}, "aim": "cross"},' * 1000 + "]}")
    (_, reply, complaint) = again([Message(role="user", content="?")], "x" * 100_000, found.problems, 2)
    assert len(reply.content) == 4000 and len(complaint.content) < 5000
    assert "design 1: unknown knob 'zzz'" in complaint.content and "all 2 designs" in complaint.content


JSONISH = st.text(alphabet="{}[](),:;=\"'`\\/*# \n\tabfrogs_019.-+eETrueNone\u201c\u201d\ud83dé", max_size=300)


@settings(max_examples=400)
@given(JSONISH)
def test_no_text_breaks_the_reader(text):
    for design in reading('{"designs": [' + text).designs:
        assert Pond.of(design.setting)
