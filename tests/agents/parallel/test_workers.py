"""Worker groups: values are gathered in order, errors reach the caller, and workers hold nothing of the caller back."""

import gc
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from curricle.agents.parallel import workers
from curricle.errors import AgentError, explained


@pytest.mark.parametrize("processes", [True, False])
def test_a_worker_that_fails_is_heard(processes):
    def faulty(group):
        group.gather(group.index)
        group.wait_for_leader()
        if group.index == 1:
            raise AgentError("worker 1 has had enough")
        group.gather(group.index)
        group.wait_for_leader()

    with pytest.raises(AgentError, match="worker 1 has had enough"):
        workers.run_workers(3, faulty, processes=processes)


def test_a_worlds_own_errors_are_told_from_a_lost_worker():
    """A simulator that loses its server is no worker that was killed; memory that runs out in a worker is named."""

    def faulty(error, group):
        group.gather(group.index)
        group.wait_for_leader()
        if group.index == 1:
            raise error
        group.gather(group.index)

    with pytest.raises(AgentError, match=r"a worker of the agent failed:(.|\n)*the server hung up"):
        workers.run_workers(2, partial(faulty, ConnectionResetError("the server hung up")), processes=True)
    for error in (MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        said = pytest.raises(AgentError, match="it ran out of memory; think small")
        with said, explained("it", "think small", AgentError):
            workers.run_workers(2, partial(faulty, error), processes=True)


def test_files_of_a_world_stay_open_in_every_worker(tmp_path):
    (tmp_path / "level.txt").write_text("7")
    heard = []

    with (tmp_path / "level.txt").open() as file, FileLock(tmp_path / "lock"):

        def read(group):
            with open(f"/proc/self/fd/{file.fileno()}") as mine:
                held = ["lock:" in path.read_text() for path in Path("/proc/self/fdinfo").iterdir() if path.exists()]
                heard.extend(group.gather((mine.read(), any(held))) or [])

        workers.run_workers(2, read, processes=True)
    assert heard == [("7", True), ("7", False)], "the caller holds the lock, its workers do not"


@pytest.mark.parametrize("processes", [True, False])
def test_the_leader_gathers_in_the_order_of_the_workers(processes):
    """The others wait for what the leader does in between."""
    shared = workers.shared_memory(torch.zeros(1))
    seen = []

    def work(group):
        values = group.gather(10 * group.index)
        if values is not None:
            seen.append(values)
            time.sleep(0.05)
            shared.fill_(7)
        group.wait_for_leader()
        later = group.gather(shared.item())
        if later is not None:
            seen.append(later)

    workers.run_workers(3, work, processes=processes)
    assert seen == [[0, 10, 20], [7, 7, 7]]


@pytest.mark.parametrize("processes", [True, False])
def test_a_worker_that_fails_while_the_leader_is_busy_is_heard(processes):
    """The leader hears of it although its next step is to let the others go on."""

    def faulty(group):
        if group.index == 1:
            raise AgentError("worker 1 has had enough")
        if group.is_leader:
            time.sleep(0.3)
        for _ in range(2):
            group.wait_for_leader()

    with pytest.raises(AgentError, match="worker 1 has had enough"):
        workers.run_workers(2, faulty, processes=processes)


@pytest.mark.parametrize("processes", [True, False])
def test_workers_end_when_the_leader_fails(processes):
    def faulty(group):
        group.gather(None)
        if group.is_leader:
            raise AgentError("the leader has had enough")
        group.wait_for_leader()

    with pytest.raises(AgentError, match="the leader has had enough"):
        workers.run_workers(3, faulty, processes=processes)


def test_a_killed_worker_is_named():
    def victim(group):
        if group.index == 1:
            os._exit(9)
        group.gather(group.index)

    with pytest.raises(AgentError, match="a worker of the agent was killed"):
        workers.run_workers(2, victim, processes=True)


def test_what_the_caller_left_to_be_collected_is_not_collected_in_a_worker(tmp_path):
    """Workers would close its files, wait for its threads and delete its folders."""

    class Left:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with (tmp_path / "collected").open("a") as file:
                file.write(f"{os.getpid()}\n")

    def collect(group):
        if not group.is_leader:
            gc.collect()

    gc.disable()
    try:
        Left()
        workers.run_workers(3, collect, processes=True)
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "collected").read_text() == f"{os.getpid()}\n"


def test_no_worker_outlives_its_caller():
    def caller(pids):
        def work(group):
            pids[group.index] = os.getpid()
            while True:
                group.gather(None)
                time.sleep(0.01)
                group.wait_for_leader()

        workers.run_workers(2, work, processes=True)

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
    raise AssertionError("the worker lives on")
