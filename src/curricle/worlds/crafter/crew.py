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
def _post(control: Any, order: int, others: int) -> int:
    """Give an order; returns how many are asleep."""
    write(control, DONE, 0)
    write(control, ORDER, order)
    write(control, ROUND, read(control, ROUND) + 1)
    asleep = 0
    for me in range(1, others + 1):
        asleep += 1 - read(control, AWAKE + LINE * me)
    return asleep


@kernel
def _serve(control: Any, me: int, seen: int, others: int, states: Any, lo: int, hi: int, b: Any, p: Any) -> int:
    """Carry out orders on a slice; returns the number of the last one, or -1 if that was to stop.

    The caller (0) carries out one and waits for the others; they go on until there is none for a while, and meanwhile
    prepare what may be needed next.
    """
    write(control, AWAKE + LINE * me, 1)
    idle, ready = 0, hi
    while True:
        if read(control, ROUND) != seen:
            seen, idle = seen + 1, 0
            order = read(control, ORDER)
            if order != STOP:
                follow(order, states, lo, hi, me, b, p)
            if me > 0:
                ready = lo
                count(control, DONE)
            if order == STOP:
                return -1
        if me == 0 and read(control, DONE) == others:
            return seen
        if ready < hi and idle >= SOON:
            prepare(states, ready, me, b)
            ready += 1
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
    """The caller and its threads, each with a slice of the environments."""

    def __init__(self, states: NDArray[Any], slices: Sequence[tuple[int, int]], board: Any, pictures: Any) -> None:
        self._first, *rest_ = slices
        self._given, self._seen = (states, board, pictures), 0
        self._control = np.zeros(AWAKE + LINE * (len(slices) + 1), np.int64)
        self._bells = [threading.Semaphore(0) for _ in rest_]
        for me, ((lo, hi), bell) in enumerate(zip(rest_, self._bells, strict=True), 1):
            given = self._control, bell, me, lo, hi, *self._given
            threading.Thread(target=_work, args=given, daemon=True, name=f"crafter-{me}").start()
        self.close = weakref.finalize(self, _dismiss, self._control, self._bells)

    def follow(self, order: int) -> None:
        """Have an order carried out everywhere."""
        if self._bells and not self.close.alive:
            raise UsageError("these environments were closed, and their threads are gone; make new ones")
        states, board, pictures = self._given
        _give(self._control, self._bells, order)
        self._seen = _serve(self._control, 0, self._seen, len(self._bells), states, *self._first, board, pictures)


def _work(
    control: NDArray[Any], bell: threading.Semaphore, me: int, lo: int, hi: int, states: Any, board: Any, pictures: Any
) -> None:
    """What a thread does; it knows nothing of its crew, so that one that is forgotten can go."""
    seen = 0
    while seen >= 0:
        bell.acquire()
        seen = _serve(control, me, seen, 0, states, lo, hi, board, pictures)


def _give(control: NDArray[Any], bells: Sequence[threading.Semaphore], order: int) -> None:
    if _post(control, order, len(bells)):
        for me, bell in enumerate(bells, 1):
            if not control[AWAKE + LINE * me]:
                bell.release()


def _dismiss(control: NDArray[Any], bells: Sequence[threading.Semaphore]) -> None:
    """Let the threads go."""
    if bells:
        _give(control, bells, STOP)
