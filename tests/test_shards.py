"""A model in parts, by accelerate's FSDP or DeepSpeed's ZeRO: what one process learns, in the same checkpoints."""

import importlib.util
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.numpy
import torch
from launching import Solved, ended, launcher, near, refused, updates
from small_model import Pick, tiny

from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.agents.grpo import sharding as sharing
from curricle.errors import AgentError, ModelError
from curricle.scale import ranks

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install deepspeed"
)
FSDP = {"fsdp": True}


PAGE = (Path(__file__).parent.parent / "docs" / "genenv.md").read_text()
ZERO3 = PAGE.split("```json\n")[1].split("```")[0]
"""What the page shows; small parameters stay on every rank, large ones are cut up."""


def zero(stage, **more):
    """The same with another stage, or something else; None leaves it out."""
    every = {**json.loads(ZERO3), **more}
    every["zero_optimization"]["stage"] = stage
    return {"deepspeed": {name: value for name, value in every.items() if value is not None}}


@pytest.fixture(scope="module")
def launched():
    return launcher()


def in_halves(folder):
    """Whether either rank's optimiser remembers half of what is learnt, up to some filling."""
    arrays = safetensors.numpy.load_file(folder / "arrays.safetensors")
    size = sum(array.size for name, array in arrays.items() if name.startswith("exp_avg/"))
    held = [int((folder / f"held-{number}").read_text()) for number in (0, 1)]
    return all(0.49 * size < one < 0.51 * size for one in held)


@pytest.mark.parametrize("more", [{"trl": FSDP}, {"lora": 4}], ids=["in parts", "adapter"])
def test_ranks_warm_up_alike_and_begin_there(more, launched, tmp_path):
    """Parts that are computed twice, to save memory, go by other names then; checkpoints keep the first ones."""
    options = {"warm": 2, **{name: value for name, value in more.items() if name != "trl"}}
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


@needs_deepspeed
@pytest.mark.parametrize("options", [{"step_weight": 1.0}, {"lora": 4}], ids=["all weights", "adapter"])
def test_partitions_learn_what_one_process_does_and_go_on_from_each_other(options, launched, tmp_path):
    folders = [alone := launched(1, updates, options, tmp_path / "alone")]
    if not options.get("lora"):
        folders.append(launched(2, updates, {**options, "trl": zero(2)}, tmp_path / "second"))
        near(alone / "first", folders[-1] / "first")
    (tmp_path / "zero3.json").write_text(ZERO3)
    begin = {"begin": str(folders[-1] / "first"), "trl": {"deepspeed": str(tmp_path / "zero3.json")}}
    folders.append(launched(2, updates, {**options, **begin}, tmp_path / "third"))
    figures, outcomes = json.loads((alone / "told.json").read_text())
    for folder in folders[1:]:
        near(alone, folder)
        assert in_halves(folder)
        seen, same = json.loads((folder / "told.json").read_text())
        assert same == outcomes[-len(same) :], "every attempt is counted, once, also in tests"
        for mine, theirs in zip(figures[-len(seen) :], seen, strict=True):
            assert mine["practice/grad_norm"] == pytest.approx(theirs["practice/grad_norm"], rel=1e-3)
        own = [(folder / f"own-{n}.safetensors").read_bytes() for n in (0, 1)]
        assert own[0] == own[1], "all ranks end with the same weights"


ASKED = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}
"""What accelerate's launcher says for `--use_deepspeed --zero_stage 3`."""
WAYS = [{"trl": FSDP}, pytest.param({"environment": ASKED}, marks=needs_deepspeed)]


@pytest.mark.parametrize("way", WAYS, ids=["fsdp", "zero"])
def test_trl_draws_from_parts(way, launched, tmp_path):
    folder = launched(2, ended, {"sampler": "trl", "turns": 3, **way}, tmp_path / "both")
    assert (folder / "drawn").read_text() == "12 4", "a first turn, two that only the other rank has, and the end"


UNSAID = dict.fromkeys(("train_batch_size", "gradient_accumulation_steps"))


def refusal(folder):
    said = [(folder / f"said-{number}").read_text() for number in (0, 1)]
    assert said[0] == said[1]
    return said[0]


def test_ranks_refuse_alike_what_accelerate_would_leave_out(launched, tmp_path):
    said = refusal(launched(2, refused, {"trl": FSDP}, tmp_path / "both"))
    assert "trl = {'fsdp': True} asks for parts, but accelerate takes models apart on GPUs only" in said


@needs_deepspeed
@pytest.mark.parametrize(
    "trl, words",
    [
        (zero(0), "its ZeRO stage is 0; write 1, 2 or 3"),
        (zero(2, **UNSAID), "its gradient_accumulation_steps is 1, but here it is 3; write"),
        (zero(2, gradient_clipping=0.5), "- ds gradient_clipping=0.5 vs hf"),
        (zero(2, optimizer={"type": "AdamW"}), "leave out its optimizer: [agent] rate and decay decide"),
    ],
    ids=["stage", "accumulation", "clipping", "optimiser"],
)
def test_ranks_refuse_alike_what_would_learn_otherwise(trl, words, launched, tmp_path):
    assert words in refusal(launched(2, refused, {"trl": trl}, tmp_path / "both"))


def test_an_adapter_that_imitated_is_no_matter_for_partitions():
    """What it began as lies in an adapter that is made when it is read, too late to be cut up."""
    one = GRPO(Solved(), GRPOOptions(model=tiny(), device="cpu", lora=4))
    next(one.causal.model.parameters()).ds_id = 0
    with pytest.raises(ModelError, match=r"lora = 4 .* ZeRO 3 .* use ZeRO 2 or fsdp"):
        one.causal.begin()


@needs_deepspeed
@pytest.mark.skipif(torch.cuda.is_available(), reason="it is about machines without a GPU")
def test_nothing_is_printed_about_gpus_that_are_not_there():
    script = "from curricle.llm.extras import needed; needed('deepspeed'); needed('peft')"
    environment = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and ran.stdout == ""


def test_one_process_holds_it_all(caplog, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    options = GRPOOptions(trl={**FSDP, "fsdp_config": {"reshard_after_forward": False}, "loss_type": "grpo"})
    with caplog.at_level(logging.WARNING):
        assert sharing.alone(options) == options.model_copy(update={"trl": {"loss_type": "grpo"}})
    assert "trl = {'fsdp': True} is for several ranks: one process holds all of the model" in caplog.text
    assert os.environ["ACCELERATE_USE_FSDP"] == "false"
    assert not sharing.parted(options)


def test_refusals_of_deepspeed_name_the_value(monkeypatch):
    model = {"model": tiny(), "device": "cpu"}
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(AgentError, match="ACCELERATE_USE_DEEPSPEED=true for one process"):
        GRPO(Pick(), GRPOOptions(**model))
    monkeypatch.setattr(ranks, "count", lambda: 2)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AgentError, match=r"pip install 'curricle\[deepspeed\]'"):
        GRPO(Pick(), GRPOOptions(**model))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(AgentError, match=r"warm = 3: imitation makes steps of its own.* warm = 0, or use fsdp"):
        GRPO(Pick(), GRPOOptions(**model, warm=3))
