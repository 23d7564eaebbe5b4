"""A thread pool inside compiled code: threads wait there for the next command, so that a step needs no Python.

A step of a few environments takes less time than one of Python's pools needs to hand it out. Here threads poll a number
that the caller writes. A command is worked off a few environments at a time by whichever thread is free, because some
environments take ten times as long as others, and because the system may take away a core at any moment.

An idle thread polls without a pause, then naps between polls, and in the end leaves compiled code and waits for a
semaphore. It naps in compiled code, because a thread that comes from Python has to wait for the GIL.
"""

import functools
import itertools
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.errors import CurricleError, UsageError
from curricle.worlds.crafter.engine.atomics import fetch_add, load, nap, pause, store, yield_core
from curricle.worlds.crafter.engine.compile import inlined, kernel
from curricle.worlds.crafter.engine.tasks import Buffers, page_aligned, prefetch, run_command

# The control array. Each number has a cache line of its own, because different threads write them.
LINE: Final = 8
"""Numbers in a cache line."""
NEXT: Final = 0
"""The next environment to take, the command, and the first environment that is no part of it.

All in one number, so that a thread that takes an environment knows what to do with it."""
DONE: Final = 8
"""How many environments of the command are done,"""
TOTAL: Final = 16
"""and how many it has."""
PREFETCH: Final = 24
"""The next environment to prefetch an episode for."""
STOP: Final = 32
FAILED: Final = 40
AWAKE: Final = 48
"""From here on, a line a thread: 1 while it polls, 0 while it waits for its semaphore."""

COMMAND_BIT: Final = 24
LAST_BIT: Final = 28
"""Bits of the number at `NEXT` at which the command and its end begin."""
MAX_ENVIRONMENTS: Final = 1 << 20

POLL_MS: Final = 3
"""Milliseconds that an idle thread polls before it prefetches episodes, and then naps.

Between two steps of a rollout a GPU takes less than that. It would have to wait for an episode that was begun, and for
records that are in another core's cache."""
NAPS: Final = 3000
"""Naps before an idle thread sleeps: about half a second, more than a network takes to learn from a rollout.

Where the system has no short sleep (Windows) it is sooner."""
TURNS: Final = 16
"""How often each thread takes environments in a step, if all take as long."""


@kernel
def _publish(control: Any, command: int, first: int, last: int, others: int) -> int:
    """Publish a command; returns how many of the other threads are asleep."""
    store(control, DONE, 0)
    store(control, TOTAL, last - first)
    store(control, PREFETCH, 0)
    store(control, NEXT, (last << LAST_BIT) + (command << COMMAND_BIT) + first)
    asleep = 0
    for thread in range(1, others + 1):
        asleep += 1 - load(control, AWAKE + LINE * thread)
    return asleep


@inlined
def _has_work(word: int) -> bool:
    """Whether a command has environments left that no thread took."""
    return word & ((1 << COMMAND_BIT) - 1) < word >> LAST_BIT


@inlined
def _pause(polls: int) -> None:
    """Wait between two polls."""
    pause()
    if polls % 64 == 0:
        yield_core()


@kernel
def _poll(control: Any, times: int) -> int:
    """Poll as an idle thread does."""
    found = 0
    for polls in range(times):
        found += _has_work(load(control, NEXT)) + load(control, STOP) + load(control, DONE)
        _pause(polls)
    return found


@functools.cache
def _polls_per_ms() -> int:
    """How often a thread polls in a millisecond; a pause takes ten times as long on some processors as on others."""
    control = np.zeros(AWAKE, np.int64)
    took = list[float]()
    for times in (1, 10_000, 10_000, 10_000):  # the first one compiles
        start = time.perf_counter()
        _poll(control, times)
        took.append((time.perf_counter() - start) / times)
    return max(1, round(1e-3 / min(took)))


@kernel
def _serve(control: Any, thread: int, share: int, max_polls: int, states: Any, b: Any, p: Any) -> bool:
    """Work off commands, `share` environments at a time; returns whether there may be more of them.

    The caller is thread 0 and returns when its command is done. The others return after a long time without work, and
    prefetch episodes before that.
    """
    store(control, AWAKE + LINE * thread, 1)
    polls = 0
    while True:
        if _has_work(load(control, NEXT)):
            word = fetch_add(control, NEXT, share)
            first = word & ((1 << COMMAND_BIT) - 1)
            last = word >> LAST_BIT
            if first < last:
                last = min(last, first + share)
                run_command((word >> COMMAND_BIT) & 15, states, first, last, thread, b, p)
                fetch_add(control, DONE, last - first)
            polls = 0
            continue
        if thread == 0:
            if load(control, DONE) == load(control, TOTAL):
                return True
            if load(control, FAILED):
                return False
        elif load(control, STOP):
            return False
        elif polls >= max_polls and load(control, PREFETCH) < len(states):
            i = fetch_add(control, PREFETCH, 1)
            if i < len(states):
                prefetch(states, i, thread, b)
            continue
        polls += 1
        if thread > 0 and polls > max_polls:
            nap()
        else:
            _pause(polls)
        if thread > 0 and polls >= max_polls + NAPS:
            store(control, AWAKE + LINE * thread, 0)
            # a caller that publishes a command from here on sees that this thread has to be woken
            if not _has_work(load(control, NEXT)) and not load(control, STOP):
                return True
            store(control, AWAKE + LINE * thread, 1)


class ThreadPool:
    """The caller and its threads. `bounds` divides the environments into groups; a command is for one group."""

    def __init__(
        self, states: NDArray[Any], bounds: Sequence[int], threads: int, buffers: Buffers | None, pictures: Any
    ) -> None:
        if len(states) >= MAX_ENVIRONMENTS:
            most = MAX_ENVIRONMENTS - 1
            raise UsageError(f"{len(states):,} environments are too many for one vector; at most {most:,} fit")
        self._bounds = bounds
        self._control = page_aligned(8 * (AWAKE + LINE * (threads + 1))).view(np.int64)
        self._wake = [threading.Semaphore(0) for _ in range(1, threads)]
        share = MAX_ENVIRONMENTS
        max_polls = 0
        if threads > 1:
            smallest = min(last - first for first, last in itertools.pairwise(bounds))
            share = max(1, smallest // (TURNS * threads))
            max_polls = POLL_MS * _polls_per_ms()
        self._arguments = (share, max_polls, states, buffers, pictures)
        for thread, wake in enumerate(self._wake, 1):
            arguments = (self._control, wake, thread, *self._arguments)
            threading.Thread(target=_thread, args=arguments, daemon=True, name=f"crafter-{thread}").start()
        self.close = weakref.finalize(self, _stop, self._control, self._wake)

    def run(self, command: int, group: int) -> None:
        """Have a command carried out in one group of the environments."""
        if self._wake and not self.close.alive:
            raise UsageError("these environments were closed, and their threads are gone; make new ones")
        works = not self._control[FAILED]
        if works and self._control[DONE] != self._control[TOTAL]:  # the caller was interrupted: finish that command
            works = _work(self._control, 0, self._arguments)
        if works:
            works = self._publish_and_work(command, group)
        if not works:
            raise CurricleError("a thread of these environments broke down, and said why; make new ones")

    def _publish_and_work(self, command: int, group: int) -> bool:
        """Publish a command and take part in it; returns whether it was carried out."""
        first = self._bounds[group]
        last = self._bounds[group + 1]
        if _publish(self._control, command, first, last, len(self._wake)):
            for thread, wake in enumerate(self._wake, 1):
                if not self._control[AWAKE + LINE * thread]:
                    self._control[AWAKE + LINE * thread] = 1  # so that it is not woken twice
                    wake.release()
        return _work(self._control, 0, self._arguments)


def _thread(control: NDArray[Any], wake: threading.Semaphore, thread: int, *arguments: Any) -> None:
    """What a thread runs. It has no reference to its pool, so a pool that nobody uses any more can be collected."""
    goes_on = True
    while goes_on:
        wake.acquire()
        goes_on = _work(control, thread, arguments)


def _work(control: NDArray[Any], thread: int, arguments: Sequence[Any]) -> bool:
    """Call `_serve`, and note if it fails: nobody else would do the environments that it had taken."""
    try:
        return _serve(control, thread, *arguments)
    except Exception:
        control[FAILED] = 1
        raise


def _stop(control: NDArray[Any], semaphores: Sequence[threading.Semaphore]) -> None:
    """End the threads."""
    control[STOP] = 1
    for semaphore in semaphores:  # also of a thread that is about to sleep
        semaphore.release()
