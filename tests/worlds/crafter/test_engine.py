"""The batch: threads, settings a sub-environment, snapshots, symbols, and the faster mode."""

import gc
import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from numba.core.runtime import rtsys
from numba.core.runtime._nrt_python import memsys_disable_stats, memsys_enable_stats

from curricle.errors import CurricleError, UsageError
from curricle.worlds.crafter.engine.batch import Engine, View, engines
from curricle.worlds.crafter.engine.tasks import STEP
from curricle.worlds.crafter.engine.threads import AWAKE, FAILED, LINE, MAX_ENVIRONMENTS, ThreadPool, _publish
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.observe import symbols
from curricle.worlds.crafter.observe.sprites import SPRITES
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of
from curricle.worlds.crafter.world import Crafter
from curricle.worlds.crafter.worldgen.extras import has_water


def _engine(count: int, view: View = "symbols", threads: int = 1, exact: bool = True) -> Engine:
    engine = engines([count], view, threads=threads, exact=exact)[0]
    engine.states["upcoming"], engine.states["seed"] = knobs_of(CrafterSetting())[0], np.arange(count)
    engine.reset()
    return engine


def _run(engine: Engine, steps: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        engine.step(rng.integers(len(r.ACTIONS), size=len(engine.states)))
        engine.reset_ended()


def _soon(happens: Callable[[], bool]) -> bool:
    """Wait for what another thread does."""
    for _ in range(1000):
        if happens():
            return True
        time.sleep(0.01)
    return False


def test_results_do_not_depend_on_threads() -> None:
    one, three = _engine(7, "pixels"), _engine(7, "pixels", threads=3)
    _run(one, 250)
    _run(three, 250)
    assert one.states.tobytes() == three.states.tobytes()
    assert np.array_equal(one.observed, three.observed)
    three.close()


def test_threads_that_fell_asleep_are_woken() -> None:
    """More threads than cores, some of the pauses longer than they wait for."""
    one, many = _engine(9), _engine(9, threads=9)
    awake = many._pool._control[AWAKE + LINE : AWAKE + 9 * LINE : LINE]
    for seed in range(6):
        assert seed % 2 or _soon(lambda: not awake.any()), "they fall asleep"
        for engine in (one, many):
            _run(engine, 3, seed)
    assert one.states.tobytes() == many.states.tobytes() and np.array_equal(one.observed, many.observed)
    many.step(np.zeros(9, np.int64))
    assert awake.any()
    many.close()


@pytest.mark.parametrize("exact", [True, False])
def test_prefetched_episodes_are_those_that_begin_in_place(exact: bool) -> None:
    """Settings change at random, so that some prefetched episodes fit and some do not; pauses let threads prefetch."""
    one, three = _engine(6, exact=exact), _engine(6, threads=3, exact=exact)
    knobs = [knobs_of(CrafterSetting(episode_length=n, area=area))[0] for n, area in ((100, 64), (101, 32), (102, 48))]
    rng = np.random.default_rng(0)
    for _ in range(40):
        which, changed, over = rng.integers(len(knobs)), rng.random(6) < 0.2, rng.random(6) < 0.4
        for engine in (one, three):
            engine.states["upcoming"][changed] = knobs[which]
            engine.states["step"][over] = 10_000
            engine.step(np.zeros(6, np.int64), reset_ended=True)
        time.sleep(0.01)
    made = three._buffers.prefetched.records["episode"]
    assert _soon(lambda: bool((made > 3).all()))
    assert (one.states["episode"] > 3).all() and one.states.tobytes() == three.states.tobytes()
    assert np.array_equal(one.observed, three.observed) and len(one._buffers.prefetched.records) == 0
    three.close()


def test_engines_that_share_their_threads_play_what_others_do() -> None:
    """One is stepped at a time; in pauses threads prefetch episodes for both."""
    together, alone = engines([3, 5], threads=3), [_engine(3), _engine(5)]
    for engine, other in zip(together, alone, strict=True):
        engine.states[:] = other.states
    rng = np.random.default_rng(0)
    for _ in range(30):
        for pair in zip(together, alone, strict=True):
            actions, over = rng.integers(0, 17, len(pair[0].states)), rng.random(len(pair[0].states)) < 0.3
            for engine in pair:
                engine.states["step"][over] = 10_000
                engine.step(actions, reset_ended=True)
            assert pair[0].states.tobytes() == pair[1].states.tobytes()
            assert np.array_equal(pair[0].observed, pair[1].observed)
        time.sleep(0.01)
    made = together[0]._buffers.prefetched.records["episode"]
    assert _soon(lambda: bool((made > 3).all()))
    together[0].close()
    with pytest.raises(UsageError, match="were closed"):
        together[1].step(np.zeros(5, np.int64))


def test_a_prefetched_episode_is_used_only_if_it_is_the_next_one() -> None:
    engine = _engine(4, threads=2)
    prefetched, locks = engine._buffers.prefetched.records, engine._buffers.prefetched.locks
    assert _soon(lambda: (prefetched["episode"] == 2).all() and not locks.any())
    prefetched["thirst"] = 7.0  # which no new episode has
    engine.states["seed"][3] = 99
    locks[1] = 1  # as if a thread were at it
    engine.reset()
    assert engine.states["thirst"].tolist() == [7.0, 0.0, 7.0, 0.0]
    engine.close()


def test_more_environments_than_a_command_can_name_are_refused() -> None:
    with pytest.raises(UsageError, match="1,048,576 environments are too many"):
        ThreadPool(np.zeros(MAX_ENVIRONMENTS, np.uint8), [0, MAX_ENVIRONMENTS], 1, None, None)


def test_a_command_that_was_interrupted_is_finished_first() -> None:
    """As Ctrl-C may do to the caller between publishing a command and working on it."""
    one, three = _engine(40), _engine(40, threads=3)
    for engine in (one, three):
        engine._actions[:] = 1
    one._pool.run(STEP, 0)
    _publish(three._pool._control, STEP, 0, 40, 2)
    for engine in (one, three):
        engine.step(np.ones(40, np.int64))
    assert one.states.tobytes() == three.states.tobytes()
    three.close()


def test_a_thread_that_breaks_down_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of waiting for ever for what it had taken up."""
    said, others = list[str](), set(threading.enumerate())
    monkeypatch.setattr(threading, "excepthook", lambda failure: said.append(failure.exc_type.__name__))
    engine = engines([4, 4], threads=3)[0]
    engine.states["upcoming"] = knobs_of(CrafterSetting())[0]
    engine.reset()  # the other one's environments have no setting yet: their next episodes cannot be prefetched
    assert _soon(lambda: engine._pool._control[FAILED] > 0)
    with pytest.raises(CurricleError, match="broke down"):
        engine.step(np.zeros(4, np.int64))
    engine.close()
    for thread in set(threading.enumerate()) - others:
        thread.join(timeout=30)
    assert "ZeroDivisionError" in said


@pytest.mark.parametrize("view", ["symbols", "pixels"])
def test_a_step_asks_the_allocator_for_nothing(view: View) -> None:
    """Threads would wait for each other there. What a call needs for its arguments does not grow with environments."""
    asked = []
    memsys_enable_stats()
    for count in (2, 16):
        engine = _engine(count, view)
        engine.states["step"] = np.linspace(0, 299, count)  # day and night
        engine.step(np.zeros(count, np.int64))
        before = rtsys.get_allocation_stats().mi_alloc
        for _ in range(5):
            engine.step(np.full(count, r.ACTIONS.index("sleep")))
        asked.append(rtsys.get_allocation_stats().mi_alloc - before)
    memsys_disable_stats()
    assert asked[0] == asked[1] > 0


def test_threads_go_with_their_engine() -> None:
    others = set(threading.enumerate())
    engines = [_engine(4, threads=3) for _ in range(2)]
    threads = set(threading.enumerate()) - others
    assert len(threads) == 4
    engines[0].close()
    with pytest.raises(UsageError, match="were closed"):
        engines[0].reset()
    engines.clear()  # the second one is only forgotten
    gc.collect()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_bytes_are_the_whole_state() -> None:
    engine = _engine(4)
    _run(engine, 120)
    saved = engine.states.tobytes()
    _run(engine, 150, seed=1)
    after = engine.states.tobytes()
    engine.states[:] = np.frombuffer(saved, STATE)
    _run(engine, 150, seed=1)
    assert engine.states.tobytes() == after


def test_symbols_show_what_the_state_holds() -> None:
    engine = _engine(16)
    _run(engine, 220)
    for s, row in zip(engine.states, engine.observed, strict=True):
        assert (row <= symbols.HIGHEST).all()
        view = row[symbols.MATERIAL].reshape(r.VIEW_Y, r.VIEW_X)
        things = row[symbols.OBJECT].reshape(r.VIEW_Y, r.VIEW_X)
        assert view[3, 4] == s["material"][s["x"][0], s["y"][0]]
        assert SPRITES[things[3, 4]].startswith("player")
        assert row[symbols.INVENTORY].tolist() == s["inventory"].tolist()
        assert row[symbols.SLEEPING] == s["sleeping"]


def test_four_thousand_environments_fit_in_a_gigabyte() -> None:
    assert 4096 * STATE.itemsize < 1e9


def test_the_cheap_generator_plays_by_the_same_rules() -> None:
    """Distributions over 300 worlds and 400 steps agree; six standard errors of the difference allow for chance."""
    outcomes = []
    for exact in (True, False):
        engine = _engine(300, "state", exact=exact)
        maps = np.stack([(engine.states["material"] == m).sum((1, 2)) for m in range(1, 11)], 1)
        water = [bool(has_water(s)) for s in engine.states]
        kinds = np.stack([(engine.states["kind"] == k).sum(1) for k in (r.COW, r.ZOMBIE, r.SKELETON)], 1)
        rng, total = np.random.default_rng(0), np.zeros(300)
        skills = np.zeros((300, len(r.ACHIEVEMENTS)))
        for _ in range(400):
            engine.step(rng.integers(len(r.ACTIONS), size=300))
            total += engine.rewards
            skills = np.maximum(skills, engine.skills)
            engine.reset_ended()
        outcomes.append(np.column_stack([maps, water, kinds, total, skills, engine.states["episode"]]))
    first, second = outcomes
    error = np.sqrt((first.var(0) + second.var(0)) / 300) + 1e-3
    assert (np.abs(first.mean(0) - second.mean(0)) < 6 * error).all()


def test_a_world_has_no_more_threads_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    world, others = Crafter(Crafter.Options(threads=200)), set(threading.enumerate())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    vector = world.vector([world.original] * 8)
    assert len(set(threading.enumerate()) - others) == 2, "the caller is the third"
    vector.close()
