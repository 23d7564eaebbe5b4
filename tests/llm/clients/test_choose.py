"""Which designer and which language model: by the command line, the config and the environment."""

import pytest
from helpers import endpoint_server as lo
from helpers.llm_runs import KEY, LADDER, QUICK, curricle

from curricle import config
from curricle.errors import UsageError
from curricle.run import read_config


def test_the_first_line_says_who_designs_and_why(tmp_path):
    with lo.Loopback([lo.designer]) as server:
        done = curricle("run", LADDER, "--out", tmp_path / "a", *QUICK)
        assert "designer tutor-v1 (auto: no language model is configured, CURRICLE_LLM is not set)" in done.stderr
        key_alone = curricle("run", LADDER, "--dry-run", env={"OPENAI_API_KEY": KEY}).stdout
        assert 'id = "tutor-v1"' in key_alone, "nothing is sent before somebody names a model"
        env = {"CURRICLE_LLM": "m", "CURRICLE_LLM_BASE_URL": server.url}
        done = curricle("run", LADDER, "--out", tmp_path / "b", *QUICK, env=env)
        assert done.stderr.splitlines()[0] == (
            f"{tmp_path / 'b'}: world ladder-v1, designer llm-v1 (m {server.url}, auto: CURRICLE_LLM names a model), "
            "agent student-v1, seed 0"
        )
        kept = read_config(tmp_path / "b")["designer"]
        assert (kept["id"], kept["model"], kept["base_url"]) == ("llm-v1", "m", server.url)
        assert curricle("resume", tmp_path / "b").returncode == 0, "whatever the environment says by then"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("tutor-v1", None, None, None)),
        ({"CURRICLE_LLM": "m@http://h:1/v1"}, ("llm-v1", "m", "http://h:1/v1", "")),
        ({"CURRICLE_LLM": "m", "OPENAI_BASE_URL": "http://h/v1"}, ("llm-v1", "m", "http://h/v1", "")),
        (
            {"CURRICLE_LLM": "m", "OPENAI_BASE_URL": "http://h/v1", "OPENAI_API_KEY": KEY},
            ("llm-v1", "m", "http://h/v1", "OPENAI_API_KEY"),
        ),
        ({"CURRICLE_LLM": "m", "CURRICLE_LLM_KEY_ENV": "MINE"}, ("llm-v1", "m", "", "MINE")),
        ({"CURRICLE_LLM": "hand"}, ("llm-v1", "hand", "", "")),
        (
            {"CURRICLE_LLM": "m", "CURRICLE_LLM_BASE_URL": "http://a/v1", "OPENAI_BASE_URL": "http://b/v1"},
            ("llm-v1", "m", "http://a/v1", ""),
        ),
        ({"CURRICLE_LLM": " "}, ("tutor-v1", None, None, None)),
    ],
)
def test_what_the_environment_asks_for(environment, expected, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    table = config.resolve({"world": {"id": LADDER}}).to_toml()["designer"]
    assert (table["id"], table.get("model"), table.get("base_url"), table.get("key_env")) == expected


def test_a_model_is_named_in_the_config_or_not_at_all(monkeypatch, tmp_path):
    world = {"world": {"id": LADDER}}
    with pytest.raises(UsageError, match="no model is named; use --llm MODEL"):
        config.resolve(world | {"designer": {"id": "llm"}})
    with pytest.raises(UsageError, match="unknown key 'obfuscat', did you mean 'obfuscate'"):
        config.resolve(world | {"designer": {"id": "auto", "obfuscat": True}})
    auto = config.resolve(world | {"designer": {"id": "auto", "model": "x", "obfuscate": True}})
    assert auto.designer.id == "llm-v1" and auto.designer_options.obfuscate  # type: ignore[attr-defined]
    monkeypatch.setenv("CURRICLE_LLM", "env-model")
    assert (
        config.resolve(world | {"designer": {"id": "llm", "max_reprompts": 7}}).to_toml()["designer"]["max_reprompts"]
        == 7
    )
    assert config.resolve(world | {"designer": {"id": "llm", "model": "mine"}}).designer_options.model == "mine"  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    replay = config.resolve(world | {"designer": {"id": "llm", "model": "replay:runs/a"}})
    assert replay.designer_options.model == f"replay:{tmp_path}/runs/a", "to be resumed from anywhere"  # type: ignore[attr-defined]
    assert config.resolve(replay.to_toml()).to_toml() == replay.to_toml()


def test_what_llm_means_for_each_designer():
    def chosen(**designer):
        table = config.with_llm({"world": {"id": LADDER}, "designer": designer}, "m@http://h/v1")
        return config.resolve(table).to_toml()["designer"]

    assert chosen()["model"] == chosen(id="auto")["model"] == chosen(id="llm")["model"] == "m"
    for name in ("fixed", "easy_to_hard", "adversarial"):
        table = chosen(id=name)
        assert table["of"] == "llm-v1" and table["of_options"]["base_url"] == "http://h/v1"
    for bad in ({"id": "tutor"}, {"id": "random"}, {"id": "fixed", "of": "random"}):
        with pytest.raises(UsageError, match="asks no language model"):
            chosen(**bad)
    with pytest.raises(UsageError, match="--llm names no model"):
        config.with_llm({"world": {"id": LADDER}}, "@http://h/v1")


def test_the_embedded_model_is_asked_by_the_llm_designer(monkeypatch):
    world = {"world": {"id": LADDER}}
    for name in ("local", "local:/a.gguf"):
        for designer in ({}, {"id": "auto"}, {"id": "llm"}):
            table = config.resolve(config.with_llm(world | {"designer": designer}, name)).to_toml()["designer"]
            assert (table["id"], table["model"]) == ("llm-v1", name)
        of = config.resolve(config.with_llm(world | {"designer": {"id": "fixed"}}, name)).to_toml()["designer"]
        assert (of["of"], of["of_options"]["model"]) == ("llm-v1", name)
        monkeypatch.setenv("CURRICLE_LLM", name)
        table = config.resolve(world).to_toml()["designer"]
        assert (table["id"], table["model"]) == ("llm-v1", name)
        monkeypatch.delenv("CURRICLE_LLM")


def test_the_first_line_names_the_model_behind_another_designer(tmp_path):
    with lo.Loopback([lo.by_schema]) as server:
        words = ["--designer", "fixed", "--llm", f"m@{server.url}", "--out", tmp_path / "a"]
        assert f"designer fixed-v1 (of llm-v1, m {server.url}), agent" in curricle("run", LADDER, *words, *QUICK).stderr
    words = ["run", tmp_path / "a/config.toml", "--llm", f"replay:{tmp_path / 'a'}", "--out", tmp_path / "b"]
    again = curricle(*words)
    assert f"(of llm-v1, replay:{tmp_path / 'a'})" in again.stderr and "all of it replayed" in again.stdout
    designs = [(tmp_path / name / "designs.jsonl").read_bytes() for name in "ab"]
    assert designs[0] == designs[1]
