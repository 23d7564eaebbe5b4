"""A resumed PPO ends with the bytes of one that was never interrupted, whoever worked its lanes."""

import gc
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from helpers import paths, toys
from helpers.killing import contents, work
from helpers.ppo_worlds import Slots, saved
from helpers.sweep import VAULT, quiet

from curricle import config
from curricle.agents.parallel import workers as team
from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.errors import AgentError, explained
from curricle.records import Design

SMALL: dict[str, Any] = {"environments": 4, "steps": 16, "minibatches": 2, "hidden": 32}


def designs(world):
    return [world.unaltered(), Design(setting=world.unaltered().setting, aim=world.skills[0].name)]


@pytest.mark.parametrize("world", [VAULT, Slots])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_saving_and_loading_between_two_calls_changes_nothing(world, lanes, tmp_path):
    """Slots takes snapshots, so its episodes go on over the break; the vault's start anew."""
    options, budgets = PPOOptions(**SMALL, workers=lanes), (130, 200, 64)
    whole, part = PPO(world(), options), PPO(world(), options)
    for number, budget in enumerate(budgets):
        outcomes = [a.practise(designs(world()), budget, seed=number, report=quiet) for a in (whole, part)]
        assert outcomes[0] == outcomes[1]
        bytes_ = saved(part, tmp_path / str(number))
        part = PPO(world(), options, seed=99)
        part.load(tmp_path / str(number))
    assert saved(whole, tmp_path / "whole") == bytes_


def test_episodes_go_on_from_one_call_to_the_next():
    """Cut after every 4 steps: 6 calls of 2 steps an environment hold as many ends as one of 12."""
    agent, other = (PPO(Slots(), PPOOptions(**SMALL)) for _ in range(2))
    parts = [agent.practise(designs(Slots()), 8, seed=i, report=quiet) for i in range(6)]
    whole = other.practise(designs(Slots()), 48, seed=0, report=quiet)
    assert sum(o.attempts for part in parts for o in part) == sum(o.attempts for o in whole)
    other.practise([Slots().unaltered()], 48, seed=0, report=quiet)
    assert len(other.scene.settings) == 4


@pytest.mark.parametrize("world", [VAULT, Slots])
def test_threads_and_processes_give_the_same_bytes(world, tmp_path, monkeypatch):
    agents = [PPO(world(), PPOOptions(**SMALL, workers=2)) for _ in range(2)]
    agents[0].practise(designs(world()), 200, seed=0, report=quiet)
    monkeypatch.setattr(team.sys, "platform", "elsewhere")
    agents[1].practise(designs(world()), 200, seed=0, report=quiet)
    assert saved(agents[0], tmp_path / "a") == saved(agents[1], tmp_path / "b")


def test_lanes_move_results_by_rounding_only():
    weights = []
    for lanes in (1, 2):
        torch.manual_seed(0)
        agent = PPO(Slots(), PPOOptions(**SMALL, workers=lanes, greedy=True))
        agent.network.policy.draw_noise = lambda rng, shape: np.full((*shape, 1), 0.5, np.float32)  # type: ignore[method-assign]
        agent.practise([Slots().unaltered()], 64, seed=0, report=quiet)
        weights.append(agent.row.flat.detach().clone())
    assert torch.allclose(weights[0], weights[1], atol=1e-4)


@pytest.mark.parametrize("processes", [True, False])
def test_a_lane_that_fails_is_heard(processes):
    def faulty(lane, meeting):
        meeting.meet(lane, lambda brought: None)
        if lane == 1:
            raise AgentError("lane 1 has had enough")
        meeting.meet(lane, lambda brought: None)

    with pytest.raises(AgentError, match="lane 1 has had enough"):
        team.run_workers(3, faulty, processes=processes)


def test_a_worlds_own_errors_are_told_from_a_lost_lane():
    """A simulator that loses its server is no lane that was killed; memory that runs out in a lane is said as such."""

    def faulty(error, lane, meeting):
        meeting.meet(lane, lambda brought: None)
        if lane == 1:
            raise error
        meeting.meet(lane, lambda brought: None)

    with pytest.raises(AgentError, match=r"a lane of the agent failed:(.|\n)*the server hung up"):
        team.run_workers(2, partial(faulty, ConnectionResetError("the server hung up")), processes=True)
    for error in (MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        said = pytest.raises(AgentError, match="it ran out of memory; think small")
        with said, explained("it", "think small", AgentError):
            team.run_workers(2, partial(faulty, error), processes=True)


def test_files_of_a_world_stay_open_in_every_lane(tmp_path):
    (tmp_path / "level.txt").write_text("7")
    heard = []

    with (tmp_path / "level.txt").open() as file, FileLock(tmp_path / "lock"):

        def read(lane, meeting):
            with open(f"/proc/self/fd/{file.fileno()}") as mine:
                held = ["lock:" in path.read_text() for path in Path("/proc/self/fdinfo").iterdir() if path.exists()]
                meeting.meet((mine.read(), any(held)), heard.extend)

        team.run_workers(2, read, processes=True)
    assert heard == [("7", True), ("7", False)], "the caller holds the lock, its lanes do not"


def test_a_killed_lane_is_named():
    def victim(lane, meeting):
        if lane == 1:
            os._exit(9)
        meeting.meet(lane, lambda brought: None)

    with pytest.raises(AgentError, match="a lane of the agent was killed"):
        team.run_workers(2, victim, processes=True)


RUN = {
    "world": {"id": paths.VAULT},
    "agent": {"id": "ppo", **SMALL},
    "schedule": {"cycles": 2, "designs": 2, "test_seeds": 2, "per_cycle": 400, "final": 400, "save_every": 100},
    "log": {"tensorboard": False},
}


@pytest.mark.slow
def test_a_killed_run_resumes_at_once_and_ends_with_the_same_bytes(tmp_path):
    """Lanes hold no lock and no file of the run: the next process can go on while the last one's lanes still die."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["helpers.toys", "curricle.cli", "curricle.agents.ppo.agent"])
    rng, phase, kills = np.random.default_rng(0), toys.board(context), 0
    config.start(config.resolve(RUN), tmp_path / "whole")
    while kills < 12:
        child = context.Process(target=work, args=(tmp_path / "broken", RUN, phase))
        child.start()
        child.join(float(rng.uniform(0.05, 0.6)))
        child.kill()
        child.join()
        if child.exitcode == 0:
            break
        kills += 1
    work(tmp_path / "broken", RUN, phase)
    assert kills > 2
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_what_the_caller_left_to_be_collected_is_not_collected_in_a_lane(tmp_path):
    """Lanes would close its files, wait for its threads and delete its folders."""

    class Left:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with (tmp_path / "collected").open("a") as file:
                file.write(f"{os.getpid()}\n")

    gc.disable()
    try:
        Left()
        team.run_workers(3, lambda number, meeting: number and gc.collect(), processes=True)  # type: ignore[arg-type]
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "collected").read_text() == f"{os.getpid()}\n"


def test_no_lane_outlives_its_caller():
    def caller(pids):
        def lane(number, meeting):
            pids[number] = os.getpid()
            while True:
                meeting.meet(None, lambda brought: time.sleep(0.01))

        team.run_workers(2, lane, processes=True)

    context = multiprocessing.get_context("fork")
    pids = context.Array("l", 2, lock=False)
    process = context.Process(target=caller, args=(pids,))
    process.start()
    while not all(pids):
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    for _ in range(200):
        stat = Path(f"/proc/{pids[1]}/stat")
        if not stat.exists() or "Z" in stat.read_text().split()[2]:
            return
        time.sleep(0.02)
    raise AssertionError("the lane lives on")
