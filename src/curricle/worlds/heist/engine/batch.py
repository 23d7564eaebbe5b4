"""Engine: a batch of environments, and the calls that move them all.

State is one array of records. `play` steps, `renew` follows what ended with the next episode. The first call compiles,
which takes about half a minute once; after that kernels come from numba's cache on disk.
"""

from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import STATE
from curricle.worlds.heist.game.step import is_over, is_solved, reset, step
from curricle.worlds.heist.levels.maze import SCRATCH
from curricle.worlds.heist.observe import symbols
from curricle.worlds.heist.observe.frames import STALE, canvas_of, draw_next
from curricle.worlds.heist.observe.images import own_pictures, pictures_from

View = Literal["state", "symbols", "pixels"]
PLAYING, SOLVED, TIMED_OUT = range(3)
ALL_LEVELS: Final = 2**31 - 1
"""Procgen draws a level's seed from so many numbers, if it is not told which."""


class Board(NamedTuple):
    """What the environments of an engine share: what they are told, and what came of it."""

    mask: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[Any]
    ends: NDArray[Any]
    skills: NDArray[Any]
    observed: NDArray[Any]
    final: NDArray[Any]
    symbols: bool
    canvas: Any
    scratch: Any


@kernel
def _observe(s: Any, i: int, b: Any, p: Any) -> None:
    if p is not None:
        draw_next(s, b.observed[i], p, b.canvas, i)
    elif b.symbols:
        symbols.write_symbols(s, b.observed[i])


@kernel
def _begin(s: Any, i: int, b: Any, p: Any) -> None:
    reset(s, b.scratch)
    b.canvas.drawn[i] = STALE
    _observe(s, i, b, p)


@kernel
def _begin_masked(states: Any, b: Any, p: Any) -> None:
    """Begin a new episode where the mask says."""
    for i in range(len(states)):
        if b.mask[i]:
            _begin(states[i], i, b, p)


@kernel
def _play(states: Any, b: Any, p: Any) -> None:
    """Play one step everywhere."""
    for i in range(len(states)):
        s = states[i]
        b.rewards[i] = step(s, b.actions[i])
        b.ends[i] = PLAYING
        if is_solved(s):
            b.ends[i] = SOLVED
        elif is_over(s):
            b.ends[i] = TIMED_OUT
        for k in range(len(r.SKILLS)):
            b.skills[i, k] = s.skills[k]
        _observe(s, i, b, p)


@kernel
def _renew(states: Any, b: Any, p: Any) -> None:
    """Follow what ended with the next episode."""
    for i in range(len(states)):
        if b.ends[i] != PLAYING:
            b.final[i] = b.observed[i]
            _begin(states[i], i, b, p)


class Engine:
    """Environments of one view ("state", "symbols" or "pixels"), moved together.

    `pictures` is a folder with Procgen's pictures; without one, frames are drawn with our own. Levels are drawn from
    `levels` numbers that begin with `first_level`, as Procgen's `num_levels` and `start_level` say; 0 means all.
    """

    def __init__(
        self,
        count: int,
        view: View = "symbols",
        *,
        size: int = 64,
        pictures: Path | None = None,
        levels: int = 0,
        first_level: int = 0,
    ) -> None:
        self.view: View = view
        self.states = np.zeros(count, STATE)
        self.states["level_count"] = levels or ALL_LEVELS
        self.states["first_level"] = first_level if levels else 0
        shapes: dict[View, tuple[int, ...]] = {"state": (0,), "symbols": (symbols.WIDTH,), "pixels": (size, size, 3)}
        self._board = Board(
            mask=np.zeros(count, np.bool_),
            actions=np.zeros(count, np.int64),
            rewards=np.zeros(count),
            ends=np.zeros(count, np.uint8),
            skills=np.zeros((count, len(r.SKILLS)), np.bool_),
            observed=np.zeros((count, *shapes[view]), np.uint8),
            final=np.zeros((count, *shapes[view]), np.uint8),
            symbols=view == "symbols",
            canvas=canvas_of(count, size if view == "pixels" else 0),
            scratch=np.zeros(1, SCRATCH)[0],
        )
        self._pictures: Any = None
        if view == "pixels":
            self._pictures = pictures_from(pictures) if pictures else own_pictures()
        self.rewards = self._board.rewards
        self.ends = self._board.ends
        self.skills = self._board.skills
        self.observed = self._board.observed
        self.final = self._board.final

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._board.mask[:] = True if mask is None else mask
        _begin_masked(self.states, self._board, self._pictures)

    def play(self, actions: NDArray[np.int64], renew: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `renew`, what ended is followed by the next episode at once.
        """
        self._board.actions[:] = actions
        _play(self.states, self._board, self._pictures)
        if renew:
            self.renew()

    def renew(self) -> None:
        """Follow every episode that ended with the next one; `final` keeps its last observation."""
        _renew(self.states, self._board, self._pictures)

    def restore(self, states: NDArray[Any]) -> None:
        """Go on from other records."""
        self.states[:] = states
        self._board.canvas.drawn[:] = STALE

    def close(self) -> None:
        """Nothing is open."""
