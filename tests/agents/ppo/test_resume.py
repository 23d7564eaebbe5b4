"""A resumed PPO ends with the bytes of one that was never interrupted, whoever its workers are."""

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from helpers import paths, toys
from helpers.killing import contents, work
from helpers.ppo_worlds import Slots, saved
from helpers.sweep import VAULT, quiet

from curricle import config
from curricle.agents.parallel import workers
from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.records import Design

SMALL: dict[str, Any] = {"environments": 4, "steps": 16, "minibatches": 2, "hidden": 32}


def designs(world):
    return [world.unaltered(), Design(setting=world.unaltered().setting, aim=world.skills[0].name)]


@pytest.mark.parametrize("world", [VAULT, Slots])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_saving_and_loading_between_two_calls_changes_nothing(world, count, tmp_path):
    """Slots takes snapshots, so its episodes go on over the break; the vault's start anew."""
    options, budgets = PPOOptions(**SMALL, workers=count), (130, 200, 64)
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
    assert len(other.environment_state.settings) == 4


@pytest.mark.parametrize("world", [VAULT, Slots])
def test_threads_and_processes_give_the_same_bytes(world, tmp_path, monkeypatch):
    agents = [PPO(world(), PPOOptions(**SMALL, workers=2)) for _ in range(2)]
    agents[0].practise(designs(world()), 200, seed=0, report=quiet)
    monkeypatch.setattr(workers.sys, "platform", "elsewhere")
    agents[1].practise(designs(world()), 200, seed=0, report=quiet)
    assert saved(agents[0], tmp_path / "a") == saved(agents[1], tmp_path / "b")


def test_workers_move_results_by_rounding_only():
    weights = []
    for count in (1, 2):
        torch.manual_seed(0)
        agent = PPO(Slots(), PPOOptions(**SMALL, workers=count, greedy=True))
        agent.network.policy.draw_noise = lambda rng, shape: np.full((*shape, 1), 0.5, np.float32)  # type: ignore[method-assign]
        agent.practise([Slots().unaltered()], 64, seed=0, report=quiet)
        weights.append(agent.parameters.flat.detach().clone())
    assert torch.allclose(weights[0], weights[1], atol=1e-4)


RUN = {
    "world": {"id": paths.VAULT},
    "agent": {"id": "ppo", **SMALL},
    "schedule": {"cycles": 2, "designs": 2, "test_seeds": 2, "per_cycle": 400, "final": 400, "save_every": 100},
    "log": {"tensorboard": False},
}


@pytest.mark.slow
def test_a_killed_run_resumes_at_once_and_ends_with_the_same_bytes(tmp_path):
    """Workers hold no lock and no file of the run: the next process can go on while the last one's still end."""
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
