"""PPO: its arithmetic against values worked out by hand, its networks, and that it learns what chance does not."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import paths
from helpers.ppo_worlds import Armed, Mixed, Odd, Slots, World64, saved
from helpers.sweep import VAULT, quiet
from pydantic import ValidationError

from curricle import config
from curricle.agents.ppo.actors import estimate_values
from curricle.agents.ppo.agent import PPO, PPOOptions, clipped_loss
from curricle.agents.ppo.rollout import gae
from curricle.agents.random import RandomAgent
from curricle.errors import AgentError, RunDamaged
from curricle.tracking import checkpoint

SMALL: dict[str, Any] = {"environments": 4, "steps": 32, "minibatches": 2}


def test_advantages_by_hand():
    rewards = np.array([[1.0], [0.0], [2.0]], np.float32)
    values = np.array([[0.5], [1.0], [0.25], [4.0]], np.float32)
    never, second = np.zeros((3, 1), bool), np.array([[False], [True], [False]])
    # deltas with gamma 1/2: 1 + .5 - .5 = 1; 0 + .125 - 1 = -.875; 2 + 2 - .25 = 3.75; each later one fades by 1/4
    assert gae(rewards, values, never, 0.5, 0.5)[:, 0].tolist() == [
        1 + (-0.875 + 3.75 / 4) / 4,
        -0.875 + 3.75 / 4,
        3.75,
    ]
    # the episode ends after the second step: nothing of the third reaches back
    assert gae(rewards, values, second, 0.5, 0.5)[:, 0].tolist() == [1 - 1 / 4, -1, 3.75]


def test_clipping_by_hand():
    moved = torch.log(torch.tensor([1.5, 0.5, 1.5, 1.1]))
    loss, clipped = clipped_loss(moved, torch.tensor([1.0, -1.0, -1.0, 2.0]), 0.2)
    assert loss.item() == pytest.approx(-(1.2 - 0.8 - 1.5 + 2.2) / 4)
    assert clipped.item() == 0.75


def test_a_gain_beyond_the_clip_gives_no_gradient():
    moved = torch.log(torch.tensor([1.5, 0.5, 1.5])).requires_grad_()
    loss, _ = clipped_loss(moved, torch.tensor([1.0, -1.0, -1.0]), 0.2)
    loss.backward()
    assert moved.grad.tolist() == pytest.approx([0, 0, 0.5])


def test_it_learns_the_vault_where_chance_does_not():
    world = VAULT()
    learnt, chance = PPO(world, PPOOptions(steps=64, minibatches=4)), RandomAgent(world)
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    learnt.practise([design], 12_000, seed=0, report=quiet)
    (good,), (bad,) = (agent.measure([design], [1], 40) for agent in (learnt, chance))
    assert good.share("open_3") > 0.8
    assert bad.share("open_3") < 0.2


@pytest.mark.slow
def test_it_learns_continuous_actions():
    world = Armed()
    options = PPOOptions(
        environments=16, steps=32, epochs=6, minibatches=4, learning_rate=3e-3, hidden=64, entropy_coef=0.0
    )
    returns = []
    PPO(world, options).practise(
        [world.unaltered()], 15_000, seed=1, report=lambda done, metrics: returns.append(metrics["practice/return"])
    )
    assert returns[-1] > -0.25 > -0.8 > returns[0]


@pytest.mark.slow
def test_a_time_limit_does_not_end_the_future():
    """Reward 1 a step for ever, cut every 4 steps: the value must be 1 / (1 - gamma), not that of 4 steps."""
    world = Slots()
    agent = PPO(world, PPOOptions(**SMALL, gamma=0.9, learning_rate=3e-3, hidden=32, value_norm_decay=0.9))
    agent.practise([world.unaltered()], 12_000, seed=0, report=quiet)
    observations = {"all": torch.zeros(1, 1, dtype=torch.int64)}
    value = estimate_values(agent.network, observations, torch.zeros(1, 0), bf16=False)
    assert value.item() == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize("world", [Mixed, World64, Armed, Slots])
def test_all_kinds_of_spaces(world, tmp_path):
    options = PPOOptions(environments=3, steps=6, minibatches=2, channels=(4, 4), blocks=1, hidden=16)
    agents = [PPO(world(), options, seed=1) for _ in range(2)]
    for agent in agents:
        agent.practise([world().unaltered()], 36, seed=2, report=quiet)
    first, second = (saved(agent, tmp_path / str(i)) for i, agent in enumerate(agents))
    assert first == second
    assert agents[0].measure([world().unaltered()] * 2, [3, 4], 2)[0].attempts == 2


def test_every_seed_is_tested_with_its_own_noise():
    world = VAULT()
    agent = PPO(world, PPOOptions(**SMALL))
    alone = agent.measure([world.unaltered()], [6], 3)[0]
    assert agent.measure([world.unaltered()] * 3, [5, 6, 7], 3)[1] == alone


def test_spaces_it_cannot_take_are_named():
    with pytest.raises(AgentError, match=r"ppo-v1 in odd-v1 cannot take observations of the space Text"):
        PPO(Odd())


def test_a_missing_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(AgentError, match=r"device = 'cuda', but torch .* sees no GPU; use 'auto' or 'cpu'"):
        PPO(VAULT(), PPOOptions(device="cuda"))
    assert PPO(VAULT()).device.type == "cpu"


def test_memory_that_runs_out_is_named(monkeypatch):
    agent = PPO(VAULT(), PPOOptions(**SMALL, workers=1))
    monkeypatch.setattr(
        agent, "loss", lambda batch: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory"))
    )
    with pytest.raises(AgentError, match="ran out of memory; choose fewer environments"):
        agent.practise([VAULT().unaltered()], 200, seed=0, report=quiet)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_no_number_stops_the_run_before_the_checkpoint(workers, tmp_path, monkeypatch):
    world = {"id": paths.VAULT}
    schedule = {"cycles": 0, "final": 600, "save_every": 200, "test_seeds": 1}
    plain = {"world": world, "agent": {"id": "ppo", **SMALL, "workers": workers}, "schedule": schedule}
    real = PPO.practise

    def spoilt(self, designs, budget, *, seed, report):
        if self.rollouts:
            self.network.value.weight.data.fill_(float("nan"))
        return real(self, designs, budget, seed=seed, report=report)

    monkeypatch.setattr(PPO, "practise", spoilt)
    with pytest.raises(
        AgentError, match=r"the loss is no longer a number after 2 rollouts .* learning_rate below 0.0003"
    ):
        config.start(config.resolve(plain), tmp_path / "run")
    monkeypatch.undo()
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("rate = 0.0003", "rate = 0.0001"))
    config.resume(tmp_path / "run")
    assert config.trained(tmp_path / "run")[1].adams["adam"].param_groups[0]["lr"] == 1e-4, "as the error advised"  # type: ignore[attr-defined]


@pytest.mark.parametrize("channels", [(), (0,), (8, -3)])
def test_networks_without_channels_are_refused(channels):
    with pytest.raises(ValidationError, match="channels"):
        PPOOptions(channels=channels)


def test_a_practice_of_nothing_changes_nothing():
    agent = PPO(Slots(), PPOOptions(**SMALL))
    before = agent.parameters.flat.detach().clone()
    (outcome,) = agent.practise([Slots().unaltered()], 0, seed=0, report=quiet)
    assert (outcome.attempts, outcome.spent, agent.rollouts) == (0, 0, 0) and torch.equal(before, agent.parameters.flat)


@pytest.mark.parametrize("words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"])
def test_memory_that_runs_out_while_the_network_is_made_is_named(words, monkeypatch):
    def full(*_, **__):
        raise RuntimeError(words)

    monkeypatch.setattr(PPO.Net, "__init__", full)
    with pytest.raises(AgentError, match="ppo-v1 ran out of memory; choose fewer environments"):
        PPO(Slots())


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    saved(PPO(VAULT(), PPOOptions(**SMALL)), tmp_path / "one")
    with pytest.raises(RunDamaged, match="does not fit ppo-v1 in vault-v1"):
        PPO(VAULT(), PPOOptions(**SMALL, hidden=8)).load(tmp_path / "one")


@pytest.mark.parametrize("world", [VAULT, World64])
def test_pictures_that_lie_as_before_are_refused(world, tmp_path):
    saved(PPO(world(), PPOOptions(**SMALL)), tmp_path / "one")
    state = tmp_path / "one" / checkpoint.STATE
    state.write_text(state.read_text().replace('"pictures"', '"picture"'))
    again = PPO(world(), PPOOptions(**SMALL))
    if world is VAULT:
        return again.load(tmp_path / "one")
    with pytest.raises(RunDamaged, match="laid pictures out by pixel; it has to be trained anew"):
        again.load(tmp_path / "one")
