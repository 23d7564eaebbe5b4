"""What can be done with a trained agent: test it, watch it, film it."""

import importlib
import json

import pytest
from helpers import paths
from helpers.command_line import curricle
from helpers.paths import ROOT
from PIL import Image

from curricle import config
from curricle.agents.random import RandomAgent
from curricle.errors import RunError, UsageError
from curricle.records import Scores
from curricle.run import Run, read_records
from curricle.worlds.crafter import Crafter


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run in Crafter: enough to have an agent."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    plain = {
        "world": {"id": "crafter"},
        "original": {"episode_length": 100},
        "designer": {"id": "none"},
        "agent": {"id": "ppo", "environments": 8, "steps": 32},
        "schedule": {"cycles": 0, "final": 512, "test_seeds": 3, "test_episodes": 2},
    }
    config.start(config.resolve(plain), folder)
    return folder


@pytest.mark.slow
def test_eval_repeats_the_runs_own_test(run):
    done = curricle("eval", run, "--seeds", 3, "--episodes", 2)
    ((_, scores),) = read_records(run, Scores)
    assert done.returncode == 0, done.stderr
    assert f"{scores.headline:.1f}" in done.stdout and f"{scores.reward.mean:.2f}" in done.stdout
    assert "collect_wood" in done.stdout and "crafter-v1, ppo-v1" in done.stdout


@pytest.mark.slow
def test_an_exported_agent_is_the_runs(run, tmp_path):
    done = curricle("export", run, "--out", tmp_path / "agent")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "agent").iterdir()) == ["agent", "config.toml"]
    again, exported = (curricle("eval", folder, "--seeds", 2).stdout for folder in (run, tmp_path / "agent"))
    assert again == exported and "collect_wood" in again
    assert curricle("film", tmp_path / "agent", "--out", tmp_path / "a.gif", "--longest", 5).returncode == 0
    assert "exists already" in curricle("export", run, "--out", tmp_path / "agent").stderr
    assert "is an exported agent, not a run" in curricle("resume", tmp_path / "agent").stderr


@pytest.mark.slow
def test_a_film_of_an_episode(run, tmp_path):
    done = curricle("film", run, "--out", tmp_path / "film.gif", "--size", 90, "--longest", 40)
    assert done.stdout.strip().endswith("film.gif: 40 frames"), done.stderr
    with Image.open(tmp_path / "film.gif") as film:
        assert film.size == (90, 90) and film.n_frames > 10  # type: ignore[attr-defined]
    assert curricle("film", run, "--out", tmp_path / "film.avi").returncode == 2


@pytest.mark.slow
def test_a_film_as_mp4(run, tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="MP4 needs an extra: pip install 'curricle[film]'")
    done = curricle("film", run, "--out", tmp_path / "film.mp4", "--size", 90, "--longest", 12)
    assert done.stdout.strip().endswith("film.mp4: 12 frames"), done.stderr
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"


def test_knobs_for_a_film_are_changes_of_the_runs_own_original(run):
    """Not of the world's: the run was made in short episodes."""
    from curricle.cli.scenes import _performance
    from curricle.world import VectorWorld

    vectors = list(_performance(run, VectorWorld, ["start_wood=7"], 0))
    assert len(vectors) <= 100


@pytest.mark.slow
def test_watching_an_agent(run):
    done = curricle("play", "crafter", "--agent", run, "--setting", "start_wood=7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Vitals:") >= 20 and "wood 7" in done.stdout
    other = curricle("play", paths.VAULT, "--agent", run)
    assert other.returncode == 2 and "is a run in crafter-v1" in other.stderr


def test_an_agent_that_cannot_be_watched_says_so():
    with pytest.raises(UsageError, match="random-v1 cannot be watched"):
        RandomAgent(Crafter()).perform(Crafter().unaltered(), 0)


def test_a_run_without_an_agent_yet(tmp_path):
    with Run.create(tmp_path / "run", config.resolve({"world": {"id": "crafter"}}).to_toml()):
        pass
    with pytest.raises(RunError, match="has no agent yet"):
        config.trained(tmp_path / "run")


def test_results_are_collected_as_data(run, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments" / "common")
    collected = importlib.import_module("collect").summary(run)
    assert collected["tested"]["headline"] >= 0
    assert json.loads(json.dumps(collected)) == collected
