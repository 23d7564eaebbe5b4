"""Simulators played by chance for `curricle check`: is what they show what they declare, and the same from one seed?"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from curricle.cli.shell import print_result
from curricle.errors import CurricleError, DeclarationError, WorldError
from curricle.setting import Setting
from curricle.world import VectorWorld, WorldVector
from curricle.worlds.gym import GymVector


@contextmanager
def naming(name: str, setting: Setting, original: Setting) -> Iterator[None]:
    """Say in which setting something went wrong, and what is special about it."""
    try:
        yield
    except CurricleError as error:
        special = [f"{key}={value!r}" for key, value in setting.values.items() if value != original.values[key]]
        where = f"{name} ({', '.join(special)})" if special and repr(setting) not in str(error) else name
        raise type(error)(f"{where}: {error}") from error


def tried(world: VectorWorld, settings: Mapping[str, Setting], steps: int) -> list[str]:
    """Play each setting by chance; returns what is worth a note."""
    vector = world.vector(list(settings.values()))  # all at once, as agents practise: spaces must agree
    notes = _advice_on_keys(world, vector.single_action_space)
    warnings = set[str]()
    ended = 0
    vector.close()
    for name, setting in settings.items():
        with naming(name, setting, world.original):
            playthrough = _played_twice(world, setting, steps, warnings)
        print_result(f"{name}: {playthrough.summary(steps)}")
        ended += playthrough.ended
    if not ended:
        notes.append(
            f"no episode ended in {len(settings)} settings of {steps} steps each; tests play until episodes end, and "
            "would wait for ever: give the world a limit (truncated after max_steps), or try more --steps"
        )
    return [*notes, *sorted(warnings)]


@dataclass
class Playthrough:
    """Some steps played by chance: their sums, and what each step gave, for a comparison."""

    shown: dict[str, int]
    ended: int = 0
    open: bool = False
    total: float = 0.0
    history: dict[str, list[object]] = field(
        default_factory=lambda: {"rewards": [], "observations": [], "ends of episodes": [], "skills": []}
    )

    def summary(self, steps: int) -> str:
        """What was seen, in a line; reward and skills are those of all steps."""
        skills = ", ".join(f"{name} {count}" for name, count in self.shown.items() if count) or "none"
        still = ", one was still open" if self.open else ""
        return f"{self.ended} episodes ended in {steps} steps{still}; reward {self.total:g}, skills shown: {skills}"


def _played_twice(world: VectorWorld, setting: Setting, steps: int, warnings: set[str]) -> Playthrough:
    """What chance shows in a setting; played twice from one seed, which must give the same."""
    one = _played(world, setting, steps, warnings)
    other = _played(world, setting, steps, warnings)
    different = []
    first = steps
    for name, values in one.history.items():
        if values != other.history[name]:
            different.append(name)
            first = min(first, first_difference(values, other.history[name]))
    if different:
        raise WorldError(
            f"{world.id} played twice from the same seed gave different {', '.join(different)} in {setting!r}, first "
            f"{_when(first)}: draw all random numbers from the seed of reset()"
        )
    return one


def first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    """The first index at which two sequences differ; the length of the shorter one if there is none."""
    for index, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return index
    return min(len(a), len(b))


def _played(world: VectorWorld, setting: Setting, steps: int, warnings: set[str]) -> Playthrough:
    """Play by chance for a while; `warnings` collects what may be meant in observations."""
    vector = world.vector([setting])
    playthrough = Playthrough({skill.name: 0 for skill in world.skills})
    history = playthrough.history
    check = ObservationCheck(world.id, vector, warnings)
    vector.action_space.seed(1)
    observations, _ = vector.reset(seed=[1])
    check.batches(observations)
    history["observations"].append(_digest(observations))
    for name in ("rewards", "ends of episodes", "skills"):
        history[name].append(None)  # a reset has none: places in all lists are steps
    for step in range(1, steps + 1):
        check.step = step
        observations, rewards, terminated, truncated, info = vector.step(vector.action_space.sample())
        over = bool(terminated[0] or truncated[0])
        shown = (observations, info["final_obs"]) if over and "final_obs" in info else (observations,)
        check.batches(*shown)
        reward = float(np.sum(rewards))
        history["rewards"].append(reward)
        history["observations"].append(_digest(tuple(_first(batch) for batch in shown)))
        history["ends of episodes"].append(over)
        history["skills"].append(_digest(info["skills"]))
        playthrough.total += reward
        playthrough.ended += over
        playthrough.open = not over
        if over or step == steps:
            for name in world.names(info["skills"][0]):
                playthrough.shown[name] += 1
    vector.close()
    return playthrough


class ObservationCheck:
    """Holds every observation to the space that its world declares."""

    def __init__(self, world: str, vector: WorldVector, warnings: set[str]) -> None:
        self.world = world
        self.space = vector.single_observation_space
        self.warnings = warnings
        self.step = 0
        self.slots = vector.slots if isinstance(vector, GymVector) else []
        for slot in self.slots:
            # checked as the environment gave it: a batch has the declared type, whatever was given
            slot.on_observation = self.one

    def batches(self, *batches: Any) -> None:
        """Check batches of one: observations, and the last ones of an episode that ended."""
        if self.slots:
            return  # each observation is checked as it comes
        for batch in batches:
            self.one(_first(batch))

    def one(self, observation: Any) -> None:
        """Refuse an observation that is not what was declared."""
        if fault := _fault(self.space, observation, "its observation", self.warnings):
            raise WorldError(f"{self.world} shows {fault} ({_when(self.step)})")


def _when(step: int) -> str:
    return f"in step {step}" if step else "at reset"


def _first(batch: Any) -> Any:
    """The first sub-environment's part of a batch."""
    if isinstance(batch, Mapping):
        return {key: _first(value) for key, value in batch.items()}
    return tuple(_first(value) for value in batch) if isinstance(batch, tuple) else batch[0]


def _digest(observations: Any) -> bytes:
    """Observations as something short that can be kept and compared."""
    if isinstance(observations, Mapping):
        return b"".join(_digest(observations[key]) for key in sorted(observations))
    if isinstance(observations, tuple):
        return b"".join(_digest(part) for part in observations)
    array = np.asarray(observations)
    plain = repr(observations).encode() if array.dtype == object else array.tobytes()
    return hashlib.blake2b(plain, digest_size=16).digest()


def _fault(space: gymnasium.Space[Any], observation: Any, where: str, warnings: set[str]) -> str:
    """What is wrong with an observation, or nothing; `warnings` collects what may be meant."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
        parts = dict(enumerate(observation)) if isinstance(observation, tuple) else observation
        if not isinstance(parts, Mapping) or set(parts) != set(inner):
            found = sorted(parts, key=str) if isinstance(parts, Mapping) else f"{observation!r:.100}"
            return f"the parts {found} in {where}, but declares {sorted(inner, key=str)}"
        faults = (_fault(sub, parts[key], f"part {key!r} of {where}", warnings) for key, sub in inner.items())
        return next((fault for fault in faults if fault), "")
    bounds = _bounds(space)
    if bounds is None:
        return (
            ""
            if space.contains(observation)
            else f"{observation!r:.100} in {where}, which is not in the declared {space}"
        )
    try:
        array = np.asarray(observation)
    except ValueError:  # lists of different lengths
        return f"{observation!r:.100} in {where}, but declares the shape {space.shape}"
    if array.shape != space.shape:
        return f"the shape {array.shape} in {where}, but declares {space.shape}: {space}"
    whole = space.dtype is not None and space.dtype.kind in "iub"
    if array.dtype.kind not in ("iub" if whole else "iubf"):
        return f"values of {array.dtype} in {where}, but declares {space.dtype}: {space}"
    if not whole and array.dtype.kind != "f":
        warnings.add(
            f"{where} has values of {array.dtype}, but is declared as {space.dtype}; agents see them as the latter"
        )
    return _wrong_value(array if whole else _cast(array, space), where, *bounds)


def _bounds(space: gymnasium.Space[Any]) -> tuple[Any, Any] | None:
    """The least and the largest values of a space of numbers."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.start, space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _cast(array: NDArray[Any], space: gymnasium.Space[Any]) -> NDArray[Any]:
    """Numbers as agents get them: a large one may be infinite in the declared type."""
    with np.errstate(over="ignore"):
        return array.astype(space.dtype)


def _wrong_value(array: NDArray[Any], where: str, low: Any, high: Any) -> str:
    """Name the first value that is not finite or out of bounds; rounding may cross a bound by a hair."""
    low = np.broadcast_to(low, array.shape)
    high = np.broadcast_to(high, array.shape)
    not_finite = ~np.isfinite(array)
    if not_finite.any():
        return f"{_first_value(array, not_finite, where)}; it must be finite"
    outside = (array < low) | (array > high)
    if array.dtype.kind == "f":
        outside &= ~(np.isclose(array, low, 1e-6, 1e-6) | np.isclose(array, high, 1e-6, 1e-6))
    if not outside.any():
        return ""
    at = _first_index(outside)
    return f"{_first_value(array, outside, where)}, but declares it as {low[at]} to {high[at]}"


def _first_index(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _first_value(array: NDArray[Any], wrong: NDArray[np.bool_], where: str) -> str:
    """The first wrong value and its place, in words."""
    at = _first_index(wrong)
    place = f" at {list(at)}" if at else ""
    return f"{array[at]} in {where}{place}"


def _advice_on_keys(world: VectorWorld, actions: gymnasium.Space[Any]) -> list[str]:
    """Refuse keys that cannot be played with; one that is taken is worth a note."""
    from curricle.cli.play import QUIT

    form = "keys are one character each, with an action and its name, as in {'w': (0, 'north')}"
    if not isinstance(world.keys, Mapping):
        raise DeclarationError(f"{world.id}.keys = {world.keys!r:.100}: {form}")
    for key, value in world.keys.items():
        what = f"{world.id}.keys[{key!r}] = {value!r:.100}"
        pair = isinstance(value, tuple | list) and len(value) == 2
        if not (isinstance(key, str) and len(key) == 1 and pair and isinstance(value[1], str)):
            raise DeclarationError(f"{what}: {form}")
        if not isinstance(value[0], int | np.integer) or not actions.contains(np.int64(value[0])):
            raise DeclarationError(f"{what}: {value[0]!r} is not an action of {actions}; {form}")
    return [f"the key {QUIT!r} ends the game, so that its action cannot be played"] if QUIT in world.keys else []
