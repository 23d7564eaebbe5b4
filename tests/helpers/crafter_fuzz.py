"""Random settings and random actions; run as a script it does so with numba's bounds checks on.

python tests/helpers/crafter_fuzz.py STEPS [SEED]      (NUMBA_BOUNDSCHECK=1, and a NUMBA_CACHE_DIR of its own)
"""

import sys
from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.batch import engines
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of


def fuzz(steps: int, view: Any, seed: int, count: int = 32) -> None:
    """Play, change settings at resets, throw players about, and check what must always hold."""
    rng, engine = np.random.default_rng(seed), engines([count], view, exact=bool(seed % 2))[0]
    engine.states["seed"] = rng.integers(2**31 - 1, size=count)
    for i in range(count):
        engine.states["upcoming"][i] = knobs_of(CrafterSetting.sample(rng))[0]
    engine.reset()
    for step in range(steps // count):
        engine.step(rng.integers(len(r.ACTIONS), size=count))
        for i in np.flatnonzero(engine.ends).tolist():
            engine.states["upcoming"][i] = knobs_of(CrafterSetting.sample(rng))[0]
        engine.reset_ended()
        if step % 50 == 0:
            check(engine.states)
            engine.states["inventory"][rng.integers(count)] = rng.integers(1, 10, size=len(r.ITEMS))
    assert np.isfinite(engine.rewards).all()


def check(states: np.ndarray) -> None:
    """Amounts, positions and books are in order."""
    assert ((states["inventory"] >= 0) & (states["inventory"] <= r.MOST)).all()
    for name in ("hunger", "thirst", "fatigue", "recover", "daylight"):
        assert np.isfinite(states[name]).all()
    for s in states:
        count, area = s["count"], s["area"]
        x, y, kind = s["x"][:count], s["y"][:count], s["kind"][:count]
        assert (x < area).all() and (y < area).all() and kind[0] == r.PLAYER and (kind[1:] > r.PLAYER).all()
        assert np.array_equal(s["who"][x, y], np.arange(1, count + 1)) and (s["who"] > 0).sum() == count
        chunk = x // r.CHUNK * 6 + y // r.CHUNK
        books = np.zeros((36, 7), int)
        np.add.at(books, (chunk, kind), 1)
        assert np.array_equal(books, s["creatures"])
        where = np.arange(64) // r.CHUNK
        for material, counted in ((r.GRASS, s["grass"]), (r.PATH, s["paths"])):
            cells = np.zeros(36, int)
            np.add.at(cells, where[:, None] * 6 + where[None, :], (s["material"] == material).astype(int))
            assert np.array_equal(cells, counted)


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    views = ("symbols", "pixels") if len(sys.argv) < 3 else (("state", "symbols", "pixels")[seed % 3],)
    for view in views:
        fuzz(int(sys.argv[1]), view, seed)
    print("no fault")
