"""The memory that environments and rollouts would take, estimated before it is taken.

In: a world, and how many of its environments an agent wants to step. Out: nothing, or an error that says how much it
would be and how much there is. Small numbers are not looked at: most runs are far from any bound.
"""

import gc
import os
import tracemalloc
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from curricle.errors import AgentError
from curricle.records import Options
from curricle.world import VectorWorld, World

MOST = 1_000_000
"""Environments side by side; to make more of them takes longer than any run."""
FEW = 1_024
"""Environments that fit everywhere."""
SMALL = 2**28
"""Bytes that fit everywhere."""
SAMPLE = 16
"""Environments that are made to see what one takes."""


def refuse_too_large(world: World, options: Options, designs: int) -> None:
    """Refuse more environments, or longer rollouts, than this machine has memory for."""
    if not isinstance(world, VectorWorld):
        return
    count = max(int(getattr(options, "environments", 1)), designs)
    steps = int(getattr(options, "steps", 0))
    advice = "choose fewer environments or designs, or shorter rollouts (steps)"
    if count > MOST:
        raise AgentError(f"{count:,} environments of {world.id} are more than the {MOST:,} that can be made; {advice}")
    if count <= FEW and count * steps < FEW:
        return
    probe = world.vector([world.original])
    rollout = count * steps * _size(probe.single_observation_space)
    probe.close()
    if count <= FEW and rollout < SMALL:
        return
    need = rollout + count * _each(world)
    free = _available()
    if free is not None and need > free:
        gigabytes = f"about {need / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free"
        raise AgentError(
            f"{count:,} environments of {world.id} with rollouts of {steps:,} steps take {gigabytes}; {advice}"
        )


def _each(world: VectorWorld) -> float:
    """Bytes that one environment takes."""
    gc.collect()
    tracemalloc.start()
    try:
        vector = world.vector([world.original] * SAMPLE)
        vector.reset(seed=list(range(SAMPLE)))
        taken, _ = tracemalloc.get_traced_memory()
        vector.close()
    finally:
        tracemalloc.stop()
    return taken / SAMPLE


def _size(space: gymnasium.Space[object]) -> int:
    """Bytes of one observation."""
    if isinstance(space, spaces.Dict):
        return sum(_size(inner) for inner in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(_size(inner) for inner in space.spaces)
    if space.shape is None or space.dtype is None:
        return 8
    return int(np.prod(space.shape)) * space.dtype.itemsize


def _available() -> int | None:
    """Bytes of memory that are free: the machine's, or what is left to this container; None where nobody says."""
    found = list[int]()
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        if most != "max":
            found.append(max(int(most) - int(used), 0))
    except (OSError, ValueError):
        pass
    return min(found, default=None)
