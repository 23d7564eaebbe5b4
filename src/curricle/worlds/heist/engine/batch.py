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
BEGIN, PLAY, RENEW, GO_ON = range(4)
"""Orders: begin an episode where the mask says, play a step, follow what ended by its next episode, both of these."""
ALL_LEVELS: Final = 2**31 - 1
"""Procgen draws a level's seed from so many numbers, if it is not told which."""


RESULT: Final = np.dtype([("reward", "f8"), ("end", "u1"), ("skills", "u1", len(r.SKILLS))])
"""What came of a step."""


class Board(NamedTuple):
    """What the environments of an engine share: what they are told, and what came of it."""

    mask: NDArray[Any]
    actions: NDArray[Any]
    results: NDArray[Any]
    observed: NDArray[Any]
    final: NDArray[Any]
    symbols: bool
    canvas: Any
    """`frames.Canvas`, or None where nothing is drawn."""
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
    if p is not None:
        b.canvas.drawn[i] = STALE
    _observe(s, i, b, p)


@kernel
def _play(s: Any, i: int, b: Any, p: Any) -> None:
    result = b.results[i]
    result.reward = step(s, b.actions[i])
    result.end = PLAYING
    if is_solved(s):
        result.end = SOLVED
    elif is_over(s):
        result.end = TIMED_OUT
    for k in range(len(r.SKILLS)):
        result.skills[k] = s.skills[k]
    _observe(s, i, b, p)


@kernel
def _renew(s: Any, i: int, b: Any, p: Any) -> None:
    if b.results[i].end != PLAYING:
        b.final[i] = b.observed[i]
        _begin(s, i, b, p)


@kernel
def _follow(order: int, states: Any, b: Any, p: Any) -> None:
    """Carry out an order everywhere."""
    for i in range(len(states)):
        s = states[i]
        if order == BEGIN:
            if b.mask[i]:
                _begin(s, i, b, p)
            continue
        if order != RENEW:
            _play(s, i, b, p)
        if order != PLAY:
            _renew(s, i, b, p)


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
            results=np.zeros(count, RESULT),
            observed=np.zeros((count, *shapes[view]), np.uint8),
            final=np.zeros((count, *shapes[view]), np.uint8),
            symbols=view == "symbols",
            canvas=canvas_of(count, size) if view == "pixels" else None,
            scratch=np.zeros(1, SCRATCH)[0],
        )
        self._pictures: Any = None
        if view == "pixels":
            self._pictures = pictures_from(pictures) if pictures else own_pictures()
        results = self._board.results
        self.rewards = results["reward"]
        self.ends = results["end"]
        self.skills = results["skills"].view(np.bool_)
        self.observed = self._board.observed
        self.final = self._board.final

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._board.mask[:] = True if mask is None else mask
        _follow(BEGIN, self.states, self._board, self._pictures)

    def play(self, actions: NDArray[np.int64], renew: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `renew`, what ended is followed by the next episode at once.
        """
        self._board.actions[:] = actions
        _follow(GO_ON if renew else PLAY, self.states, self._board, self._pictures)

    def renew(self) -> None:
        """Follow every episode that ended with the next one; `final` keeps its last observation."""
        _follow(RENEW, self.states, self._board, self._pictures)

    def restore(self, states: NDArray[Any]) -> None:
        """Go on from other records."""
        self.states[:] = states
        if self._board.canvas is not None:
            self._board.canvas.drawn[:] = STALE

    def close(self) -> None:
        """Nothing is open."""
