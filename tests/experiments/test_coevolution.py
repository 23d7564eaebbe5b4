"""The study of co-evolution on chains: its arms, what they spend, and the tables from data."""

import importlib
import json
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.skips import skip_without

from curricle import config

skip_without("llm")
FOLDER = ROOT / "experiments" / "coevolution"
SMALL = [
    "agent.tasks_per_update=2",
    "agent.group_size=4",
    "agent.imitation_updates=2",
    "agent.imitation_tasks=8",
    "designer.imitation_passes=1",
    "designer.n=4",
    "world.examples=2",
    "schedule.designs=4",
    "schedule.per_cycle=32",
    "schedule.save_every=32",
    "schedule.test_episodes=6",
]


@pytest.fixture
def study(monkeypatch):
    """The script, whose runs are made in this process: importing all that they need takes seconds."""
    monkeypatch.syspath_prepend(ROOT / "experiments" / "common")
    monkeypatch.syspath_prepend(FOLDER)
    script = importlib.import_module("study")
    monkeypatch.setattr(script, "in_own_process", lambda words: script.main(words[2:]))
    return script


@pytest.fixture
def arms(study):
    return importlib.import_module("arms")


def test_every_arm_is_a_config_that_resolves(arms):
    variants = ["alpha=0.25", "kl=0.1", "rate=1e-4", "share=0", "paper"]
    variants += ["genenv=soft", "agent_only=soft", "random-entropy=0"]
    for name in [*arms.ARMS, *variants]:
        for scarce in (False, True):
            plain = arms.make_config(name, 3, 5, scarce, [])
            resolved = config.resolve(plain)
            assert resolved.seed == 3 and resolved.schedule.cycles == 5
            assert resolved.to_toml()["world"].get("base", 0) == (20 if scarce else 0)
            if resolved.designer.id == "language-v1":
                agent: Any = resolved.agent_options
                groups = resolved.schedule.designed // agent.group_size
                attempts = groups // resolved.schedule.designs * agent.group_size
                options: Any = resolved.designer_options
                assert attempts >= options.n, "else the environment policy learns nothing"


def test_an_arm_that_does_not_exist_is_named(arms):
    with pytest.raises(SystemExit, match="no arm 'clever'"):
        arms.make_config("clever", 0, 1, False, [])


@pytest.mark.slow
def test_all_arms_spend_equally_many_rollouts_and_tests_and_begin_with_the_same_agent(study, arms, tmp_path):
    out = tmp_path / "results.jsonl"
    words = ["--runs", str(tmp_path / "runs"), "--out", str(out), "--cycles", "2", "--seeds", "5"]
    study.main(["run", *words, "--set", *SMALL])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["arm"] for line in lines} == set(arms.ARMS)
    assert {tuple(line["rollouts"]) for line in lines} == {(32, 32)}
    assert {len(line["tests"]) for line in lines} == {2}
    assert {line["config"]["begin"] for line in lines} == {"endless-before-5"}
    assert all(abs(sum(shares) - 1) < 0.01 for line in lines for shares in line["shares"])
    study.main(["run", *words, "--set", *SMALL])
    assert len(out.read_text().splitlines()) == len(lines), "what is there is not made again"


@pytest.mark.slow
def test_the_demo_ends_with_a_table_and_a_picture(study, tmp_path, capsys):
    skip_without("plots")
    study.main(["demo", "--runs", str(tmp_path / "demo"), "--processes", "1", "--cycles", "2", "--set", *SMALL])
    shown = capsys.readouterr().out
    for arm in ("agent_only", "genenv"):
        assert len([row for row in shown.splitlines() if row.startswith(f"| {arm} | ")]) == 2, "a row a cycle"
    assert (tmp_path / "demo" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert f"picture: {tmp_path / 'demo' / 'curves.png'}" in shown


def test_tables_compare_the_arms(study, tmp_path):
    skip_without("plots")
    tables = importlib.import_module("tables")

    def line(arm, seed, end, reached):
        tests = [[1.0, 1.0, 0.0, 0.0, 0.0, end if number >= reached else 0.0] for number in range(10)]
        return {
            "arm": arm,
            "seed": seed,
            "tests": tests,
            "rollouts": [100] * 10,
            "shares": [[0.0] * 5 + [1.0]] * 10,
            "success": [0.5] * 10,
            "written": [[0.0] * 5 + [1.0]] * 10,
            "writing": {},
            "trials": 0,
            "seconds": {"designed": 10.0, "propose": 1.0},
        }

    lines = [line("genenv", seed, 0.8, 2) for seed in range(3)]
    lines += [line("random", seed, 0.6, 5) for seed in range(3)]
    lines += [line("agent_only", seed, 0.0, 0) for seed in range(3)]
    assert tables.final(lines[0]) == pytest.approx(80)
    assert tables.reached_at(lines[0], 6) == 400 and tables.reached_at(lines[3], 6) == 800
    text = tables.summary(lines)
    never = "not reached (0 of 3)"
    assert f"| random | {never} | {never} | 1k (3 of 3) | 2.6 ± 0.0 | 0.2 ± 0.0 | 20.0 ± 0.0 | 1.00 |" in text
    assert f"| agent_only | {never} | {never} | {never} | 2.0 ± 0.0 | 0.8 ± 0.0 | 80.0 ± 0.0 | 1.00 |" in text
    assert "| genenv | 1,000 | 1.00 | 1.00 | 0.00 | 0.00 | 0.00 | 0.80 |" in tables.levels_table(lines[:1])
    untested = {**lines[0], "arm": "policy", "tests": [[None] * 5 + [0.5]] * 10}
    assert "| policy | 1 | 1,000 | - | - | - | - | - | 50 |" in tables.summary([untested])
    tables.draw([*lines, untested], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert tables.probability_of_improvement([1.0, 2.0], [1.0, 3.0]) == pytest.approx((0.5 + 1) / 4)
