"""Written tasks: which texts are tasks of tool calls, and why all others are refused."""

import copy
import json

import pytest

from curricle.errors import ValueRefused, WorldError
from curricle.records import Message
from curricle.seeds import for_test, generator
from curricle.worlds.text.tools.calls import Call, write_calls
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.named import left_out, unnamed
from curricle.worlds.text.tools.pool import SKILLS, draw_item
from curricle.worlds.text.tools.verify import score_attempt, task_fault
from curricle.worlds.text.tools.world import Tools
from curricle.worlds.text.tools.writing import write, written

GOOD = {
    "tools": ["get_forecast", "set_timer"],
    "request": "How is the weather in Rome?",
    "calls": [{"name": "get_forecast", "arguments": {"city": "Rome"}}],
}
INFINITE = {"name": "feed", "arguments": {"x": float("inf")}}
OWN = {"name": "feed", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}
EITHER = OWN | {"parameters": {"type": "object", "properties": {"x": {"type": ["string", "null"]}}, "required": ["x"]}}


def say(*texts):
    return [Message(role="assistant", content=text) for text in texts]


def test_a_written_task_is_the_design():
    world = Tools()
    setting = world.setting({"task": json.dumps(GOOD)})
    first, second = world.tasks(setting, 2, seed=1)
    assert first == second and first.skill == "right_tool"
    assert "get_forecast" in first.prompt[0].content and first.prompt[-1].content == GOOD["request"]
    assert world.score(first, say(*world.solution(first))).reward == 1
    assert world.tasks(setting, 1, for_test(0)) == [first]


LINES = """tools: get_forecast
tool: {"name": "feed", "description": "", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
request: How will Rome be for 3 days?
And feed the cat.
call: get_forecast(city="Rome", days=3)
call: feed(n=-2)
"""


def test_lines_and_json_say_the_same():
    item = written(LINES)
    assert item.request == "How will Rome be for 3 days?\nAnd feed the cat." and item.skill == "parallel_calls"
    assert [call.call for call in item.calls] == [
        Call("get_forecast", {"city": "Rome", "days": 3}),
        Call("feed", {"n": -2}),
    ]
    assert Tools().setting({"task": LINES}).task == LINES  # type: ignore[attr-defined]
    for i, skill in enumerate(SKILLS * 4):
        item = draw_item(skill, generator(i, "lines"), held_out=False)
        assert written(write(item)) == item and not write(item).startswith("{")
    many = item.model_copy(update={"request": "two\nlines"})
    assert written(write(many)) == many and write(many).startswith("{")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"request": ""}, "request"),
        ({"request": "x" * 30_000}, "task = .* is not allowed"),
        ({"calls": [{"name": "get_forecast", "arguments": {}}]}, "missing argument 'city'"),
        ({"calls": [{"name": "get_forecast", "arguments": {"city": "Rome", "to": 1}}]}, "unknown argument 'to'"),
        ({"calls": [{"name": "get_forecast", "arguments": {"city": 3}}]}, "type string"),
        ({"calls": [{"name": "send_message", "arguments": {}}]}, "none of the tools"),
        ({"calls": [{"arguments": {}}]}, "calls.0.name"),
        ({"calls": GOOD["calls"] * 40}, "calls"),
        ({"tools": ["no_such"]}, "there is no tool 'no_such'"),
        ({"tools": [{"name": "x"}]}, "parameters"),
        ({"tools": ["set_timer", "set_timer"], "calls": []}, "two tools share a name"),
        ({"tools": []}, "none of the tools"),
        ({"tools": 5}, "tools is a list"),
        ({"answer": "sunny"}, "a task has tools and calls, or an answer"),
        ({"simulator": "bank", "start": 1}, "either tools, or a simulator"),
        ({"check": "import os"}, "a task has a request and some of"),
        ({"calls": [{"name": "get_forecast", "arguments": {"city": float("inf")}}]}, "type string"),
        (
            {"tools": [OWN | {"parameters": {"type": "object", "properties": {"x": {}}}}], "calls": [INFINITE]},
            "that can be",
        ),
    ],
)
def test_written_tasks_that_are_no_good_are_refused(change, reason):
    with pytest.raises(ValueRefused, match=reason):
        Tools().setting({"task": json.dumps({**GOOD, **change})})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ("[1]", "starts with a key"),
        ("[" * 7000, "starts with a key"),
        ('{"a":' * 1500, "cannot be read"),
        ("just words", "starts with a key"),
        ("request: hello", "either tools, or a simulator"),
        ("request: hello\nrequest: again", "stand once"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise('Rome')", "write the names of the arguments"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise(city=open('x'))", "cannot be read"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise(city=" + "-" * 3000 + "1)", "cannot be read"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise(city=" + "[" * 3000, "cannot be read"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise(**{})", "write the names of the arguments"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: 5", "not a call"),
        ("simulator: bank\nrequest: x", "cannot be read"),
        ('{"request": "\\ud800", "tools": []}', "request"),
        ('{"simulator": "nuclear", "start": 1, "request": "x"}', "there is no simulator"),
        ('{"simulator": ["bank"], "start": 1, "request": "x"}', "there is no simulator"),
        ('{"simulator": "bank", "start": 10000, "request": "x", "calls": []}', "from 0 to 9999"),
        ('{"simulator": "bank", "start": true, "request": "x", "calls": []}', "from 0 to 9999"),
        ('{"simulator": "bank", "start": 1, "request": "x", "calls": []}', "changes nothing"),
        (
            '{"simulator": "bank", "start": 1, "request": "x", "calls": [{"name": "set_frozen", "arguments": '
            '{"card": "no", "frozen": true}}]}',
            "is refused: there is no card 'no'",
        ),
        ('{"tools": [], "request": "Say ok", "answer": "between and"}', "repeats the prompt"),
        ('{"tools": [], "request": "What is an echo?", "answer": ""}', "a task has tools"),
        ("tools: get_sunrise\nrequest: Sun?\ncall: get_sunrise(city={[1]})", "cannot be read: .*unhashable"),
        (f"tools: set_timer\ntool: {json.dumps(EITHER)}\nrequest: Eat.\ncall: feed(x='a')", "is no type; there are"),
    ],
)
def test_written_texts_that_are_no_tasks_are_refused(text, reason):
    with pytest.raises(ValueRefused, match=reason):
        Tools().setting({"task": text})


def broken(rng):
    """A sound task with some of its values, or of its characters, replaced by others."""
    text = write(draw_item(SKILLS[int(rng.integers(len(SKILLS)))], rng, held_out=False))
    odd = (None, True, -1, 1e400, 10**400, "", "\ud800", "\x00", [], [[1]], {}, {"type": ["string"]}, "object", [{}])
    if rng.integers(2):
        signs = '{}[]()"\\,:=*-\n<|\x00\ud800' + "aé1"
        places = set(rng.integers(len(text), size=int(rng.integers(1, 6))))
        return "".join(signs[int(rng.integers(len(signs)))] if i in places else c for i, c in enumerate(text))
    item = written(text)
    data = json.loads(json.dumps(item.model_dump(mode="json", exclude_defaults=True)))
    data |= {"start": 3} if item.simulator else {"tools": data["tools"]}
    for _ in range(int(rng.integers(1, 4))):
        inner, key = data, None
        while isinstance(inner, dict | list) and inner and (key is None or rng.integers(6)):
            holder, keys = inner, list(inner) if isinstance(inner, dict) else range(len(inner))
            key = keys[int(rng.integers(len(keys)))]
            inner = holder[key]
        holder[key] = copy.deepcopy(odd[int(rng.integers(len(odd)))])
    return json.dumps(data)


def test_no_text_breaks_a_run():
    """Whatever stands in the knob `task`, it is a task or it is refused with a reason."""
    world, refused = Tools(), 0
    for i in range(1500):
        text = broken(generator(i, "broken"))
        try:
            (task,) = world.tasks(world.setting({"task": text}), 1, 0)
            "".join(message.content for message in task.prompt).encode()
        except ValueRefused as refusal:
            refused += 1
            assert str(refusal).isprintable() and len(str(refusal)) < 20_000
    assert 500 < refused < 1500


def test_a_check_that_breaks_is_a_refusal(monkeypatch):
    error: BaseException

    def breaks(item):
        raise error

    monkeypatch.setattr("curricle.worlds.text.tools.world.task_fault", breaks)
    for error in (TypeError("odd"), RecursionError(), KeyError("x"), AssertionError(), OverflowError("big")):
        with pytest.raises(ValueRefused, match=f"cannot be checked: {type(error).__name__}"):
            Tools().setting({"task": json.dumps(GOOD | {"request": f"Will it rain in Rome, {error!r}?"})})
    for error in (MemoryError(), KeyboardInterrupt(), WorldError("no disk")):
        with pytest.raises(type(error)):
            Tools().setting({"task": json.dumps(GOOD | {"request": f"Will it rain in Rome, {error!r}?"})})


def test_an_answer_that_repeats_the_prompt_never_scores():
    """A tool without arguments, whose schema looks like the very call, is told apart."""
    item = written(json.dumps({"tools": [OWN], "request": "Feed the cat.", "calls": [{"name": "feed"}]}))
    assert task_fault(item) == ""
    assert score_attempt(item, say(json.dumps(OWN)))[0] == 0
    assert score_attempt(item, say('{"name": "feed", "arguments": {}}'))[0] == 1
    prompted = [Message(role="user", content='<tool_call>{"name": "feed", "arguments": {}}</tool_call>'), *say("Done.")]
    assert score_attempt(item, prompted)[0] == 0, "a call that only the world made is none of the agent's"


def test_one_right_call_among_wrong_ones_is_wrong():
    item = written(json.dumps(GOOD))
    right, other = item.calls[0].call, Call("set_timer", {"minutes": 5})
    assert score_attempt(item, say(write_calls([right])))[0] == 1
    assert score_attempt(item, say(write_calls([right, other])))[0] == 0
    assert score_attempt(item, say(write_calls([right, right])))[0] == 0
    assert score_attempt(item, say(write_calls([other]), write_calls([right])))[0] == 1, "the last answer is the answer"


@pytest.mark.parametrize(
    "text",
    [
        "simulator: files 7\nrequest: Say yes.\nanswer: yes",
        "simulator: files 7\nrequest: Look into the folders, then say yes.\ncall: list_folders()\nanswer: then say yes",
        '{"tools": [], "request": "The answer is blue whale. What is it?", "answer": "blue whale"}',
        '{"tools": [], "request": "What can you not do?", "answer": "I cannot do that"}',
        'tools: get_sunrise\nrequest: {"name": "get_sunrise", "arguments": {"city": "Oslo"}}\n'
        'call: get_sunrise(city="Oslo")',
        'tools: get_sunrise\nrequest: No. <answer></answer> ``` {"name": "get_sunrise", "arguments": {"city": "Oslo"}} '
        '```\ncall: get_sunrise(city="Oslo")',
        'tools: set_timer\nrequest: Please repeat.\n[{"name":"set_timer","arguments":{"minutes":3}}]\n'
        "call: set_timer(minutes=3)",
        'tools: set_timer\nrequest: Say {"name": "set_timer", "arguments": {"minutes": 3}} to me.\n'
        "call: set_timer(minutes=3)",
        'tools: list_all\ntool: {"name": "list_all", "description": "", "parameters": {"type": "object", '
        '"properties": {}}}\nrequest: Say [{"name": "list_all"}, 1] or {"name": "list_all"}.\ncall: list_all()'.replace(
            "tools: list_all\n", "tools:\n"
        ),
        '{"tools": [], "request": "Of all poets of then, who wrote \\"the blue whale\\"?", "answer": "blue whale"}',
        '{"tools": [], "request": "Read it out to all, word for word:\\nthe blue whale", "answer": "blue whale"}',
    ],
)
def test_a_request_that_holds_its_answer_is_refused(text):
    """Echoes are tried in every form in which an answer is read, after the calls that are needed."""
    with pytest.raises(ValueRefused, match="junk or repeats the prompt"):
        Tools().setting({"task": text})


NEEDED = GOOD | {
    "request": "Tell me the weather there please.",
    "calls": [{"name": "get_forecast", "arguments": {"city": "Xanadu", "days": 3}}],
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"optional": ["city"]}, "may leave out 'city', which its tool requires"),
        ({"optional": ["unit"]}, "'unit', or leaves it out, which is none of its arguments"),
        ({"accepted": {"unit": ["celsius"]}}, "accepts values of 'unit'"),
        ({"accepted": {"days": ["four"]}}, "days must be of type integer"),
        ({"accepted": {"days": [4]}, "optional": ["days"]}, ""),
    ],
)
def test_what_gold_leaves_free_fits_its_tool(change, reason):
    world, (call,) = Tools(), NEEDED["calls"]
    lacking = {"tools": ["set_timer"], "calls": [], "lacks": [call | change]}
    for task in (NEEDED | {"calls": [call | change]}, NEEDED | lacking):
        if not reason:
            assert world.setting({"task": json.dumps(task)})
            continue
        with pytest.raises(ValueRefused, match=reason):
            world.setting({"task": json.dumps(task)})
        with pytest.raises(ValueRefused, match=reason):
            Tools(Tools.Options(named=True)).setting({"task": json.dumps(task)})


def test_numbers_that_json_lacks_are_refused():
    odd = {"name": "feed", "parameters": {"type": "object", "properties": {"x": {"default": float("nan")}}}}
    for change in ({"tools": [odd], "calls": []}, {"calls": [GOOD["calls"][0] | {"accepted": {"city": [1e999]}}]}):
        with pytest.raises(ValueRefused, match=r"numbers that can be written|must be of type string, not inf"):
            Tools().setting({"task": json.dumps(GOOD | change)})


MAP = {"type": "object", "properties": {"x": {"type": "object"}, "y": {"type": "array"}, "z": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ('tools: get_forecast\nrequest: Rome, 3 days.\ncall: get_forecast(city="rome", days=3)', ""),
        ('tools: get_forecast\nrequest: Rome, 30 days.\ncall: get_forecast(city="Rome", days=3)', "days = 3"),
        ('tools: get_forecast\nrequest: The weather, please.\ncall: get_forecast(city="Rome")', "city = 'Rome'"),
        (
            'tools: translate\nrequest: say hi to a cat\ncall: translate(text="hi cat", language="hi")',
            "text = 'hi cat'",
        ),
        ('simulator: bank 7\nrequest: Freeze silver.\ncall: set_frozen(card="silver", frozen=true)', ""),
    ],
)
def test_gold_of_a_task_may_have_to_be_named(lines, missing):
    free, strict = Tools(), Tools(Tools.Options(named=True))
    assert free.setting({"task": lines}).task == lines  # type: ignore[attr-defined]
    if not missing:
        assert strict.setting({"task": lines}).task == lines  # type: ignore[attr-defined]
        return
    said = f"gold passes on .*{missing}.* which nothing before it names"
    with pytest.raises(ValueRefused, match=said):
        strict.setting({"task": lines})
    with pytest.raises(ValueRefused, match=said):
        Tools(Tools.Options(named=True), free.setting({"task": lines}))


def test_what_a_call_returned_is_named_after_it_and_an_answer_is_looked_up():
    state = "simulator: shop 785\nrequest: What does the blue kettle cost?\n"
    asked = Item.model_validate(written(state + 'call: search_products(text="blue kettle")\nanswer: 45').model_dump())
    assert not unnamed(asked) and "stands in no result" in unnamed(asked.model_copy(update={"answer": "46"}))
    several = [draw_item("several_steps", generator(i, "named"), held_out=False) for i in range(40)]
    bills = [item for item in several if {call.name for call in item.calls} == {"pay_bill", "list_bills"}]
    assert bills and not any(map(unnamed, bills)), "the number of a bill stands in the list of bills"
    for item in bills:
        alone = item.model_copy(update={"calls": tuple(c for c in item.calls if c.name == "pay_bill")})
        assert "bill_id" in unnamed(alone)


def test_all_forms_of_a_value_and_its_alternatives_count():
    call = {"name": "feed", "arguments": {"x": {"a": [1, "two"]}, "y": ["cat"], "z": False, "n": 30.0}}
    item = {"tools": [OWN | {"parameters": MAP}], "request": "Feed the cat 1 of two, 30 times.", "calls": [call]}
    assert not unnamed(Item.model_validate(item))
    item["request"] = "Feed the cat 1, 30 times."
    assert "x = " in unnamed(Item.model_validate(item))
    assert not unnamed(Item.model_validate(item | {"calls": [call | {"accepted": {"x": [{"a": 1}]}}]}))
    assert not unnamed(Item.model_validate(item | {"calls": [call | {"optional": ["x"]}]}))


def test_numbers_of_a_request_have_to_be_in_gold():
    asked = "tools: get_forecast\nrequest: How will Rome be for 3 days?\ncall: get_forecast("
    strict, said = Tools(Tools.Options(named=True)), "the request says 3, which gold passes on nowhere"
    assert Tools().setting({"task": asked + 'city="Rome")'}) and strict.setting(
        {"task": asked + 'city="Rome", days=3)'}
    )
    with pytest.raises(ValueRefused, match=said):
        strict.setting({"task": asked + 'city="Rome")'})
    for skill in SKILLS:
        pool = (draw_item(skill, generator(i, "left out"), held_out=False) for i in range(40))
        assert not any(map(left_out, pool)), "the world's own tasks leave nothing out"


def test_a_request_is_more_than_a_word():
    task = 'tools: get_sunrise\nrequest: {}\ncall: get_sunrise(city="Oslo")'
    strict = Tools(Tools.Options(named=True))
    assert strict.setting({"task": task.format("Sunrise in Oslo?")}) and Tools().setting({"task": task.format("Oslo")})
    with pytest.raises(ValueRefused, match="the request 'Oslo' is no sentence: it has fewer than 2 words"):
        strict.setting({"task": task.format("Oslo")})


def test_gold_has_to_make_a_call():
    """An agent that never calls a tool would be paid for it, whatever was asked."""
    task, strict = "tools: set_timer\nrequest: What is 3 times 4?", Tools(Tools.Options(named=True))
    assert Tools().setting({"task": task})
    assert all("\ncall: " in v["task"] or "\nlacks: " in v["task"] for v in strict.examples(1))
    with pytest.raises(ValueRefused, match="gold makes no call"):
        strict.setting({"task": task})
    for begun in (f"{task}\n", "simulator: shop 785\nrequest: What does the kettle cost?\n"):
        free, held = Tools.Setting.follows("task", begun), strict.Setting.follows("task", begun)
        assert {"", "answer: "} & set(free) and all(piece.startswith(("call: ", "lacks: ")) for piece in held)
    assert strict.tasks(strict.setting({"about": "no_call_needed"}), 1, 0), "the world's own are right"


LACKING = "tools: set_timer\nrequest: How will Rome be for 3 days?\nlacks: get_forecast"


def test_where_no_tool_fits_the_task_says_which_one_would():
    """So tasks without a call can be written where gold has to be named, and no request of any kind is one."""
    strict, task = Tools(Tools.Options(named=True, examples=64)), f'{LACKING}(city="Rome", days=3)'
    (found,) = strict.tasks(strict.setting({"task": task}), 1, 0)
    assert found.skill == "no_call_needed" and strict.score(found, say("[]")).reward == 1
    assert strict.score(found, say(write_calls([Call("get_forecast", {"city": "Rome", "days": 3})]))).reward == 0
    assert "get_forecast" not in "".join(message.content for message in found.prompt)
    assert written(write(written(task))) == written(task)
    two_lines = written(task).model_copy(update={"request": "How will Rome be\nfor 3 days?"})
    assert written(write(two_lines)) == two_lines, "as JSON, too"
    skills = {strict.tasks(strict.setting(values), 1, 0)[0].skill for values in strict.examples(1)}
    assert skills == set(SKILLS), "seed tasks are of all kinds"


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (f'{LACKING}(city="Paris", days=3)', "city = 'Paris', which nothing before it names"),
        (f'{LACKING}(city="Rome")', "says 3, which gold passes on nowhere"),
        (f"{LACKING}(days=3)", "lacks a call of 'get_forecast' that is wrong"),
        (LACKING.replace("get_forecast", "set_timer(minutes=3)"), "lacks 'set_timer', which is at hand"),
        (LACKING.replace("get_forecast", 'fly(to="Rome")'), "lacks 'fly', which is no tool of the catalogue"),
        (f'{LACKING}(city="Rome", days=3)\ncall: set_timer(minutes=3)', "only a task without calls"),
    ],
)
def test_what_a_task_lacks_is_held_to_the_rules_of_calls(task, why):
    with pytest.raises(ValueRefused, match=why):
        Tools(Tools.Options(named=True)).setting({"task": task})


def test_seed_tasks_are_as_many_as_asked_for_and_named_where_that_is_asked():
    many = Tools(Tools.Options(examples=8)).examples(1)
    assert len({values["task"] for values in many}) == 8 and many[:4] == Tools().examples(1)
    home = Tools.Setting.of({"about": "several_steps"})
    for named in (False, True):
        texts = [v["task"] for v in Tools(Tools.Options(examples=12, named=named), home).examples(1)]
        assert len(texts) == 12 and any(unnamed(written(str(text))) for text in texts) is not named
