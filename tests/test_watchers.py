"""Figures reach TensorBoard, and W&B and trackio where they are installed."""

import json

import pytest
from parts import ROOT

from curricle import config
from curricle.errors import UsageError
from curricle.watcher import Tracker

PLAIN = {
    "world": {"id": f"{ROOT}/examples/vault.py:Vault"},
    "schedule": {"cycles": 1, "per_cycle": 4000, "final": 2000, "save_every": 2000, "test_seeds": 2},
}


def test_tensorboard_gets_what_the_metrics_file_gets(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config.start(config.resolve(PLAIN), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(e.step, e.value) for e in events.Scalars("practice/episodes")] == [
        (line["at"], line["practice/episodes"]) for line in lines
    ]
    assert {"test/headline", "test/reward", "test/open_1"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("test/open_1")) == 2


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="W&B is an optional extra: pip install 'curricle[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    config.start(config.resolve(PLAIN | {"log": {"wandb": "curricle-test"}}), tmp_path / "run")
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_trackio_locally(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when trackio is imported
    pytest.importorskip("trackio", reason="trackio is an optional extra: pip install 'curricle[trackio]'")
    config.start(config.resolve(PLAIN | {"log": {"trackio": "curricle-test"}}), tmp_path / "run")
    assert list((tmp_path / "trackio").rglob("*.db"))


def test_a_logger_that_is_not_installed_is_named():
    with pytest.raises(UsageError, match=r"log.no_such_tracker = 'x' needs: pip install 'curricle\[no_such_tracker\]'"):
        Tracker("no_such_tracker", "x", "name", {})
