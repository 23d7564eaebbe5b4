"""Agents: how many steps a second PPO learns from Crafter, and where the time goes.

    python benchmarks/agents.py [--view symbols] [--seconds 20] [--json] [--profile]

Prints, for symbols and for pixels, steps/s end to end (world, network and update together) and the share of each in the
time of the leader, next to Stable-Baselines3's PPO on the reference `crafter` from pixels in the same run, where it is
installed (the extra `benchmarks`).
On a CPU pixels are learnt with a small network (`--set channels=[64,128,128] blocks=2` for the papers'), on a GPU with
the papers'. With `--json` the last line is one object: symbols and pixels, each with steps_per_s, reference and ratio.
`--profile` adds, on a GPU, the kernels of two more rollouts by the time they take.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from profiles import kernels

from curricle.agents.ppo import agent as ppo
from curricle.agents.ppo.actors import Actor
from curricle.worlds.crafter.world import Crafter

CPU = {
    "symbols": {"environments": 64, "steps": 64, "epochs": 2, "learning_rate": 1e-3},  # as `curricle run crafter` does
    "pixels": {"environments": 16, "steps": 32, "channels": (8, 16), "blocks": 1},
}
GPU = {"symbols": {"environments": 1024, "steps": 64}, "pixels": {"environments": 64, "steps": 64}}


THREADS = {"symbols": 4, "pixels": 1} if torch.cuda.is_available() else {"symbols": 1, "pixels": 1}


class Stopwatch:
    """Seconds that the leader spent in some methods; other workers are not counted."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Time a method from now on."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():  # another worker
                return inner(*given, **named)
            start = time.perf_counter()
            try:
                return inner(*given, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        setattr(owner, method, timed)


def ours(
    view: str, seconds: float, changes: dict[str, Any], threads: int, watch: Stopwatch, profiled: bool
) -> dict[str, Any]:
    """Learn for a while, after a warm-up that compiles."""
    world = Crafter(Crafter.Options(observation=view, threads=threads))
    options = (GPU if torch.cuda.is_available() else CPU)[view] | changes
    agent = ppo.PPO(world, ppo.PPOOptions(**options))
    watch.watch(agent, "update", "update")
    rollout = agent.options.steps * agent.options.environments
    design = [world.unaltered()]
    agent.practise(design, 2 * rollout, seed=0, report=lambda done, metrics: None)
    start = time.perf_counter()
    agent.practise(design, rollout, seed=1, report=lambda done, metrics: None)
    count = max(1, int(seconds / (time.perf_counter() - start)))
    watch.seconds.clear()
    returns: list[float] = []
    start = time.perf_counter()
    agent.practise(
        design,
        count * rollout,
        seed=2,
        report=lambda done, metrics: returns.append(metrics.get("practice/return", 0.0)),
    )
    spent = time.perf_counter() - start
    took = {name: watch.seconds.get(name, 0.0) for name in ("world", "play", "update")}
    took = {"world": took["world"], "rollout": took["play"] - took["world"], "update": took["update"]}
    shares = {name: round(seconds / spent, 3) for name, seconds in took.items()}
    if profiled and agent.device.type == "cuda":
        kernels(lambda: agent.practise(design, 2 * rollout, seed=3, report=lambda done, metrics: None), 2, "rollout")
    return {
        "steps_per_s": round(count * rollout / spent, 1),
        "shares": shares,
        "steps": count * rollout,
        "parameters": sum(p.numel() for p in agent.network.parameters()),
        "last_return": round(float(np.mean(returns[-5:])), 2),
        "device": str(agent.device),
        "options": {name: list(v) if isinstance(v, tuple) else v for name, v in options.items()},
    }


def reference(seconds: float) -> float | None:
    """Stable-Baselines3's PPO on the reference crafter from pixels, as its users run it; None where not installed."""
    try:
        import crafter
        import gymnasium
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError as error:
        print(f"no reference: {error}", file=sys.stderr)
        return None

    class Wrapped(gymnasium.Env[Any, Any]):
        """The old Gym interface of crafter as Gymnasium's."""

        observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(17)

        def __init__(self) -> None:
            self.env = crafter.Env()

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return self.env.reset(), {}

        def step(self, action: Any) -> Any:
            observation, reward, done, _ = self.env.step(int(action))
            return observation, reward, done, False, {}

    environments = 8
    steps = 32
    model = PPO("CnnPolicy", DummyVecEnv([Wrapped] * environments), n_steps=steps, batch_size=64, n_epochs=2)
    start = time.perf_counter()
    model.learn(environments * steps)
    count = max(1, int(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    model.learn(count * environments * steps)
    return count * environments * steps / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--view", choices=["symbols", "pixels", "both"], default="both")
    parser.add_argument("--seconds", type=float, default=20.0, help="How long each measurement takes, about.")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="Threads of the world, for each actor; beside a GPU for all [1, for symbols beside a GPU 4].",
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="Options of PPO.")
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--profile", action="store_true", help="On a GPU: which kernels take the time.")
    parser.add_argument("--json", action="store_true", help="End with one line of JSON.")
    given = parser.parse_args()
    changes = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in given.set)}
    known = None if given.no_reference else reference(given.seconds)
    watch = Stopwatch()
    found = {}
    watch.watch(Actor, "step_environments", "world")
    watch.watch(ppo.PPO, "collect_rollout", "play")
    for view in ["symbols", "pixels"] if given.view == "both" else [given.view]:
        result = ours(view, given.seconds, changes, given.threads or THREADS[view], watch, given.profile)
        result["reference"] = round(known, 1) if known else None
        result["ratio"] = round(result["steps_per_s"] / known, 1) if known else None
        found[view] = result
        shares = ", ".join(f"{name} {share:.0%}" for name, share in result["shares"].items())
        beside = f"; SB3 on crafter {known:,.0f}, {result['ratio']:,.0f} times" if known else ""
        print(f"{view}: {result['steps_per_s']:,.0f} steps/s on {result['device']} ({shares}){beside}")
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
