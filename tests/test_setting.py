"""One declaration of the knobs gives prompt lines, schema, validation, sampling and levels."""

from typing import Literal

import numpy as np
import pytest
from pydantic import ValidationError, model_validator

from curricle.errors import DeclarationError, ValueRefused
from curricle.records import Frozen
from curricle.setting import Setting, knob


class Pond(Setting):
    depth: float = knob(2.0, "Depth in metres.", ge=0.5, le=9.0, harder="up")
    ducks: int = knob(3, "Ducks on it.", ge=0, le=9)
    width: int = knob(100, "Cells across.", ge=1, le=1000)
    frozen: bool = knob(False, "Whether it is frozen.")
    fish: Literal["many", "few"] = knob("many", "How many fish live in it.", harder="up")
    name: str = knob("pond", "What it is called.", max_length=20)

    @model_validator(mode="after")
    def _ducks_need_water(self):
        if self.frozen and self.ducks:
            raise ValueError("ducks cannot swim on a frozen pond; set ducks = 0 or frozen = false")
        return self


def test_every_knob_is_described():
    lines = {knob.name: knob.line for knob in Pond.knobs()}
    assert lines["depth"] == "depth (number from 0.5 to 9; original 2.0): Depth in metres. Harder: up."
    assert lines["fish"] == "fish (many | few; original many): How many fish live in it. Harder: up."
    assert lines["frozen"] == "frozen (true or false; original false): Whether it is frozen."
    assert lines["name"].startswith("name (text of at most 20 characters")


def test_schema_says_what_validation_checks():
    schema = Pond.json_schema()
    assert schema["properties"]["ducks"]["enum"] == list(range(10))
    assert schema["properties"]["width"] == {
        "description": "Cells across.", "type": "integer", "minimum": 1, "maximum": 1000
    }  # fmt: skip
    assert schema["properties"]["fish"]["enum"] == ["many", "few"]
    assert schema["required"] == [knob.name for knob in Pond.knobs()]
    assert schema["additionalProperties"] is False


def test_samples_are_valid_and_cover_the_range():
    rng = np.random.default_rng(0)
    drawn = [Pond.sample(rng) for _ in range(500)]
    assert {p.ducks for p in drawn} == set(range(10))
    assert {p.fish for p in drawn} == {"many", "few"}
    assert all(Pond.of(p.values) == p for p in drawn)
    assert all(not (p.frozen and p.ducks) for p in drawn)
    assert {p.name for p in drawn} == {"pond"}
    assert max(p.depth for p in drawn) > 8.5


def test_levels_are_ordered_and_bounded():
    levels = {knob.name: knob.levels() for knob in Pond.knobs()}
    assert levels["ducks"] == tuple(range(10))
    assert levels["fish"] == ("many", "few")
    assert levels["frozen"] == (False, True)
    assert len(levels["width"]) == 10 and levels["width"][0] == 1 and levels["width"][-1] == 1000
    assert levels["depth"][0] == 0.5 and levels["depth"][-1] == 9.0
    for name, values in levels.items():
        for value in values:
            assert Pond.of({"ducks": 0, name: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 10.0}, r"depth = 10.0 is not allowed: number from 0.5 to 9"),
        ({"depth": "deep"}, r"depth = 'deep' is not allowed: number from 0.5 to 9"),
        ({"depth": float("nan")}, r"depth = nan is not allowed"),
        ({"ducks": "3"}, r"ducks = '3' is not allowed: whole number from 0 to 9"),
        ({"ducks": True}, r"ducks = True is not allowed"),
        ({"ducks": -1}, r"ducks = -1 is not allowed"),
        ({"fish": "mny"}, r"fish = 'mny' is not allowed: many \| few; did you mean 'many'\?"),
        ({"dept": 1.0}, r"unknown knob 'dept', did you mean 'depth'\?"),
        ({"frozen": True}, r"ducks cannot swim on a frozen pond"),
        ({"name": "x" * 21}, r"text of at most 20 characters"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(ValueRefused, match=message):
        Pond.of(values)


def test_all_bad_values_are_named_at_once():
    with pytest.raises(ValueRefused, match=r"depth = 99.*ducks = 99.*unknown knob 'frogs'"):
        Pond.of({"depth": 99.0, "ducks": 99, "frogs": 1})


def test_a_setting_is_frozen():
    with pytest.raises(ValidationError):
        Pond().depth = 3.0  # type: ignore[misc]


def declare(annotation, default):
    return type("Bad", (Setting,), {"__annotations__": {"x": annotation}, "x": default, "__module__": __name__})


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (int, 3, "needs a sentence"),
        (int, knob(3, "No bounds."), "needs both bounds"),
        (int, knob(11, "Out of bounds.", ge=0, le=9), "defaults are not a valid setting"),
        (list, knob([], "A list."), "cannot be a knob"),
        (str, knob("", "Endless."), "cannot be a knob"),
    ],
)
def test_bad_declarations_are_refused_when_the_class_is_made(annotation, default, message):
    with pytest.raises(DeclarationError, match=message):
        declare(annotation, default)


def test_a_direction_that_is_none_is_refused():
    with pytest.raises(DeclarationError, match="harder = 'more'; it must be 'up' or 'down'"):
        knob(1, "A knob.", harder="more")  # type: ignore[arg-type]


def test_rules_that_leave_nothing_are_named():
    class Tight(Setting):
        x: float = knob(0.0, "Must be nought.", ge=0, le=1)

        @model_validator(mode="after")
        def _only_nought(self):
            if self.x:
                raise ValueError("no")
            return self

    with pytest.raises(DeclarationError, match="too tight"):
        Tight.sample(np.random.default_rng(0))


class Lake(Pond):
    renamed = Frozen({"deepness": "depth"})


def test_the_old_name_of_a_knob_is_read_and_noted_once(caplog):
    assert Lake.of({"deepness": 3.0}) == Lake.of({"depth": 3.0})
    Lake.of({"deepness": 4.0})
    assert [record.message for record in caplog.records] == ["Lake: the knob deepness is called depth now"]
    with pytest.raises(ValueRefused, match="deepness is the old name of depth, and both are given; keep only depth"):
        Lake.of({"deepness": 3.0, "depth": 3.0})
    with pytest.raises(ValueRefused, match="unknown knob 'deepness'"):
        Pond.of({"deepness": 3.0})
    assert "deepness" not in str(Lake.json_schema())


class Sea(Pond):
    replaced = Frozen({"deep": {True: {"depth": 9.0, "fish": "few"}, False: {"depth": 1.0}}})


def test_a_knob_that_others_replaced_is_read_and_noted_once(caplog):
    assert Sea.of({"deep": True}) == Sea.of({"depth": 9.0, "fish": "few"})
    assert [record.message for record in caplog.records] == ["Sea: the knob deep is depth and fish now"]
    assert Sea.of({"deep": False}) == Sea.of({"depth": 1.0})
    assert list(Sea.updated({"deep": None}, "leave")) == ["depth", "fish"]
    with pytest.raises(ValueRefused, match="deep is depth and fish now, and fish is given too; leave deep out"):
        Sea.of({"deep": True, "fish": "few"})
    with pytest.raises(ValueRefused, match="depth = 'very' is not allowed"):
        Sea.of({"deep": "very"})
