"""Models as players: how replies are drawn, what players share, and what is refused."""

import gc
import importlib.util
import re
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.grpo_agents import agent, make_trainer
from helpers.paths import ROOT
from helpers.skips import skip_without
from helpers.sweep import VAULT, quiet
from helpers.tiny_model import Pick, tiny

from curricle import errors
from curricle.agents.grpo import GRPO
from curricle.agents.grpo.options import LearningOptions
from curricle.config import resolve
from curricle.errors import AgentError, ModelError, RunDamaged, WorldError
from curricle.llm.generate import decoding
from curricle.llm.generate.sampling import Sampler, _continuous_memory, copy_weights, inference_copy
from curricle.llm.models import layers, loading
from curricle.llm.models import model as model_module
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CHECKPOINT_WRAPPER, CausalModel

skip_without("llm")


def test_batched_replies_are_those_of_one_at_a_time():
    model = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)
    prompts = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [8]]
    many = Sampler(model, "plain", 2).sample(prompts, max_tokens=6, temperature=0, seed=0)
    assert many == [Sampler(model).sample([p], max_tokens=6, temperature=0, seed=0)[0] for p in prompts]
    model.model.model.norm.weight.data.normal_()
    many = Sampler(model, "plain", 2).sample(prompts, max_tokens=6, temperature=0, seed=0)
    for batch in (2, 4):
        static = Sampler(model, "static", batch).sample(prompts, max_tokens=6, temperature=0, seed=0)
        assert static == many, "fixed shapes change nothing"
    assert "forward" not in vars(model.model.model.norm), "the model is as it was"
    before = model.model.config._attn_implementation
    assert Sampler(model, "continuous", 4).sample(prompts, max_tokens=6, temperature=0, seed=0) == many
    assert model.model.config._attn_implementation == before == "curricle-sdpa"


def test_continuous_batching_gets_room_for_the_rows_at_a_time():
    (room,) = _continuous_memory([[1] * 300, [1]] * 5, 100, batch=4).values()
    assert (room.num_blocks, room.max_batch_tokens) == (4 * (2 + 1), 4 * 300), "two blocks of 256 tokens, and one spare"
    (room,) = _continuous_memory([[1] * 3000] * 9, 100, batch=4).values()
    assert room.max_batch_tokens == 8192 and not _continuous_memory([], 100, batch=4)


def test_decoding_in_fixed_shapes_draws_by_the_models_odds_and_stops_when_all_have_ended():
    model = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)
    with torch.no_grad():
        odds = (model.model(torch.tensor([[5, 6, 7]])).logits[0, -1] / 0.5).softmax(-1)
    sampler = Sampler(model, "static", 64)
    drawn = [reply.ids[0] for reply in sampler.sample([[5, 6, 7]] * 600, max_tokens=1, temperature=0.5, seed=1)]
    for token in odds.topk(3).indices.tolist():
        share = drawn.count(token) / 600
        assert abs(share - float(odds[token])) < 4 * (float(odds[token]) / 600) ** 0.5
    loop = sampler.decoder.loops[64, 3, 1, "sample"]
    model.ends = list(range(len(model.tokenizer)))
    quick = Sampler(model, "static", 64)
    assert [r.ended for r in quick.sample([[5], [6]], max_tokens=40, temperature=1, seed=0)] == [True, True]
    assert int(quick.decoder.loops[2, 2, 40, "sample"].step) == 1 and loop.graph is None


def test_scores_of_who_chooses_every_token_are_the_models_own():
    """In fixed shapes as with a growing cache, for rows of unlike prompts, and no more rows than go at a time."""
    model = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)
    prompts, said = [[5, 6, 7], [8], [9, 10, 11, 12]], [[7, 20, 21], [8, 30, 31], [12, 40, 41]]
    kind: Any
    for kind, batch in (("static", 8), ("plain", 8), ("static", 2), ("plain", 2)):
        with Sampler(model, kind, batch).steps(prompts, 3) as (count, next_logits):
            scores = [next_logits([row[step] for row in said[:count]]) for step in range(3)]
        assert count == min(batch, 3) and not scores[0].requires_grad
        for row in range(count):
            ids = torch.tensor([[*prompts[row][:-1], *said[row]]])
            with torch.no_grad():
                expected = model.model(ids).logits[0, -3:]
            torch.testing.assert_close(torch.stack([s[row] for s in scores]), expected, rtol=1e-4, atol=1e-4)


def test_few_shapes_are_kept_and_all_lie_in_the_same_memory(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_LOOPS", 2)
    sampler = Sampler(CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0), "static", 2)

    def say(length):
        return sampler.sample([[5, 6, 7] * (length // 3)], max_tokens=2, temperature=0, seed=0)

    said = {length: say(length) for length in (240, 60, 120)}
    assert list(sampler.decoder.loops) == [(1, 60, 2, "greedy"), (1, 120, 2, "greedy")], "those used last"
    places = {loop.cache.layers[0][0].data_ptr() for loop in sampler.decoder.loops.values()}
    assert len(places) == 1
    assert {length: say(length) for length in (60, 120, 240)} == said
    assert sampler.decoder.memory.tokens == 256
    say(600)
    assert list(sampler.decoder.loops) == [(1, 600, 2, "greedy")] and sampler.decoder.memory.tokens == 608, "it grew"


def test_a_batch_has_as_many_rows_as_its_memory_holds(monkeypatch):
    prompts = [[5, 6, 7], [8, 9, 10], [11, 12, 13]]
    model = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)
    config = model.model.config
    a_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    said = Sampler(model, "static", 8).sample(prompts, max_tokens=4, temperature=0, seed=0)
    for rows, columns in ((2, 3 * 16), (1, 1)):
        monkeypatch.setattr(decoding, "CACHE_BYTES", columns * a_token)
        small = Sampler(model, "static", 8)
        assert small.sample(prompts, max_tokens=4, temperature=0, seed=0) == said
        assert {key[0] for key in small.decoder.loops} <= {1, rows} and max(small.decoder.loops)[0] == rows
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", 7)  # two prompts of three tokens at a time
    shared = [prompts[0], prompts[1], prompts[0], prompts[2], prompts[1]]
    found = Sampler(model, "static", 8).sample(shared, max_tokens=4, temperature=0, seed=0)
    assert found == [said[0], said[1], said[0], said[2], said[1]]


def test_lengths_are_padded_by_half_a_doubling_at_most():
    assert [decoding._round_up(n) for n in (1, 2, 3, 64, 65, 97, 520, 769)] == [1, 2, 3, 64, 96, 128, 768, 1024]
    assert all(n <= decoding._round_up(n) < 1.5 * n for n in range(1, 3000))
    assert [decoding._round_up_rows(n) for n in (1, 2, 5, 17, 64, 65, 129, 600)] == [1, 4, 16, 64, 64, 128, 256, 1024]


def test_norms_in_one_kernel_compute_what_theirs_do():
    model = CausalModel(CausalOptions(model=tiny(0.5), device="cpu"), "test", 0).model
    ids, found = torch.tensor([[5, 6, 7, 8]]), []
    for manner in (nullcontext(), layers.fused_norms(model)):
        with manner:
            logits = model(ids).logits
            calls = {"forward" in module.__dict__ for module in model.modules() if hasattr(module, "variance_epsilon")}
        grads = torch.autograd.grad(logits.sin().sum(), list(model.parameters()))
        found.append([logits, *grads])
        assert calls == {len(found) == 2}
    hooked = model.model.norm.forward = model.model.norm.forward
    with layers.fused_norms(model), layers.fused_norms(model):
        assert model.model.norm.forward is hooked, "what somebody else put there stays"
    assert vars(model.model.norm).pop("forward") is hooked
    assert all(torch.allclose(a, b, atol=1e-5, rtol=1e-4) for a, b in zip(*found, strict=True))
    assert not any("forward" in module.__dict__ for module in model.modules())
    wrapped = torch.nn.ModuleDict(
        {"layer": torch.nn.ModuleDict({CHECKPOINT_WRAPPER.rstrip("."): torch.nn.Linear(1, 1)})}
    )
    assert not model_module._recomputes(model) and model_module._recomputes(wrapped)
    model.gradient_checkpointing_enable()
    assert model_module._recomputes(model), "norms stay the model's own where passes are made again outside"


def test_a_function_stands_in_for_one_that_finds_the_same_only(monkeypatch):
    from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as by_pairs
    from transformers.models.llama import modeling_llama as llama

    def ours(query, keys, cosine, sine):
        halves = [(one[..., : one.shape[-1] // 2], one[..., one.shape[-1] // 2 :]) for one in (query, keys)]
        there, away = cosine.unsqueeze(1), sine.unsqueeze(1)
        return tuple(torch.cat([x, y], -1) * there + torch.cat([-y, x], -1) * away for x, y in halves)

    theirs = llama.apply_rotary_pos_emb
    assert layers.same_rotary(theirs, ours, "cpu") and not layers.same_rotary(by_pairs, ours, "cpu")
    assert not layers.same_rotary(lambda *_: 1 / torch.zeros(3)[5], ours, "cpu") and not layers.same_rotary(
        len, ours, "cpu"
    )
    model = CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0).model
    with layers.fused_rotary(model):
        assert llama.apply_rotary_pos_emb is theirs, "on a CPU all stays as it is"
    monkeypatch.setattr(layers, "kernels", lambda: SimpleNamespace(rotate=lambda *given: "turned"))

    def turned(*more, size=8, is_cuda=True, **named):
        query: Any = SimpleNamespace(shape=(1, 1, 1, 8), is_cuda=is_cuda)
        plain: Any = SimpleNamespace(rotate=lambda *given, **_: "theirs")
        return layers._rotate(plain.rotate, query, None, torch.zeros(1, 1, size), None, *more, **named)

    assert turned() == "theirs", "ours has no gradient"
    with torch.no_grad():
        assert turned() == "turned"
        assert turned(1) == turned(unsqueeze_dim=1) == turned(size=4) == turned(is_cuda=False) == "theirs"


def test_without_a_compiler_decoding_goes_without_kernels(monkeypatch, caplog):
    def broken():
        raise subprocess.CalledProcessError(1, "gcc")

    layers.kernels.cache_clear()
    monkeypatch.setattr(layers.importlib, "import_module", lambda name: SimpleNamespace(try_build=broken))
    assert layers.kernels() is None and "goes without: CalledProcessError" in caplog.text
    layers.kernels.cache_clear()


def test_the_copy_of_a_gpu_has_the_adapter_merged():
    from transformers import LlamaForCausalLM

    model = CausalModel(CausalOptions(model=tiny(), device="cpu", lora=4), "test", 0)
    with torch.no_grad():
        for _, p in model.trained():
            p.add_(0.1)
    speaker = LlamaForCausalLM(model.model.get_base_model().config).eval()
    copy_weights(model.model, speaker)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.allclose(speaker(ids).logits, model.model(ids).logits, atol=1e-4)
        with model.initial() as origin:
            assert not torch.allclose(speaker(ids).logits, origin(ids).logits, atol=1e-2)


@pytest.mark.parametrize("lora", [0, 4])
def test_the_copy_of_a_gpu_draws_by_itself(lora):
    """Also once TRL has put its own `forward` around the model's."""
    model = CausalModel(CausalOptions(model=tiny(), device="cpu", lora=lora), "test", 0)
    make_trainer(model, LearningOptions(model=tiny(), device="cpu", lora=lora), lambda tasks: [])
    speaker, ids = inference_copy(model), torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        said = speaker(ids).logits
        assert torch.allclose(said, model.model(ids).logits, atol=1e-4)
        for p in model.model.parameters():
            p.zero_()
        assert torch.equal(speaker(ids).logits, said)


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_sampler_speaks_as_the_model_is_or_as_it_began(lora, warm, on_gpu):
    model, ids = (
        CausalModel(CausalOptions(model=tiny(0.5), device="cpu", lora=lora), "test", 0),
        torch.tensor([[5, 6, 7]]),
    )
    sampler = Sampler(model)
    sampler.copy = inference_copy(model) if on_gpu else None
    with torch.no_grad():
        for moved in range(2 if warm else 1):
            if moved:
                model.make_initial()
            for _, p in model.trained():
                p.add_(0.05)
    for began in (True, False, True):
        sampler.refresh(initial=began)
        with (
            torch.no_grad(),
            sampler.inference_model() as speaker,
            model.initial() if began else nullcontext(model.model) as it,
        ):
            said, right = speaker(ids).logits, it(ids).logits
        assert torch.allclose(said, right, atol=1e-3)
        replies = sampler.sample([[5, 6, 7]], max_tokens=4, temperature=0.0, seed=0)
        assert replies[0].ids[0] == int(right[0, -1].argmax())
    with torch.no_grad(), model.initial() as origin:
        first = origin(ids).logits
    assert not torch.allclose(model.model(ids).logits, first, atol=1e-2), "it did move"


def test_players_with_adapters_share_the_model_underneath():
    """One frozen copy in memory, two modules over it: what one learns, the other does not say."""
    about: dict[str, Any] = {"model": tiny(0.5), "device": "cpu", "learning_rate": 1e-1}
    one, other = (CausalModel(CausalOptions(lora=4, **about), who, 0) for who in ("one", "other"))
    whole = CausalModel(CausalOptions(**about), "whole", 0)

    def places(player):
        every = {id(p) for _, p in player.trained()}
        return {p.data_ptr() for p in player.model.parameters() if id(p) not in every}

    assert places(one) == places(other) and places(one)
    assert not places(one) & {p.data_ptr() for p in whole.model.parameters()}
    prompt = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        was = [player.model(prompt).logits for player in (one, other, whole)]
    assert torch.equal(was[0], was[2])
    for _ in range(3):
        one.optimizer.zero_grad()
        one.model(prompt, labels=prompt).loss.backward()
        one.optimizer.step()
    with torch.no_grad():
        assert not torch.allclose(one.model(prompt).logits, was[0], atol=1e-2)
        assert torch.equal(other.model(prompt).logits, was[1]) and torch.equal(whole.model(prompt).logits, was[2])
        with one.initial() as origin:
            assert torch.equal(origin(prompt).logits, was[2])
    assert not {id(p) for _, p in one.trained()} & {id(p) for _, p in other.trained()}
    keys = set(loading._bases)
    del one, other, origin
    gc.collect()
    assert set(loading._bases) < keys, "nobody stands on it any more"


@pytest.mark.parametrize("there", [True, False])
def test_a_hub_that_cannot_be_reached_is_not_asked_for_every_file(there, monkeypatch):
    asked = []

    def ask(place, **how):
        asked.append(how["local_files_only"])
        raise OSError("no such model")

    def look_up(*_):
        if not there:
            raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr("curricle.llm.models.loading.getproxies", dict)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", ask)
    with pytest.raises(ModelError, match="'no/such' cannot be loaded: no such model"):
        loading.load("no/such", "test")
    assert asked == [not there]


def test_refusals_name_the_value(monkeypatch):
    with pytest.raises(AgentError, match="grpo-v1 answers text tasks, but vault-v1"):
        GRPO(VAULT())
    with pytest.raises(ModelError, match=r"the folder .* is no model: it has no config.json"):
        CausalModel(CausalOptions(model=str(ROOT / "tests"), device="cpu"), "test", 0)
    with pytest.raises(ModelError, match=r"there is no folder /no/such; model is a folder, a .gguf file, "):
        agent(model="/no/such")
    with pytest.raises(AgentError, match=r"'use_vlm'.*no setting of TRL's GRPOConfig, did you mean 'use_vllm'"):
        agent(trl={"use_vlm": True})
    with pytest.raises(ModelError, match="device = 'cuda', but torch"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        agent(device="cuda")
    monkeypatch.setattr("importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(ModelError, match=r"need trl: pip install 'curricle\[llm\]'"):
        errors.needed("trl")


@pytest.mark.parametrize(
    ("added", "advice"),
    [
        ({"num_iterations": 2}, r"'num_iterations': 2.*set \[agent\] iterations instead"),
        ({"num_generations": 8}, r"set \[agent\] group_size instead"),
        ({"beta": 0.5}, r"'beta': 0.5.*set \[agent\] kl_coef instead"),
        ({"learning_rate": 0.1}, r"set \[agent\] learning_rate instead"),
        ({"loss_type": "dapo", "temperature": 2.0}, r"'temperature': 2.0.*set \[agent\] temperature instead"),
        ({"shuffle_dataset": True}, "cannot be changed here"),
        ({"use_vllm": True}, r"'use_vllm': True.*set \[agent\] sampler = 'trl' as well"),
        ({"vllm_mode": "server"}, "sampler = 'trl' as well"),
    ],
)
def test_settings_of_trl_that_ours_decide_are_refused_before_anything_is_loaded(added, advice):
    with pytest.raises(AgentError, match=advice):
        agent(trl=added, model="/no/such")


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ({"use_vllm": True}, "refuses trl = {'use_vllm': True}: vLLM is not available"),
        ({"loss_type": "foo"}, "refuses trl = {'loss_type': 'foo'}: Unknown loss type: foo"),
        ({"lr_scheduler_type": "foo"}, "refuses trl = {'lr_scheduler_type': 'foo'}: foo is not a valid"),
    ],
)
def test_what_trl_itself_refuses_is_told_with_the_setting(added, words):
    if "use_vllm" in added and importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is there")
    with pytest.raises(AgentError, match=re.escape(words)):
        agent(trl=added, sampler="trl").practise([Pick().unaltered()], 8, seed=0, report=quiet)


def test_an_error_of_a_world_is_not_taken_for_trls():
    class Torn(Pick):
        id = "torn-v1"

        def tasks(self, setting, n, seed):
            raise ValueError("no tasks today")

    with pytest.raises(WorldError, match=r"^torn-v1: tasks.* broke down in .*ValueError: no tasks today"):
        agent(Torn(), trl={"scale_rewards": "none"}).practise([Torn().unaltered()], 8, seed=0, report=quiet)


def test_replies_as_long_as_the_model_can_look_are_refused():
    with pytest.raises(AgentError, match=r"max_tokens = 8192 leaves no room.*looks at 8192 tokens"):
        agent(max_tokens=8192)
    agent(max_tokens=8191)


def test_a_checkpoint_of_another_model_is_named(tmp_path):
    agent(lora=4).save(tmp_path)
    with pytest.raises(RunDamaged, match="does not fit grpo-v1"):
        agent().load(tmp_path)


@pytest.mark.parametrize("id", ["grpo", "language"])
def test_the_old_names_of_a_models_options_are_read(id, caplog):
    section = "agent" if id == "grpo" else "designer"
    old = {"rate": 0.25, "decay": 0.5, "spread": True}
    config = resolve({"world": {"id": f"{ROOT}/examples/sums.py:Sums"}, section: {"id": id, **old}})
    options = getattr(config, f"{section}_options")
    assert (options.learning_rate, options.weight_decay, options.spread_over_gpus) == (0.25, 0.5, True)
    assert f"[{section}] {id}: the option rate is called learning_rate now" in caplog.messages
