"""Ctrl-C and SIGTERM: one line, no traceback, and an exit code that says which of the two it was.

A first signal stops the work where it stands; the run folder is made to be left at any moment. A second one, or one
while everything is still being imported, ends the process at once.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any


class Stopped(BaseException):
    """The user, or the system, asked this process to end. No Exception: nothing is to catch it on the way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}
SHOW_CURSOR = "\x1b[?25h"
_before: dict[signal.Signals, Any] = {}
_advice = ""
_working = False
_told = False


def listen() -> bool:
    """Take both signals from now on; False where they are taken already, or this is not the main thread."""
    try:
        for number in WORDS:
            before = signal.getsignal(number)
            if before is _stop:
                return False
            _before[number] = before
            if before != signal.SIG_IGN:
                signal.signal(number, _stop)
    except ValueError:
        return False
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=restore)  # a worker's caller decides for it
    return True


def end() -> None:
    """All is done and the process ends anyway: a late signal ends it at once and without a word."""
    global _working, _told
    _working = False
    _told = True


def restore() -> None:
    """Leave both signals to whoever had them before."""
    for number, before in _before.items():
        if signal.getsignal(number) is _stop:
            signal.signal(number, before)


def begin_work() -> None:
    """Everything is imported: the next signal raises `Stopped`."""
    global _advice, _working, _told
    _advice = ""
    _working = True
    _told = False


def advise(text: str) -> None:
    """What a user should do after an interruption; it is part of the line."""
    global _advice
    _advice = text


def tell(number: int) -> None:
    """Say that it was interrupted, once."""
    global _told
    if _told:
        return
    _told = True
    line = f"{WORDS.get(signal.Signals(number), 'interrupted')}{'; ' if _advice else ''}{_advice}\n"
    cursor = SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else ""
    try:
        os.write(2, (cursor + line).encode("utf-8", "replace"))
    except OSError:
        return


def _stop(number: int, frame: FrameType | None) -> None:
    global _working
    if _working:
        _working = False  # the next one ends it at once
        raise Stopped(number)
    tell(number)
    os._exit(128 + number)
