"""The pages of the experiments: their form, their tables, their commands; and the scripts that make the tables."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest
from helpers.pages import blocks
from helpers.paths import ROOT
from helpers.tiny_model import tiny

from curricle import config

EXPERIMENTS = ROOT / "experiments"
STUDIES = sorted(path.parent for path in EXPERIMENTS.glob("*/README.md"))
HEADINGS = ["Question", "Set-up", "Result", "What it shows", "What it does not show"]
SUMS = str(EXPERIMENTS / "genenv-sums" / "results.jsonl")


@pytest.fixture
def refresh(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "common")
    return importlib.import_module("refresh")


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_a_study_has_data_and_a_page_of_the_usual_form(study):
    page = (study / "README.md").read_text()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS
    assert len(page.splitlines()) <= 120
    assert list(study.glob("*.jsonl"))
    assert blocks(page.split("## Set-up")[1].split("## Result")[0], "sh"), "the exact command"


def test_the_index_lists_the_studies():
    index = (EXPERIMENTS / "README.md").read_text()
    assert len(index.splitlines()) <= 120
    assert sorted(re.findall(r"^\| \[([\w-]+)\]\(\1/README\.md\)", index, re.MULTILINE)) == [s.name for s in STUDIES]
    folders = {path.name for path in EXPERIMENTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {"common", *(study.name for study in STUDIES)}


def test_the_tables_of_all_pages_are_what_their_commands_print(refresh, script, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = [(page, words, table) for page in refresh.pages() for words, table in refresh.blocks(page)]
    assert {page.parent for page, _, _ in found} >= {ROOT, *STUDIES}
    for page, words, table in found:
        assert script(*words).strip() == table, f"{page}: run python experiments/common/refresh.py"


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_commands_of_a_study_name_options_and_scripts_that_exist(study, monkeypatch):
    monkeypatch.chdir(ROOT)
    for text in blocks((study / "README.md").read_text(), "sh"):
        for line in text.strip().splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "python":
                assert Path(words[1]).is_file(), line
                continue
            assert words[:2] == ["curricle", "run"], line
            pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
            pairs += [f"designer.id={words[i + 1]}" for i, word in enumerate(words) if word == "--designer"]
            config.resolve(config.override(config.load(words[2]), pairs))


def test_a_page_is_made_again_only_where_a_table_has_changed(refresh, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(refresh, "ROOT", tmp_path)
    (tmp_path / "say.py").write_text("print('| b |')")
    page = tmp_path / "README.md"
    page.write_text("Before.\n<!-- made by: python say.py -->\n| a |\n<!-- end -->\nAfter.\n")
    refresh.main()
    assert page.read_text() == "Before.\n<!-- made by: python say.py -->\n| b |\n<!-- end -->\nAfter.\n"
    assert capsys.readouterr().out == "README.md has changed\n"
    refresh.main()
    assert capsys.readouterr().out == ""


def test_options_of_runs_are_found_under_old_and_new_names(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "common")
    reporting = importlib.import_module("reporting")
    monkeypatch.setattr(reporting, "renamed", lambda part, name: {"old": "new"})
    for kept in ("old", "new"):
        line = {"config": {"agent": {"id": "ppo-v1", kept: 3}}}
        assert reporting.option(line, "agent", "old") == reporting.option(line, "agent", "new") == 3
        assert reporting.option(line, "agent", "other", 4) == 4


def test_means_and_intervals_by_hand(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "common")
    reporting = importlib.import_module("reporting")
    assert reporting.interval([1.0]) == "1.0"
    assert reporting.interval([1.0, 2.0, 3.0]) == "2.0 ± 2.5", "4.30 * 1 / sqrt(3)"
    assert reporting.deviation([1.0, 2.0, 3.0]) == "2.0 ± 1.0"
    assert reporting.deviation([1.0, 2.0]) == "1.5" and reporting.deviation([]) == "-"


def test_shapes_of_the_update_are_run_once(script, tmp_path):
    out = tmp_path / "out.jsonl"
    words = ["run", "--out", str(out), "--shapes", "1:2:1e-3", "--seeds", "3", "--steps", "40000"]
    for _ in range(2):
        script("experiments/symbols-crafter/update_shapes.py", *words)
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row["epochs"] == 1 and row["seed"] == 3 and len(row["returns"]) == 4 and row["scores"][1] > 0 < row["kl"]
    with pytest.raises(SystemExit):
        script("experiments/symbols-crafter/update_shapes.py", "run", "--out", str(out), "--shapes", "3:8")


def test_gains_are_measured_from_any_arm(script):
    shown = script("experiments/common/genenv_tables.py", "table", SUMS, "--against", "random")
    rows = {row.split(" | ")[0]: row.split(" | ")[5] for row in shown.splitlines() if " | " in row}
    assert rows["| arm"].startswith("gain over `random`") and rows["| random"] == "-"
    assert rows["| genenv"].startswith("0.8 ± 7.1")
    tools = str(EXPERIMENTS / "genenv-tools" / "results.jsonl")
    shown = script("experiments/common/genenv_tables.py", "table", tools, "--against", "random")
    rows = {row.split(" | ")[0]: row.split(" | ")[5] for row in shown.splitlines() if " | " in row}
    assert rows["| genenv"] == "-", "`random` was run with other verifiers only"
    assert rows["| genenv, old verifiers"].endswith("(3)")


def test_the_picture_shows_the_arms_there_are(script, tmp_path):
    script("experiments/common/genenv_tables.py", "picture", SUMS, "--out", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="has no arm 'teacher'; it has: agent_only, alpha="):
        words = ["--out", str(tmp_path / "b.png"), "--arms", "teacher"]
        script("experiments/common/genenv_tables.py", "picture", SUMS, *words)


@pytest.mark.slow
def test_tasks_that_are_written_are_counted(script, tmp_path):
    written = "experiments/written-tasks/written.py"
    out = tmp_path / "written.jsonl"
    words = ["--warm", "0", "1", "--seeds", "0", "--candidates", "3", "--model", tiny()]
    for _ in range(2):
        script(written, "run", "--out", str(out), *words)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["warm"] for row in rows] == [0, 1], "what the file has is not run again"
    for row in rows:
        assert row["used"] + sum(row["faults"].values()) == row["candidates"] == 3
    assert "| 1 | 1 | 3 |" in script(written, "table", str(out))
    strict = tmp_path / "strict.jsonl"
    script(written, "run", "--out", str(strict), *words, "--named")
    found = [json.loads(line) for line in strict.read_text().splitlines()]
    assert [row["must_name"] for row in [*rows, *found]] == [False, False, True, True]
    assert all(row["named"] == row["used"] for row in found)
