"""The embedded model, with a tiny random model in its place: it answers, keeps to a schema, and designs in a run."""

import json
import shlex

import pytest
from helpers import paths
from helpers import tiny_gguf as tiny
from helpers.killing import contents
from helpers.pages import blocks
from helpers.paths import ROOT
from helpers.sweep import VAULT
from typer.testing import CliRunner

from curricle import config
from curricle.cli import app
from curricle.designers.llm import prompts
from curricle.errors import ModelError
from curricle.llm.clients.llama_cpp import Embedded
from curricle.llm.embedded import weights
from curricle.records import Design, Message
from curricle.run import read_exchanges, read_records

PAGE = (ROOT / "docs" / "embedded.md").read_text()

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


def test_what_cannot_be_answered_is_an_error_in_the_exchange(model):
    exchange = model.reply([Message(role="user", content="x " * 9000)])
    assert "context" in exchange.error and exchange.reply == ""


def test_files_that_are_no_models_are_named(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match=r"no model file .*absent.gguf"):
        Embedded(tmp_path / "absent.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"bad.gguf cannot be loaded"):
        Embedded(tmp_path / "bad.gguf").reply(QUESTION)
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


def test_a_run_with_the_embedded_model_is_replayed_without_it(path, tmp_path):
    """The random model never closes a string, so its replies are cut off and the fallback designs."""
    chosen = {"model": f"local:{path}", "max_tokens": 100, "max_reprompts": 1}
    plain = {"world": {"id": paths.VAULT}, "designer": {"id": "llm", **chosen}}
    plain["schedule"] = {"cycles": 2, "per_cycle": 400, "final": 0, "test_seeds": 1}
    config.start(config.resolve(plain | {"log": {"tensorboard": False}}), tmp_path / "run")
    exchanges = [exchange for _, exchange in read_exchanges(tmp_path / "run")]
    assert len(exchanges) == 4 and all(exchange.model.startswith("tiny.gguf (") for exchange in exchanges)
    assert {design.by for _, design in read_records(tmp_path / "run", Design)} == {"tutor-v1"}
    again = config.with_llm(config.load(str(tmp_path / "run" / "config.toml")), f"replay:{tmp_path / 'run'}")
    config.start(config.resolve(again), tmp_path / "again")
    first = contents(tmp_path / "run")
    second = contents(tmp_path / "again")
    assert first.pop("config.toml") != second.pop("config.toml")
    assert first == second


def test_what_is_missing_is_said_before_a_run_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path))
    world = {"id": paths.VAULT}
    resolved = config.resolve({"world": world, "designer": {"id": "llm", "model": "local"}})
    with pytest.raises(ModelError, match="get it once with: curricle model"):
        config.start(resolved, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_pages_commands_run(path, tmp_path, monkeypatch):
    """As they stand there; the tiny model lies where the real one would, and gives up after a few words."""
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    assert weights.get(str(path)).new
    monkeypatch.setattr(weights, "SHA256", weights.sha256(path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (text,) = blocks(PAGE, "sh")
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        small = ["--set", "designer.max_tokens=20", "--set", "designer.max_reprompts=0"] if words[1] == "run" else []
        done = CliRunner().invoke(app, [*words[1:], *small])
        assert done.exit_code == 0 and done.stdout, (line, done.output, done.exception)


def test_the_stock_model_keeps_to_the_schema_of_designs():
    try:
        model = Embedded(weights.stock(), temperature=0.0)
    except ModelError as error:
        pytest.skip(f"{error}")
    assert model.sha256 == weights.SHA256
    reply = model.reply(QUESTION, schema=prompts.schema(VAULT().brief(1, 4), 1)).reply
    (design,) = json.loads(reply)["designs"]
    assert set(design) == {"setting", "aim", "why"}
