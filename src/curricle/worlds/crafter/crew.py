"""Crew: threads that wait for the next order inside compiled code, so that a step needs no word of Python between them.

A step of a few environments is over sooner than one of Python's pools has handed it out; a number that all threads look
at is seen at once. Who has looked for some milliseconds in vain goes to sleep, and is woken by a bell.
"""

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from curricle.errors import UsageError
from curricle.worlds.crafter.kernel import kernel
from curricle.worlds.crafter.signals import count, pause, read, rest, write
from curricle.worlds.crafter.slices import STOP, follow, prepare

ROUND: Final = 0
ORDER: Final = 8
DONE: Final = 16
AWAKE: Final = 24
LINE: Final = 8
"""Numbers that one line of a cache holds: what different threads write lies in different lines."""
SOON: Final = 20_000
"""How often a thread looks in vain before it prepares what may be needed next: about a millisecond.

What is begun is finished, and steps of a rollout that follow each other closely would have to wait for it."""
PATIENCE: Final = 200_000
"""How often it looks in vain before it sleeps: some ten milliseconds, longer than a network takes to choose actions."""


@kernel
def _post(control: Any, order: int, part: int, others: int) -> int:
    """Give an order; returns how many are asleep."""
    write(control, DONE, 0)
    write(control, ORDER, order)
    write(control, ORDER + 1, part)
    write(control, ROUND, read(control, ROUND) + 1)
    asleep = 0
    for me in range(1, others + 1):
        asleep += 1 - read(control, AWAKE + LINE * me)
    return asleep


@kernel
def _edge(bounds: Any, part: int, me: int, crew: int) -> int:
    """Where the slice of a thread begins in a part; it ends where the next one's begins."""
    return int(bounds[part] + (bounds[part + 1] - bounds[part]) * me // crew)


@kernel
def _serve(control: Any, me: int, seen: int, crew: int, bounds: Any, states: Any, b: Any, p: Any) -> int:
    """Carry out orders on slices; returns the number of the last one, or -1 if that was to stop.

    The caller (0) carries out one and waits for the others; they go on until there is none for a while, and meanwhile
    prepare what may be needed next, each for the environments of its own slices, which no other touches.
    """
    write(control, AWAKE + LINE * me, 1)
    idle, part, ready = 0, len(bounds) - 1, 0
    while True:
        if read(control, ROUND) != seen:
            seen, idle = seen + 1, 0
            order, part = read(control, ORDER), read(control, ORDER + 1)
            if order != STOP:
                follow(order, states, _edge(bounds, part, me, crew), _edge(bounds, part, me + 1, crew), me, b, p)
            if me > 0:
                part, ready = 0, _edge(bounds, 0, me, crew)
                count(control, DONE)
            if order == STOP:
                return -1
        if me == 0 and read(control, DONE) == crew - 1:
            return seen
        if me > 0 and part < len(bounds) - 1 and idle >= SOON:
            if ready < _edge(bounds, part, me + 1, crew):
                prepare(states, ready, me, b)
                ready += 1
            else:
                part += 1
                ready = _edge(bounds, part, me, crew) if part < len(bounds) - 1 else 0
            continue
        idle += 1
        pause()
        if idle % 64 == 0:
            rest()
        if me > 0 and idle >= PATIENCE:
            write(control, AWAKE + LINE * me, 0)
            if read(control, ROUND) == seen:  # whoever gives an order now sees that a bell is needed
                return seen
            write(control, AWAKE + LINE * me, 1)


class Crew:
    """The caller and its threads, each with a slice of the environments; an order is for one part of them."""

    def __init__(self, states: NDArray[Any], bounds: Sequence[int], threads: int, board: Any, pictures: Any) -> None:
        self._given, self._seen, self.size = (np.array(bounds, np.int64), states, board, pictures), 0, threads
        self._control = np.zeros(AWAKE + LINE * (threads + 1), np.int64)
        self._bells = [threading.Semaphore(0) for _ in range(1, threads)]
        for me, bell in enumerate(self._bells, 1):
            given = self._control, bell, me, threads, *self._given
            threading.Thread(target=_work, args=given, daemon=True, name=f"crafter-{me}").start()
        self.close = weakref.finalize(self, _dismiss, self._control, self._bells)

    def follow(self, order: int, part: int) -> None:
        """Have an order carried out in a part of the environments."""
        if self._bells and not self.close.alive:
            raise UsageError("these environments were closed, and their threads are gone; make new ones")
        _give(self._control, self._bells, order, part)
        self._seen = _serve(self._control, 0, self._seen, self.size, *self._given)

    def rouse(self) -> None:
        """Wake those who sleep, as an order will come soon."""
        _ring(self._control, self._bells)


def _work(control: NDArray[Any], bell: threading.Semaphore, me: int, crew: int, *given: Any) -> None:
    """What a thread does; it knows nothing of its crew, so that one that is forgotten can go."""
    seen = 0
    while seen >= 0:
        bell.acquire()
        seen = _serve(control, me, seen, crew, *given)


def _give(control: NDArray[Any], bells: Sequence[threading.Semaphore], order: int, part: int = 0) -> None:
    if _post(control, order, part, len(bells)):
        _ring(control, bells)


def _ring(control: NDArray[Any], bells: Sequence[threading.Semaphore]) -> None:
    """Wake who is asleep; one who is just waking hears it twice, and looks around once more before it sleeps again."""
    for me, bell in enumerate(bells, 1):
        if not control[AWAKE + LINE * me]:
            bell.release()


def _dismiss(control: NDArray[Any], bells: Sequence[threading.Semaphore]) -> None:
    """Let the threads go."""
    if bells:
        _give(control, bells, STOP)
