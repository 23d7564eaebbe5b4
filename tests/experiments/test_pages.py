"""The pages of the experiments: their form, their tables, their commands; and the scripts that make the tables."""

import argparse
import importlib
import itertools
import json
import re
import runpy
import shlex
from typing import Any

import pytest
from helpers.pages import blocks
from helpers.paths import ROOT
from helpers.skips import skip_without
from helpers.tiny_model import tiny
from typer.main import get_command

from curricle import config
from curricle.cli import app

EXPERIMENTS = ROOT / "experiments"
STUDIES = sorted(path.parent for path in EXPERIMENTS.glob("*/README.md"))
HEADINGS = ["Question", "Set-up", "Result", "What it shows", "What it does not show"]
WHOLE_RUNS = ["distillation-crafter", "envgen-crafter", "ppo-crafter", "symbols-crafter"]
SUMS = "experiments/genenv-sums/study.py"


@pytest.fixture
def refresh(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "common")
    return importlib.import_module("refresh")


@pytest.fixture
def study_of(monkeypatch):
    """What the script of a study declares."""
    monkeypatch.syspath_prepend(EXPERIMENTS / "common")  # and the path is as before afterwards
    return lambda name: runpy.run_path(str(EXPERIMENTS / name / "study.py"))["STUDY"]


class Accepted(Exception):
    """A script took its command line."""


@pytest.fixture
def accepts(script, monkeypatch):
    """Whether a script takes a command line; it is stopped before it does anything."""
    parse = argparse.ArgumentParser.parse_args

    def stop(self, *given, **named):
        parse(self, *given, **named)
        raise Accepted

    def check(*words):
        with pytest.raises(Accepted):
            script(*words)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    return check


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_a_study_has_data_a_script_and_a_page_of_the_usual_form(study):
    page = (study / "README.md").read_text()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS
    assert len(page.splitlines()) <= 120
    assert list(study.glob("*.jsonl"))
    runnable = [path for path in study.glob("*.py") if "__main__" in path.read_text()]
    scripts = [f"python experiments/{study.name}/{path.name} " for path in runnable]
    assert scripts and all(name in page for name in scripts)
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
def test_commands_of_a_study_are_accepted(study, monkeypatch, accepts):
    monkeypatch.chdir(ROOT)
    commands: Any = vars(get_command(app))["commands"]
    for text in blocks((study / "README.md").read_text(), "sh"):
        for line in text.strip().splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "python":
                accepts(*itertools.takewhile(lambda word: not word.startswith(">"), words[1:]))
                continue
            assert words[:2] == ["curricle", "run"], line
            commands["run"].make_context("run", words[2:]).close()  # refuses flags and values that `run` does not take
            pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
            pairs += [f"designer.id={words[i + 1]}" for i, word in enumerate(words) if word == "--designer"]
            config.resolve(config.override(config.load(words[2]), pairs))


@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_the_script_names_the_runs_that_the_data_have(study_of, name):
    study = study_of(name)
    planned = set()
    for setting in study.settings.values():
        planned |= {(*study.values(setting), seed) for seed in setting.seeds}
    assert planned == study.finished()


def test_a_study_makes_the_runs_that_its_data_lack(study_of, monkeypatch, tmp_path, capsys):
    study = study_of("ppo-crafter")
    whole_runs = importlib.import_module("whole_runs")
    study = study._replace(data=tmp_path / "results.jsonl")
    (tmp_path / "papers--s1").mkdir()
    (tmp_path / "papers--s1" / "config.toml").touch()
    monkeypatch.setattr(whole_runs, "summary", lambda folder: {"folder": folder.name})
    started = []
    monkeypatch.setattr(whole_runs.subprocess, "run", lambda words, check: started.append(words[3:]))
    name = "256x16-2x16-at-0.0003"
    whole_runs.main(study, None, ["run", "--only", "papers", name, "--seeds", "1", "--runs", str(tmp_path)])
    lines = [json.loads(line) for line in study.data.read_text().splitlines()]
    assert [line["folder"] for line in lines] == ["papers--s1", f"{name}--s1"]
    assert started[0] == ["resume", str(tmp_path / "papers--s1")], "its folder was there"
    assert started[1][0] == "run" and "agent.environments=256" in started[1]
    assert capsys.readouterr().out.endswith("all runs are done\n")


@pytest.mark.parametrize("name", ["genenv-sums", "genenv-tools"])
def test_learning_rates_are_those_of_the_data_and_can_be_run(study_of, name, tmp_path, monkeypatch):
    study = study_of(name)
    genenv = importlib.import_module("genenv")
    lines = {line["arm"]: line for line in map(json.loads, (study.folder / "rates.jsonl").read_text().splitlines())}
    assert {arm for arm in lines if "old moments" not in arm} == set(study.rates)
    plain = config.load(str(genenv.BASE))
    for arm, changes in study.rates.items():
        changed = config.override(plain, [*genenv.WORLDS[study.world], *study.all_rates, *changes])
        assert config.resolve(changed).to_toml()["agent"]["learning_rate"] == lines[arm]["config"]["agent"]["rate"]

    def measured(words):
        rows = [{"arm": "before"}, {"arm": "agent_only", "rate": words[-1]}]
        out = words[words.index("--out") + 1]
        (tmp_path / out).write_text("".join(json.dumps(row) + "\n" for row in rows))

    monkeypatch.setattr(genenv, "main", measured)
    known = next(iter(study.rates))
    (tmp_path / "rates.jsonl").write_text(json.dumps({"arm": known}) + "\n")
    shared = importlib.import_module("genenv_study")
    shared.main(study._replace(folder=tmp_path), None, ["rates", "--runs", str(tmp_path)])
    found = [json.loads(line) for line in (tmp_path / "rates.jsonl").read_text().splitlines()]
    assert [line["arm"] for line in found] == list(study.rates), "the first was there"


def test_measurements_of_agents_become_lines(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(EXPERIMENTS / "speed")
    speed: Any = runpy.run_path(str(EXPERIMENTS / "speed" / "study.py"))
    found = {"steps_per_s": 1200.0, "reference": 100.0, "options": {}}

    def measured(words, **named):
        view = words[words.index("--view") + 1]
        return argparse.Namespace(stdout=f"said\n{json.dumps({view: found})}\n")

    monkeypatch.setattr(speed["subprocess"], "run", measured)
    monkeypatch.setitem(speed["main"].__globals__, "AGENTS", tmp_path / "agents.jsonl")
    speed["main"](["agents", "--machine", "a slow one"])
    speed["main"](["table", "agents"])
    rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith("| a slow one")]
    assert rows and all("1,200 | 100 (12 times)" in row for row in rows)


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
    shown = script(SUMS, "table", "--against", "random")
    rows = {row.split(" | ")[0]: row.split(" | ")[5] for row in shown.splitlines() if " | " in row}
    assert rows["| arm"].startswith("gain over `random`") and rows["| random"] == "-"
    assert rows["| genenv"].startswith("0.8 ± 7.1")
    shown = script("experiments/genenv-tools/study.py", "table", "--against", "random")
    rows = {row.split(" | ")[0]: row.split(" | ")[5] for row in shown.splitlines() if " | " in row}
    assert rows["| genenv"] == "-", "`random` was run with other verifiers only"
    assert rows["| genenv, old verifiers"].endswith("(3)")


def test_the_picture_shows_the_arms_there_are(script, tmp_path):
    skip_without("plots")
    script(SUMS, "picture", "--out", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="has no arm 'teacher'; it has: agent_only, alpha="):
        script(SUMS, "picture", "--out", str(tmp_path / "b.png"), "--arms", "teacher")


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
