"""A run killed with SIGKILL at any moment, in every phase, resumes and ends with the bytes of the uninterrupted run."""

import multiprocessing
import random
import time

import pytest
from helpers import paths, toys
from helpers.killing import WARM, contents, limited, work

from curricle import config
from curricle.run import CHECKPOINTS, CONFIG, read_exchanges

PHASES = ("designs", "practice, designed", "practice, original", "tested", "learns")
SCHEDULE = {"cycles": 3, "designs": 3, "test_seeds": 4}
RUNS = {
    "vault": {
        "world": {"id": paths.VAULT},
        "schedule": {**SCHEDULE, "per_cycle": 800, "final": 800, "save_every": 200},
    },
    "ladder": {
        "world": {"id": paths.LADDER},
        "designer": {"id": paths.CHATTY},
        "schedule": {**SCHEDULE, "per_cycle": 400, "final": 200, "save_every": 100, "test_episodes": 10},
    },
    "policy": {
        "world": {"id": paths.LADDER},
        "designer": {"id": "policy", "search_rounds": 2, "imagined_samples": 8},
        "schedule": {**SCHEDULE, "per_cycle": 400, "final": 200, "save_every": 100, "test_episodes": 10},
        "log": {"tensorboard": False},
    },
    "adversary": {
        "world": {"id": paths.LADDER},
        "designer": {"id": "adversarial"},
        "schedule": {**SCHEDULE, "per_cycle": 400, "final": 200, "save_every": 100, "test_episodes": 10},
        "log": {"tensorboard": False},
    },
}


@pytest.fixture(scope="module")
def server():
    """Children forked from a warm process: a kill costs milliseconds, so there can be many."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_at_many_moments_it_ends_with_the_same_bytes(name, server, tmp_path):
    rng, whole, broken = random.Random(name), tmp_path / "whole", tmp_path / "broken"
    phase = toys.board(server)
    config.start(config.resolve(RUNS[name]), whole)
    hit, kills = dict.fromkeys(PHASES, 0), 0
    for attempt in range(400):
        child = server.Process(target=work, args=(broken, RUNS[name], phase))
        phase.value = b""
        child.start()
        if attempt % 4 == 3:  # any moment at all, the making of the folder included
            time.sleep(rng.uniform(0, 0.08))
        else:  # a moment inside the phase that was hit least
            wanted = min(hit, key=lambda p: (hit[p], rng.random()))
            while child.is_alive() and wanted not in phase.value.decode():
                time.sleep(0.0002)
            time.sleep(rng.choice([0.0, 0.001, 0.002, 0.005, 0.01]))
        if kills >= 40 and min(hit.values()) >= 4:
            break
        child.kill()
        child.join()
        if child.exitcode == 0:
            continue
        kills += 1
        for part in PHASES:
            hit[part] += part in phase.value.decode()
        if attempt % 20 == 19:  # after this many kills of one stretch, start a new one
            for path in sorted(broken.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
    child.join()
    work(broken, RUNS[name], phase)
    assert kills >= 40 and min(hit.values()) >= 4, (kills, hit)
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize("limit", [0, 100, 1000, 2000, 3000])
def test_a_full_disk_is_named_and_leaves_the_run_resumable(limit, server, tmp_path):
    pytest.importorskip("resource")
    whole, broken, phase, said = tmp_path / "whole", tmp_path / "broken", toys.board(server), toys.board(server)
    config.start(config.resolve(RUNS["vault"]), whole)
    child = server.Process(target=limited, args=(broken, RUNS["vault"], phase, limit, said))
    child.start()
    child.join()
    advice = b"curricle resume" if (broken / CONFIG).exists() else b"nothing has begun"
    assert b"cannot write" in said.value and advice in said.value and str(broken).encode() in said.value
    work(broken, RUNS["vault"], phase)
    assert contents(broken) == contents(whole)


def test_only_the_current_checkpoints_are_kept(tmp_path):
    config.start(config.resolve(RUNS["vault"]), tmp_path / "run")
    assert sorted(p.name.split("-")[1] for p in (tmp_path / "run" / CHECKPOINTS).iterdir()) == ["agent", "designer"]


def test_no_exchange_is_paid_for_twice(server, tmp_path):
    """Killed right after the first answer came in: the second sitting uses it instead of asking again."""
    phase, folder = toys.board(server), tmp_path / "run"
    child = server.Process(target=work, args=(folder, RUNS["ladder"], phase))
    child.start()
    while not (folder / "exchanges.jsonl").exists():
        assert child.is_alive()
        time.sleep(0.0005)
    child.kill()
    child.join()
    work(folder, RUNS["ladder"], phase)
    steps = [step for step, _ in read_exchanges(folder)]
    assert [step.cycle for step in steps] == [1, 1, 1, 2, 2, 2, 3, 3, 3], "once for each design, each with its step"
