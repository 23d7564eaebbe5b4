"""Progress in the terminal: the running step with steps/s and the time left; elsewhere a line a minute at most."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from curricle.tracking.watcher import Watcher


class Rate(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        """Show the speed, once there is one."""
        if not task.speed:
            return Text("")
        return Text(f"{task.speed:,.0f} {task.fields['unit']}/s", style="cyan")


EVERY = 60.0
"""Seconds between two lines where there is no terminal."""


class Progress(Watcher):
    """A watcher that draws one bar, for the step that is running."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), Rate(), TimeRemainingColumn())
        self.bars = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bars.add_task("starting", total=None, unit="")
        self.console = console
        self.title = ""
        self.total = 0
        self.unit = ""
        self.told = -EVERY

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def begin(self, title: str, total: int, unit: str) -> None:
        """Show the step; the parts of one long practice share a bar."""
        if title != self.title:
            self.title = title
            self.total = total
            self.unit = unit
            self.bars.reset(self.task, description=title, total=total or None, unit=unit)
            self._say(title)

    def report(self, at: int, done: int, metrics: Mapping[str, float]) -> None:
        """Move the bar; a warm-up, which uses no budget, says how far it is instead."""
        if done:
            self.bars.update(self.task, completed=done, description=self.title)
            self._say(f"{self.title}: {done:,} of {self.total:,} {self.unit}")
        elif warm := {name: value for name, value in metrics.items() if "/warm" in name}:
            told = ", ".join(f"{name.rpartition('/')[2]} {value:.4g}" for name, value in warm.items())
            self.bars.update(self.task, description=f"{self.title}: {told}")
            self._say(f"{self.title}: {told}")

    def _say(self, line: str) -> None:
        """A sign of life in a log."""
        if not self.console.is_terminal and time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
