"""Spaces: what a world's observations and actions look like to a network.

In: Gymnasium spaces, and batches in the form its vector environments give them. Out: named parts, each an image, a row
of symbols (small whole numbers) or a row of numbers, and batches as a dict of arrays. Spaces no network here can take
are refused when the agent is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from curricle.errors import AgentError

Kind = Literal["image", "symbols", "numbers"]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """One array of an observation; `highest` is the largest value of each symbol."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    highest: tuple[int, ...] = ()


def parts_of(space: gymnasium.Space[Any], where: str, name: str = "") -> dict[str, Part]:
    """Take an observation space apart; `where` names agent and world in errors."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found: dict[str, Part] = {}
        for key, sub in inner:
            found |= parts_of(sub, where, f"{name}/{key}" if name else str(key))
        return dict(sorted(found.items()))
    return {name or "all": _part(space, where)}


def _part(space: gymnasium.Space[Any], where: str) -> Part:
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise AgentError(f"{where}: symbols must begin at 0, unlike those of {space}")
        return _symbols((1,), np.dtype(np.int64), [int(space.n) - 1])
    if isinstance(space, spaces.MultiDiscrete):
        if np.any(space.start != 0):
            raise AgentError(f"{where}: symbols must begin at 0, unlike those of {space}")
        return _symbols(space.shape, np.dtype(np.int64), (space.nvec - 1).ravel())
    if isinstance(space, spaces.MultiBinary):
        return _symbols(space.shape, np.dtype(np.int8), np.ones(int(np.prod(space.shape)), int))
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        if len(space.shape) == 3 and space.shape[-1] in (1, 3, 4) and min(space.shape[:2]) >= 8:
            return Part("image", space.shape, np.dtype(np.uint8))
        return _symbols(space.shape, np.dtype(np.uint8), space.high.ravel())
    if isinstance(space, spaces.Box):
        return Part("numbers", space.shape, np.dtype(np.float32))
    raise AgentError(f"{where} cannot take observations of the space {space}: use Box, Discrete, MultiDiscrete or Dict")


def _symbols(shape: tuple[int, ...], dtype: np.dtype[Any], highest: Any) -> Part:
    return Part("symbols", shape, dtype, tuple(int(h) for h in highest))


def check_actions(space: gymnasium.Space[Any], where: str) -> None:
    """Refuse actions that no head can choose."""
    floats = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (floats or isinstance(space, spaces.Discrete)):
        raise AgentError(f"{where} cannot choose actions of the space {space}: use Discrete or a Box of floats")


def split(observations: Any, parts: Mapping[str, Part], count: int) -> Arrays:
    """A batch of observations as arrays (count, *shape), part by part."""
    return {
        name: np.asarray(_pick(observations, name), part.dtype).reshape(count, *part.shape)
        for name, part in parts.items()
    }


def final(info: Mapping[str, Any], index: int, parts: Mapping[str, Part]) -> Arrays:
    """The last observation of an episode that ended in this step, as a batch of one."""
    found = info["final_obs"]
    if isinstance(found, Mapping):
        return {n: np.asarray(_pick(found, n)[index], p.dtype).reshape(1, *p.shape) for n, p in parts.items()}
    return split(found[index], parts, 1)


def _pick(observations: Any, name: str) -> Any:
    if not isinstance(observations, Mapping | tuple):
        return observations
    for key in name.split("/"):
        observations = observations[int(key)] if isinstance(observations, tuple) else observations[key]
    return observations
