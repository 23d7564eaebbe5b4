"""Tool calls: how answers are read, and how calls are compared with gold."""

import re

import pytest

from curricle.worlds.text.calls import Call, Unreadable, read_calls, write_calls
from curricle.worlds.text.matching import GoldCall, fault, same
from curricle.worlds.text.schema import tool, tool_fault, value_fault

WEATHER = tool(
    "get_weather", "Weather.", {"city": "string"}, {"days": {"type": "integer", "default": 1}, "wind": "boolean"}
)
ROUTE = tool("find.route", "Route.", {"stops": {"type": "array", "items": {"type": "string"}}, "speed": "number"})
TOOLS = {one["name"]: one for one in (WEATHER, ROUTE)}
OSLO = Call("get_weather", {"city": "Oslo"})
BLOCK = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{BLOCK}</tool_call>",
        f"<tool_call>\n{BLOCK}\n</tool_call>",
        '<tool_call>\n{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Oslo"\n  }\n}\n</tool_call>',
        f"I will look it up. <tool_call>{BLOCK}</tool_call> There.",
        f"```json\n{BLOCK}\n```",
        f"Here:\n```\n[{BLOCK}]\n```\nDone.",
        f"  {BLOCK}  ",
        f"[{BLOCK}]",
        BLOCK.replace("arguments", "parameters"),
        f"<think>not <tool_call>this</tool_call></think>\n<tool_call>{BLOCK}</tool_call>",
    ],
)
def test_forms_of_an_answer(text):
    assert read_calls(text) == [OSLO]


def test_several_blocks_and_none():
    two = f"<tool_call>{BLOCK}</tool_call>\n<tool_call>[{BLOCK}, {BLOCK}]</tool_call>"
    assert read_calls(two) == [OSLO] * 3
    assert read_calls("[]") == read_calls("```json\n[]\n```") == []
    assert read_calls("It is sunny.") is read_calls("") is read_calls("<think>[]") is None
    assert read_calls(write_calls([OSLO, OSLO])) == [OSLO, OSLO] and read_calls(write_calls([])) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>", "not closed"),
        ("<tool_call>" * 5000, "not closed"),
        ("<tool_call></tool_call>", "not JSON"),
        ("```python\nget_weather('Oslo')\n```", "not JSON"),
        ("{get_weather}", "not JSON"),
        ("[" * 100_000, "not JSON|nested too deeply"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("[" * 900 + "]" * 900, "a call is an object|nested too deeply"),
        ("[1]", "a call is an object"),
        ('{"name": "x"}', "a name and arguments"),
        ('{"name": "x", "arguments": {}, "parameters": {}}', "a name and arguments"),
        ('{"name": "x", "arguments": "{}"}', "name is text"),
        ('{"name": 5, "arguments": {}}', "name is text"),
        ('{"name": "x", "arguments": {"a": 1, "a": 2}}', "given twice"),
        ('{"name": "x", "arguments": {"a": NaN}}', "NaN is no number"),
        ('{"name": "x", "arguments": {"a": ' + "9" * 5000 + "}}", "not JSON"),
        ("[" + ", ".join([BLOCK] * 65) + "]", "65 calls"),
        ("x" * 100_001, "100001 characters"),
    ],
)
def test_broken_answers_have_a_reason(text, reason):
    with pytest.raises(Unreadable, match=reason):
        read_calls(text)


GOLD = (GoldCall(name="get_weather", arguments={"city": "Oslo"}),)


def wrong(*calls, gold=GOLD, ordered=False):
    return fault(calls, gold, TOOLS, ordered)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (OSLO, ""),
        (Call("get_weather", {"city": "OSLO"}), ""),
        (Call("get_weather", {"city": "Oslo", "days": 1}), ""),  # the default, said
        (Call("get_weather", {"city": "Oslo", "days": 2}), "days = 2 is not right"),
        (Call("get_weather", {"city": "Oslo", "wind": False}), "wind = False is not right"),
        (Call("get_weather", {"city": "Oslo", "town": "Oslo"}), "unknown argument 'town'"),
        (Call("get_weather", {}), "missing argument 'city'"),
        (Call("get_weather", {"city": 5}), "city must be of type string, not 5"),
        (Call("get_weather", {"city": "Bergen"}), "city = 'Bergen' is not right"),
        (Call("Get_weather", {"city": "Oslo"}), "no tool 'Get_weather'"),
        (Call("find.route", {"stops": [], "speed": 1}), "'find.route' is not the tool to call"),
    ],
)
def test_one_call_by_the_rules(call, reason):
    assert wrong(call) == reason if not reason else reason in wrong(call)


def test_accepted_optional_and_default_values():
    gold = (
        GoldCall(
            name="get_weather",
            arguments={"city": "New York", "days": 1, "wind": True},
            accepted={"city": ["NYC"]},
            optional=("wind",),
        ),
    )
    for arguments in (
        {"city": "new-york", "wind": True},
        {"city": "nyc"},
        {"city": "N.Y.C.", "days": 1},
    ):
        assert wrong(Call("get_weather", arguments), gold=gold) == ""
    assert "wind = False" in wrong(Call("get_weather", {"city": "NYC", "wind": False}), gold=gold)


def test_parallel_calls_count_all_and_in_any_order():
    gold = tuple(GoldCall(name="get_weather", arguments={"city": c}) for c in ("Oslo", "Lima"))
    lima = Call("get_weather", {"city": "Lima"})
    assert wrong(lima, OSLO, gold=gold) == wrong(OSLO, lima, gold=gold) == ""
    assert wrong(OSLO, gold=gold) == "1 calls instead of 2"
    assert wrong(OSLO, lima, lima, gold=gold) == "3 calls instead of 2"
    assert "twice" in wrong(OSLO, OSLO, gold=gold)
    assert wrong(OSLO, lima, gold=gold, ordered=True) == "" != wrong(lima, OSLO, gold=gold, ordered=True)
    either = GoldCall(name="get_weather", arguments={"city": "Oslo"}, accepted={"city": ["Lima"]})
    assert wrong(OSLO, lima, gold=(either, gold[0])) == "", "pairing has to look ahead: Oslo fits both, Lima one"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        (None, None, True),
        ({"a": "X y"}, {"a": "xy"}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("don't", 'don"t', True),
        ("1.5", "15", False),
        ("-15", "15", False),
        ("1,000", "1000", True),
        ("555-1234", "5551234", True),
    ],
)
def test_equal_values(one, other, equal):
    assert same(one, other) is equal


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "integer"}, 5.0, "type integer"),
        ({"type": "integer"}, True, "type integer"),
        ({"type": "number"}, 5, ""),
        ({"type": "number"}, True, "type number"),
        ({"type": "string", "enum": ["a"]}, "b", "one of"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "2"], r"x\[1\] must be"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {}, "missing argument 'x.a'"),
        ({"type": "object", "properties": {"a": {}}}, {"b": 1}, "unknown argument 'x.b'"),
        ({}, [None], ""),
    ],
)
def test_values_against_schemas(schema, value, reason):
    found = value_fault(schema, value, "x")
    assert found == "" if not reason else re.search(reason, found)


@pytest.mark.parametrize(
    "bad",
    [
        5,
        {"name": "a b", "parameters": {"type": "object"}},
        {"name": "a", "parameters": {"type": "dict"}},
        {"name": "a"},
        {"name": "a", "parameters": {"type": "object"}, "code": "x"},
        {"name": "a", "parameters": {"type": "object", "properties": {"x": {"type": "text"}}}},
        {"name": "a", "parameters": {"type": "object", "properties": {}, "required": ["x"]}},
        {"name": "a", "parameters": {"type": "object", "properties": {"x": {"enum": []}}}},
        {"name": "a", "parameters": {"type": "object", "properties": {"x": {"$ref": "#"}}}},
    ],
)
def test_malformed_tools_are_refused(bad):
    assert tool_fault(bad)
    assert not tool_fault(WEATHER) and not tool_fault(ROUTE)
