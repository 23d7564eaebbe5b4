"""Spaces: what a world's observations and actions look like to a network.

In: Gymnasium spaces, and batches of observations as vector environments return them. Out: named inputs, each of which
is an image, a row of symbols (small whole numbers) or a row of numbers, and batches as a dict of arrays by these names.
Spaces that no network here can take are refused when the agent is made.
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
ONLY_INPUT = "all"
"""Name of the input if the observation is a single array."""
MAX_SYMBOL_VALUES = 4096
"""A symbol of more values would need too large an embedding table."""
USUAL_COLOURS = (1, 3, 4)
"""Sizes of the last axis by which images are recognised."""
MIN_IMAGE_SIDE = 16
"""Bytes with sides of at least this length are taken for an image whatever their last axis is."""
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class InputSpec:
    """One array of an observation, and the keys that lead to it through dicts and tuples."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    highest: tuple[int, ...] = ()
    """The largest value of each symbol."""
    ordinal: bool = False
    """Whether symbols of many values are amounts rather than names."""
    path: tuple[str | int, ...] = ()

    @cached_property
    def limits(self) -> NDArray[np.int64]:
        """`highest` in the shape of an observation."""
        return np.array(self.highest, np.int64).reshape(self.shape)

    def check(self, name: str, values: NDArray[Any]) -> None:
        """Refuse values that the world did not declare: symbols are looked up in tables, numbers must be finite."""
        if self.kind == "symbols":
            wrong = values > self.limits
            if values.dtype != np.uint8:
                wrong |= values < 0
        elif self.kind == "numbers":
            wrong = ~np.isfinite(values)
        else:
            return
        if not wrong.any():
            return
        first = np.argwhere(wrong)[0].tolist()
        at = first[1:]
        where = f"at {at}" if name == ONLY_INPUT else f"{name!r} at {at}"
        rule = f", but declares it as 0 to {self.limits[tuple(at)]}" if self.highest else "; it must be finite"
        raise WorldError(
            f"the world shows {values[tuple(first)]} in its observation {where}{rule}; `curricle check` looks for the "
            "setting in which it does"
        )


def input_specs(space: gymnasium.Space[Any], where: str, path: tuple[str | int, ...] = ()) -> dict[str, InputSpec]:
    """Split an observation space into named inputs; `where` names agent and world in errors."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        name = "/".join(map(str, path)) or ONLY_INPUT
        return {name: replace(_input_spec(space, where), path=path)}
    inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    inputs: dict[str, InputSpec] = {}
    for key, subspace in inner:
        for name, spec in input_specs(subspace, where, (*path, key)).items():
            if name in inputs:
                raise AgentError(f"{where}: two observations would be called {name!r}; rename one")
            inputs[name] = spec
    if not inputs and not path:
        raise AgentError(f"{where}: there is nothing to see in {space}")
    return dict(sorted(inputs.items()))


def _input_spec(space: gymnasium.Space[Any], where: str) -> InputSpec:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if np.any(space.start != 0):
            raise AgentError(f"{where}: symbols must begin at 0, unlike those of {space}")
        counts = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        if counts.max() > MAX_SYMBOL_VALUES:
            raise AgentError(
                f"{where}: {space} has symbols of more than {MAX_SYMBOL_VALUES:,} values; split them up, or use a Box"
            )
        return _symbols(counts.shape, np.dtype(np.int64), (counts - 1).ravel())
    if isinstance(space, spaces.MultiBinary):
        return _symbols(space.shape, np.dtype(np.int8), np.ones(int(np.prod(space.shape)), int))
    if isinstance(space, spaces.Box):
        shape = _image_shape(space, where)
        if shape is not None:
            return InputSpec("image", shape, np.dtype(np.uint8))
        if space.dtype == np.uint8:
            return replace(_symbols(space.shape, np.dtype(np.uint8), space.high.ravel()), ordinal=True)
        return InputSpec("numbers", space.shape or (1,), np.dtype(np.float32))
    raise AgentError(f"{where} cannot take observations of the space {space}: use Box, Discrete, MultiDiscrete or Dict")


def _image_shape(space: spaces.Box, where: str) -> tuple[int, ...] | None:
    """Height, width and colours of a space of images, None for other spaces.

    Spaces that are probably meant as images, but declared in a way that would make them a row of numbers, are refused.
    """
    shape = space.shape
    is_full_range = bool(np.all(space.high == 255)) and space.dtype == np.uint8
    if len(shape) == 2 and is_full_range and min(shape) >= MIN_IMAGE_SIDE:
        return (*shape, 1)
    if len(shape) != 3:
        return None
    colours = shape[-1]
    side = min(shape[:2])
    if space.dtype == np.uint8 and side >= 8 and (colours in USUAL_COLOURS or (is_full_range and colours < side)):
        return shape
    if is_full_range and shape[0] in USUAL_COLOURS and min(shape[1:]) >= MIN_IMAGE_SIDE:
        raise AgentError(f"{where}: pictures of the shape {shape} have their colours first; they must be last")
    if space.dtype != np.uint8 and colours in USUAL_COLOURS and side >= 2 * MIN_IMAGE_SIDE:
        raise AgentError(f"{where}: pictures of {space.dtype} of the shape {shape} must be bytes (uint8), 0 to 255")
    return None


def _symbols(shape: tuple[int, ...], dtype: np.dtype[Any], highest: Any) -> InputSpec:
    return InputSpec("symbols", shape or (1,), dtype, tuple(int(h) for h in highest))


def check_actions(space: gymnasium.Space[Any], where: str) -> None:
    """Refuse actions that no head can choose."""
    floats = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (floats or isinstance(space, spaces.Discrete)):
        raise AgentError(f"{where} cannot choose actions of the space {space}: use Discrete or a Box of floats")


def split_observations(observations: Any, inputs: Mapping[str, InputSpec], count: int) -> Arrays:
    """A batch of observations as arrays (count, *shape), one for each input."""
    return _checked({name: _look_up(observations, spec.path) for name, spec in inputs.items()}, inputs, count)


def final_observation(info: Mapping[str, Any], index: int, inputs: Mapping[str, InputSpec]) -> Arrays:
    """The last observation of an episode that ended in this step, as a batch of one."""
    observations = info["final_obs"]
    if isinstance(observations, Mapping):
        rows = {name: _look_up(observations, spec.path)[index] for name, spec in inputs.items()}
        return _checked(rows, inputs, 1)
    return split_observations(observations[index], inputs, 1)


def _checked(observations: Mapping[str, Any], inputs: Mapping[str, InputSpec], count: int) -> Arrays:
    arrays: Arrays = {}
    for name, spec in inputs.items():
        arrays[name] = np.asarray(observations[name], spec.dtype).reshape(count, *spec.shape)
        spec.check(name, arrays[name])
    return arrays


def _look_up(observations: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        observations = observations[key]
    return observations
