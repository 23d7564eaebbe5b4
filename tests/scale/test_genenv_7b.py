"""GenEnv at the size of 7B: its configs run as they are with tiny models of that architecture, and its page adds up.

`test_ranks.py` starts the same file by the real launcher, on two ranks.
"""

import importlib.util
import json
import re
import shlex
import statistics
import sys
from typing import Any

import pytest
import torch
from helpers.pages import blocks
from helpers.paths import ROOT
from helpers.process_ranks import launcher, near, updates
from helpers.skips import skip_without
from helpers.tiny_model import tiny_qwen

from curricle import config
from curricle.agents.grpo.options import make_config
from curricle.errors import AgentError
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.records import Outcome
from curricle.run import read_config, read_metrics, read_records

skip_without("llm")

WHOLE = config.load(str(ROOT / "configs" / "genenv-7b.toml"))
ADAPTERS = config.load(str(ROOT / "configs" / "genenv-7b-lora.toml"))
PAGE = (ROOT / "docs" / "genenv-7b.md").read_text()
SMALL = [
    *("agent.tasks_per_update=2", "agent.max_tokens=4", "designer.max_text_tokens=8"),
    *("schedule.cycles=1", "schedule.designs=2", "schedule.per_cycle=32", "schedule.save_every=16"),
    *("schedule.test_seeds=1", "schedule.test_episodes=2"),
]
"""The budget and the sizes; all else is as the files say."""


@pytest.fixture(scope="module")
def launched():
    return launcher()


@pytest.fixture(scope="module")
def estimate():
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("estimate")  # it brings model_shapes, too
    sys.path.remove(str(ROOT / "benchmarks"))


def small(plain):
    """A config with tiny models, a small budget and small sizes."""
    models = [f"{player}.model={tiny_qwen()}" for player in ("agent", "designer")]
    return config.override(plain, [*models, *SMALL])


@pytest.fixture
def shapes(estimate):
    return importlib.import_module("model_shapes")


# -- the configs run ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_adapters_learn_in_one_process_with_layers_computed_twice(tmp_path, monkeypatch):
    from transformers import modeling_utils

    passes, again = list[int](), modeling_utils.checkpoint

    def counted(*given, **named):
        passes.append(1)
        return again(*given, **named)

    monkeypatch.setattr(modeling_utils, "checkpoint", counted)
    config.start(config.resolve(small(ADAPTERS)), tmp_path / "run")
    assert len(passes) >= 2 * 2 * 4, "two layers, two updates, four microbatches each"
    kept = read_config(tmp_path / "run")
    assert kept["agent"]["lora"] == kept["designer"]["lora"] == 16
    assert kept["agent"]["trl"] == ADAPTERS["agent"]["trl"] == {"gradient_checkpointing": True}
    assert sum(outcome.spent for _, outcome in read_records(tmp_path / "run", Outcome)) == 32
    losses = [row["practice/loss"] for row in read_metrics(tmp_path / "run") if "practice/loss" in row]
    assert len(losses) == 2


@pytest.mark.slow
def test_two_ranks_with_parts_learn_what_one_process_learns(launched, tmp_path):
    """All of the file's options of the agent; every layer is computed twice, and no rank keeps a whole gradient."""
    sizes = {"model": tiny_qwen(), "tasks_per_update": 2, "group_size": 4, "max_tokens": 4, "learning_rate": 1e-3}
    options = {name: value for name, value in WHOLE["agent"].items() if name != "id"} | sizes
    options |= {"microbatch_size": 2, "entropy_coef": 0.0}  # the bonus depends a little on which rank has which rows
    alone = launched(1, updates, {**options, "trl": {}}, tmp_path / "alone")
    both = launched(2, updates, options, tmp_path / "both")
    near(alone, both)
    held = [int((both / f"held-{number}").read_text()) for number in (0, 1)]
    assert max(held) < 0.51 * int((alone / "held-0").read_text()), "each rank has half"
    assert [(both / f"manner-{number}").read_text() for number in (0, 1)] == ["2 0"] * 2
    metrics, outcomes = json.loads((both / "metrics.json").read_text())
    assert metrics[0]["practice/grad_norm"] > 0 and sum(one["attempts"] for one in outcomes[:2]) == 24

    plain = {**options, "trl": {"fsdp": True}}  # without the setting of the file whole gradients would be kept
    launched(2, updates, plain, tmp_path / "kept")
    near(alone, tmp_path / "kept")
    assert (tmp_path / "kept" / "manner-0").read_text() == "0 3", "three updates of two microbatches each"


def test_the_files_differ_in_nothing_but_what_adapters_need():
    def flat(plain):
        sections = [section for section in plain if section != "seed"]
        return {f"{section}.{name}": value for section in sections for name, value in plain[section].items()}

    one, other = flat(WHOLE), flat(ADAPTERS)
    different = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    both = {f"{player}.{name}" for player in ("agent", "designer") for name in ("lora", "learning_rate")}
    small = config.load(str(ROOT / "configs" / "genenv-small.toml"))
    for name in both:
        player, _, option = name.partition(".")
        assert other[name] == small[player][option]
    assert different == both | {"agent.trl", "designer.spread_over_gpus", "schedule.save_every"}


# -- vLLM --------------------------------------------------------------------------------------------------------------


def by_vllm(plain):
    """A config with the page's settings of vLLM."""
    (text,) = [block for block in blocks(PAGE, "sh") if "vllm" in block]
    return config.override(plain, re.findall(r"--set (\S+)", text))


@pytest.mark.parametrize("plain", [WHOLE, ADAPTERS], ids=["all weights", "adapters"])
def test_the_settings_of_vllm_reach_trl(plain, tmp_path):
    options: Any = config.resolve(by_vllm(plain)).agent_options
    assert options.sampler == "trl"
    assert options.trl.items() >= plain["agent"]["trl"].items(), "the rest stays"
    alone = options.model_copy(update={"trl": {k: v for k, v in options.trl.items() if not k.startswith("fsdp")}})
    made = make_config(alone, False, tmp_path)
    assert made.use_vllm and made.vllm_mode == "colocate" and made.vllm_gpu_memory_utilization == 0.3
    assert made.vllm_max_model_length == 4096 > 1024 == made.max_completion_length


def test_without_vllm_its_settings_are_refused_by_name(tmp_path):
    if importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is installed")
    with pytest.raises(AgentError, match=r"refuses trl = \{.*'use_vllm': True.*vLLM is not"):
        config.start(config.resolve(by_vllm(small(ADAPTERS))), tmp_path / "run")


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_says_first_that_nothing_was_run_and_shows_every_table(estimate, shapes):
    assert "None of it has been run" in PAGE.split("\n\n")[1]
    for name in estimate.TABLES:
        assert f"<!-- made by: python benchmarks/estimate.py {name} -->" in PAGE  # test_pages.py compares the tables
    p, *others = estimate.plans(shapes.QWEN)
    updates = p.schedule.per_cycle // p.agent.rollouts_per_update
    tests = p.schedule.test_seeds * p.schedule.test_episodes
    said = f"{p.schedule.per_cycle:,} rollouts in {updates} updates, {tests} tests, {p.schedule.designs} written tasks"
    assert said in PAGE and all(other.schedule.per_cycle == p.schedule.per_cycle for other in others)
    found = estimate.phases(p, shapes.H200, estimate.Shares(estimate.COMPUTE_SHARE, estimate.MEMORY_SHARE))
    assert max(found, key=lambda name: found[name]) == "rollouts", "the largest row of one GPU"


def test_the_commands_of_the_page_name_configs_and_settings_there_are():
    for text in blocks(PAGE, "sh"):
        for line in text.replace("\\\n", " ").strip().splitlines():
            path = re.search(r"run (configs/\S+\.toml)", line)
            if path:
                config.resolve(config.override(config.load(str(ROOT / path[1])), re.findall(r"--set (\S+)", line)))
    comments = [line for line in (ROOT / "configs" / "genenv-7b.toml").read_text().splitlines() if "--set" in line]
    words = shlex.split(" ".join(comments).replace("#", " ").replace(")", " ").replace("(", " "))
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    assert "designer.lora=16" in pairs and "agent.trl={gradient_checkpointing = true}" in pairs
    config.resolve(config.override(WHOLE, pairs))


def test_the_comments_of_the_configs_have_the_numbers_of_the_estimate(estimate, shapes):
    text = (ROOT / "configs" / "genenv-7b.toml").read_text()
    gradient = shapes.FP32 * shapes.QWEN.parameters / estimate.GB
    assert f"the whole gradient, {gradient:.0f} GB," in text and f"all weights has {3 * gradient:.0f} GB" in text


def test_parameters_are_those_of_the_real_architectures(shapes):
    """Models without weights; sizes of Qwen2.5-7B and SmolLM2-135M."""
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    kinds = {shapes.QWEN: (Qwen2Config, Qwen2ForCausalLM), shapes.EMBEDDED: (LlamaConfig, LlamaForCausalLM)}
    for shape, (settings, kind) in kinds.items():
        with torch.device("meta"):
            model = kind(
                settings(
                    num_hidden_layers=shape.layers,
                    hidden_size=shape.hidden,
                    intermediate_size=shape.intermediate,
                    num_attention_heads=shape.heads,
                    num_key_value_heads=shape.key_value_heads,
                    vocab_size=shape.vocabulary,
                    tie_word_embeddings=shape.tied,
                )
            )
            assert sum(p.numel() for p in model.parameters()) == shape.parameters
            lora = peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
            adapter = peft.get_peft_model(model, lora)
        assert sum(p.numel() for p in adapter.parameters() if p.requires_grad) == shape.adapter(16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_layer_keeps_the_bytes_that_the_estimate_counts(dtype, shapes):
    """Every tensor that is saved for the gradient, parameters apart, of three layers less those of two."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = shapes.Shape(2, 64, 336, 8, 2, 50)
    tokens = 2 * 256
    counted = []
    for layers in (2, 3):
        sizes: Any = {"intermediate_size": 336, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 50}
        model = Qwen2ForCausalLM(Qwen2Config(hidden_size=64, num_hidden_layers=layers, **sizes)).to(dtype)
        own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        saved: dict[int, torch.Tensor] = {}

        def keep(tensor, own=own, saved=saved):
            place = tensor.untyped_storage().data_ptr()
            if place not in own:
                saved[place] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.model(input_ids=torch.zeros(2, 256, dtype=torch.long), use_cache=False)
        counted.append(sum(tensor.untyped_storage().nbytes() for tensor in saved.values()))
    assert (counted[1] - counted[0]) / tokens == shape.kept(dtype.itemsize)


def test_what_both_seats_hold_is_what_the_estimate_counts(shapes):
    """Weights, optimiser and cache of tiny models that are really there."""
    shape = shapes.read_shape(tiny_qwen())
    whole = CausalModel(CausalOptions(model=tiny_qwen(), device="cpu"), "test", 0)
    for _, p in whole.trained():
        p.grad = torch.zeros_like(p)
    whole.optimizer.step()
    weights = [p for _, p in whole.trained()]
    moments = [state[name] for state in whole.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    initial = list(whole.initial_copy.parameters())
    for tensors, copies in ((weights, 1), (moments, 2), (initial, 1)):
        assert sum(one.nbytes for one in tensors) == copies * shapes.FP32 * shape.parameters
    adapter = CausalModel(CausalOptions(model=tiny_qwen(), device="cpu", lora=16), "test", 0)
    assert sum(p.numel() for _, p in adapter.trained()) == shape.adapter(16)
    from curricle.llm.generate import decoding

    assert decoding._bytes_per_token(whole.model) == shape.cache(shapes.FP32)


def test_operations_are_those_that_torch_counts(shapes):
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    shape = shapes.read_shape(tiny_qwen())
    model = AutoModelForCausalLM.from_pretrained(tiny_qwen(), attn_implementation="eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros(1, 64, dtype=torch.long))
    masked = 2 * shape.layers * shape.hidden * 64  # eager attention computes what no token sees, too
    assert counter.get_total_flops() / 64 == pytest.approx(shape.forward(64) + masked, rel=0.01)


def test_prompts_of_the_world_are_as_long_as_assumed(estimate):
    found = config.resolve(WHOLE)
    world: Any = found.world(found.world_options)
    tasks = world.draw(world.setting(world.unaltered().setting), 200, 1)
    characters = statistics.fmean(sum(len(message.content) for message in task.prompt) for task in tasks)
    assert 0.8 < characters / 4 / estimate.PROMPT < 1.2


def test_other_models_are_read_from_their_folder(script):
    shown = script("benchmarks/estimate.py", "memory", "--model", tiny_qwen())
    assert "| all together | under 0.1" not in shown and "| fits into 80 GB | yes" in shown
    with pytest.raises(SystemExit, match="--model /no/such: there is no "):
        script("benchmarks/estimate.py", "memory", "--model", "/no/such")


def test_the_whole_gradient_would_not_fit_beside_the_rest(estimate, shapes):
    """Why the file asks for gradients to be summed after every microbatch."""
    (p,) = [one for one in estimate.plans(shapes.QWEN) if one.name == "all weights, 8 GPUs"]
    assert p.sharded and p.checkpointed
    kept = estimate.all_memory_size(p) + shapes.FP32 * p.shape.parameters * 7 / 8
    assert estimate.all_memory_size(p) < shapes.A100.memory < kept < shapes.H200.memory
