"""The run folder: markers, records, locks, and what happens to damaged ones."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from helpers.small_runs import PLAIN

from curricle import config
from curricle.errors import RunBusy, RunDamaged, RunError
from curricle.records import Design, Outcome, Scores
from curricle.run import (
    FILES,
    Run,
    Step,
    checking,
    read_config,
    read_environment,
    read_metrics,
    read_records,
    read_steps,
    reading,
)


@pytest.fixture
def finished(tmp_path):
    config.start(config.resolve(PLAIN), tmp_path / "run")
    return tmp_path / "run"


def test_what_a_run_holds(finished):
    steps = read_steps(finished)
    one = ["propose", *["designed"] * 2, *["original"] * 2, "measure", "learn"]
    assert [step.phase for step in steps] == [*one, *one, *["original"] * 4, "measure"]
    assert [step.cycle for step in steps] == [1] * 7 + [2] * 7 + [3] * 5
    assert [step.cycle for step, _ in read_records(finished, Design)] == [1, 1, 2, 2]
    assert [step.cycle for step, _ in read_records(finished, Scores)] == [1, 2, 3]
    outcomes = read_records(finished, Outcome)
    assert sum(o.spent for step, o in outcomes if step.cycle == 3) == 416, "52 steps of 8 environments"
    metrics = read_metrics(finished)
    assert [m["at"] for m in metrics] == sorted(m["at"] for m in metrics) and metrics[-1]["at"] == 1200
    environment = json.loads((finished / "environment.jsonl").read_text().splitlines()[0])
    assert environment["config"] == read_config(finished)
    assert environment["python"] and environment["packages"]["numpy"] and environment["cores"]


def test_a_changed_config_is_told_and_both_are_kept(finished, caplog):
    config.resume(finished)
    assert not caplog.records
    text = (finished / "config.toml").read_text()
    (finished / "config.toml").write_text(text.replace("epsilon = 0.1", "epsilon = 0.2"))
    config.resume(finished)
    (told,) = (record.getMessage() for record in caplog.records)
    assert "agent.epsilon was 0.1 and is 0.2 from here on" in told
    configs = [line["config"] for line in read_environment(finished)]
    assert [one["agent"]["epsilon"] for one in configs] == [0.1, 0.1, 0.2]


def test_the_resolved_config_is_runnable(finished, tmp_path):
    again = config.resolve(config.load(str(finished / "config.toml")))
    assert again.to_toml() == tomllib.loads((finished / "config.toml").read_text())
    config.start(again, tmp_path / "again")
    for name in (*FILES.values(), "metrics.jsonl", "journal.jsonl", "config.toml"):
        assert (finished / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_resuming_a_finished_run_changes_nothing(finished):
    before = {name: (finished / name).read_bytes() for name in FILES.values()}
    scores = config.resume(finished)
    assert scores == read_records(finished, Scores)[-1][1]
    assert before == {name: (finished / name).read_bytes() for name in FILES.values()}


def test_an_existing_run_is_not_overwritten(finished):
    with pytest.raises(RunError, match=r"exists already; to go on with it: curricle resume"):
        config.start(config.resolve(PLAIN), finished)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(RunError, match="exists already; choose another"):
        config.start(config.resolve(PLAIN), tmp_path)


def test_a_second_process_is_refused(finished):
    with Run.open(finished):
        with pytest.raises(RunBusy, match="in use by another process"):
            Run.open(finished)
        other = subprocess.run(
            [sys.executable, "-m", "curricle", "resume", str(finished)], capture_output=True, text=True
        )
    assert other.returncode == 1
    assert "in use by another process (process " in other.stderr and "Traceback" not in other.stderr
    config.resume(finished)


def test_no_run_here(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.toml"):
        config.resume(tmp_path)
    with pytest.raises(RunError, match="is not a run folder"):
        config.resume(tmp_path / "nowhere")


def spoil(path, content):
    before = path.read_bytes()
    path.write_bytes(content(before))
    return before


DAMAGE = {
    "config.toml": lambda b: b[:20] + b"=\n",
    "journal.jsonl": lambda b: b.replace(b"measure", b"\xff", 1),
    "designs.jsonl": lambda b: b[:-30],
    "scores.jsonl": lambda b: b.replace(b"mean", b"mode", 1),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_can_be_repaired(finished, name):
    before = spoil(finished / name, DAMAGE[name])
    with pytest.raises(RunDamaged, match=name):
        config.resume(finished)
    (finished / name).write_bytes(before)
    config.resume(finished)


def test_a_lost_checkpoint_is_named(finished):
    lost = next((finished / "checkpoints").glob("*agent"))
    lost.rename(finished / "elsewhere")
    with pytest.raises(RunDamaged, match=r"agent is missing"):
        config.resume(finished)
    (finished / "elsewhere").rename(lost)
    config.resume(finished)


def test_an_edited_schedule_is_noticed(finished):
    text = (finished / "config.toml").read_text()
    (finished / "config.toml").write_text(text.replace("save_every = 100", "save_every = 400"))
    with pytest.raises(RunDamaged, match=r"journal.jsonl has .* where the config leads to .* Put \[schedule\] back"):
        config.resume(finished)


def test_a_line_torn_by_a_crash_is_forgotten(finished):
    whole = {name: (finished / name).read_bytes() for name in (*FILES.values(), "journal.jsonl", "metrics.jsonl")}
    for name in whole:
        with (finished / name).open("ab") as file:
            file.write(b'{"cycle": 9, "pha')
    config.resume(finished)
    assert whole == {name: (finished / name).read_bytes() for name in whole}


def test_foreign_files_do_no_harm(finished):
    (finished / "checkpoints" / ".DS_Store").write_text("x")
    (finished / "notes.txt").write_text("mine")
    config.resume(finished)
    assert (finished / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["x" * 300, "file/run"])
def test_an_impossible_folder_is_named(name, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run folder"):
        config.start(config.resolve(PLAIN), tmp_path / name)


def test_figures_that_json_cannot_hold(tmp_path):
    with Run.create(tmp_path / "run", {}) as run:
        step = Step(cycle=1, phase="designed")
        run.metrics(step, 3, {"a/nan": float("nan"), "a/np": np.float32(0.5), "a/int": 2})
    assert read_metrics(tmp_path / "run") == [
        {"at": 3, "cycle": 1, "phase": "designed", "a/nan": None, "a/np": 0.5, "a/int": 2.0}
    ]


def test_resume_time_is_linear(tmp_path, monkeypatch):
    """Each record file is read a fixed number of times, however many steps there are."""
    reads = []
    real = reading.read_file

    def counted(path, *most):
        reads.append(path.name)
        return real(path, *most)

    for module in (reading, checking):
        monkeypatch.setattr(module, "read_file", counted)
    counts = {}
    for cycles in (2, 6):
        plain = PLAIN | {"schedule": PLAIN["schedule"] | {"cycles": cycles}}
        config.start(config.resolve(plain), tmp_path / str(cycles))
        reads.clear()
        config.resume(tmp_path / str(cycles))
        counts[cycles] = len(reads)
    assert counts[2] == counts[6]


def test_reading_needs_no_lock(finished):
    with Run.open(finished):
        assert read_config(finished)["schedule"]["cycles"] == 2
        assert read_steps(finished)[0] == Step(cycle=1, phase="propose")
