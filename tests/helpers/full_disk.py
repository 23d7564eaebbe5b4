"""A disk that is full from the n-th write on: every way in which a run writes into its folder can fail."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WAYS = ((os, "open"), (os, "truncate"), (os, "fsync"), (Path, "write_bytes"), (Path, "write_text"), (Path, "mkdir"))
MOVES = ((Path, "rename"), (Path, "replace"), (Path, "open"))


class Disk:
    """Counts writes; those from a number on fail."""

    def __init__(self, folder: Path, full_from: int) -> None:
        self.folder = str(folder)
        self.full_from = full_from
        self.writes = 0

    def failing(self, real: Any) -> Any:
        """The same call, unless the disk is full; calls that name a place elsewhere are let through."""

        def call(where: Any, *rest: Any, **named: Any) -> Any:
            reads = (rest[:1] in ((os.O_RDONLY,), (os.O_RDONLY | os.O_NONBLOCK,), ("rb",), ("r",))) or (
                not rest and real.__name__ == "open"
            )
            inside = isinstance(where, int) or str(where).startswith(self.folder)
            if inside and not reads and "lock" not in str(where):
                self.writes += 1
                if self.writes > self.full_from:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(where))
            return real(where, *rest, **named)

        return call


@contextmanager
def full_disk(folder: Path, full_from: int) -> Iterator[Disk]:
    """A disk that takes so many writes."""
    disk = Disk(folder, full_from)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (*WAYS, *MOVES):
            patch.setattr(owner, name, disk.failing(getattr(owner, name)))
        yield disk
