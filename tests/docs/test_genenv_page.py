"""GenEnv's page, its configs and its script: what the page names exists, and what it says runs."""

import json
import math
import re
import runpy
import shlex
from pathlib import Path

import pytest
from helpers.pages import SMALL, blocks, tiny_players
from helpers.paths import ROOT
from helpers.tiny_model import tiny
from typer.testing import CliRunner

from curricle import config
from curricle.agent import Agent
from curricle.cli import app
from curricle.designer import Designer
from curricle.designers.language import designer as language
from curricle.registry import find

GENENV = (ROOT / "docs" / "genenv.md").read_text()
EXPLAINED = (ROOT / "docs" / "genenv-explained.md").read_text()
GENENV_SCRIPT = str(ROOT / "experiments" / "common" / "genenv.py")


@pytest.mark.slow
def test_genenv_page_runs(at_root):
    (text,) = blocks(GENENV, "sh")
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        if words[1] == "run":
            pairs = [*SMALL, *tiny_players(config.load(words[2]))]
            words += [word for pair in pairs for word in ("--set", pair)]
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)


def test_genenv_page_names_faults_metrics_and_settings_that_exist(tmp_path):
    agent, designer, fixed = find(Agent, "grpo"), find(Designer, "language"), find(Designer, "fixed")
    assert set(re.findall(r"^\| `(\w+)` \|", EXPLAINED, re.MULTILINE)) == set(language.FAULTS)
    known = {*agent.Options.model_fields, *designer.Options.model_fields, *fixed.Options.model_fields, "id"}
    for name in re.findall(r"`(?:designer|agent)\.(\w+)", GENENV + EXPLAINED):
        assert name in known, name
    sources = "".join(path.read_text() for path in (ROOT / "src" / "curricle").rglob("*.py"))
    for row in part_of(GENENV, "What to watch"):
        for name in re.findall(r"`(?:\w+/)?(\w+)`", row.split("|")[1]):
            assert re.search(rf'"(practice/|design/)?{name}"', sources), name


def part_of(text, heading):
    """The rows of the table under a heading."""
    return [row for row in text.split(f"## {heading}")[1].split("\n## ")[0].splitlines() if row.startswith("| `")]


@pytest.mark.slow
def test_genenv_tools_run(script, tmp_path):
    """The benchmark and the experiment, with a tiny model and little to do."""
    small = ["--rows", "8", "--prompt", "8", "--new", "4", "--updates", "1", "--text", "4", "--json"]
    done = script("benchmarks/language.py", "--model", tiny(), *small, "--out", str(tmp_path / "speed.jsonl"))
    found = json.loads(done.splitlines()[-1])
    (kept,) = map(json.loads, (tmp_path / "speed.jsonl").read_text().splitlines())
    assert kept.items() >= found.items() and kept["asked"]["rows"] == 8 and kept["machine"]["device"]
    assert (
        found["rollouts"]["transformers.generate"]["tokens_per_s"] > 0
        and found["updates"]["packed"]["tokens_per_s"] > 0
        and found["writing"]["static"]["steps_per_s"] > 0
    )
    plain = config.load(str(ROOT / "configs" / "genenv-small.toml"))
    out, work = str(tmp_path / "out.jsonl"), str(tmp_path / "runs")
    go = ["--out", out, "--work", work, "--seeds", "0", "--arms", "before", "genenv"]
    sets = [
        "--set",
        *SMALL,
        *tiny_players(plain),
        "schedule.test_episodes=2",
        "schedule.final=0",
        "agent.imitation_updates=1",
    ]
    sets.append('designer.text="required"')
    assert "minutes are over" in script("experiments/common/genenv.py", *go, "--minutes", "0", *sets)
    known = runpy.run_path(GENENV_SCRIPT)
    found = {name: config.resolve(config.override(plain, s)) for name, s in known["WORLDS"].items()}
    texts = {name: (one.designer_options.text, one.designer_options.imitation_passes) for name, one in found.items()}
    held = dict.fromkeys(("written", "scarce"), ("required", 10))
    assert texts == {"tools": ("off", 0), "sums": ("allowed", 0), "small": ("allowed", 10), **held}
    assert config.override(plain, known["WORLDS"]["small"]) == plain
    arms = {name: config.resolve(known["arm"](plain, name)).designer_options for name in ("static=6", "alpha=0.3")}
    assert arms["static=6"].variations == 6 and arms["alpha=0.3"].alpha == 0.3  # type: ignore[attr-defined]
    script("experiments/common/genenv.py", *go, "--processes", "2", "--share", *sets)
    rows = sorted(map(json.loads, Path(out).read_text().splitlines()), key=lambda row: row["arm"])
    again = script("experiments/common/genenv.py", *go, "--share", *sets)
    assert again.strip() == "all runs are done", "the second time there is nothing left to do"
    counted = [(row["arm"], row["samples"], len(row["held_out"])) for row in rows]
    assert counted == [("before", 0, 1), ("genenv", 32, 2)] and rows[1]["config"]["begin"] == "out-before-0"
    tried = list(
        map(json.loads, script("experiments/written-tasks/written.py", "gather", f"{work}/out-genenv-0").splitlines())
    )
    assert {row["cycle"] for row in tried} == {1, 2} and 0 < sum(row["attempts"] for row in tried) <= 16
    assert all(row["task"] and row["fallback"] for row in tried), "a tiny model writes nothing of use"
    shown = script("experiments/common/genenv_tables.py", out)
    assert str(tmp_path) not in json.dumps(rows) and "| genenv | 1 | 32 |" in shown


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/genenv-*.toml")), ids=lambda p: p.stem)
def test_genenv_practises_in_the_original_too_and_tries_each_design_often_enough(path):
    often_enough(config.resolve(config.load(str(path))), alone=path.stem == "genenv-chains")


@pytest.mark.parametrize("world", ["tools", "sums", "written", "scarce"])
def test_the_experiments_try_each_design_often_enough(world, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments" / "common")
    known = runpy.run_path(GENENV_SCRIPT)
    plain = config.load(str(ROOT / "configs" / "genenv-small.toml"))
    often_enough(config.resolve(config.override(plain, known["WORLDS"][world])), alone=world == "sums")


def often_enough(found, alone=False):
    """Whether each design has n tries, though old tasks take now more, now fewer (four deviations) of the practice."""
    schedule, designer, agent = found.schedule, found.designer_options, found.agent_options
    tasks = schedule.designed // agent.group_size
    new = tasks * (1 - agent.replay_share) - 4 * math.sqrt(tasks * agent.replay_share * (1 - agent.replay_share))
    assert int(new) // schedule.designs * agent.group_size >= designer.n
    assert schedule.original == (0 if alone else schedule.designed)
    assert designer.n not in range(1, 10) or designer.n == 5, "else only p = 1/2 lies in the band"
