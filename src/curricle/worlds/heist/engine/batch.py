"""Engine: a batch of environments, and the calls that step and reset them.

State is one array of records. The first call compiles the kernels, which takes about half a minute; numba then keeps
them in its cache on disk.
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
RESET, STEP, RESET_ENDED, STEP_AND_RESET_ENDED = range(4)
"""Commands: begin an episode where the mask says; play a step; begin the next episode where one ended; the last two."""
ALL_LEVELS: Final = 2**31 - 1
"""Procgen draws a level's seed from so many numbers, if it is not told which."""


RESULT: Final = np.dtype([("reward", "f8"), ("end", "u1"), ("skills", "u1", len(r.SKILLS))])
"""The result of a step."""


class Buffers(NamedTuple):
    """The arrays that the environments of an engine share: inputs, results, and memory to work in."""

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
def _reset(s: Any, i: int, b: Any, p: Any) -> None:
    reset(s, b.scratch)
    if p is not None:
        b.canvas.drawn[i] = STALE
    _observe(s, i, b, p)


@kernel
def _step(s: Any, i: int, b: Any, p: Any) -> None:
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
def _reset_ended(s: Any, i: int, b: Any, p: Any) -> None:
    if b.results[i].end != PLAYING:
        b.final[i] = b.observed[i]
        _reset(s, i, b, p)


@kernel
def _run(command: int, states: Any, b: Any, p: Any) -> None:
    """Carry out a command everywhere."""
    for i in range(len(states)):
        s = states[i]
        if command == RESET:
            if b.mask[i]:
                _reset(s, i, b, p)
            continue
        if command != RESET_ENDED:
            _step(s, i, b, p)
        if command != STEP:
            _reset_ended(s, i, b, p)


class Engine:
    """Environments of one view ("state", "symbols" or "pixels"), stepped together.

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
        self._buffers = Buffers(
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
        results = self._buffers.results
        self.rewards = results["reward"]
        self.ends = results["end"]
        self.skills = results["skills"].view(np.bool_)
        self.observed = self._buffers.observed
        self.final = self._buffers.final

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Begin a new episode, everywhere or where the mask says."""
        self._buffers.mask[:] = True if mask is None else mask
        _run(RESET, self.states, self._buffers, self._pictures)

    def step(self, actions: NDArray[np.int64], reset_ended: bool = False) -> None:
        """Play one step; results are in `observed`, `rewards`, `ends` and `skills`.

        With `reset_ended`, the next episode begins at once where one ended.
        """
        self._buffers.actions[:] = actions
        _run(STEP_AND_RESET_ENDED if reset_ended else STEP, self.states, self._buffers, self._pictures)

    def reset_ended(self) -> None:
        """Begin the next episode where one ended; `final` keeps the last observation of the one before."""
        _run(RESET_ENDED, self.states, self._buffers, self._pictures)

    def forget_frames(self) -> None:
        """Draw all of the next frames, because the records were changed from outside."""
        if self._buffers.canvas is not None:
            self._buffers.canvas.drawn[:] = STALE

    def close(self) -> None:
        """There is nothing to close."""
