"""Heist against records of the real game: every bit of every state, reward and end."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

from curricle.errors import UsageError
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.rng import draw_share, next_word, seed_stream
from curricle.worlds.heist.game.state import STREAM
from curricle.worlds.heist.trace import trace_player

SAMPLE = Path(__file__).parent / "traces.jsonl.xz"
DATA = [folder / "shared" / "data" / "heist" / "traces.jsonl.xz" for folder in ROOT.parents]
WHOLE = next((path for path in DATA if path.exists()), None)


def levels(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)


def check(level: dict[str, Any]) -> int:
    """Play a recorded level; returns its steps."""
    where = f"{level['mode']}, level {level['level_seed']}"
    player = trace_player(level["mode"])
    assert player.reset(level["level_seed"]) == level["states"][0], where
    for t, action in enumerate(level["actions"]):
        expected = (level["rewards"][t], level["dones"][t], level["states"][t + 1])
        assert player.step(action) == expected, f"{where}, step {t + 1}"
    return len(level["actions"])


def test_a_sample_of_recorded_levels() -> None:
    seen = [(level["mode"], check(level)) for level in levels(SAMPLE)]
    assert {mode for mode, _ in seen} == {"easy", "hard", "memory", "exploration"}
    assert sum(steps for _, steps in seen) == 549


@pytest.mark.skipif(WHOLE is None, reason="the recorded levels are not at hand (../shared/data/heist)")
def test_all_recorded_levels() -> None:
    assert WHOLE is not None
    steps = [check(level) for level in levels(WHOLE)]
    assert (len(steps), sum(steps)) == (181, 32_704)


def test_random_words_are_numpys() -> None:
    stream: Any = np.zeros(1, STREAM)[0]
    for seed in (0, 876640971, 2**40 + 3):
        seed_stream(stream, seed)
        expected = np.random.RandomState(seed % 2**32).randint(2**32, size=1300, dtype=np.uint32)
        assert [next_word(stream) for _ in range(1299)] == expected[:-1].tolist()
        assert draw_share(stream) == np.float32(expected[-1] / 2**32)


def test_players_refuse_what_procgen_has_not() -> None:
    with pytest.raises(UsageError, match=r"no mode 'memry' of Heist; did you mean 'memory'"):
        trace_player("memry")  # type: ignore[arg-type]
    player = trace_player("easy")
    with pytest.raises(UsageError, match="level_seed = -1"):
        player.reset(-1)
    player.reset(0)
    with pytest.raises(UsageError, match="action = 15"):
        player.step(r.ACTIONS)
