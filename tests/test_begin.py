"""A run that begins with the agent of another one."""

import shutil
from typing import Any

import pytest
from helpers.command_line import curricle
from helpers.small_runs import PLAIN

from curricle import config
from curricle.errors import RunError, UsageError
from curricle.records import Scores
from curricle.run import Run, read_config, read_records

ONLY_TESTS: dict[str, Any] = {**PLAIN, "schedule": {**PLAIN["schedule"], "cycles": 0, "final": 0}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, and what its agent scored in the end."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return folder, config.start(config.resolve(PLAIN), folder)


def begun(plain, folder):
    return config.resolve({**plain, "begin": str(folder)})


def test_it_begins_as_that_one_ended(trained, tmp_path):
    folder, scores = trained
    fresh = config.start(config.resolve(ONLY_TESTS), tmp_path / "fresh")
    again = config.start(begun(ONLY_TESTS, folder), tmp_path / "again")
    assert again.skills == scores.skills != fresh.skills
    config.export(folder, tmp_path / "agent")
    assert config.start(begun(ONLY_TESTS, tmp_path / "agent"), tmp_path / "exported").skills == scores.skills
    assert read_config(tmp_path / "again")["begin"] == str(folder) and "begin" not in read_config(tmp_path / "fresh")


def test_one_that_never_practised_is_kept_and_can_be_begun_with(trained, tmp_path):
    folder, scores = trained
    config.start(begun(ONLY_TESTS, folder), tmp_path / "tested")
    assert config.start(begun(ONLY_TESTS, tmp_path / "tested"), tmp_path / "third").skills == scores.skills
    assert curricle("eval", tmp_path / "tested").returncode == 0


def test_a_run_that_was_stopped_goes_on_without_the_other_one(trained, tmp_path):
    """Whether before its first step or after it; only one that had no time for a copy needs the other run again."""
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    plain = begun(PLAIN, other)
    expected = config.start(plain, tmp_path / "whole")
    with Run.create(tmp_path / "at once", plain.to_toml()):
        pass
    assert config.resume(tmp_path / "at once") == expected
    with Run.create(tmp_path / "early", plain.to_toml(), agent=config.trained(other)[1]):
        pass
    (tmp_path / "early" / "checkpoints" / "99999-agent").mkdir()  # as a copy that was cut off
    with Run.create(tmp_path / "lost", plain.to_toml()):
        pass
    shutil.rmtree(other)
    assert config.resume(tmp_path / "early") == expected == config.resume(tmp_path / "whole")
    with pytest.raises(RunError, match="other is not a run folder"):
        config.resume(tmp_path / "lost")


def test_what_cannot_be_begun_with_leaves_no_folder(tmp_path):
    config.start(config.resolve({**ONLY_TESTS, "agent": {"id": "random"}}), tmp_path / "random")
    for plain, place in ((PLAIN, tmp_path / "nowhere"), (PLAIN, tmp_path / "random")):
        with pytest.raises(RunError):
            config.start(begun(plain, place), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    assert config.resolve({**PLAIN, "begin": ""}).begin == ""
    with pytest.raises(UsageError, match="begin"):
        config.resolve({**PLAIN, "begin": 3})
    with pytest.raises(UsageError, match=r"begin\.x=1"):
        config.override(PLAIN, ["begin.x=1"])


@pytest.mark.slow
def test_the_command_line_takes_it_and_compare_tells_beginnings_apart(trained, tmp_path):
    """Seeds that began with a run of the same seed each are one row; others are not."""
    _, scores = trained
    sets = [word for key, value in ONLY_TESTS["schedule"].items() for word in ("--set", f"schedule.{key}={value}")]
    world, runs = PLAIN["world"]["id"], []
    for seed in (0, 1):
        config.start(config.resolve({**PLAIN, "seed": seed}), tmp_path / f"first-{seed}")
    for seed, other in ((0, "first-0"), (1, "first-1"), (0, "first-1")):
        runs.append(tmp_path / f"run-{seed}-{other}")
        done = curricle("run", world, "--begin", tmp_path / other, "--out", runs[-1], "--seed", seed, *sets)
        assert done.returncode == 0, done.stderr
    assert read_records(runs[0], Scores)[-1][1].skills == scores.skills
    shown = curricle("compare", *runs, tmp_path / "first-0").stdout
    assert "left out" not in shown and "begin=first-0" in shown and "begin=first-1" in shown, shown
    assert [line.count("2 (2)") for line in shown.splitlines() if "begin=first-0" in line] == [1], shown
