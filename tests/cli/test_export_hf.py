"""`curricle export RUN --as hf`: Hugging Face's `datasets` loads what a designer made, and nothing of a folder runs."""

import json
import re
from typing import Any

import pytest
from helpers import paths
from helpers.paths import ROOT
from helpers.skips import skip_without
from typer.testing import CliRunner

from curricle import __version__, config
from curricle.cli import app
from curricle.records import Design
from curricle.run import read_checkpoint, read_records, trust
from curricle.tracking.watcher import Watcher
from curricle.views.card import COLUMNS
from curricle.views.dataset import _Tasks, export_dataset
from curricle.views.designs import designs_so_far
from curricle.worlds.text.chains import Chains

VAULT = {
    "world": {"id": paths.VAULT},
    "designer": {"id": "tutor"},
    "agent": {"id": "tabular"},
    "schedule": {"cycles": 2, "designs": 2, "per_cycle": 400, "final": 0, "save_every": 200, "test_seeds": 1},
    "log": {"tensorboard": False},
}
WRITER = {"device": "cpu", "lora": 0, "aim": "task", "n": 2, "text": "off", "band": "off"}


def curricle(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def exported(run, out):
    done = curricle("export", run, "--as", "hf", "--out", out)
    assert done.exit_code == 0, (done.output, done.exception)
    assert str(out) in done.output
    return done.output


def loaded(folder, name=None):
    skip_without("llm")
    from datasets import load_dataset

    return load_dataset(str(folder), name, split="train", cache_dir=str(folder.parent / "cache"))


def rows_of(folder, name="designs"):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


class Stop(Watcher):
    """Interrupts a run as a phase begins."""

    def __init__(self, phase):
        self.phase = phase

    def begin(self, what, budget, unit):
        if self.phase in what:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vault") / "run"
    config.start(config.resolve(VAULT), folder)
    return folder


@pytest.fixture(scope="module")
def genenv(tmp_path_factory):
    """Two language models; some candidates are dropped."""
    skip_without("llm")
    from helpers.language_runs import run
    from helpers.tiny_model import tiny

    folder = tmp_path_factory.mktemp("genenv") / "run"
    plain = run({"id": "language", "model": tiny(), **WRITER, "oversample": 2.0})
    plain["agent"] |= {"model": tiny(curt=True), "replay_share": 0.0}  # its replies end, so it has a pool
    config.start(config.resolve(plain), folder)
    return folder


def test_a_simulators_designs_are_rows(vault, tmp_path):
    output = exported(vault, tmp_path / "data")
    assert "note" not in output
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["README.md", "designs.jsonl"]
    rows = rows_of(tmp_path / "data")
    outcomes = [outcome for _, outcome in designs_so_far(vault)]
    assert len(rows) == len(read_records(vault, Design)) == 4
    for row, outcome in zip(rows, outcomes, strict=True):
        assert list(row) == list(COLUMNS["designs"])
        assert json.loads(row["setting"]) == outcome.design.setting
        assert (row["aim"], row["why"], row["by"]) == (outcome.design.aim, outcome.design.why, "tutor-v1")
        assert (row["attempts"], row["successes"], row["p"]) == (outcome.attempts, outcome.successes, outcome.rate)
        assert row["used"] and row["dropped"] == "" and row["prompt"] is None and row["request"] is None
    assert [row["cycle"] for row in rows] == [1, 1, 2, 2] and any(row["attempts"] for row in rows)
    exported(vault, tmp_path / "again")
    assert (tmp_path / "data" / "designs.jsonl").read_bytes() == (tmp_path / "again" / "designs.jsonl").read_bytes()


def test_datasets_loads_a_simulators_designs(vault, tmp_path):
    exported(vault, tmp_path / "data")
    found = loaded(tmp_path / "data")
    assert list(found) == rows_of(tmp_path / "data")
    assert found.features["p"].dtype == "float64" and found.features["used"].dtype == "bool"


def test_the_card_says_what_the_run_was(vault, tmp_path):
    exported(vault, tmp_path / "data")
    text = (tmp_path / "data" / "README.md").read_text()
    for line in ("| world | `vault.py:Vault` |", "| agent | `tabular-v1` |", "| seed | `0` |", "| finished | `yes` |"):
        assert line in text
    assert f"| Curricle of the run | `{__version__}` |" in text and "4 rows: what the designer made" in text
    assert text.startswith("---\nlicense: other\nlicense_name: unknown\n")
    assert str(ROOT) not in text, "where it lay on this machine is nobody's business"


@pytest.mark.slow
def test_two_language_models_have_two_tables(genenv, tmp_path):
    from curricle.llm import pools

    exported(genenv, tmp_path / "data")
    found = loaded(tmp_path / "data")
    assert list(found) == rows_of(tmp_path / "data")
    pool = pools.read(read_checkpoint(genenv, "designer") / pools.ENV)
    used = [row for row in found if row["used"]]
    dropped = [row for row in found if not row["used"]]
    assert len(used) == len(read_records(genenv, Design)) == 4
    assert sorted(row["dropped"] for row in dropped) == sorted(
        str(row.info["fault"]) for row in pool if row.info["fault"]
    )
    assert dropped and all(row["dropped_why"] and row["p"] is None for row in dropped)
    for row in used:
        assert row["p"] == row["successes"] / row["attempts"]
        letter = json.loads(row["setting"])["letter"]
        assert row["prompt"] == [{"role": "user", "content": letter}]
        assert json.loads(row["gold"])["wanted"] == letter and row["skill"] in ("vowel", "consonant")
        assert not row["written"], "there are many tasks of a letter"
    by_policy = [row for row in used if row["request"]]
    assert len(by_policy) == sum(not row.info["fault"] for row in pool)
    for row in by_policy:
        letter = json.loads(row["setting"])["letter"]
        assert f"letter: {letter}\n" in row["completion"]
    assert {row["weight"] for row in by_policy} == {row.weight for row in pool if not row.info["fault"]}
    train = loaded(tmp_path / "data", "d_train")
    assert list(train) == rows_of(tmp_path / "data", "d_train")
    expected = pools.read(read_checkpoint(genenv, "agent") / pools.TRAIN)
    assert [(row["prompt"][0]["content"], row["completion"][-1]["content"], row["reward"]) for row in train] == [
        (row.prompt[0].content, row.completion, row.weight) for row in expected
    ]
    text = (tmp_path / "data" / "README.md").read_text()
    assert "| alpha | `0.5` |" in text and "| model of the designer | `" in text and "## d_train" in text


@pytest.mark.slow
def test_designs_that_are_used_again_keep_what_was_asked_for_them(tmp_path):
    skip_without("llm")
    from helpers.language_runs import run
    from helpers.tiny_model import tiny

    plain = run({"id": "fixed", "of": "language", "of_options": {"model": tiny(), **WRITER}})
    config.start(config.resolve(plain), tmp_path / "run")
    exported(tmp_path / "run", tmp_path / "data")
    used = [row for row in rows_of(tmp_path / "data") if row["used"]]
    assert [row["cycle"] for row in used] == [1, 1, 2, 2]
    assert [bool(row["request"]) for row in used[:2]] == [bool(row["request"]) for row in used[2:]]
    assert any(row["request"] for row in used)


def test_a_written_text_decides_its_task():
    world = Chains()
    (values, *_) = world.examples(1)
    columns = _Tasks(world).columns(values)
    assert columns["written"] and columns["prompt"][0]["content"] == values["task"]
    level = _Tasks(world).columns({"level": 2})
    assert not level["written"] and level["skill"] == "level_2"
    assert _Tasks(world).columns({"level": 99})["prompt"] is None


@pytest.mark.parametrize("phase", ["practice, designed", "practice, original", "designs"])
def test_an_unfinished_run_has_what_there_is(phase, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        config.start(config.resolve(VAULT), tmp_path / "run", Stop(phase))
    if phase == "designs":
        done = curricle("export", tmp_path / "run", "--as", "hf", "--out", tmp_path / "data")
        assert done.exit_code == 1 and "has nothing to export: tutor-v1 has made no designs" in str(done.exception)
        assert not (tmp_path / "data").exists()
        return
    exported(tmp_path / "run", tmp_path / "data")
    rows = rows_of(tmp_path / "data")
    assert [(row["cycle"], bool(row["attempts"])) for row in rows] == [(1, phase == "practice, original")] * 2
    assert "| finished | `no` |" in (tmp_path / "data" / "README.md").read_text()


def test_bad_words_are_refused_with_what_is_allowed(vault, tmp_path):
    for words, what in (
        (["--as", "parquet"], "--as 'parquet' is not known; write one of: model, hf"),
        (["--as", "hf", "--merged"], "--merged is for a model"),
    ):
        done = curricle("export", vault, "--out", tmp_path / "data", *words)
        assert done.exit_code and what in str(done.exception) and not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    done = curricle("export", vault, "--as", "hf", "--out", tmp_path / "data")
    assert done.exit_code == 1 and "exists already; choose another --out" in str(done.exception)
    done = curricle("export", tmp_path / "gone", "--as", "hf", "--out", tmp_path / "other")
    assert done.exit_code == 1 and "is not a run folder" in str(done.exception)


def test_each_kind_has_a_folder_of_its_own_name(vault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert curricle("export", vault, "--as", "hf").exit_code == 0
    assert curricle("export", vault).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "dataset"]


def test_code_that_a_folder_names_does_not_run(vault, tmp_path):
    """The world's own code would draw tasks; without it the other columns are there all the same."""
    foreign = copy_of(vault, tmp_path)
    evil = tmp_path / "evil.py"
    evil.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'owned')!r}).write_text('')\n")
    text = (foreign / "config.toml").read_text()
    (foreign / "config.toml").write_text(text.replace(paths.VAULT, f"{evil}:Vault"))
    output = exported(foreign, tmp_path / "data")
    assert "without prompts and gold" in output and "add --trust" in " ".join(output.split())
    assert not (tmp_path / "owned").exists()
    assert [row["setting"] for row in rows_of(tmp_path / "data")] == [
        json.dumps(dict(design.setting)) for _, design in read_records(vault, Design)
    ]


NASTY = "x`|\n---\nconfigs: []\n---\n<b>\x1b[31m"


def test_texts_of_a_folder_are_data(vault, tmp_path):
    foreign = copy_of(vault, tmp_path)
    for name in ("designs.jsonl", "outcomes.jsonl"):
        lines = [json.loads(line) for line in (foreign / name).read_text().splitlines()]
        for line in lines:
            line.get("design", line)["why"] = NASTY
        (foreign / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = (foreign / "config.toml").read_text()
    (foreign / "config.toml").write_text(text + f"\n[designer.of_options]\nmodel = {json.dumps(NASTY)}\n")
    exported(foreign, tmp_path / "data")
    assert {row["why"] for row in loaded(tmp_path / "data")} == {NASTY}
    card = (tmp_path / "data" / "README.md").read_text()
    assert card.split("---\n")[1].count("config_name") == 2 and "\x1b" not in card
    assert re.search(r"^\| model of the designer \| `x {2,}---.*` \|$", card, re.MULTILINE)


@pytest.mark.slow
def test_a_damaged_pool_is_one_line(genenv, tmp_path):
    foreign = copy_of(genenv, tmp_path)
    pool = next((foreign / "checkpoints").glob("*-designer")) / "d_env.parquet"
    pool.write_bytes(b"junk")
    done = curricle("export", foreign, "--as", "hf", "--out", tmp_path / "data")
    assert done.exit_code == 1 and "d_env.parquet" in str(done.exception) and not (tmp_path / "data").exists()


def test_a_place_that_cannot_be_written_is_one_line(vault, tmp_path):
    (tmp_path / "file").write_text("")
    done = curricle("export", vault, "--as", "hf", "--out", tmp_path / "file" / "data")
    assert done.exit_code == 1 and "cannot write" in str(done.exception)


def test_trust_is_remembered(vault, tmp_path, monkeypatch):
    """A task world from a file: known to its maker, and to others from `--trust` on."""
    plain: dict[str, Any] = VAULT | {
        "world": {"id": paths.LADDER},
        "designer": {"id": "random"},
        "agent": {"id": paths.STUDENT},
        "schedule": VAULT["schedule"] | {"per_cycle": 8, "save_every": 8},
    }
    config.start(config.resolve(plain), tmp_path / "run")
    assert not export_dataset(tmp_path / "run", tmp_path / "own")
    assert all(row["prompt"][0]["content"].startswith("How able") for row in rows_of(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody else"))
    assert export_dataset(tmp_path / "run", tmp_path / "foreign")
    assert all(row["prompt"] is None for row in rows_of(tmp_path / "foreign"))
    assert not export_dataset(tmp_path / "run", tmp_path / "trusted", trusted=True)
    assert rows_of(tmp_path / "trusted") == rows_of(tmp_path / "own")
    assert list(trust.state_folder().rglob("*"))


def copy_of(run, tmp_path):
    import shutil

    return shutil.copytree(run, tmp_path / "copy")
