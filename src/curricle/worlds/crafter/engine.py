"""Engine: a batch of environments, and the calls that move them all.

State is one array of records. A call is cut into fixed slices of environments, one a thread (`crew.py`); kernels
release the GIL, and no environment looks at another, so results do not depend on the number of threads. `play` steps,
`renew` follows what ended with the next episode. The first call compiles, which takes about a minute once; after
that kernels come from numba's cache on disk.
"""

import itertools
import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from curricle.errors import CurricleError
from curricle.worlds.crafter import rules as r
from curricle.worlds.crafter import symbols
from curricle.worlds.crafter.crew import Crew
from curricle.worlds.crafter.fields import SCRATCH, fields
from curricle.worlds.crafter.slices import ALIVE, BEGIN, DIED, GO_ON, PLAY, RENEW, TIMED_OUT, Board
from curricle.worlds.crafter.spares import spares_of
from curricle.worlds.crafter.state import OVERFLOW, SLOTS, STATE
from curricle.worlds.crafter.step import stock_daylight
from curricle.worlds.crafter.textures import pictures

__all__ = ["ALIVE", "DIED", "TIMED_OUT", "Engine", "View"]
View = Literal["state", "symbols", "pixels"]
_WORDS_A_PIXEL: Final = 2
_PAGE: Final = 4096


def on_pages(*shape: int) -> NDArray[np.uint8]:
    """Bytes on pages of memory that hold nothing else: a driver lends a GPU whole pages."""
    size = -(-math.prod(shape) // _PAGE) * _PAGE
    room = np.zeros(size + _PAGE, np.uint8)
    start = -room.ctypes.data % _PAGE
    return room[start : start + math.prod(shape)].reshape(shape)


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
        self.observed = on_pages(count, *self.shape)
        self.final = np.zeros((count, *self.shape), np.uint8)
        threads = max(1, min(threads, count))
        edges = [count * t // threads for t in range(threads + 1)]
        self._board = Board(
            mask=np.zeros(count, np.bool_),
            actions=np.zeros(count, np.int64),
            rewards=self.rewards,
            ends=self.ends,
            skills=self.skills,
            faults=np.zeros(count, np.uint8),
            observed=self.observed,
            final=self.final,
            symbols=view == "symbols",
            daylight=stock_daylight(),
            tables=fields(),
            work=np.zeros(threads, SCRATCH),
            spares=spares_of(self.states, threads > 1),
        )
        painted = pictures(unit, unit) if view == "pixels" else None
        self._crew = Crew(self.states, list(itertools.pairwise(edges)), self._board, painted)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return {"state": (0,), "symbols": (symbols.WIDTH,), "pixels": (self.size, self.size, 3)}[self.view]

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._board.mask[:] = True if mask is None else mask
        self._follow(BEGIN)

    def play(self, actions: NDArray[np.int64], renew: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `renew`, what ended is followed by the next episode at once: threads then meet only once a step.
        """
        self._board.actions[:] = actions
        self._follow(GO_ON if renew else PLAY)

    def renew(self) -> None:
        """Follow every episode that ended with the next one; `final` keeps its last observation."""
        self._follow(RENEW)

    def close(self) -> None:
        """Let the threads go."""
        self._crew.close()

    def _follow(self, order: int) -> None:
        """Have an order carried out, and stop at a fault inside a kernel."""
        self._crew.follow(order)
        if (faults := self._board.faults).any():
            which = int(np.flatnonzero(faults == OVERFLOW)[0])
            raise CurricleError(f"Crafter environment {which}: more than {SLOTS} objects (SLOTS in state.py)")
