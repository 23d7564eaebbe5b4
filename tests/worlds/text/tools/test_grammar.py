"""Grammar of written tasks: what it lets through can be read, and it lets through what the pool writes."""

from typing import Any

import numpy as np
import pytest
from helpers.tiny_model import tiny

from curricle.designers.language.form import Form, Writer
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.setting import Span
from curricle.worlds.text.tools.grammar import follows
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.named import unnamed
from curricle.worlds.text.tools.verify import task_fault
from curricle.worlds.text.tools.world import Tools
from curricle.worlds.text.tools.writing import write, written

WORDS = ["Rome", "tomorrow", "5", "a note: call(x)", "milk, eggs", "", "naïve"]


def walk(rng, named=False):
    """A task by chance."""
    said = ""
    while True:
        what = follows(said, named)
        if isinstance(what, Span):
            said += " ".join(["so", *rng.choice(WORDS, size=3)]) + what.until
            continue
        assert len(set(what)) == len(what) and what
        whole = [piece for piece in what if piece]
        assert not any(a != b and b.startswith(a) for a in whole for b in whole), what
        piece = str(rng.choice(list(what)))
        if not piece:
            return said.strip()
        said += piece


def test_whatever_keeps_to_it_can_be_read():
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(300):
        item = written(walk(rng))
        kinds.add((bool(item.simulator), bool(item.calls), bool(item.answer)))
        for call in item.calls:
            parameters = item.known[call.name]["parameters"]
            assert set(parameters.get("required", [])) <= set(call.arguments) <= set(parameters["properties"])
    assert len(kinds) >= 5


def test_calls_pass_on_what_the_request_names():
    """Where that is asked for: whatever choices are made, no value of a call is anybody's guess."""
    rng, lacking, calling = np.random.default_rng(2), 0, 0
    for _ in range(300):
        item = written(walk(rng, named=True))
        if not item.simulator:
            assert not unnamed(item), (item.request, item.calls, item.lacks)
            assert not task_fault(item.model_copy(update={"calls": item.calls[:1]})), (
                "gold runs, or its tool is missing"
            )
            lacking, calling = lacking + bool(item.lacks), calling + bool(item.calls)
            assert bool(item.lacks) != bool(item.calls)
    assert lacking > 20 and calling > 20


def test_what_a_request_has_for_a_call():
    """By hand: its words in a row, its whole numbers, and no tool that needs what it has not."""
    tools, asked = "tools: get_forecast, set_timer\n", "request: Rome, 3 or 30 days?\n"
    first = follows(tools + asked, named=True)
    assert {"call: get_forecast(", "call: set_timer(", "lacks: get_sunrise("} <= set(first) and "" not in first
    begun = f"{tools}{asked}call: get_forecast("
    assert follows(begun, named=True) == ['city="', "days="], "no unit stands there"
    spans: Any = follows(f'{begun}city="', named=True)
    assert {'Rome"', 'Rome, 3 or 30 days"', 'days"'} <= set(spans) and len(spans) == 15
    trains = "tools: find_trains\nrequest: Oslo Rome\ncall: find_trains("
    assert follows(f'{trains}origin="Oslo", destination="', named=True) == ['Oslo Rome"', 'Rome"'], "not there again"
    assert follows(f'{begun}city="Rome"', named=True) == [", days=", ")\n"]
    assert follows(f'{begun}city="Rome", days=', named=True) == ["3)\n", "30)\n"]
    assert follows(f"{begun}days=", named=True) == ["3, ", "30, "]
    assert follows(f"{begun}days=3, ", named=True) == ['city="']
    plain = follows(f"{tools}request: Rome?\n", named=True)
    assert "call: set_timer(" not in plain and "call: get_forecast(" in plain
    assert "call: set_timer(" in follows(f"{tools}request: ?!\n", named=True), "without a word all is free, and refused"


@pytest.fixture(scope="module", params=[False, True], ids=["free", "named"])
def world(request):
    return Tools(Tools.Options(named=request.param))


@pytest.fixture(scope="module")
def form(world):
    causal = CausalModel(CausalOptions(model=tiny()), "test", 0)
    knobs = [k for k in Tools.Setting.knobs() if k.name == "task"]
    return Form(knobs, causal.tokenizer, causal.ends, optional=True, follows=world.Setting.follows)


def test_what_the_pool_writes_keeps_to_it_and_is_said_token_by_token(world, form):
    texts = [example["task"] for cycle in range(1, 12) for example in world.examples(cycle)]
    texts += [write(Item.of(task)) for task in world.tasks(world.original, 70, 3)]
    plain = [text for text in texts if not text.startswith("{")]
    assert len(plain) > 0.9 * len(texts)
    for text in ["", *plain]:
        reply, writer = form.tokens({"task": text}), Writer(form, 4000)
        for token in reply:
            allowed = None if writer.done else writer.allowed()
            assert writer.done or (
                token in allowed if allowed is not None else token not in writer.form.banned(writer.rule)
            ), text
            writer.add(token)
        assert (writer.fault, writer.values) == ("", {"task": text})
        assert len(form.choice_mask(reply)) == len(reply) and (
            not text or 0 < sum(form.choice_mask(reply)) < len(reply)
        )


def test_whatever_tokens_are_drawn_the_task_can_be_read(form):
    """Any choice among what is allowed, as a model without sense would make it; plain signs, and ends now and then."""
    rng, texts = np.random.default_rng(1), form.tokenizer.batch_decode([[i] for i in range(len(form.tokenizer))])
    plain = [i for i, text in enumerate(texts) if text.isascii() and text.isprintable()]
    read = 0
    for _ in range(100):
        writer = Writer(form, 300)
        while not writer.done:
            allowed = writer.allowed()
            if allowed is None:
                banned = writer.form.banned(writer.rule)
                ends = [i for i, text in enumerate(texts) if text.endswith(writer._span.until) and i not in banned]
                allowed = ends if ends and rng.random() < 0.3 else [i for i in plain if i not in banned]
            writer.add(int(rng.choice(allowed)))
        assert writer.fault in ("", "endless")
        if not writer.fault and (text := writer.values["task"]):
            read += bool(written(str(text)))
    assert read > 40
