"""Runs in child processes that are killed, and what a run folder holds but for timings."""

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers import toys

from curricle import config
from curricle.errors import RunUnwritable
from curricle.run import CONFIG, ENVIRONMENT, LOCK, LOST, TENSORBOARD, TIMINGS

NOT_RESULTS = {ENVIRONMENT, TIMINGS, TENSORBOARD, LOCK, LOST}


WARM = [
    "helpers.toys",
    "curricle.cli",
    "tensorboardX",
    "curricle.agents.tabular",
    "curricle.designers.llm.designer",
    "openai",
]


def work(folder: Path, plain: dict[str, Any], phase) -> None:
    """What the victim does: begin the run, or go on with it."""
    watcher = toys.Pointer(phase)
    if (folder / CONFIG).exists():
        config.resume(folder, watcher)
    else:
        config.start(config.resolve(plain), folder, watcher)


def limited(folder: Path, plain: dict[str, Any], phase, limit: int, said) -> None:
    """The victim's disk takes no file longer than `limit` bytes: what a full disk does to a write."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        work(folder, plain, phase)
    except RunUnwritable as error:
        said.value = str(error).encode()[:400]


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    named = {path.relative_to(folder): path for path in files}
    return {str(name): path.read_bytes() for name, path in named.items() if name.parts[0] not in NOT_RESULTS}


def command(words: list[str], said: Path) -> None:
    """The command line in this process, with signals and exit status as in one of its own; errors go to a file."""
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["curricle", *words]
    from curricle.__main__ import main

    main()


def command_of_a_group(words: list[str], said: Path) -> None:
    """The same, as the leader of a group of processes: its workers can be ended together with it."""
    os.setpgid(0, 0)
    command(words, said)


def stopped(context, words: list[str], said: Path, number: int, rng: random.Random) -> tuple[int, str]:
    """Run a command and send it a signal, or all its processes, now and then twice; its status and what it said."""
    said.write_text("")
    child = context.Process(target=command_of_a_group, args=(words, said))
    child.start()
    if rng.random() < 0.7:  # once it works, else at any moment from its start on
        while child.is_alive() and not said.read_text():
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.15))
    else:
        time.sleep(rng.uniform(0.0, 0.5))
    send = os.killpg if rng.random() < 0.3 else os.kill
    for again in range(2 if number != signal.SIGKILL and rng.random() < 0.3 else 1):
        time.sleep(rng.uniform(0.0, 0.01) if again else 0.0)
        with suppress(ProcessLookupError):  # it is gone, or leads no group yet
            if child.is_alive() and child.pid:
                send(child.pid, number)
    child.join(120)
    return child.exitcode, said.read_text()
