"""Watchers: one small interface for whatever follows a run while it happens - TensorBoard, W&B, trackio, a terminal.

A watcher hears of each step and of every figure. It cannot change a run: no result depends on one, and one that breaks
down (a full disk, a service that is out) is dismissed with a warning while the run goes on.
"""

import importlib
import importlib.util
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from curricle.errors import UsageError
from curricle.records import Options

LOG = logging.getLogger("curricle")
EVENTS = "events"
FLUSH = 10.0
"""Seconds after which an event file is flushed to the disk."""
WITHOUT_TENSORBOARD = (
    "no TensorBoard events are written: pip install 'curricle[tensorboard]', or set log.tensorboard = false"
)


class Watcher:
    """Does nothing: the base of the others, and the null object."""

    def begin(self, title: str, total: int, unit: str) -> None:
        """A step starts; its budget is `total` units (0: it has none)."""

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Figures came in at `at` units since the run began, `done` of them in this step."""

    def close(self) -> None:
        """The run is over, or was interrupted."""


class Watchers(Watcher):
    """Several watchers as one, none of which can do harm."""

    def __init__(self, members: Sequence[Watcher]) -> None:
        self.members = list(members)

    def begin(self, title: str, total: int, unit: str) -> None:
        """Tell all."""
        self._tell(lambda member: member.begin(title, total, unit))

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Tell all."""
        self._tell(lambda member: member.report(at, done, metrics))

    def close(self) -> None:
        """Close all."""
        self._tell(lambda member: member.close())

    def _tell(self, call: Callable[[Watcher], None]) -> None:
        for member in list(self.members):
            try:
                call(member)
            except Exception as error:
                self.members.remove(member)
                name = type(member).__name__
                warnings.warn(f"{name} is dismissed, the run goes on: {type(error).__name__}: {error}", stacklevel=2)


class TensorBoard(Watcher):
    """Event files, written anew from the run's own metrics at every start: what a killed writer lost is there again.

    Written by whoever reports: tensorboardX's own queue waits for ever once its thread has died of a full disk.
    """

    def __init__(self, folder: Path, past: Sequence[Mapping[str, Any]]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():
            raise NotADirectoryError(f"{folder} is a link")
        for old in folder.glob(f"{EVENTS}.out.tfevents.*"):  # its own, and nothing else that lies there
            old.unlink()
        self.writer: Any = EventsWriter(str(folder / EVENTS))
        self.flushed = time.monotonic()
        self.event: Any = lambda at, name, value: Event(wall_time=time.time(), step=at, summary=scalar(name, value))
        for line in past:
            self.report(line["at"], 0, {name: v for name, v in line.items() if "/" in name and v is not None})

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in metrics.items():
            self.writer.write_event(self.event(at, name, value))
        if time.monotonic() - self.flushed > FLUSH:
            self.writer.flush()
            self.flushed = time.monotonic()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class Tracker(Watcher):
    """Weights & Biases or trackio, which share one interface: `init`, `log`, `finish`."""

    def __init__(self, package: str, project: str, name: str, config: Mapping[str, Any]) -> None:
        try:
            self.tracker: Any = importlib.import_module(package)
        except ImportError:
            raise UsageError(f"log.{package} = {project!r} needs: pip install 'curricle[{package}]'") from None
        same: dict[str, str] = {"id": name} if package == "wandb" else {}
        try:
            self.tracker.init(project=project, name=name, config=dict(config), resume="allow", **same)
        except Exception as error:  # each has errors of its own
            why = " ".join(str(error).split())[:200]
            raise UsageError(f"log.{package} = {project!r} cannot begin: {type(error).__name__}: {why}") from error

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Log scalars."""
        if metrics:
            self.tracker.log(dict(metrics), step=at)

    def close(self) -> None:
        """Finish the tracked run."""
        self.tracker.finish()


def _logged_in() -> bool:
    """Whether Weights & Biases knows who logs; asked without a prompt."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return bool(importlib.import_module("wandb").login(prompt=False))
    except TypeError:  # an older version, which says so when the run begins
        return True
    except Exception:
        return False


class Log(Options):
    """Who else is told about the figures in `metrics.jsonl`."""

    tensorboard: bool = Field(
        True, description="Write TensorBoard event files into the run folder, where tensorboardX is installed."
    )
    wandb: str = Field("", description="Project to log to with Weights & Biases; empty: do not.")
    trackio: str = Field("", description="Project to log to with trackio; empty: do not.")

    def ready(self) -> None:
        """Refuse a tracker that is not installed, or that nobody is logged in to, before a run begins."""
        for package, project in (("wandb", self.wandb), ("trackio", self.trackio)):
            if project and importlib.util.find_spec(package) is None:
                raise UsageError(f"log.{package} = {project!r} needs: pip install 'curricle[{package}]'")
        online = os.environ.get("WANDB_MODE", "online") in ("online", "shared")
        if self.wandb and online and not _logged_in():
            raise UsageError(f"log.wandb = {self.wandb!r} needs a login: wandb login, or WANDB_MODE=offline")

    def watchers(
        self, name: str, events: Path, past: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
    ) -> list[Watcher]:
        """Start the loggers that are switched on; `past` are the figures that a resumed run already has."""
        members: list[Watcher] = []
        if self.tensorboard and importlib.util.find_spec("tensorboardX") is not None:
            try:
                members.append(TensorBoard(events, past))
            except OSError as error:
                LOG.warning("no TensorBoard events are written, the run goes on: %s: %s", events, error)
        elif self.tensorboard:  # nothing is lost: a resume with tensorboardX writes the events of the whole run
            LOG.warning(WITHOUT_TENSORBOARD)
        trackers = {"wandb": self.wandb, "trackio": self.trackio}
        return members + [Tracker(package, project, name, config) for package, project in trackers.items() if project]
