"""A model in parts, by accelerate's FSDP: what one process learns, in the same checkpoints."""

import json
import logging
import os
from typing import Any

import pytest
import safetensors.numpy
from helpers.process_ranks import ended, launcher, near, refused, updates
from helpers.skips import skip_without
from helpers.tiny_model import Pick, tiny

from curricle.agents.grpo import GRPO, GRPOOptions, sharding
from curricle.errors import AgentError
from curricle.scale import ranks

skip_without("llm")

FSDP = {"fsdp": True}


@pytest.fixture(scope="module")
def launched():
    return launcher()


def in_halves(folder):
    """Whether either rank's optimiser remembers half of what is learnt, up to some filling."""
    arrays = safetensors.numpy.load_file(folder / "arrays.safetensors")
    size = sum(array.size for name, array in arrays.items() if name.startswith("exp_avg/"))
    held = [int((folder / f"held-{number}").read_text()) for number in (0, 1)]
    return all(0.49 * size < one < 0.51 * size for one in held)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"trl": FSDP}, {"lora": 4}], ids=["in parts", "adapter"])
def test_ranks_warm_up_alike_and_begin_there(more, launched, tmp_path):
    """Parts that are computed twice, to save memory, go by other names then; checkpoints keep the first ones."""
    options = {"imitation_updates": 2, **{name: value for name, value in more.items() if name != "trl"}}
    more = {"trl": {**FSDP, "fsdp_config": {"activation_checkpointing": True}}} if "trl" in more else more
    alone = launched(1, updates, options, tmp_path / "alone")
    both = launched(2, updates, {**options, **more}, tmp_path / "both")
    near(alone / "first", both / "first")
    near(alone, both)
    assert in_halves(both) == ("trl" in more)
    begun = [name for name in safetensors.numpy.load_file(both / "arrays.safetensors") if name.startswith("origin/")]
    assert begun
    figures, _ = json.loads((both / "told.json").read_text())
    assert [list(seen) for seen in figures[:2]] == [["practice/warmed", "practice/warm_loss"]] * 2
    assert abs(figures[2]["practice/kl"]) < 1e-5 < figures[3]["practice/kl"]


def test_trl_draws_from_parts(launched, tmp_path):
    folder = launched(2, ended, {"sampler": "trl", "max_turns": 3, "trl": FSDP}, tmp_path / "both")
    assert (folder / "drawn").read_text() == "12 4", "a first turn, two that only the other rank has, and the end"


def refusal(folder):
    said = [(folder / f"said-{number}").read_text() for number in (0, 1)]
    assert said[0] == said[1]
    return said[0]


def test_ranks_refuse_alike_what_accelerate_would_leave_out(launched, tmp_path):
    said = refusal(launched(2, refused, {"trl": FSDP}, tmp_path / "both"))
    assert "trl = {'fsdp': True} asks for parts, but accelerate takes models apart on GPUs only" in said


def test_one_process_holds_it_all(caplog, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    options = GRPOOptions(trl={**FSDP, "fsdp_config": {"reshard_after_forward": False}, "loss_type": "grpo"})
    with caplog.at_level(logging.WARNING):
        assert sharding.without_sharding(options) == options.model_copy(update={"trl": {"loss_type": "grpo"}})
    assert "trl = {'fsdp': True} is for several ranks: one process holds all of the model" in caplog.text
    assert os.environ["ACCELERATE_USE_FSDP"] == "false"
    assert not sharding.is_sharded(options)


def test_deepspeed_is_refused_whoever_asks_for_it(monkeypatch):
    model: dict[str, Any] = {"model": tiny(), "device": "cpu"}
    words = "deepspeed is not supported; leave it out, or use FSDP instead"
    for processes in (1, 2):
        monkeypatch.setattr(ranks, "count", lambda processes=processes: processes)
        with pytest.raises(AgentError, match=rf"trl = {{'deepspeed': 'zero3.json'}}: {words}"):
            GRPO(Pick(), GRPOOptions(**model, trl={"deepspeed": "zero3.json"}))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(AgentError, match=f"ACCELERATE_USE_DEEPSPEED=true: {words}"):
        GRPO(Pick(), GRPOOptions(**model))
