"""The script that runs designers against each other: goes on where it stopped, keeps every result, sums up."""

import importlib
import json

import pytest
from helpers import paths
from helpers.paths import ROOT


@pytest.fixture
def contest(monkeypatch):
    """The real script, in the toy world."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "designers-crafter"))
    script = importlib.import_module("compare")
    monkeypatch.setattr(script, "WORLD", paths.LADDER)
    monkeypatch.setattr(script, "BASE", ("log.tensorboard=false", "schedule.save_every=30"))
    return script


SMALL = ["schedule.cycles=2", "schedule.per_cycle=80", "schedule.final=40", "schedule.test_seeds=2"]


def call(contest, folder, *words):
    pairs = [word for pair in SMALL for word in ("--set", pair)]
    out, runs = str(folder / "runs.jsonl"), str(folder / "runs")
    contest.main(["run", "--out", out, "--runs", runs, "--jobs", "2", *pairs, *words])
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_the_rest_is(contest, tmp_path, capsys):
    one = call(contest, tmp_path, "--only", "policy", "none", "--seeds", "1")
    assert {(x["condition"], x["config"]["seed"]) for x in one} == {("policy", 0), ("none", 0)}
    two = call(contest, tmp_path, "--only", "policy", "none", "--seeds", "2")
    assert two[:2] == one and {(x["condition"], x["config"]["seed"]) for x in two[2:]} == {("policy", 1), ("none", 1)}
    for line in two:
        assert len(line["designs"]) == (8 if line["condition"] == "policy" else 0)
        assert sum(d["attempts"] for d in line["designs"]) in (0, 80), "parts of a practice are put together"
        assert line["trained"]["headline"] >= 0 and line["config"]["schedule"]["per_cycle"] == 80
    capsys.readouterr()
    contest.main(["scores", "--out", str(tmp_path / "runs.jsonl")])
    contest.main(["gains", "--of", "policy", "--out", str(tmp_path / "runs.jsonl")])
    contest.main(["designs", "--of", "policy", "--out", str(tmp_path / "runs.jsonl")])
    said = capsys.readouterr().out
    assert "| policy | 2 |" in said and "| none | 2 |" in said
    assert "| policy minus | seeds |" in said and "| 1 to 4 |" in said


def test_a_run_that_was_cut_off_goes_on(contest, tmp_path):
    (whole,) = call(contest, tmp_path / "whole", "--only", "random", "--seeds", "1")
    folder = tmp_path / "broken" / "runs" / "random--s0"
    (tmp_path / "whole" / "runs").rename(tmp_path / "broken_runs")
    folder.parent.mkdir(parents=True)
    (tmp_path / "broken_runs" / "random--s0").rename(folder)
    journal = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    saved = set(json.loads(journal[-1])["saved"].values())
    cut = [i for i, line in enumerate(journal) if set(json.loads(line)["saved"].values()) == saved]
    (folder / "journal.jsonl").write_text("".join(journal[: cut[0] + 1]))  # as if killed before the last test
    (again,) = call(contest, tmp_path / "broken", "--only", "random", "--seeds", "1")
    assert (again["tested"], again["designs"]) == (whole["tested"], whole["designs"])


def test_nothing_is_begun_that_would_not_be_done_in_time(contest, tmp_path, capsys):
    contest.main(["run", "--out", str(tmp_path / "runs.jsonl"), "--runs", str(tmp_path / "runs"), "--minutes", "0.5"])
    assert "35 runs left" in capsys.readouterr().out and not (tmp_path / "runs").exists()


def test_a_run_that_fails_is_named(contest, tmp_path, capsys):
    words = [
        "run",
        "--out",
        str(tmp_path / "runs.jsonl"),
        "--runs",
        str(tmp_path / "runs"),
        "--only",
        "none",
        "--seeds",
        "1",
    ]
    contest.main([*words, "--set", "schedule.nonsense=1"])
    assert "failed; see" in capsys.readouterr().out
    assert "nonsense" in (tmp_path / "runs" / "none--s0.log").read_text()


def test_every_condition_can_be_resolved(contest):
    from curricle import config

    for group in contest.GROUPS.values():
        for pairs in group.values():
            config.resolve(config.override({"world": {"id": "crafter"}}, ["agent.device=cpu", *pairs]))
