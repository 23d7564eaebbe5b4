"""Spaces: what a world's observations and actions look like to a network.

In: Gymnasium spaces, and batches in the form its vector environments give them. Out: named parts, each an image, a row
of symbols (small whole numbers) or a row of numbers, and batches as a dict of arrays. Spaces no network here can take
are refused when the agent is made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from curricle.errors import AgentError, WorldError

Kind = Literal["image", "symbols", "numbers"]
ALL = "all"
"""Name of the only part of an observation that is no dict."""
MOST = 4096
"""Values of a symbol from which on a table of them is too large."""
COLOURS = (1, 3, 4)
SMALLEST = 16
"""How many colours pictures mostly have, and the side from which on bytes are taken for one whatever they have."""
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class InputSpec:
    """One array of an observation, and the way to it through dicts and tuples."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    highest: tuple[int, ...] = ()
    """The largest value of each symbol."""
    graded: bool = False
    """Whether symbols of many values are amounts rather than names."""
    path: tuple[str | int, ...] = ()

    @cached_property
    def limits(self) -> NDArray[np.int64]:
        """`highest` in the shape of an observation."""
        return np.array(self.highest, np.int64).reshape(self.shape)

    def check(self, name: str, seen: NDArray[Any]) -> None:
        """Refuse values that the world did not declare: networks look symbols up in tables, and learn from numbers."""
        if self.kind == "symbols":
            wrong = seen > self.limits if seen.dtype == np.uint8 else (seen > self.limits) | (seen < 0)
        elif self.kind == "numbers":
            wrong = ~np.isfinite(seen)
        else:
            return
        if wrong.any():
            row, *at = (int(i) for i in np.argwhere(wrong)[0])
            where = f"{name!r} at {at}" if name != ALL else f"at {at}"
            rule = f", but declares it as 0 to {self.limits[tuple(at)]}" if self.highest else "; it must be finite"
            what = f"the world shows {seen[(row, *at)]} in its observation {where}{rule}"
            raise WorldError(f"{what}; `curricle check` looks for the setting in which it does")


def input_specs(space: gymnasium.Space[Any], where: str, path: tuple[str | int, ...] = ()) -> dict[str, InputSpec]:
    """Take an observation space apart; `where` names agent and world in errors."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return {"/".join(map(str, path)) or ALL: replace(_part(space, where), path=path)}
    inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    found: dict[str, InputSpec] = {}
    for key, sub in inner:
        for name, part in input_specs(sub, where, (*path, key)).items():
            if name in found:
                raise AgentError(f"{where}: two observations would be called {name!r}; rename one")
            found[name] = part
    if not found and not path:
        raise AgentError(f"{where}: there is nothing to see in {space}")
    return dict(sorted(found.items()))


def _part(space: gymnasium.Space[Any], where: str) -> InputSpec:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if np.any(space.start != 0):
            raise AgentError(f"{where}: symbols must begin at 0, unlike those of {space}")
        most = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        if most.max() > MOST:
            raise AgentError(f"{where}: {space} has symbols of more than {MOST:,} values; split them up, or use a Box")
        return _symbols(most.shape, np.dtype(np.int64), (most - 1).ravel())
    if isinstance(space, spaces.MultiBinary):
        return _symbols(space.shape, np.dtype(np.int8), np.ones(int(np.prod(space.shape)), int))
    if isinstance(space, spaces.Box):
        if (shape := _picture(space, where)) is not None:
            return InputSpec("image", shape, np.dtype(np.uint8))
        if space.dtype == np.uint8:
            return replace(_symbols(space.shape, np.dtype(np.uint8), space.high.ravel()), graded=True)
        return InputSpec("numbers", space.shape or (1,), np.dtype(np.float32))
    raise AgentError(f"{where} cannot take observations of the space {space}: use Box, Discrete, MultiDiscrete or Dict")


def _picture(space: spaces.Box, where: str) -> tuple[int, ...] | None:
    """Height, width and colours of a space of pictures; those that a network would take for a row are refused."""
    shape = space.shape
    full = bool(np.all(space.high == 255)) and space.dtype == np.uint8
    if len(shape) == 2 and full and min(shape) >= SMALLEST:
        return (*shape, 1)
    if len(shape) != 3:
        return None
    colours = shape[-1]
    size = min(shape[:2])
    if space.dtype == np.uint8 and size >= 8 and (colours in COLOURS or (full and colours < size)):
        return shape
    if full and shape[0] in COLOURS and min(shape[1:]) >= SMALLEST:
        raise AgentError(f"{where}: pictures of the shape {shape} have their colours first; they must be last")
    if space.dtype != np.uint8 and colours in COLOURS and size >= 2 * SMALLEST:
        raise AgentError(f"{where}: pictures of {space.dtype} of the shape {shape} must be bytes (uint8), 0 to 255")
    return None


def _symbols(shape: tuple[int, ...], dtype: np.dtype[Any], highest: Any) -> InputSpec:
    return InputSpec("symbols", shape or (1,), dtype, tuple(int(h) for h in highest))


def check_actions(space: gymnasium.Space[Any], where: str) -> None:
    """Refuse actions that no head can choose."""
    floats = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (floats or isinstance(space, spaces.Discrete)):
        raise AgentError(f"{where} cannot choose actions of the space {space}: use Discrete or a Box of floats")


def split(observations: Any, parts: Mapping[str, InputSpec], count: int) -> Arrays:
    """A batch of observations as arrays (count, *shape), part by part."""
    return _checked({name: _pick(observations, part.path) for name, part in parts.items()}, parts, count)


def final(info: Mapping[str, Any], index: int, parts: Mapping[str, InputSpec]) -> Arrays:
    """The last observation of an episode that ended in this step, as a batch of one."""
    found = info["final_obs"]
    if isinstance(found, Mapping):
        return _checked({name: _pick(found, part.path)[index] for name, part in parts.items()}, parts, 1)
    return split(found[index], parts, 1)


def _checked(seen: Mapping[str, Any], parts: Mapping[str, InputSpec], count: int) -> Arrays:
    arrays = {name: np.asarray(seen[name], part.dtype).reshape(count, *part.shape) for name, part in parts.items()}
    for name, array in arrays.items():
        parts[name].check(name, array)
    return arrays


def _pick(observations: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        observations = observations[key]
    return observations
