"""What `speed.py heist` and `parity.py heist` do.

Speed: a random player in Procgen's hard mode, resets included, on one core; ours and EnvPool's by turns, three times.
Parity: random, solving and mixed players in levels drawn from a seed, beside the real game of another interpreter
(`heist_reference.py`), or beside recorded levels where there is none.
"""

import json
import lzma
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from curricle.worlds.heist.engine.batch import Engine
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.setting import HeistSetting, knobs_of
from curricle.worlds.heist.solver import next_action
from curricle.worlds.heist.trace import EXPLORATION_LEVEL, TracePlayer, trace_player

HERE = Path(__file__).parent
COUNT = 256
VIEWS = ("pixels", "symbols", "state")
ENVPOOL = """
import json, time, envpool, numpy as np
env = envpool.make_gymnasium("HeistHard-v0", num_envs={count}, num_threads=1, seed=0)
env.reset()
actions = np.random.default_rng(0).integers(15, size=(100, {count})).astype(np.int32)
env.step(actions[0])
began = time.perf_counter()
calls = 0
while time.perf_counter() - began < {seconds}:
    env.step(actions[calls % 100])  # EnvPool begins the next episode by itself
    calls += 1
print(json.dumps(calls * {count} / (time.perf_counter() - began)))
"""


def note(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def envpool(python: str, seconds: float) -> float | None:
    """Steps a second of EnvPool, or None where an interpreter has it not."""
    code = ENVPOOL.format(count=COUNT, seconds=seconds)
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        note(f"EnvPool: skipped ({(done.stderr.strip().splitlines() or ['no message'])[-1]})")
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def engine(view: str) -> Engine:
    """An engine of stock environments, ready and compiled."""
    made = Engine(COUNT, view)  # type: ignore[arg-type]
    made.states["upcoming"] = knobs_of(HeistSetting())[0]
    made.states["seed"] = np.arange(COUNT)
    made.reset()
    made.step(np.zeros(COUNT, np.int64), reset_ended=True)
    return made


def ours(made: Engine, seconds: float) -> float:
    """Steps a second, resets included."""
    actions = np.random.default_rng(0).integers(r.ACTIONS, size=(100, COUNT))
    calls = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        made.step(actions[calls % 100], reset_ended=True)
        calls += 1
    return calls * COUNT / (time.perf_counter() - began)


def reset_time(made: Engine) -> float:
    """Microseconds a reset, the best of some."""
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        made.reset()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / COUNT


def speed(seconds: float, python: str) -> dict[str, Any]:
    """Measure ours and EnvPool by turns, so that a busy machine slows both."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    made = {view: engine(view) for view in VIEWS}
    rounds: list[dict[str, float]] = []
    for number in range(3):
        note(f"round {number + 1} of 3")
        one = {view: ours(each, seconds / 4) for view, each in made.items()}
        reference = envpool(python, seconds / 2) if number == 0 or "envpool" in rounds[0] else None
        if reference is not None:
            one["envpool"] = reference
        rounds.append(one)
    found: dict[str, Any] = {}
    for view in VIEWS:
        found[view] = {"steps_per_s": statistics.median(one[view] for one in rounds)}
        if "envpool" in rounds[0]:
            found[view]["reference"] = statistics.median(one["envpool"] for one in rounds)
            found[view]["ratio"] = statistics.median(one[view] / one["envpool"] for one in rounds)
        note(view, {name: f"{value:,.0f}" for name, value in found[view].items()})
    found["reset"] = {"us": reset_time(made["state"])}
    note(f"reset: {found['reset']['us']:.1f} us; memory: {made['state'].states.itemsize:,} bytes an environment")
    return found


def play(player: TracePlayer, level: int, how: str, rng: np.random.Generator) -> dict[str, Any]:
    """Play a level; returns what was done and what came of it."""
    found: dict[str, Any] = {"states": [player.reset(level)], "actions": [], "rewards": [], "dones": []}
    held = 0
    for _ in range(400 if how == "random" else r.LENGTH):
        if how == "random":
            if held == 0:
                action = int(rng.integers(r.ACTIONS))
                held = int(rng.integers(1, 9))
            held -= 1
        elif how == "mixed" and rng.random() < 0.3:
            action = int(rng.integers(r.ACTIONS))
        else:
            action = next_action(player.state)
        reward, done, state = player.step(action)
        for name, value in (("actions", action), ("rewards", reward), ("dones", done), ("states", state)):
            found[name].append(value)
        if done:
            break
    return found


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """What differs between two plays of a level, or nothing; a reference may lack states, or the last one."""
    for name in ("rewards", "dones"):
        if mine[name] != theirs[name]:
            return name
    for step, state in enumerate(theirs.get("states", [])):
        if mine["states"][step] != state:
            parts = [part for part in state if mine["states"][step][part] != state[part]]
            return f"{', '.join(parts)} after step {step}"
    return ""


def beside_reference(process: Any, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Play level after level in ours and in the reference."""
    rng = np.random.default_rng(seed)
    number = 0
    while True:
        mode = ("easy", "hard", "memory", "exploration")[number % 4]
        level = EXPLORATION_LEVEL if mode == "exploration" else int(rng.integers(2**31 - 1))
        how = ("random", "solver", "mixed")[number % 3]
        mine = play(trace_player(mode), level, how, rng)  # type: ignore[arg-type]
        job = {"mode": mode, "level_seed": level, "actions": mine["actions"]}
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        yield mine, json.loads(process.stdout.readline()), f"{mode}, level {level}, {how} player"
        number += 1


def beside_records() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Play recorded levels again: all of them, or the sample of the tests."""
    places = [folder / "shared" / "data" / "heist" for folder in HERE.parents] + [HERE.parent / "tests/worlds/heist"]
    path = next(place / "traces.jsonl.xz" for place in places if (place / "traces.jsonl.xz").exists())
    with lzma.open(path, "rt") as file:
        for line in file:
            theirs = json.loads(line)
            player = trace_player(theirs["mode"])
            mine: dict[str, Any] = {"states": [player.reset(theirs["level_seed"])], "rewards": [], "dones": []}
            for action in theirs["actions"]:
                reward, done, state = player.step(action)
                for name, value in (("rewards", reward), ("dones", done), ("states", state)):
                    mine[name].append(value)
            yield mine, theirs, f"{theirs['mode']}, level {theirs['level_seed']}, recorded"


def parity(steps: int, seed: int, python: str) -> int:
    """Compare so many steps; returns 1 at the first difference."""
    command = [python, str(HERE / "heist_reference.py")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout
    first = process.stdout.readline()
    name = json.loads(first)["reference"] if first else "recorded levels"
    pairs = beside_reference(process, seed) if first else beside_records()
    began = time.perf_counter()
    done = 0
    levels = 0
    solved = 0
    for mine, theirs, where in pairs:
        if found := differences(mine, theirs):
            print(f"heist: {done} steps equal, then a difference in {found}: {where} ({name})")
            return 1
        done += len(mine["rewards"])
        levels += 1
        solved += r.REWARD in mine["rewards"]
        if done >= steps:
            break
    process.kill()
    took = time.perf_counter() - began
    print(f"heist: {done} steps of {levels} levels compared with {name} in {took:.0f} s, all equal; {solved} solved")
    return 0
