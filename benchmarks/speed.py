"""Speed: our engines beside their references, in one run on one core.

    python benchmarks/speed.py crafter --json
    python benchmarks/speed.py heist --json --reference-python PATH

A random player plays and dies, resets included. Crafter's reference runs twice in a process of its own: as its users
install it (numba hidden from it: its noise would use it) and with numba. Heist's is EnvPool, in the interpreter that is
named (`heist_measures.py`). Tables go to stderr; with --json the last line of stdout is one JSON object: `pixels`,
`symbols`, `state`, each with `steps_per_s`, `reference`, `ratio`, and for Crafter `ratio_numba`; and `reset` with `us`
and for Crafter `ratio`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

VIEWS = ("pixels", "symbols", "state")
REFERENCE = """
import sys, time, json
if {hide}: sys.modules["numba"] = None
import numpy as np, crafter
env, rng = crafter.Env(seed={seed}), np.random.RandomState({seed})
env.reset(); env.step(0)  # warm-up: with numba this compiles
steps = resets = 0
spent_steps = spent_resets = 0.0
while spent_steps + spent_resets < {seconds}:
    began = time.perf_counter(); env.reset(); spent_resets += time.perf_counter() - began; resets += 1
    done, began = False, time.perf_counter()
    while not done:
        done = env.step(rng.randint(17))[2]; steps += 1
    spent_steps += time.perf_counter() - began
print(json.dumps(dict(all=steps / (spent_steps + spent_resets), play=steps / spent_steps, reset=spent_resets / resets)))
"""
CRAFTAX = """
import time, json, jax, jax.numpy as jnp
from craftax.craftax_env import make_craftax_env_from_name
env = make_craftax_env_from_name("Craftax-Classic-{kind}-v1", auto_reset=False)
params, n, key = env.default_params, 256, jax.random.PRNGKey(0)
keys = jax.random.split(key, n)
obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
def body(carry, key):
    state = carry
    act = jax.random.randint(key, (n,), 0, 17)
    obs, state, *_ = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, n), state, act, params)
    return state, obs.sum()
run = jax.jit(lambda s, k: jax.lax.scan(body, s, jax.random.split(k, {steps})))
jax.block_until_ready(run(state, key)); began = time.perf_counter(); jax.block_until_ready(run(state, key))
print(json.dumps(n * {steps} / (time.perf_counter() - began)))
"""


def note(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def reference(hide: bool, seconds: float, seed: int) -> dict[str, float]:
    """Measure the `crafter` package; episodes differ in length, so every round plays others."""
    code = REFERENCE.format(hide=hide, seconds=seconds, seed=seed)
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(json.loads(lines[-1]))


def craftax(python: str) -> None:
    """Measure Craftax-Classic between resets, or say that it is not there."""
    for kind, steps in (("Symbolic", 200), ("Pixels", 40)):
        code = CRAFTAX.format(kind=kind, steps=steps)
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            note(f"Craftax-Classic {kind}: skipped ({last})")
        else:
            rate = float(done.stdout.split()[-1])
            note(f"Craftax-Classic {kind}: {rate:,.0f} steps/s between resets")


def engine(view: str, exact: bool, threads: int = 1, count: int = 64) -> Any:
    """An engine of stock environments, ready and compiled."""
    from curricle.worlds.crafter.engine.batch import engines
    from curricle.worlds.crafter.setting import CrafterSetting, knobs_of

    made = engines([count], view, exact=exact, threads=threads)[0]  # type: ignore[arg-type]
    made.states["upcoming"] = knobs_of(CrafterSetting())[0]
    made.states["seed"] = np.arange(count)
    made.reset()
    made.step(np.zeros(count, np.int64))
    return made


def ours(made: Any, seconds: float) -> dict[str, float]:
    """Steps a second with resets and between them, and microseconds a reset."""
    rng = np.random.default_rng(0)
    count = len(made.states)
    play = renew = 0.0
    calls = resets = 0
    while play + renew < seconds:
        actions = rng.integers(17, size=count)
        began = time.perf_counter()
        made.step(actions)
        middle = time.perf_counter()
        made.reset_ended()
        play = play + middle - began
        renew = renew + time.perf_counter() - middle
        calls = calls + 1
        resets = resets + int((made.ends != 0).sum())
    steps = calls * count
    return {"all": steps / (play + renew), "play": steps / play, "reset": 1e6 * renew / max(resets, 1)}


def together(made: Any, seconds: float) -> float:
    """Steps a second with steps and resets in one call, as environments are used."""
    rng = np.random.default_rng(0)
    count = len(made.states)
    calls = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        made.step(rng.integers(17, size=count), reset_ended=True)
        calls += 1
    return calls * count / (time.perf_counter() - began)


def profile() -> None:
    """Print microseconds a step by part, at noon and at night: differences between engines that do more or less."""
    noon = 60
    night = 210
    rules = {step: _played("state", False, step) for step in (noon, night)}
    parts = {
        "rules by day": rules[noon],
        "rules at night": rules[night],
        "frame by day": _played("pixels", True, noon) - rules[noon],
        "frame at night": _played("pixels", True, night) - rules[night],
        "random numbers skipped at night": _played("state", True, night) - rules[night],
        "symbols": _played("symbols", True, noon) - rules[noon],
    }
    note("where the time goes (us an environment):")
    for name, us in parts.items():
        note(f"  {name:32} {us:8.2f}")


def _played(view: str, exact: bool, step: int) -> float:
    """Best microseconds an environment of 30 steps that all begin at the same time of day."""
    made = engine(view, exact)
    best = float("inf")
    for _ in range(30):
        made.states["step"] = step
        began = time.perf_counter()
        made.step(np.zeros(len(made.states), np.int64))
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / len(made.states)


def rounds(seconds: float) -> list[dict[str, dict[str, float]]]:
    """Measure reference and engines in turn, three times, so that a busy machine slows all alike."""
    made = {(view, exact): engine(view, exact) for view in VIEWS for exact in (True, False)}
    found = []
    for number in range(3):
        note(f"round {number + 1} of 3")
        one = {"plain": reference(True, 2 * seconds, number), "numba": reference(False, seconds, number)}
        for (view, exact), each in made.items():
            one[view if exact else f"{view}, exact=False"] = ours(each, seconds / 4)
        found.append(one)
    return found


def crafter(seconds: float, craftax_python: str) -> dict[str, Any]:
    """Measure everything about Crafter."""
    from curricle.worlds.crafter.game.state import STATE

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    found = rounds(seconds)

    def middle(name: str, key: str) -> float:
        return statistics.median(one[name][key] for one in found)

    def ratio(name: str, other: str, key: str = "all") -> float:
        return statistics.median(one[name][key] / one[other][key] for one in found)

    note("medians of three rounds      with resets   between resets")
    for name in found[0]:
        note(f"  {name:22} {middle(name, 'all'):13,.0f} {middle(name, 'play'):16,.0f} steps/s")
    result: dict[str, Any] = {}
    for view in VIEWS:
        result[view] = {"steps_per_s": middle(view, "all"), "reference": middle("plain", "all")}
        result[view] |= {"ratio": ratio(view, "plain"), "ratio_numba": ratio(view, "numba")}
        note(f"{view}: {result[view]['ratio']:,.0f}x plain crafter, {result[view]['ratio_numba']:,.0f}x with numba")
    reset = statistics.median(one["plain"]["reset"] * 1e6 / one["state"]["reset"] for one in found)
    result["reset"] = {"us": middle("state", "reset"), "ratio": reset}
    note(f"reset: {result['reset']['us']:.0f} us, {reset:,.0f}x; the reference takes {middle('plain', 'reset'):.2f} s")
    note(f"memory: {STATE.itemsize:,} bytes an environment, {4096 * STATE.itemsize / 1e6:.0f} MB for 4,096")
    profile()
    craftax(craftax_python)
    os.sched_setaffinity(0, cores)
    for threads in range(1, min(len(cores), 8) + 1):
        note(f"threads {threads}: {together(engine('pixels', True, threads, 1024), seconds / 2):,.0f} pixel steps/s")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["crafter", "heist"])
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")
    parser.add_argument("--seconds", type=float, default=6.0, help="time a measurement takes")
    parser.add_argument("--craftax-python", default=sys.executable, help="interpreter that has craftax")
    parser.add_argument("--reference-python", default=sys.executable, help="interpreter that has envpool")
    options = parser.parse_args()
    if options.world == "heist":
        import heist_measures

        measured = heist_measures.speed(options.seconds, options.reference_python)
    else:
        measured = crafter(options.seconds, options.craftax_python)
    if options.json:
        print(json.dumps(measured))
