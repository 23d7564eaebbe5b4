"""Watchers: one small interface for whatever follows a run while it happens - TensorBoard, W&B, trackio, a terminal.

A watcher hears of each step and of every figure; it cannot change a run, and no result depends on one.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from curricle.errors import UsageError
from curricle.records import Options


class Watcher:
    """Does nothing: the base of the others, and the null object."""

    def begin(self, title: str, total: int, unit: str) -> None:
        """A step starts; its budget is `total` units (0: it has none)."""

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Figures came in at `at` units since the run began, `done` of them in this step."""

    def close(self) -> None:
        """The run is over, or was interrupted."""


class Watchers(Watcher):
    """Several watchers as one."""

    def __init__(self, members: Sequence[Watcher]) -> None:
        self.members = members

    def begin(self, title: str, total: int, unit: str) -> None:
        """Tell all."""
        for member in self.members:
            member.begin(title, total, unit)

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Tell all."""
        for member in self.members:
            member.report(at, done, metrics)

    def close(self) -> None:
        """Close all."""
        for member in self.members:
            member.close()


class TensorBoard(Watcher):
    """Event files; after a resume the figures of the repeated step replace the earlier ones."""

    def __init__(self, folder: Path, at: int) -> None:
        from tensorboardX import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder), purge_step=at)

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, at)

    def close(self) -> None:
        """Flush the event file."""
        self.writer.close()


class Tracker(Watcher):
    """Weights & Biases or trackio, which share one interface: `init`, `log`, `finish`."""

    def __init__(self, package: str, project: str, name: str, config: Mapping[str, Any]) -> None:
        try:
            self.tracker: Any = importlib.import_module(package)
        except ImportError:
            raise UsageError(f"log.{package} = {project!r} needs: pip install 'curricle[{package}]'") from None
        self.tracker.init(project=project, name=name, config=dict(config))

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Log scalars."""
        if metrics:
            self.tracker.log(dict(metrics), step=at)

    def close(self) -> None:
        """Finish the tracked run."""
        self.tracker.finish()


class Log(Options):
    """Who else is told about the figures in `metrics.jsonl`."""

    tensorboard: bool = Field(True, description="Write TensorBoard event files into the run folder.")
    wandb: str = Field("", description="Project to log to with Weights & Biases; empty: do not.")
    trackio: str = Field("", description="Project to log to with trackio; empty: do not.")

    def watchers(self, folder: Path, at: int, config: Mapping[str, Any]) -> list[Watcher]:
        """Start the loggers that are switched on; `at` is the budget already spent."""
        members: list[Watcher] = [TensorBoard(folder / "tensorboard", at)] if self.tensorboard else []
        trackers = {"wandb": self.wandb, "trackio": self.trackio}
        return members + [Tracker(name, project, folder.name, config) for name, project in trackers.items() if project]
