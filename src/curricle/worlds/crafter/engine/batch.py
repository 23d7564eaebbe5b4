"""Engine: a batch of environments, and the calls that move them all.

State is one array of records. Threads take environments as they become free (`crew.py`); kernels release the GIL, and
no environment looks at another, so results do not depend on the number of threads. `play` steps, `renew` follows what
ended with the next episode. Engines made together share their threads. The first call compiles, which takes about a
minute once; after that kernels come from numba's cache on disk.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from curricle.errors import CurricleError
from curricle.worlds.crafter.engine.prefetch import spares_of
from curricle.worlds.crafter.engine.tasks import (
    ALIVE,
    BEGIN,
    DIED,
    GO_ON,
    PAGE,
    PLAY,
    RENEW,
    RESULT,
    TIMED_OUT,
    Board,
    on_pages,
)
from curricle.worlds.crafter.engine.threads import Crew
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import OVERFLOW, SLOTS, STATE
from curricle.worlds.crafter.game.step import stock_daylight
from curricle.worlds.crafter.observe import symbols
from curricle.worlds.crafter.observe.frames import easel_of
from curricle.worlds.crafter.observe.textures import pictures
from curricle.worlds.crafter.worldgen.noise_tables import SCRATCH, fields

__all__ = ["ALIVE", "DIED", "TIMED_OUT", "Engine", "View", "engines"]
View = Literal["state", "symbols", "pixels"]
_WORDS_A_PIXEL: Final = 2


class Engine:
    """Environments of one view ("state", "symbols" or "pixels"), moved together; `engines` makes them."""

    def __init__(self, part: int, here: slice, states: NDArray[Any], view: View, board: Board, crew: Crew) -> None:
        self._part = part
        self._board = board
        self._crew = crew
        self.view: View = view
        self.states = states[here]
        results = board.results[here]
        self.rewards, self.ends, self._faults = (results[name] for name in ("reward", "end", "fault"))
        self.skills = results["skills"].view(np.bool_)
        self.observed = board.observed[here]
        self.final = board.final[here]
        edges = [here.start] + [here.stop] * (here.stop < len(states))
        self.apart = not any(edge * board.observed[0].nbytes % PAGE for edge in edges)
        """Whether no page of memory holds both its observations and another engine's."""
        self._mask = board.mask[here]
        self._actions = board.actions[here]

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._mask[:] = True if mask is None else mask
        self._follow(BEGIN)

    def play(self, actions: NDArray[np.int64], renew: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `renew`, what ended is followed by the next episode at once: threads then meet only once a step.
        """
        self._actions[:] = actions
        self._follow(GO_ON if renew else PLAY)

    def renew(self) -> None:
        """Follow every episode that ended with the next one; `final` keeps its last observation."""
        self._follow(RENEW)

    def close(self) -> None:
        """Let the threads go, also those of engines that were made together with this one: they are the same."""
        self._crew.close()

    def _follow(self, order: int) -> None:
        """Have an order carried out, and stop at a fault inside a kernel."""
        self._crew.follow(order, self._part)
        if self._faults.any():
            which = int(np.flatnonzero(self._faults == OVERFLOW)[0])
            raise CurricleError(f"Crafter environment {which}: more than {SLOTS} objects (SLOTS in state.py)")


def engines(
    counts: Sequence[int], view: View = "symbols", *, exact: bool = True, size: int = 64, threads: int = 1
) -> list[Engine]:
    """Engines of so many environments each, which share their threads and so are to be moved by turns."""
    count = sum(counts)
    bounds = [0, *itertools.accumulate(counts)]
    states = np.zeros(count, STATE)
    unit = size // r.VIEW_X
    states["exact"] = exact
    states["night_words"] = _WORDS_A_PIXEL * r.VIEW_X * r.VIEW_Y * unit**2
    shapes: dict[View, tuple[int, ...]] = {"state": (0,), "symbols": (symbols.WIDTH,), "pixels": (size, size, 3)}
    threads = max(1, min(threads, *counts))
    board = Board(
        mask=np.zeros(count, np.bool_),
        actions=np.zeros(count, np.int64),
        results=on_pages(count, RESULT.itemsize).view(RESULT)[:, 0],
        observed=on_pages(count, *shapes[view]),
        final=np.zeros((count, *shapes[view]), np.uint8),
        symbols=view == "symbols",
        daylight=stock_daylight(),
        tables=fields(),
        work=np.zeros(threads, SCRATCH),
        easel=easel_of(unit, unit, threads if view == "pixels" else 0),
        spares=spares_of(states, threads > 1),
    )
    crew = Crew(states, bounds, threads, board, pictures(unit, unit) if view == "pixels" else None)
    ranges = [slice(*edges) for edges in itertools.pairwise(bounds)]
    return [Engine(part, here, states, view, board, crew) for part, here in enumerate(ranges)]
