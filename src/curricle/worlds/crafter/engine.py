"""Engine: a batch of environments, and the calls that move them all.

State is one array of records. A call is cut into fixed slices of environments, one a thread; kernels release the GIL,
and no environment looks at another, so results do not depend on the number of threads. `play` steps, `renew` follows
what ended with the next episode. The first call compiles, which takes about half a minute once; after that kernels come
from numba's cache on disk.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from curricle.errors import CurricleError
from curricle.worlds.crafter import rules as r
from curricle.worlds.crafter import symbols
from curricle.worlds.crafter.draw import draw
from curricle.worlds.crafter.fields import SCRATCH, fields
from curricle.worlds.crafter.kernel import kernel
from curricle.worlds.crafter.state import OVERFLOW, SLOTS, STATE
from curricle.worlds.crafter.step import is_dead, is_over, pass_night, reset, step, stock_daylight
from curricle.worlds.crafter.symbols import write_symbols
from curricle.worlds.crafter.textures import pictures

View = Literal["state", "symbols", "pixels"]
ALIVE, DIED, TIMED_OUT = 0, 1, 2
_WORDS_A_PIXEL: Final = 2


@kernel
def _reset_slice(
    states: Any, lo: int, hi: int, mask: Any, faults: Any, daylight: Any, tables: Any, work: Any, me: int
) -> None:
    """Begin a new episode in every masked environment."""
    for i in range(lo, hi):
        if mask[i]:
            reset(states[i], daylight, tables[0], work[me])
            faults[i] = states[i].fault


@kernel
def _step_slice(
    states: Any, lo: int, hi: int, actions: Any, rewards: Any, ends: Any, skills: Any, faults: Any, daylight: Any
) -> None:
    """Play one step everywhere; what ended is only marked."""
    for i in range(lo, hi):
        s = states[i]
        rewards[i] = step(s, actions[i], daylight)
        ends[i] = DIED if is_dead(s) else TIMED_OUT if is_over(s) else ALIVE
        faults[i] = s.fault
        for k in range(len(r.ACHIEVEMENTS)):
            skills[i, k] = s.unlocked[k]


@kernel
def _pass_slice(states: Any, lo: int, hi: int) -> None:
    """Pass over the noise of frames that nobody draws."""
    for i in range(lo, hi):
        pass_night(states[i])


@kernel
def _symbols_slice(states: Any, lo: int, hi: int, mask: Any, out: Any) -> None:
    """Write the symbols of masked environments."""
    for i in range(lo, hi):
        if mask[i]:
            write_symbols(states[i], out[i])
            pass_night(states[i])


@kernel
def _pixels_slice(states: Any, lo: int, hi: int, mask: Any, out: Any, p: Any) -> None:
    """Paint the frames of masked environments."""
    for i in range(lo, hi):
        if mask[i]:
            draw(states[i], out[i], p.unit, p.tiles, p.dusk, p.cells, p.items, p.vignette, p.night)


class Engine:
    """Environments of one view ("state", "symbols" or "pixels"), stepped together."""

    def __init__(
        self,
        count: int,
        view: View = "symbols",
        *,
        exact: bool = True,
        size: int = 64,
        threads: int = 1,
    ) -> None:
        self.states = np.zeros(count, STATE)
        self.view: View = view
        self.size = size
        unit = size // r.VIEW_X
        self.states["exact"] = exact
        self.states["night_words"] = _WORDS_A_PIXEL * r.VIEW_X * r.VIEW_Y * unit**2
        self.rewards = np.zeros(count)
        self.ends = np.zeros(count, np.uint8)
        self.skills = np.zeros((count, len(r.ACHIEVEMENTS)), np.bool_)
        self.observed = np.zeros((count, *self.shape), np.uint8)
        self.final = np.zeros((count, *self.shape), np.uint8)
        self._pictures = pictures(unit, unit) if view == "pixels" else None
        self._daylight, self._tables = stock_daylight(), fields()
        threads = max(1, min(threads, count))
        self._work = np.zeros(threads, SCRATCH)
        edges = [count * t // threads for t in range(threads + 1)]
        self._slices = list(itertools.pairwise(edges))
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._everyone, self._ended = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        self._faults = np.zeros(count, np.uint8)  # beside the records, which are far apart in memory

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return {"state": (0,), "symbols": (symbols.WIDTH,), "pixels": (self.size, self.size, 3)}[self.view]

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        mask = self._everyone if mask is None else mask
        self._spread(lambda lo, hi, me: self._begin(lo, hi, me, mask))
        self._check()

    def play(self, actions: NDArray[np.int64], renew: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `renew`, what ended is followed by the next episode at once: threads then meet only once a step.
        """
        self._spread(lambda lo, hi, me: self._play(lo, hi, me, actions, renew))
        self._check()

    def renew(self) -> None:
        """Follow every episode that ended with the next one; `final` keeps its last observation."""
        self._spread(self._renew)
        self._check()

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown()

    def _play(self, lo: int, hi: int, me: int, actions: NDArray[np.int64], renew: bool) -> None:
        """One slice of a step."""
        _step_slice(self.states, lo, hi, actions, self.rewards, self.ends, self.skills, self._faults, self._daylight)
        self._observe(lo, hi, self._everyone)
        if renew:
            self._renew(lo, hi, me)

    def _renew(self, lo: int, hi: int, me: int) -> None:
        """One slice of what follows the episodes that ended."""
        ended = self._ended[lo:hi]
        np.not_equal(self.ends[lo:hi], ALIVE, out=ended)
        if ended.any():
            self.final[lo:hi][ended] = self.observed[lo:hi][ended]
            self._begin(lo, hi, me, self._ended)

    def _begin(self, lo: int, hi: int, me: int, mask: NDArray[np.bool_]) -> None:
        """One slice of a reset."""
        _reset_slice(self.states, lo, hi, mask, self._faults, self._daylight, self._tables, self._work, me)
        self._observe(lo, hi, mask)

    def _observe(self, lo: int, hi: int, mask: NDArray[np.bool_]) -> None:
        """Fill one slice of `observed`; in exact mode this moves the random stream as the reference's drawing does."""
        if self._pictures is not None:
            _pixels_slice(self.states, lo, hi, mask, self.observed, self._pictures)
        elif self.view == "symbols":
            _symbols_slice(self.states, lo, hi, mask, self.observed)
        elif mask is self._everyone:  # a new episode begins by daylight
            _pass_slice(self.states, lo, hi)

    def _spread(self, work: Callable[[int, int, int], None]) -> None:
        """Run a slice on every thread."""
        if self._pool is None:
            work(*self._slices[0], 0)
            return
        jobs = [self._pool.submit(work, lo, hi, me) for me, (lo, hi) in enumerate(self._slices) if me]
        work(*self._slices[0], 0)  # the caller is a thread too
        for job in jobs:
            job.result()

    def _check(self) -> None:
        """Stop at a fault inside a kernel."""
        if self._faults.any():
            which = int(np.flatnonzero(self._faults == OVERFLOW)[0])
            raise CurricleError(f"Crafter environment {which}: more than {SLOTS} objects (SLOTS in state.py)")
