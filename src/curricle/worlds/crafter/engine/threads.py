"""Crew: threads that wait for the next order inside compiled code, so that a step needs no word of Python between them.

A step of a few environments is over sooner than one of Python's pools has handed it out; a number that all threads look
at is seen at once. An order is taken up a few environments at a time by whoever is free: some environments take ten
times as long as others, and a core may be taken away at any moment. Who has looked for a while in vain naps between two
looks, still inside compiled code, for a thread that comes from Python has to wait its turn there; and sleeps in the
end, to be woken by a bell.
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
from curricle.worlds.crafter.engine.atomics import add, nap, pause, read, rest, write
from curricle.worlds.crafter.engine.compile import kernel, part
from curricle.worlds.crafter.engine.tasks import follow, on_pages, prepare

NEXT: Final = 0
"""The order: which environment is the next to be taken, what is to be done with it, and where the order ends.

All in one number, so that whoever takes an environment knows what to do with it."""
DONE: Final = 8
WANTED: Final = 16
"""How many environments of an order are done, and how many there are."""
SPARE: Final = 24
STOP: Final = 32
FAILED: Final = 40
AWAKE: Final = 48
LINE: Final = 8
"""Numbers that one line of a cache holds: what different threads write lies in different lines."""
ORDERS: Final = 24
ENDS: Final = 28
"""Bits of `NEXT` from which on there stand the order and its end."""
MOST: Final = 1 << 20
SOON: Final = 3
"""Milliseconds for which a thread looks in vain before it prepares what may be needed next, and then naps.

A GPU takes less between two steps of a rollout, which would have to wait for what was begun, and for records that other
threads have looked into."""
NAPS: Final = 3000
"""How often it naps before it sleeps: about half a second, longer than a network takes to learn from a rollout.

Where a thread cannot nap (Windows) it sleeps sooner."""
SHARE: Final = 16
"""How often each thread takes environments in a step, if all take as long."""


@kernel
def _post(control: Any, order: int, first: int, last: int, others: int) -> int:
    """Give an order; returns how many are asleep."""
    write(control, DONE, 0)
    write(control, WANTED, last - first)
    write(control, SPARE, 0)
    write(control, NEXT, (last << ENDS) + (order << ORDERS) + first)
    asleep = 0
    for me in range(1, others + 1):
        asleep += 1 - read(control, AWAKE + LINE * me)
    return asleep


@part
def _is_open(word: int) -> bool:
    """Whether an order has environments left that nobody took."""
    return word & ((1 << ORDERS) - 1) < word >> ENDS


@part
def _pass_time(idle: int) -> None:
    """Between two looks that follow each other at once."""
    pause()
    if idle % 64 == 0:
        rest()


@kernel
def _look_in_vain(control: Any, times: int) -> int:
    """What a thread does that waits."""
    found = 0
    for idle in range(times):
        found += _is_open(read(control, NEXT)) + read(control, STOP) + read(control, DONE)
        _pass_time(idle)
    return found


@functools.cache
def _pace() -> int:
    """How often a thread looks in vain in a millisecond: processors differ tenfold in how long they pause."""
    control = np.zeros(AWAKE, np.int64)
    took = list[float]()
    for times in (1, 10_000, 10_000, 10_000):  # the first one compiles
        start = time.perf_counter()
        _look_in_vain(control, times)
        took.append((time.perf_counter() - start) / times)
    return max(1, round(1e-3 / min(took)))


@kernel
def _serve(control: Any, me: int, share: int, soon: int, states: Any, b: Any, p: Any) -> bool:
    """Carry out orders, `share` environments at a time; returns whether there can be more.

    The caller (0) returns when all that are wanted are done; the others when they were idle for long. Before that they
    prepare what may be needed next.
    """
    write(control, AWAKE + LINE * me, 1)
    idle = 0
    while True:
        if _is_open(read(control, NEXT)):
            word = add(control, NEXT, share)
            first = word & ((1 << ORDERS) - 1)
            last = word >> ENDS
            if first < last:
                last = min(last, first + share)
                follow((word >> ORDERS) & 15, states, first, last, me, b, p)
                add(control, DONE, last - first)
            idle = 0
            continue
        if me == 0:
            if read(control, DONE) == read(control, WANTED):
                return True
            if read(control, FAILED):
                return False
        elif read(control, STOP):
            return False
        elif idle >= soon and read(control, SPARE) < len(states):
            i = add(control, SPARE, 1)
            if i < len(states):
                prepare(states, i, me, b)
            continue
        idle += 1
        if me > 0 and idle > soon:
            nap()
        else:
            _pass_time(idle)
        if me > 0 and idle >= soon + NAPS:
            write(control, AWAKE + LINE * me, 0)
            # whoever gives an order from here on sees that a bell is needed
            if not _is_open(read(control, NEXT)) and not read(control, STOP):
                return True
            write(control, AWAKE + LINE * me, 1)


class Crew:
    """The caller and its threads; an order is for one part of the environments."""

    def __init__(self, states: NDArray[Any], bounds: Sequence[int], threads: int, board: Any, pictures: Any) -> None:
        if len(states) >= MOST:
            raise UsageError(f"{len(states):,} environments are too many for one vector; at most {MOST - 1:,} fit")
        self._bounds = bounds
        self._control = on_pages(8 * (AWAKE + LINE * (threads + 1))).view(np.int64)
        self._bells = [threading.Semaphore(0) for _ in range(1, threads)]
        smallest = min(last - first for first, last in itertools.pairwise(bounds))
        share, soon = (max(1, smallest // (SHARE * threads)), SOON * _pace()) if threads > 1 else (MOST, 0)
        self._given = share, soon, states, board, pictures
        for me, bell in enumerate(self._bells, 1):
            given = self._control, bell, me, *self._given
            threading.Thread(target=_work, args=given, daemon=True, name=f"crafter-{me}").start()
        self.close = weakref.finalize(self, _dismiss, self._control, self._bells)

    def follow(self, order: int, part: int) -> None:
        """Have an order carried out in a part of the environments."""
        if self._bells and not self.close.alive:
            raise UsageError("these environments were closed, and their threads are gone; make new ones")
        whole = not self._control[FAILED]
        if whole and self._control[DONE] != self._control[WANTED]:  # the caller was interrupted
            whole = _carry_out(self._control, 0, self._given)
        if not (whole and self._order(order, part)):
            raise CurricleError("a thread of these environments broke down, and said why; make new ones")

    def _order(self, order: int, part: int) -> bool:
        """Give an order and help with it; returns whether it was carried out."""
        first = self._bounds[part]
        last = self._bounds[part + 1]
        if _post(self._control, order, first, last, len(self._bells)):
            for me, bell in enumerate(self._bells, 1):
                if not self._control[AWAKE + LINE * me]:
                    self._control[AWAKE + LINE * me] = 1  # on its way, and not to be woken twice
                    bell.release()
        return _carry_out(self._control, 0, self._given)


def _work(control: NDArray[Any], bell: threading.Semaphore, me: int, *given: Any) -> None:
    """What a thread does; it knows nothing of its crew, so that one that is forgotten can go."""
    goes_on = True
    while goes_on:
        bell.acquire()
        goes_on = _carry_out(control, me, given)


def _carry_out(control: NDArray[Any], me: int, given: Sequence[Any]) -> bool:
    """`_serve`, and a note if it breaks down: nobody else would do what was taken up."""
    try:
        return _serve(control, me, *given)
    except Exception:
        control[FAILED] = 1
        raise


def _dismiss(control: NDArray[Any], bells: Sequence[threading.Semaphore]) -> None:
    """Let the threads go."""
    control[STOP] = 1
    for bell in bells:  # also of one who is about to sleep
        bell.release()
