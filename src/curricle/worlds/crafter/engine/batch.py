"""A batch of environments: one array of records, and the calls that step and reset them.

Threads take environments as they become free (`threads.py`). Kernels release the GIL, and no environment reads another,
so results do not depend on the number of threads. `engines` makes one engine or several that share their threads. The
first call compiles the kernels, which takes about a minute; numba then keeps them in its cache on disk.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from curricle.errors import CurricleError
from curricle.worlds.crafter.engine.tasks import (
    ALIVE,
    DIED,
    PAGE,
    RESET,
    RESET_ENDED,
    RESULT,
    STEP,
    STEP_AND_RESET_ENDED,
    TIMED_OUT,
    Buffers,
    page_aligned,
    prefetch_buffers,
)
from curricle.worlds.crafter.engine.threads import ThreadPool
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import OVERFLOW, SLOTS, STATE
from curricle.worlds.crafter.game.step import stock_daylight
from curricle.worlds.crafter.observe import symbols
from curricle.worlds.crafter.observe.frames import draw_buffers
from curricle.worlds.crafter.observe.textures import pictures
from curricle.worlds.crafter.worldgen.noise_tables import SCRATCH, fields

__all__ = ["ALIVE", "DIED", "TIMED_OUT", "Engine", "View", "engines"]
View = Literal["state", "symbols", "pixels"]
"""What an engine writes after each step; "state" writes nothing beyond the records."""
_WORDS_A_PIXEL: Final = 2


class Engine:
    """Environments of one view that are stepped together; `engines` makes them."""

    def __init__(
        self, group: int, here: slice, states: NDArray[Any], view: View, buffers: Buffers, pool: ThreadPool
    ) -> None:
        self._group = group
        self._buffers = buffers
        self._pool = pool
        self.view: View = view
        self.states = states[here]
        results = buffers.results[here]
        self.rewards = results["reward"]
        self.ends = results["end"]
        self.skills = results["skills"].view(np.bool_)
        self._faults = results["fault"]
        self.observed = buffers.observed[here]
        self.final = buffers.final[here]
        self._mask = buffers.mask[here]
        self._actions = buffers.actions[here]
        inner_edges = [here.start]
        if here.stop < len(states):
            inner_edges.append(here.stop)
        observation_size = buffers.observed[0].nbytes
        self.owns_its_pages = all(edge * observation_size % PAGE == 0 for edge in inner_edges)
        """Whether no memory page holds both its observations and another engine's."""

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._mask[:] = True if mask is None else mask
        self._run(RESET)

    def step(self, actions: NDArray[np.int64], reset_ended: bool = False) -> None:
        """Play one step; the results are in `observed`, `rewards`, `ends` and `skills`.

        With `reset_ended`, the next episode begins at once where one ended. Threads then have to meet only once a step.
        """
        self._actions[:] = actions
        self._run(STEP_AND_RESET_ENDED if reset_ended else STEP)

    def reset_ended(self) -> None:
        """Begin the next episode where one ended; `final` keeps the last observation of the one before."""
        self._run(RESET_ENDED)

    def close(self) -> None:
        """End the threads. Engines that were made together have the same ones, so this ends them for all."""
        self._pool.close()

    def _run(self, command: int) -> None:
        """Have a command carried out, and raise if an environment overflowed."""
        self._pool.run(command, self._group)
        if self._faults.any():
            which = int(np.flatnonzero(self._faults == OVERFLOW)[0])
            raise CurricleError(f"Crafter environment {which}: more than {SLOTS} objects (SLOTS in state.py)")


def engines(
    counts: Sequence[int], view: View = "symbols", *, exact: bool = True, size: int = 64, threads: int = 1
) -> list[Engine]:
    """Engines with so many environments each. They share their threads, so only one may be stepped at a time."""
    count = sum(counts)
    bounds = [0, *itertools.accumulate(counts)]
    threads = max(1, min(threads, *counts))
    draws = view == "pixels"
    unit = size // r.VIEW_X
    states = np.zeros(count, STATE)
    states["exact"] = exact
    states["night_words"] = _WORDS_A_PIXEL * r.VIEW_X * r.VIEW_Y * unit**2
    shapes: dict[View, tuple[int, ...]] = {"state": (0,), "symbols": (symbols.WIDTH,), "pixels": (size, size, 3)}
    buffers = Buffers(
        mask=np.zeros(count, np.bool_),
        actions=np.zeros(count, np.int64),
        results=page_aligned(count, RESULT.itemsize).view(RESULT)[:, 0],
        observed=page_aligned(count, *shapes[view]),
        final=np.zeros((count, *shapes[view]), np.uint8),
        symbols=view == "symbols",
        daylight=stock_daylight(),
        tables=fields(),
        work=np.zeros(threads, SCRATCH),
        drawing=draw_buffers(unit, unit, threads) if draws else None,
        prefetched=prefetch_buffers(states, threads > 1),
    )
    pool = ThreadPool(states, bounds, threads, buffers, pictures(unit, unit) if draws else None)
    ranges = [slice(*edges) for edges in itertools.pairwise(bounds)]
    return [Engine(group, here, states, view, buffers, pool) for group, here in enumerate(ranges)]
