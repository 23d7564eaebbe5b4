"""What no text that a model wrote may hold, in tasks of tool calls and in the texts of any world."""

import json
import time

import pytest
from helpers.tiny_model import Pick, tiny

from curricle.designers.language.form import Form, Writer
from curricle.errors import ValueRefused
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.records import Message
from curricle.worlds.text.tools.calls import Call, write_calls
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.verify import task_fault
from curricle.worlds.text.tools.world import Tools
from curricle.worlds.text.tools.writing import written

GOOD = {
    "tools": ["get_forecast", "set_timer"],
    "request": "How is the weather in Rome?",
    "calls": [{"name": "get_forecast", "arguments": {"city": "Rome"}}],
}
OWN = {"name": "feed", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}


MARKS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
    "[INST]",
    "<start_of_turn>",
    "\uff1c|im_start|>",
    "[TOOL_CALLS]",
    "<unused0>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<tool_response>",
    "<BOS_TOKEN>",
    "<sop>",
    "[THINK]",
    "[/THINK]",
    "<function_call>",
    "<extra_id_0>",
    "<thi\u200dnk>",
)
UNSEEN: tuple[str, ...] = (
    "\x07",
    "\x7f",
    "\r",
    "\x85",
    "\x9b",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\u2029",
    "\ue000",
)
UNSEEN += ("\U000e0041", "\U000e0101", "\u3164", "\ufffd", "\U00100000", "\xad", "a\rb", "\r\r\n", "\u200c", "\u200d")
UNSEEN += (
    "a\u200c\u200d",
    "1\u200d",
    "\ufe00",
    "\ufe0e",
    "\u180b",
    "\u180f",
    "\u2065",
    "\ufff0",
    "\U000e0000",
    "\U000e0fff",
)


JOINED = (
    "\u0645\u06cc\u200c\u062e\u0648",
    "\u0915\u094d\u200d\u0937",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2764\ufe0f\u200d\U0001f525",
)
"""Persian, Hindi and emoji as people write them."""


@pytest.mark.parametrize("mark", [*MARKS, "\ud800", *UNSEEN])
def test_no_text_of_a_task_speaks_for_someone_else(mark):
    """Escapes of JSON hide nothing, and every text of a task is looked at, whoever wrote it."""
    said = f"Will it rain in Rome? {mark}"
    own = OWN | {"description": said}
    inner = {"name": "feed", "parameters": {"type": "object", "properties": {"x": {"enum": ["a", said]}}}}
    named = {"name": "feed", "parameters": {"type": "object", "properties": {said: {"type": "string"}}}}
    changes = (
        {"request": said},
        {"tools": [own], "calls": []},
        {"tools": [inner], "calls": []},
        {"tools": [named], "calls": []},
        {"calls": [{"name": "get_forecast", "arguments": {"city": said}}]},
        {"tools": [], "calls": [], "answer": said},
    )
    for change in changes:
        text = json.dumps(GOOD | change)
        for sign, escaped in (
            ("<", "\\u003c"),
            ("[INST", "[\\u0049NST"),
            ("[TO", "[\\u0054O"),
            ("THINK]", "\\u0054HINK]"),
            ("\x7f", "\\u007f"),
        ):
            text = text.replace(sign, escaped)
        assert mark not in text
        with pytest.raises(ValueRefused, match=r"mark of a chat|nobody sees or half|valid string"):
            Tools().setting({"task": text})
    if mark in MARKS:
        earlier = Item(request="And now?", before=(Message(role="user", content=said),), tools=(OWN,))
        assert "is a mark of a chat format" in task_fault(earlier)


def test_signs_that_people_write_are_no_hindrance():
    for said in (
        "naïve: ½ of 3 °C, 5 €?",
        "第一: “日本”…",
        "a\tb\nc",
        "\u2764\ufe0f",
        "a\r\nb",
        *JOINED,
        "a < b > c, [TOOLS], <b>",
        "é",
    ):
        assert Tools().setting({"task": json.dumps(GOOD | {"request": f"Weather in Rome? {said}"})})


@pytest.mark.parametrize("odd", ["[", '{"a":', "[" * 900 + "]"])
def test_a_request_of_brackets_alone_is_refused_in_time(odd):
    request, before = (odd * 8000)[:5000], time.process_time()
    with pytest.raises(ValueRefused, match="more than 100 brackets"):
        Tools().setting({"task": json.dumps(GOOD | {"request": request})})
    assert time.process_time() - before < 0.3


def test_calls_that_an_agent_made_before_are_no_marks():
    item, said = written(json.dumps(GOOD)), write_calls([Call("get_forecast", {"city": "Oslo"})])
    for role, fine in (("assistant", True), ("user", False)):
        before = (Message(role="user", content="Oslo?"), Message(role=role, content=said))
        assert (task_fault(item.model_copy(update={"before": before})) == "") is fine


@pytest.mark.parametrize(
    "mark", ["\x7f", "\x9b", "\u202e", "\u200b", "\U000e0041", "\ue000", "[TOOL_CALLS]", "<think>"]
)
def test_texts_of_any_world_are_unsafe_for_the_same_marks(mark):
    causal = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)
    form = Form(Pick.Setting.knobs(), causal.tokenizer, causal.ends)
    for said, fault in ((f"so {mark} it is", "hostile"), ("so it is", "")):
        writer = Writer(form, 200)
        for token in form.tokens({"letter": "a", "most": 3, "note": said}):
            writer.add(token)
        assert writer.fault == fault
