"""Figures reach TensorBoard, and W&B and trackio where they are installed."""

import os
import shutil
import subprocess
import sys
import threading
from typing import Any

import pytest
from helpers import paths
from helpers.skips import skip_without

from curricle import config
from curricle.errors import UsageError
from curricle.run import read_metrics
from curricle.tracking.watcher import WITHOUT_TENSORBOARD, TensorBoard, Tracker, Watcher, Watchers

PLAIN: dict[str, Any] = {
    "world": {"id": paths.VAULT},
    "schedule": {"cycles": 1, "per_cycle": 4000, "final": 2000, "save_every": 2000, "test_seeds": 2},
}


def test_tensorboard_gets_what_the_metrics_file_gets(tmp_path):
    skip_without("tensorboard")
    config.start(config.resolve(PLAIN), tmp_path / "run")
    assert seen(tmp_path / "run") == written(tmp_path / "run")
    assert {"test/headline", "test/reward", "test/open_1", "practice/episodes"} <= set(seen(tmp_path / "run"))


def test_a_resume_leaves_no_gap_in_tensorboard(tmp_path):
    """Whatever a killed writer had not flushed, and whatever a finished run holds, is there after a resume."""
    skip_without("tensorboard")
    folder = tmp_path / "run"
    config.start(config.resolve(PLAIN), folder)
    shutil.rmtree(folder / "tensorboard")
    config.resume(folder)
    assert seen(folder) == written(folder)
    config.resume(folder)
    assert seen(folder) == written(folder)


def test_an_event_file_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    """Each figure is written by the run itself: no thread can die of a full disk and leave the run waiting for it."""
    skip_without("tensorboard")
    monkeypatch.setattr("curricle.tracking.watcher.FLUSH", 0.0)
    threads = threading.active_count()
    board = TensorBoard(tmp_path / "events", [])
    board.report(0, 0, {"a/b": 1.0})
    assert threading.active_count() == threads
    with open("/dev/full", "wb", buffering=0) as full:
        board.writer._py_recordio_writer._writer = full
        with pytest.warns(UserWarning, match="TensorBoard is dismissed, the run goes on: OSError: .* No space left"):
            Watchers([board]).report(1, 1, {"a/b": 1.0})


def test_a_run_without_the_extra_goes_on_and_a_resume_with_it_writes_all_events(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "run"
    explicit = PLAIN | {"log": {"tensorboard": True}}
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "tensorboardX", None)
        config.start(config.resolve(explicit), folder)
    lines = [record.getMessage() for record in caplog.records if "TensorBoard" in record.getMessage()]
    assert lines == [WITHOUT_TENSORBOARD]
    assert not (folder / "tensorboard").exists()
    skip_without("tensorboard")
    config.resume(folder)
    assert seen(folder) == written(folder)


def seen(folder):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(e.step, pytest.approx(e.value)) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def written(folder):
    found = {}
    for line in read_metrics(folder):
        for name, value in line.items():
            if "/" in name:
                found.setdefault(name, []).append((line["at"], value))
    return found


class Saboteur(Watcher):
    def report(self, at, done, metrics):
        raise OSError("no space left")


def test_a_watcher_that_breaks_is_dismissed_and_changes_nothing(tmp_path):
    config.start(config.resolve(PLAIN), tmp_path / "alone")
    with pytest.warns(UserWarning, match="Saboteur is dismissed, the run goes on: OSError: no space left") as warned:
        config.start(config.resolve(PLAIN), tmp_path / "watched", Saboteur())
    assert len(warned) == 1
    assert (tmp_path / "alone" / "scores.jsonl").read_bytes() == (tmp_path / "watched" / "scores.jsonl").read_bytes()


def run_elsewhere(folder, more, where):
    """In a process of its own: trackers leave threads behind, and read where to write when they are imported."""
    command = [sys.executable, "-m", "curricle", "run", PLAIN["world"]["id"], "--out", str(folder), "--set", more]
    for key, value in PLAIN["schedule"].items():
        command += ["--set", f"schedule.{key}={value}"]
    with open(folder.with_name("said"), "w+") as said:  # no pipe: what a tracker starts may hold on to it
        code = subprocess.run(command, env={**os.environ, **where}, stdout=said, stderr=said, timeout=240).returncode
        said.seek(0)
        assert code == 0, said.read()


@pytest.mark.slow
def test_wandb_offline(tmp_path):
    pytest.importorskip("wandb", reason="W&B is an optional extra: pip install 'curricle[wandb]'")
    where = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    run_elsewhere(tmp_path / "run", "log.wandb=curricle-test", where)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.slow
def test_trackio_locally(tmp_path):
    pytest.importorskip("trackio", reason="trackio is an optional extra: pip install 'curricle[trackio]'")
    run_elsewhere(tmp_path / "run", "log.trackio=curricle-test", {"TRACKIO_DIR": str(tmp_path / "trackio")})
    assert list((tmp_path / "trackio").rglob("*.db"))


def test_a_logger_that_is_not_installed_is_named():
    with pytest.raises(UsageError, match=r"log.no_such_tracker = 'x' needs: pip install 'curricle\[no_such_tracker\]'"):
        Tracker("no_such_tracker", "x", "name", {})
