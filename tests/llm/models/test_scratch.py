"""The small model with random weights: its size, its characters, and what is refused."""

import pytest
import torch
from helpers.skips import skip_without

from curricle.errors import ModelError
from curricle.llm.models import scratch
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.records import Message

skip_without("llm")


def model(name="scratch", seed=0, **options):
    return CausalModel(CausalOptions(model=name, device="cpu", **options), "test", seed)


def parameters(causal):
    return sum(weight.numel() for weight in causal.model.parameters())


def test_weights_come_from_the_seed_alone():
    one = model().arrays()
    torch.manual_seed(77)
    again = model().arrays()
    other = model(seed=1).arrays()
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_size_is_part_of_the_name():
    assert 80_000 < parameters(model()) < 120_000
    assert 2_000_000 < parameters(model("scratch:6x192")) < 3_000_000


@pytest.mark.parametrize(
    "name", ["scratch:", "scratch:2", "scratch:0x64", "scratch:2x65", "scratch:big", "scratch:2x0"]
)
def test_a_size_that_is_none_is_refused(name):
    with pytest.raises(ModelError, match=r"test: model = 'scratch"):
        model(name)


def test_an_adapter_on_random_weights_is_refused():
    with pytest.raises(ModelError, match="set lora = 0"):
        model(lora=4)


def test_characters_come_back_as_they_were():
    tokenizer = scratch.character_tokenizer()
    text = "level: 3\n+4 -6 ~2 .. .. 3\t".replace("\t", " ") + scratch.CHARACTERS
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(text) and tokenizer.decode(ids) == text


def test_marks_of_the_tokenizer_in_a_text_stay_text():
    tokenizer = scratch.character_tokenizer()
    ids = tokenizer(scratch.END, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert len(ids) == len(scratch.END)


def test_conversations_go_on_token_by_token():
    causal = model()
    asked = [Message(role="user", content="+4 3")]
    reply = [*causal.tokenizer("7", add_special_tokens=False)["input_ids"], causal.ends[0]]
    more = Message(role="user", content="-6")
    whole = causal.render_prompt([*asked, Message(role="assistant", content="7"), more])
    assert causal.render_prompt(asked) + reply + causal.render_turn(more) == whole
    assert causal.decode_reply(reply) == "7"
