"""What a run has trained can be taken elsewhere: other libraries read it, and it says the same there."""

import subprocess
import sys

import pytest
import safetensors.torch
import torch
from helpers.grpo_agents import agent
from helpers.language_runs import run
from helpers.tiny_model import Pick
from helpers.toys import Ladder, Student
from typer.testing import CliRunner

from curricle import config
from curricle.cli import app
from curricle.errors import UsageError
from curricle.llm.models.export import publish

IDS = torch.tensor([[5, 6, 7]])


@pytest.mark.slow
@pytest.mark.parametrize(("lora", "merged"), [(0, False), (4, False), (4, True)])
def test_others_read_the_model_and_hear_the_same(lora, merged, tmp_path):
    one = agent(Pick(), lora=lora)
    with torch.no_grad():
        for _, p in one.causal.trained():
            p.add_(0.1)
        said = one.causal.model(IDS).logits[0, -1].tolist()
    publish(one.causal, tmp_path / "model", merged)
    code = f"""
import torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
if {lora > 0 and not merged}:
    from peft import AutoPeftModelForCausalLM as AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({str(tmp_path / "model")!r})
assert len(AutoTokenizer.from_pretrained({str(tmp_path / "model")!r})) > 600
print(model(torch.tensor({IDS.tolist()})).logits[0, -1].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == pytest.approx(said, abs=1e-3)


@pytest.mark.slow
def test_an_export_of_a_run_has_it(tmp_path):
    plain = run({"id": "none"})
    plain["agent"]["lora"] = 2
    plain["schedule"]["cycles"] = 1
    config.start(config.resolve(plain), tmp_path / "run")
    for name, merged in (("alone", ()), ("merged", ("--merged",))):
        done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--out", str(tmp_path / name), *merged])
        assert done.exit_code == 0, done.output
        files = {path.name for path in (tmp_path / name / "model").iterdir()}
        assert ("adapter_model.safetensors" in files) == (not merged) and "tokenizer.json" in files
        assert ("model.safetensors" in files) == bool(merged)


def test_the_folder_has_the_models_weights(tmp_path):
    one = agent(Pick())
    publish(one.causal, tmp_path / "model", False)
    saved = safetensors.torch.load_file(tmp_path / "model" / "model.safetensors")
    weights = one.causal.model.state_dict()
    assert saved and all(torch.equal(saved[name], weights[name]) for name in saved)


def test_an_agent_without_a_language_model_has_no_adapter(tmp_path):
    student = Student(Ladder())
    with pytest.raises(UsageError, match="has no adapter to merge; leave --merged out"):
        student.publish(tmp_path / "model", merged=True)
    student.publish(tmp_path / "model", merged=False)
    assert not (tmp_path / "model").exists()
