"""Worker groups: several workers run the same function side by side and exchange values at fixed points.

`run_workers(size, function)` calls `function(group)` once in each worker, much as a torch.distributed program runs:

    values = group.gather(value)    a list of all workers' values on the leader, None on the others
    if values is not None: ...      what only the leader does
    group.wait_for_leader()         the others go on when the leader gets here

The leader is the caller. The others are processes that are forked for the call and share the tensors that
`shared_memory` made; where processes cannot fork, they are threads. The leader gathers in the order of the workers, so
results do not depend on how busy the machine is. If the caller is killed, its workers end, too.
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
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from curricle.errors import AgentError, CurricleError, out_of_memory

if TYPE_CHECKING:
    PipeEnd = Connection[Any, Any]
else:  # no subscripts at run time
    PipeEnd = Connection
T = TypeVar("T")


class WorkerGroup:
    """What one worker knows of the others."""

    def __init__(self, index: int, size: int, pipes: Sequence[PipeEnd]) -> None:
        """`pipes` lead from the leader to each of the others, or from one of the others to the leader."""
        self.index = index
        self.size = size
        self.pipes = pipes

    @property
    def is_leader(self) -> bool:
        """Whether this worker is the leader, the first one."""
        return self.index == 0

    def gather(self, value: T) -> list[T] | None:
        """Send a value to the leader, which waits for those of all workers."""
        if not self.is_leader:
            self._send_to_leader(value)
            return None
        values = [value]
        for pipe in self.pipes:
            values.append(_receive(pipe))
        return values

    def wait_for_leader(self) -> None:
        """Wait until the leader calls this, too; the leader itself does not wait."""
        if not self.is_leader:
            self._wait()
            return
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except ConnectionError:  # this worker has ended; why, is the last thing in its pipe
                while True:
                    _receive(pipe)

    def _send_to_leader(self, value: Any) -> None:
        (pipe,) = self.pipes
        try:
            pipe.send(value)
        except ConnectionError:
            raise _LeaderGone from None

    def _wait(self) -> None:
        (pipe,) = self.pipes
        try:
            pipe.recv()
        except (EOFError, ConnectionError):
            raise _LeaderGone from None


Work = Callable[[WorkerGroup], None]


def shared_memory(like: Tensor) -> Tensor:
    """Copy a tensor into memory that forked processes share."""
    if like.device.type != "cpu" or not like.numel():
        return like.clone()
    memory = torch.frombuffer(mmap.mmap(-1, like.numel() * like.element_size()), dtype=like.dtype)
    return memory.view(like.shape).copy_(like)


def run_workers(size: int, work: Work, *, processes: bool) -> None:
    """Run a function in all workers, and return when they are done; the first error of any worker is raised here."""
    if processes and sys.platform == "linux":
        _run_processes(size, work)
    else:
        _run_threads(size, work)


class _LeaderGone(Exception):
    """The leader has ended, so there is nothing left to do."""


class _Failure:
    """An error on its way to the leader."""

    def __init__(self, error: BaseException) -> None:
        self.known = error if isinstance(error, CurricleError) else None
        self.out_of_memory = str(error) if out_of_memory(error) else None
        self.traceback = "".join(traceback.format_exception(error))

    def error(self) -> Exception:
        """The error to raise on the leader."""
        if self.out_of_memory is not None:
            return MemoryError(self.out_of_memory)
        return self.known or AgentError(f"a worker of the agent failed:\n{self.traceback}")


def _receive(pipe: PipeEnd) -> Any:
    """On the leader: the next value of a worker; raises the worker's error if it failed."""
    try:
        value = pipe.recv()
    except (EOFError, ConnectionError):
        raise AgentError("a worker of the agent was killed; memory may have run out") from None
    if isinstance(value, _Failure):
        raise value.error()
    return value


def _run_processes(size: int, work: Work) -> None:
    pipes: list[PipeEnd] = []
    children: list[int] = []
    try:
        for index in range(1, size):
            leader_end, worker_end = Pipe()
            sys.stdout.flush()
            with warnings.catch_warnings():  # Python 3.12 warns of locks of other threads; a worker takes none of them
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                for pipe in (leader_end, *pipes):  # the leader's, also those to earlier workers
                    pipe.close()
                _live_as_process(WorkerGroup(index, size, [worker_end]), work)
            worker_end.close()
            pipes.append(leader_end)
            children.append(child)
        work(WorkerGroup(0, size, pipes))
    finally:
        for pipe in pipes:
            pipe.close()  # workers that still wait notice it and end
        for child in children:
            os.waitpid(child, 0)


def _live_as_process(group: WorkerGroup, work: Work) -> None:
    """Run the function in a forked process; this never returns."""
    try:
        gc.freeze()  # garbage of the caller is the caller's to collect: its files, threads and folders
        _drop_locks()
        work(group)
    except (_LeaderGone, KeyboardInterrupt):
        pass
    except BaseException as error:  # whatever it is, the leader has to know
        with contextlib.suppress(OSError):
            group.pipes[0].send(_Failure(error))
    finally:
        os._exit(0)


def _drop_locks() -> None:
    """Give up the files on which the caller holds a lock, such as a run folder's: locks must not outlive the caller.

    Files that a world has open stay open.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and "lock:" in Path("/proc/self/fdinfo", name).read_text():
                os.dup2(nothing, int(name))  # the number stays taken, so that no late close can hit another file


def _run_threads(size: int, work: Work) -> None:
    pipes: list[PipeEnd] = []
    threads: list[threading.Thread] = []
    try:
        for index in range(1, size):
            leader_end, worker_end = Pipe()
            group = WorkerGroup(index, size, [worker_end])
            thread = threading.Thread(target=_live_as_thread, args=(group, work), daemon=True)
            thread.start()
            pipes.append(leader_end)
            threads.append(thread)
        work(WorkerGroup(0, size, pipes))
    finally:
        for pipe in pipes:
            pipe.close()  # workers that still wait notice it and end
        for thread in threads:
            thread.join()


def _live_as_thread(group: WorkerGroup, work: Work) -> None:
    (pipe,) = group.pipes
    try:
        work(group)
    except _LeaderGone:
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(_Failure(error))
    finally:
        pipe.close()
