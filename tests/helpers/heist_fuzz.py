"""Random settings and random actions; run as a script it does so with numba's bounds checks on.

python tests/helpers/heist_fuzz.py STEPS      (NUMBA_BOUNDSCHECK=1, and a NUMBA_CACHE_DIR of its own)
"""

import sys
from typing import Any

import numpy as np

from curricle.worlds.heist.engine.batch import Engine
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD
from curricle.worlds.heist.setting import HeistSetting, knobs_of
from curricle.worlds.heist.solver import next_action


def fuzz(steps: int, view: Any, seed: int, count: int = 32) -> None:
    """Play, change settings at resets, and check what must always hold; a few environments are solved."""
    rng = np.random.default_rng(seed)
    engine = Engine(count, view)
    engine.states["seed"] = rng.integers(2**32, size=count)
    for i in range(count):
        engine.states["upcoming"][i] = knobs_of(HeistSetting.sample(rng))[0]
    engine.reset()
    for step in range(steps // count):
        actions = rng.integers(r.ACTIONS, size=count)
        actions[0] = next_action(engine.states[0])
        engine.step(actions)
        for ended in np.flatnonzero(engine.ends):
            engine.states["upcoming"][ended] = knobs_of(HeistSetting.sample(rng))[0]
        engine.reset_ended()
        if step % 50 == 0:
            check(engine.states)
    assert set(np.unique(engine.rewards)) <= {0.0, r.REWARD}


def check(states: np.ndarray) -> None:
    """Players stand in free cells, and the map agrees with the list of things."""
    for name in ("x", "y", "vx", "vy"):
        assert np.isfinite(states[name]).all()
    for s in states:
        assert s["cells"][int(s["y"]) + PAD, int(s["x"]) + PAD] != r.WALL
        assert s["items"] <= r.MOST_ITEMS and s["step"] < s["knobs"]["length"]
        first = {r.DOOR: r.FIRST_DOOR, r.KEY: r.FIRST_KEY, r.GEM: r.GEM_CELL}
        for i in range(s["items"]):
            inside = s["cells"][int(s["item_y"][i]) + PAD, int(s["item_x"][i]) + PAD]
            assert inside == (r.FREE if s["gone"][i] else first[int(s["kind"][i])] + s["number"][i])
        assert (s["cells"] > r.FREE).sum() == s["items"] - s["gone"][: s["items"]].sum()


if __name__ == "__main__":
    for view in ("symbols", "pixels"):  # they run all that "state" runs
        fuzz(int(sys.argv[1]), view, seed=1)
    print("no fault")
