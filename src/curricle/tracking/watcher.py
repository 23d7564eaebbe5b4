"""Watchers: one small interface for whatever follows a run while it happens - TensorBoard, W&B, trackio, a terminal.

A watcher hears of each step and of every figure. It cannot change a run: no result depends on one, and one that breaks
down (a full disk, a service that is out) is dismissed with a warning while the run goes on.
"""

import importlib
import importlib.util
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from curricle.errors import UsageError
from curricle.records import Options

LOG = logging.getLogger("curricle")
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

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.writer: Any = EventsWriter(str(folder / "events"))
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
        self.tracker.init(project=project, name=name, config=dict(config), resume="allow", **same)

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Log scalars."""
        if metrics:
            self.tracker.log(dict(metrics), step=at)

    def close(self) -> None:
        """Finish the tracked run."""
        self.tracker.finish()


class Log(Options):
    """Who else is told about the figures in `metrics.jsonl`."""

    tensorboard: bool = Field(
        True, description="Write TensorBoard event files into the run folder, where tensorboardX is installed."
    )
    wandb: str = Field("", description="Project to log to with Weights & Biases; empty: do not.")
    trackio: str = Field("", description="Project to log to with trackio; empty: do not.")

    def watchers(
        self, name: str, events: Path, past: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
    ) -> list[Watcher]:
        """Start the loggers that are switched on; `past` are the figures that a resumed run already has."""
        members: list[Watcher] = []
        if self.tensorboard and importlib.util.find_spec("tensorboardX") is not None:
            members.append(TensorBoard(events, past))
        elif self.tensorboard:  # nothing is lost: a resume with tensorboardX writes the events of the whole run
            LOG.warning(WITHOUT_TENSORBOARD)
        trackers = {"wandb": self.wandb, "trackio": self.trackio}
        return members + [Tracker(package, project, name, config) for package, project in trackers.items() if project]
