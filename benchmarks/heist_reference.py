"""The real Heist, for `parity.py`: run by an interpreter that has `procgen2` or `envpool`, and not curricle.

    python benchmarks/heist_reference.py

Each line of stdin is a job, {"mode", "level_seed", "actions"}; for each a line comes back on stdout: the rewards, the
ends, and with `procgen2` all states but that after an end, by when Procgen has made the next level. The first line
names the reference.
"""

import json
import struct
import sys
from typing import Any

import numpy as np

WALL, DOOR = 51, 1


class Reader:
    """Reads Procgen's serialised state."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def integer(self) -> int:
        """A whole number of 32 bits."""
        self.at += 4
        return int(struct.unpack_from("<i", self.data, self.at - 4)[0])

    def integers(self, count: int) -> list[int]:
        """Several of them."""
        return [self.integer() for _ in range(count)]

    def bits(self) -> str:
        """A float32 as its 8 hex digits."""
        self.at += 4
        return self.data[self.at - 4 : self.at][::-1].hex()

    def skip(self, numbers: int) -> None:
        """Pass over numbers."""
        self.at += 4 * numbers

    def skip_text(self) -> None:
        """Pass over a string."""
        length = self.integer()
        self.at += length


def entity(reader: Reader) -> dict[str, Any]:
    found: dict[str, Any] = {name: reader.bits() for name in ("x", "y", "vx", "vy", "rx", "ry")}
    found["type"] = reader.integer()
    reader.skip(1)
    found["number"] = reader.integer()
    reader.skip(22)
    return found


def state_of(data: bytes, doors: list[int] | None) -> tuple[dict[str, Any], list[int]]:
    """The state in the form of `curricle.worlds.heist.trace`, and the doors there were at the start."""
    reader = Reader(data)
    reader.skip(1)
    reader.skip_text()
    reader.skip(17)  # options
    for _ in range(2):  # random streams
        reader.skip(1)
        reader.skip_text()
    reader.skip(16)
    agent, *others = [entity(reader) for _ in range(reader.integer())]
    reader.skip(19)
    reader.skip(1)
    reader.skip_text()
    reader.skip(9)
    side, _, count = reader.integers(3)
    grid = reader.integers(count)
    reader.skip(2)
    held = reader.integers(reader.integer())
    left = [one["number"] for one in others if one["type"] == DOOR]
    doors = left if doors is None else doors
    rows = [grid[y * side : (y + 1) * side] for y in range(side)]
    state = {
        "agent": [agent[name] for name in ("x", "y", "vx", "vy")],
        "keys_held": [number for number, yes in enumerate(held) if yes],
        "doors_open": sorted(set(doors) - set(left)),
        "entities": [[one[name] for name in ("type", "number", "x", "y", "rx", "ry")] for one in others],
        "grid": ["".join("#" if cell == WALL else "." for cell in row) for row in rows],
    }
    return state, doors


def with_procgen(job: dict[str, Any]) -> dict[str, Any]:
    from procgen import ProcgenGym3Env

    env = ProcgenGym3Env(
        num=1,
        env_name="heist",
        num_levels=1,
        start_level=job["level_seed"],
        distribution_mode="hard" if job["mode"] == "exploration" else job["mode"],
    )
    env.observe()
    first, doors = state_of(env.callmethod("get_state")[0], None)
    found: dict[str, Any] = {"rewards": [], "dones": [], "states": [first]}
    for action in job["actions"]:
        env.act(np.array([action], np.int32))
        reward, _, done = env.observe()
        found["rewards"].append(float(reward[0]))
        found["dones"].append(bool(done[0]))
        if done[0]:
            break
        found["states"].append(state_of(env.callmethod("get_state")[0], doors)[0])
    return found


def with_envpool(job: dict[str, Any]) -> dict[str, Any]:
    import envpool

    only = {} if job["mode"] == "exploration" else {"num_levels": 1, "start_level": job["level_seed"]}
    env = envpool.make_gymnasium(f"Heist{job['mode'].capitalize()}-v0", num_envs=1, **only)
    env.reset()
    found: dict[str, Any] = {"rewards": [], "dones": []}
    for action in job["actions"]:
        _, reward, terminated, truncated, _ = env.step(np.array([action], np.int32))
        found["rewards"].append(float(reward[0]))
        found["dones"].append(bool(terminated[0] or truncated[0]))
        if found["dones"][-1]:
            break
    env.close()
    return found


if __name__ == "__main__":
    try:
        import procgen  # noqa: F401

        name = "procgen2"
        play = with_procgen
    except ImportError:
        import envpool  # noqa: F401

        name = "envpool"
        play = with_envpool
    print(json.dumps({"reference": name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(play(json.loads(line))), flush=True)
