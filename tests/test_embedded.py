"""The embedded model, with a tiny random one as a file: it answers, keeps to a format, can be tuned and reloaded."""

import json

import numpy as np
import pytest
import tiny
import torch
from parts import LADDER, VAULT

from curricle.designers.tutor import Tutor
from curricle.errors import ModelError, UsageError
from curricle.llm import convert, tune, weights
from curricle.llm.embedded import TAUGHT, Embedded
from curricle.llm.lines import grammar, prompt, read
from curricle.records import Cycle, Design, Message, Outcome, Score, Scores
from curricle.worlds.crafter import Crafter

QUESTION = (Message(role="system", content="Be brief."), Message(role="user", content="Hello?"))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(path):
    return Embedded(path, longest=40)


def test_the_seed_decides_the_answer(model, path):
    first, other = model.reply(QUESTION, seed=1), model.reply(QUESTION, seed=2)
    assert first.reply and first.reply != other.reply
    assert model.reply(QUESTION, seed=1) == first == Embedded(path, longest=40).reply(QUESTION, seed=1)
    assert first.model.startswith("tiny.gguf (") and first.finish == "length" and not first.error
    assert first.usage == {"calls": 1, "tokens_in": 44, "tokens_out": 40}


def test_a_schema_is_kept(path):
    schema = {"type": "object", "properties": {"a": {"enum": [3, 5]}}, "required": ["a"], "additionalProperties": False}
    replies = [
        Embedded(path, longest=200, temperature=0.0).reply(QUESTION, schema=schema, seed=s).reply for s in range(2)
    ]
    assert all(json.loads(reply)["a"] in (3, 5) for reply in replies)


@pytest.mark.parametrize("world", [Crafter, VAULT, LADDER], ids=lambda cls: cls.id)
def test_a_grammar_makes_every_line_readable(world, path):
    model, rules = Embedded(path, longest=400, context=2048), grammar(world.Setting)
    for seed in range(3):
        exchange = model.reply(QUESTION, seed=seed, grammar=rules)
        assert exchange.finish == "stop", exchange
        assert read(exchange.reply, world.Setting, world.Setting().values).values is not None, exchange.reply


def test_what_cannot_be_answered_is_an_error_in_the_exchange(model):
    exchange = model.reply([Message(role="user", content="x " * 9000)])
    assert "context" in exchange.error and exchange.reply == ""
    assert model.reply(QUESTION, grammar="root ::= nowhere").error


def test_files_that_are_no_models_are_named(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match=r"no model file .*absent.gguf"):
        Embedded(tmp_path / "absent.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"bad.gguf cannot be loaded"):
        Embedded(tmp_path / "bad.gguf").reply(QUESTION)
    with pytest.raises(ModelError, match=r"bad.gguf cannot be read"):
        _ = Embedded(tmp_path / "bad.gguf").taught
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match="curricle model"):
        Embedded()


def test_the_port_is_closed_to_others(model):
    import urllib.error
    import urllib.request

    model.reply(QUESTION)
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    request = urllib.request.Request(f"{model._server.listening_address}/v1/chat/completions", body)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)


def test_writing_back_changes_nothing_but_precision(path, tmp_path):
    model, _ = convert.load(path)
    model.get_input_embeddings().requires_grad_(False)
    convert.save(model, path, tmp_path / "same.gguf", {TAUGHT: "pond-v1"})
    before, after = (convert._reader(p) for p in (path, tmp_path / "same.gguf"))
    from gguf import quants

    assert [t.name for t in before.tensors] == [t.name for t in after.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        values = quants.dequantize(new.data, new.tensor_type)
        np.testing.assert_allclose(values, quants.dequantize(old.data, old.tensor_type), atol=0.005)
        assert ("norm" in old.name or "token" in old.name) == (new.tensor_type.name == "F32"), "8 bits where trained"
    assert convert.metadata(tmp_path / "same.gguf")[TAUGHT] == Embedded(tmp_path / "same.gguf").taught == "pond-v1"


def test_a_model_learns_its_lines_and_takes_them_along_in_its_file(path, tmp_path):
    """The whole way: template, tokens, loss, permutation, quantisation, file, llama.cpp."""
    world = VAULT()
    pairs = tune.from_teacher(lambda seed: Tutor(world.Setting, seed=seed), world, 40, seed=1)
    chosen = list({pair.line: pair for pair in pairs if "Last" not in pair.prompt[1].content}.values())[:3]
    assert len(chosen) == 3
    losses, out = [], tmp_path / "tuned.gguf"
    torch.set_num_threads(1)
    tune.tune(
        chosen, path, out, world=world.id, steps=60, batch=3, rate=1e-2, report=lambda step, loss: losses.append(loss)
    )
    assert losses[0] > 3 and losses[-1] < 0.1
    tuned = Embedded(out, temperature=0.0)
    assert tuned.taught == "vault-v1" and not Embedded(path).taught
    assert [tuned.reply(pair.prompt).reply for pair in chosen] == [pair.line for pair in chosen]


def test_a_teacher_shows_every_skill_and_how_it_adapts():
    world = Crafter()
    pairs = tune.from_teacher(lambda seed: Tutor(world.Setting, seed=seed), world, 120, without=("collect_diamond",))
    assert len(pairs) == 120
    assert {pair.aim for pair in pairs} == {skill.name for skill in world.skills} - {"collect_diamond"}
    wood = {pair.line for pair in pairs if pair.aim == "place_table"}
    assert "start_wood 5" in wood and len(wood) > 1, "less is handed out after successes"
    assert pairs == tune.from_teacher(
        lambda seed: Tutor(world.Setting, seed=seed), world, 120, without=("collect_diamond",)
    )
    for pair in pairs:
        assert read(pair.line, world.Setting, world.original.values).notes == ()
    with pytest.raises(UsageError, match="did you mean 'collect_diamond'"):
        tune.from_teacher(lambda seed: Tutor(world.Setting, seed=seed), world, 1, without=("collect_diamonds",))


def test_a_runs_own_successes_are_imitated():
    world = VAULT()
    found = Scores(skills={s.name: Score(mean=0.5, std=0, n=1) for s in world.skills}, reward=Score(mean=0, std=0, n=1))
    designs = [Design(setting={"alarm": alarm}, aim="open_1") for alarm in (0.1, 0.2, 0.3)]
    tried = [Outcome(design=d, attempts=10, successes=s) for d, s in zip(designs, (10, 5, 0), strict=True)]
    past = [Cycle(number=1, designed=tuple(tried), scores=found), Cycle(number=2, designed=(), scores=found)]
    (pair,) = tune.from_run(world, 4, past)
    assert (pair.line, pair.aim) == ("alarm 0.2", "open_1")
    assert pair.prompt == prompt(world.brief(1, 4), world.skills[0], taught=True), "as it was known at that time"


def test_nothing_to_learn_from_is_an_error(path, tmp_path):
    with pytest.raises(UsageError, match="no pairs"):
        tune.tune([], path, tmp_path / "out.gguf", world="vault-v1", steps=1, batch=1)
    assert not list(tmp_path.iterdir())


def test_the_stock_model_writes_lines():
    try:
        model = Embedded(weights.stock(), temperature=0.0)
    except ModelError as error:
        pytest.skip(f"{error}")
    assert model.sha256 == weights.SHA256 and model.taught == ""
    asked = prompt(VAULT().brief(1, 4), VAULT.skills[0], taught=False)
    line = model.reply(asked, grammar=grammar(VAULT.Setting)).reply
    assert read(line, VAULT.Setting, VAULT.Setting().values).values is not None
