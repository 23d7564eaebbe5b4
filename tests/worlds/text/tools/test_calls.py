"""Tool calls: how answers are read, and how calls are compared with gold."""

import json
import re

import pytest

from curricle.records import Message
from curricle.worlds.text.tools.calls import Call, Unreadable, read_calls, write_calls
from curricle.worlds.text.tools.matching import GoldCall, fault, same, same_ignoring_case
from curricle.worlds.text.tools.schema import tool, tool_fault, value_fault
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.verify import score_attempt, task_fault
from curricle.worlds.text.tools.writing import written

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


def test_a_tool_without_arguments_needs_none():
    assert read_calls('{"name": "list_accounts"}') == [Call("list_accounts", {})]
    assert read_calls('<tool_call>{"name": "list_accounts"}</tool_call>') == [Call("list_accounts", {})]


@pytest.mark.parametrize("text", ["```x```", "an open ```", "<tool_call>", "<tool_call>[]</tool_call>"])
def test_marks_in_the_texts_of_plain_json_are_text(text):
    calls = [Call("write_file", {"text": text})]
    assert read_calls(json.dumps({"name": "write_file", "arguments": {"text": text}})) == calls
    if "call>" not in text:
        assert read_calls(write_calls(calls)) == calls


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
        ('{"name": "x", "args": {}}', "a name and arguments"),
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


@pytest.mark.parametrize(
    ("said", "reward"),
    [("2,860", 1), ("2860.00", 1), ("$2860", 1), ("-2860", 0), ("286 0", 0), ("2860 2861", 0), ("28.60", 0)],
)
def test_numbers_in_an_answer_are_numbers(said, reward):
    item = written('{"tools": [], "request": "What is left in the account?", "answer": "2860"}')
    assert score_attempt(item, [Message(role="assistant", content=f"<answer>{said}</answer>")])[0] == reward


def test_a_thought_that_never_ends_is_no_answer_however_long_it_is():
    item = written('{"tools": [], "request": "What does she keep?", "answer": "eight cats"}')
    for words in (150, 15_000, 100_000):
        thought, answer = "<think>" + "x " * words, "<answer>eight cats</answer>"
        assert score_attempt(item, [Message(role="assistant", content=thought + answer)])[0] == 0
        assert score_attempt(item, [Message(role="assistant", content=f"{thought}</think>{answer}")])[0] == 1


@pytest.mark.parametrize("people", [("Zed", "Yan"), ("Zed", "yan"), ("zed", "Yan"), ("Yan", "Zed")])
def test_in_which_case_and_order_guests_are_written_does_not_matter(people):
    number = SIMULATORS["calendar"].begin(7)["events"][0]["id"]

    def inviting(*people):
        return [{"name": "invite", "arguments": {"event_id": number, "person": person}} for person in people]

    asked = {"simulator": "calendar", "start": 7, "request": "Zed and Yan come to my first event."}
    item = written(json.dumps(asked | {"calls": inviting("Zed", "Yan")}))
    said = [Message(role="assistant", content=text) for text in (json.dumps(inviting(*people)), "Done.")]
    assert not task_fault(item) and score_attempt(item, said)[0] == 1


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
        ("555 123 4567", "555-123-4567", True),
        ("2024/01/12", "2024-01-12", True),
        ("20240112", "2024-01-12", True),
        ("12.1.2024", "12/1/2024", True),
        ("5 kg", "5kg", True),
        ("Covid-19", "covid 19", True),
        ("3x^2 + 2x -1", "3x**2+2x-1", True),
        ("3 - 5", "3-5", True),
        ("1, 2 and 3", "1,2 and 3", True),
        ("10 a.m.", "10 am", True),
        ("No. 5", "no 5", True),
        ("1,000.50 USD", "1000.50 usd", True),
        ("", " ", True),
        ("+1 555-123-4567", "+1-555-123-4567", True),
        ("+1 555-123-4567", "+15551234567", True),
        ("555-123 4567", "555 123 4567", True),
        ("555.123.4567", "5551234567", True),
        ("VALUES (101,250)", "VALUES (101, 250)", True),
        ("100,200", "100, 200", True),
        ("100,200", "100200", True),
        ("5,000 of 100,200", "5000 of 100, 200", True),
        ("10**3", "10^3", True),
        ("2*10**3", "2*10^3", True),
        ("10,000", "10 000", True),
        ("**5** kg", "5 kg", True),
        ("100,200", "100.200", False),
        ("2**3", "2*3", False),
        ("2**3", "23", False),
        ("1,5", "15", False),
        ("101, 250", "10, 1250", False),
        ("3 4-5", "3-4 5", False),
        ("1/2 1000000", "1 2/1000000", False),
        ("40.7128 74.0060", "407128740060", False),
        ("+1 555-123-4567", "+1 55-5123-4567", False),
        ("-1 555 1234567", "1 555 1234567", False),
        ("1.5 kg", "15 kg", False),
        ("2024-1-12", "2024-11-2", False),
        ("-5 C", "5 C", False),
        ("at -5 C", "at 5 C", False),
        ("$1.50", "$150", False),
        ("-$5", "$5", False),
        ("10.0.0.1", "100.0.1", False),
        ("192.168.1.10", "192.168.11.0", False),
        ("v1.10", "v11.0", False),
        ("--5", "5", False),
        (".5", "5", False),
        ("1e-5", "1e5", False),
        ("1/2", "12", False),
        ("2*3", "2^3", False),
        ("40.7128, -74.0060", "40.7128, 74.0060", False),
        ("1234567.5", "12345675", False),
        ("", ".", False),
        ("-", "*", False),
    ],
)
def test_equal_values(one, other, equal):
    assert same(one, other) is same(other, one) is equal


@pytest.mark.parametrize("odd", ["-", "- ", ". ", "1-", "1 ", "a-", "1,111", "$-", "-.5", "x 1-"])
def test_values_of_any_length_are_compared_in_time(odd):
    text = f"x{odd * 20_000} 5"
    assert same(text, f"{text} ")


def test_what_was_written_is_compared_as_it_stands():
    assert same({"a": ["Pay  Ann"]}, {"a": ["pay ann\n"]}, same_ignoring_case)
    for other in ("pay 15 to Ann-Marie", "pay1.5toannmarie", "Pay 1.5 to Ann Marie", ""):
        assert not same("Pay 1.5 to Ann-Marie", other, same_ignoring_case)


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
