"""WorkerGroup: lanes that do the same work side by side and meet at fixed points.

On a CPU every lane but the first is a process forked for the call, which shares tensors made by `shared` and is gone
when the call ends; a thread stands in where processes cannot fork. Beside a GPU one worker plays all lanes by turns
(`lane.py`). Lane 0 is the caller. What happens at a meeting is done by lane 0 alone, in the order of the lanes, so
results are the same whoever works and however busy the machine is. A killed caller takes its lanes with it.
"""

import contextlib
import gc
import mmap
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from curricle.errors import AgentError, CurricleError, out_of_memory

if TYPE_CHECKING:
    Line = Connection[Any, Any]
else:  # no subscripts at run time
    Line = Connection
Work = Callable[[int, "WorkerGroup"], None]
"""What each lane does, given its number and the team to meet with."""


class WorkerGroup(Protocol):
    """One lane's way to the others."""

    def meet(self, brought: Any, then: Callable[[list[Any]], None]) -> None:
        """Wait for all lanes; lane 0 then does something with what each brought, while the others wait."""


def shared_memory(like: Tensor) -> Tensor:
    """A copy of a tensor in memory that forked processes share."""
    if like.device.type != "cpu" or not like.numel():
        return like.clone()
    memory = torch.frombuffer(mmap.mmap(-1, like.numel() * like.element_size()), dtype=like.dtype)
    return memory.view(like.shape).copy_(like)


def run_workers(lanes: int, work: Work, *, processes: bool) -> None:
    """Let all lanes work, and return when they are done; the first error of any lane is raised here."""
    if lanes == 1:
        work(0, _Alone())
    elif processes and sys.platform == "linux":
        _fork(lanes, work)
    else:
        _threads(lanes, work)


class _Alone:
    def meet(self, brought: Any, then: Callable[[list[Any]], None]) -> None:
        then([brought])


class _Failed:
    """An error on its way from a lane to the caller."""

    def __init__(self, error: BaseException) -> None:
        self.known = error if isinstance(error, CurricleError) else None
        self.full = str(error) if out_of_memory(error) else None
        self.text = "".join(traceback.format_exception(error))

    def raised(self) -> Exception:
        if self.full is not None:
            return MemoryError(self.full)
        return self.known or AgentError(f"a lane of the agent failed:\n{self.text}")


class _Gone(Exception):
    """The caller left."""


class _Caller:
    """Lane 0 among processes."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines

    def meet(self, brought: Any, then: Callable[[list[Any]], None]) -> None:
        all_brought = [brought, *(self._hear(line) for line in self.lines)]
        then(all_brought)
        for line in self.lines:
            line.send(None)

    def _hear(self, line: Line) -> Any:
        try:
            heard = line.recv()
        except (EOFError, ConnectionError):
            raise AgentError("a lane of the agent was killed; memory may have run out") from None
        if isinstance(heard, _Failed):
            raise heard.raised()
        return heard


class _Forked:
    """Any other lane among processes."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def meet(self, brought: Any, then: Callable[[list[Any]], None]) -> None:
        try:
            self.line.send(brought)
            self.line.recv()
        except (EOFError, ConnectionError):
            raise _Gone from None


def _fork(lanes: int, work: Work) -> None:
    lines = list[Line]()
    children = list[int]()
    try:
        for lane in range(1, lanes):
            mine, its = Pipe()
            sys.stdout.flush()
            with warnings.catch_warnings():  # Python 3.12 warns of other threads' locks; a lane takes none of theirs
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                for line in (mine, *lines):  # the other ends, and those of lanes before it
                    line.close()
                _live(lane, its, work)
            its.close()
            lines.append(mine)
            children.append(child)
        work(0, _Caller(lines))
    finally:
        for line in lines:
            line.close()  # whoever still waits hears it and leaves
        for child in children:
            os.waitpid(child, 0)


def _live(lane: int, line: Line, work: Work) -> None:
    """The whole life of a forked lane; it never returns."""
    try:
        gc.freeze()  # what the caller left to be collected is the caller's: its files, threads and folders
        _let_go()
        work(lane, _Forked(line))
    except (_Gone, KeyboardInterrupt):
        pass
    except BaseException as error:  # whatever it is, the caller has to hear of it
        with contextlib.suppress(OSError):
            line.send(_Failed(error))
    finally:
        os._exit(0)


def _let_go() -> None:
    """Give up files that the caller holds a lock on, which must not outlive it: a run folder's. A world's stay open."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and "lock:" in Path("/proc/self/fdinfo", name).read_text():
                os.dup2(nothing, int(name))  # the number stays taken, so that no late close can hit another file


class _Threads:
    """All lanes as threads."""

    def __init__(self, lanes: int) -> None:
        self.barrier = threading.Barrier(lanes)
        self.brought = [None] * lanes
        self.error = list[BaseException]()

    def lane(self, number: int) -> "_Thread":
        return _Thread(self, number)


class _Thread:
    def __init__(self, all_: _Threads, number: int) -> None:
        self.all = all_
        self.number = number

    def meet(self, brought: Any, then: Callable[[list[Any]], None]) -> None:
        self.all.brought[self.number] = brought
        self.all.barrier.wait()
        if self.number == 0:
            then(list(self.all.brought))
        self.all.barrier.wait()


def _threads(lanes: int, work: Work) -> None:
    together = _Threads(lanes)

    def live(lane: int) -> None:
        try:
            work(lane, together.lane(lane))
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            together.error.append(error)
            together.barrier.abort()

    others = [threading.Thread(target=live, args=(lane,), daemon=True) for lane in range(1, lanes)]
    for other in others:
        other.start()
    live(0)
    for other in others:
        other.join()
    if together.error:
        raise together.error[0]
