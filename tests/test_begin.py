"""A run that begins with the agent of another one."""

import shutil

import pytest
from test_run import PLAIN
from test_trained import curricle

from curricle import config
from curricle.errors import RunError, UsageError
from curricle.records import Scores
from curricle.run import Run, read_config, read_records

ONLY_TESTS = {**PLAIN, "schedule": {**PLAIN["schedule"], "cycles": 0, "final": 0}}


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


def test_a_run_that_was_stopped_goes_on_from_its_beginning_or_without_it(trained, tmp_path):
    """Before its first checkpoint it needs the other run again; afterwards that may be gone."""
    folder, _ = trained
    other = shutil.copytree(folder, tmp_path / "other")
    plain = begun(PLAIN, other)
    expected = config.start(plain, tmp_path / "whole")
    with Run.create(tmp_path / "killed", plain.to_toml()):
        pass
    assert config.resume(tmp_path / "killed") == expected
    shutil.rmtree(other)
    assert config.resume(tmp_path / "killed") == expected
    with Run.create(tmp_path / "lost", plain.to_toml()):
        pass
    with pytest.raises(RunError, match="other has no agent yet"):
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


def test_the_command_line_takes_it_and_seeds_with_a_beginning_each_are_one_row(trained, tmp_path):
    folder, scores = trained
    world = PLAIN["world"]["id"]
    sets = [word for key, value in ONLY_TESTS["schedule"].items() for word in ("--set", f"schedule.{key}={value}")]
    for seed in (0, 1):
        other = shutil.copytree(folder, tmp_path / f"beginning-{seed}")
        out = tmp_path / f"run-{seed}"
        done = curricle("run", world, "--begin", other, "--out", out, "--seed", seed, *sets)
        assert done.returncode == 0, done.stderr
        assert read_records(out, Scores)[-1][1].skills == scores.skills
    shown = curricle("compare", tmp_path / "run-0", tmp_path / "run-1").stdout
    assert "2 (2)" in shown, shown
