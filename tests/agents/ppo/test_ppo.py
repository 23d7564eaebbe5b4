"""PPO: its arithmetic against values worked out by hand, its networks, and that it learns what chance does not."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from helpers import paths
from helpers.ppo_worlds import Armed, Mixed, Odd, Slots, World64, count, saved
from helpers.sweep import VAULT, quiet
from pydantic import ValidationError

from curricle import config
from curricle.agents.episodes import Tally
from curricle.agents.networks.embedding_bag import bag
from curricle.agents.networks.encoders import Network, Symbols
from curricle.agents.networks.heads import Categorical, Gaussian, ValueNormaliser
from curricle.agents.networks.spaces import input_specs
from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.agents.ppo.lane import Lane, Turns
from curricle.agents.ppo.rollout import Rollout, gae
from curricle.agents.ppo.update import clipped_loss
from curricle.agents.random import RandomAgent
from curricle.errors import AgentError, RunDamaged
from curricle.tracking import checkpoint
from curricle.worlds.crafter import Crafter
from curricle.worlds.crafter.env import CrafterVector

SMALL: dict[str, Any] = {"environments": 4, "steps": 32, "minibatches": 2}


def network(space, actions=None, **changes):
    given: dict[str, Any] = {
        "channels": (64, 128, 128),
        "blocks": 2,
        "width": 256,
        "hidden": 1024,
        "keep": 0.99,
    } | changes
    return Network(input_specs(space, "test"), actions or gymnasium.spaces.Discrete(17), **given)


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


def test_the_value_normaliser_forgets_as_it_should():
    normaliser = ValueNormaliser(0.99)
    for _ in range(3):
        normaliser.watch(torch.tensor([1.0, 3.0]))
    mean, deviation = normaliser.scale()
    assert (mean.item(), deviation.item()) == pytest.approx((2, 1), rel=1e-4)
    assert normaliser.outward(normaliser.inward(torch.tensor([7.0]))).item() == pytest.approx(7)
    normaliser.watch(torch.full((2,), 102.0))
    assert normaliser.scale()[0].item() == pytest.approx(2 + 100 * 0.01 / (1 - 0.99**4), rel=1e-3)


def test_the_network_for_pixels_is_the_papers():
    pixels = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert count(network(pixels)) == pytest.approx(3.95e6, rel=0.01)
    small = network(pixels, channels=(4, 8), blocks=1, hidden=32)
    choice, values = small.decide(
        small.encode({"all": torch.zeros(2, 64, 64, 3, dtype=torch.uint8)}), torch.zeros(2, 0)
    )
    assert choice.shape == (2, 17) and values.shape == (2,)
    assert choice.exp().sum(1).tolist() == pytest.approx([1, 1])
    assert choice.exp().max().item() == pytest.approx(1 / 17, abs=0.01)  # begins near chance


def test_bags_are_sums_of_rows_and_so_are_their_gradients():
    torch.manual_seed(0)
    encoder = Symbols([3, 200, 5, 1], 8)
    seen = torch.randint(0, 2, (6, 4), dtype=torch.uint8)
    codes, tables = seen[:, [0, 2, 3]], torch.randn(12, 8, requires_grad=True)
    by_hand: Any = sum(tables[encoder.first[c] + codes[:, c].long()] * (codes[:, [c]] > 0) for c in range(3))
    out = bag(codes, encoder.first, tables)
    assert torch.allclose(out, by_hand, atol=1e-6)
    weight = torch.randn(6, 8)
    mine, theirs = (torch.autograd.grad((x * weight).sum(), tables)[0] for x in (out, by_hand))
    assert torch.allclose(mine, theirs, atol=1e-6)
    assert encoder(seen).shape == (6, 8)


@pytest.mark.parametrize("discrete", [True, False])
def test_heads_agree_with_torch(discrete):
    torch.manual_seed(0)
    x, noise = torch.randn(20_000, 5), torch.rand(20_000, 1) if discrete else torch.randn(20_000, 2)
    if discrete:
        head: Any = Categorical(5, gymnasium.spaces.Discrete(3))
        torch.nn.init.normal_(head.linear.weight)
        choice = head(x)
        theirs: Any
        other: Any
        theirs, other = (torch.distributions.Categorical(logits=c) for c in (choice, choice.flip(0)))
    else:
        head = Gaussian(5, gymnasium.spaces.Box(-2, 2, (2,), np.float32))
        choice = head(x)
        theirs, other = (
            torch.distributions.Independent(torch.distributions.Normal(c[:, :2], c[:, 2:].exp()), 1)
            for c in (choice, choice.flip(0))
        )
    actions = head.sample(choice, noise)
    assert torch.allclose(head.log_prob(choice, actions), theirs.log_prob(actions), atol=1e-4)
    assert torch.allclose(head.entropy(choice), theirs.entropy(), atol=1e-4)
    kl = torch.distributions.kl_divergence(theirs, other)
    assert torch.allclose(head.divergence(choice, choice.flip(0)), kl, atol=1e-3)
    if discrete:
        shares = torch.bincount(actions, minlength=3) / len(actions)
        assert torch.allclose(shares, choice.exp().mean(0), atol=0.02)
    else:
        assert np.abs(head.outward(actions.detach().numpy())).max() == 2  # cut off at the bounds


@pytest.mark.slow
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
        [world.unaltered()], 15_000, seed=1, report=lambda done, figures: returns.append(figures["practice/return"])
    )
    assert returns[-1] > -0.25 > -0.8 > returns[0]


@pytest.mark.slow
def test_a_time_limit_does_not_end_the_future():
    """Reward 1 a step for ever, cut every 4 steps: the value must be 1 / (1 - gamma), not that of 4 steps."""
    world = Slots()
    agent = PPO(world, PPOOptions(**SMALL, gamma=0.9, learning_rate=3e-3, hidden=32, value_norm_decay=0.9))
    agent.practise([world.unaltered()], 12_000, seed=0, report=quiet)
    value = agent.actor.worth({"all": torch.zeros(1, 1, dtype=torch.int64)}, torch.zeros(1, 0))
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


def test_every_seed_is_tested_with_its_own_luck():
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


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_loss_that_is_no_number_stops_the_run_before_the_checkpoint(lanes, tmp_path, monkeypatch):
    world = {"id": paths.VAULT}
    schedule = {"cycles": 0, "final": 600, "save_every": 200, "test_seeds": 1}
    plain = {"world": world, "agent": {"id": "ppo", **SMALL, "workers": lanes}, "schedule": schedule}
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
    before = agent.row.flat.detach().clone()
    (outcome,) = agent.practise([Slots().unaltered()], 0, seed=0, report=quiet)
    assert (outcome.attempts, outcome.spent, agent.rollouts) == (0, 0, 0) and torch.equal(before, agent.row.flat)


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


def test_books_over_a_stretch_equal_books_step_by_step():
    world, rng = VAULT(), np.random.default_rng(0)
    designs = [world.unaltered(), world.unaltered().model_copy(update={"aim": "open_1"})]
    at_once, by_step = (Tally(world, designs, [0, 1, 0]) for _ in range(2))
    for _ in range(3):
        rewards, ended = rng.integers(0, 5, (7, 3)).astype(float), rng.random((7, 3)) < 0.3
        skills = rng.random((7, 3, 3)) < 0.5
        at_once.stretch(rewards, ended, skills)
        for t in range(7):
            by_step.add(rewards[t], ended[t], skills[t])
    assert at_once.outcomes() == by_step.outcomes()
    assert at_once.running.tolist() == by_step.running.tolist()


def weights(agent):
    return agent.row.flat.detach().clone()


@pytest.mark.slow
def test_observations_read_where_a_world_keeps_them_are_those_it_hands_out(monkeypatch):
    """Two practices, so that episodes also go on from a snapshot."""
    world, found = Crafter(), []
    for lends in (True, False):
        if not lends:
            monkeypatch.setattr(CrafterVector, "lent", lambda self: None)
        agent = PPO(world, PPOOptions(environments=4, steps=16, minibatches=2, workers=1, device="cpu"))
        for seed in range(2):
            agent.practise([world.unaltered()], 256, seed=seed, report=quiet)
        found.append((agent.row.flat.detach().clone(), agent.scene.arrays[f"seen.{next(iter(agent.parts))}"]))
    assert torch.equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])


def test_lanes_by_turns_play_what_each_plays_alone():
    world = Crafter()
    agent, spans = PPO(world, PPOOptions(environments=5, steps=8, workers=2, device="cpu")), [(0, 2), (2, 5)]
    noise = [np.random.default_rng(n).random((8, last - first, 1), np.float32) for n, (first, last) in enumerate(spans)]
    played = []
    for together in (True, False):
        rollout = Rollout(agent.network, agent.device, 8, 5, len(world.skills))
        vectors = world.by_turns([[world.original] * (last - first) for first, last in spans])
        sights = [agent.actor.sight({}, rollout, slice(*span), captures=False) for span in spans]
        lanes = [Lane(vector, sight) for vector, sight in zip(vectors, sights, strict=True)]
        for lane in lanes:
            lane.begin([lane.here.start + i for i in range(lane.vector.num_envs)])
        for group in [[0, 1]] if together else [[1], [0]]:
            chosen = [lanes[i] for i in group]
            turns = Turns(chosen)
            turns.begin([noise[i] for i in group])
            turns.play(8)
        played.append([*(tensor.clone() for tensor in rollout.rows().values()), rollout.rewards, rollout.shown])
        for lane in lanes:
            lane.close()
    for both, alone in zip(*played, strict=True):
        assert np.array_equal(both, alone)
    assert any(len(np.unique(both[2:])) > 1 for both in played[0])


@pytest.mark.slow
def test_a_lane_reads_what_the_world_drew():
    world = Crafter(Crafter.Options(observation="pixels"))
    agent, vector = (
        PPO(world, PPOOptions(environments=2, steps=4, workers=1, device="cpu")),
        world.vector([world.original] * 2),
    )
    lane = Lane(vector, agent.actor.sight({}, agent._room(2), slice(0, 2), captures=False))
    lane.begin([1, 2])
    (shown,) = lane.stage.values()
    assert shown.data_ptr() == vector.engine.observed.ctypes.data and shown.data_ptr() % 4096 == 0
    turns = Turns([lane])
    turns.begin([np.zeros((4, 2, 1), np.float32)])
    turns.play(4)
    assert np.array_equal(shown.numpy(), vector.engine.observed) and shown.any()
    lane.close()
