"""PPO on a GPU: graphs, kernels and bfloat16 change how fast it learns, not what. Skipped where there is no GPU."""

from typing import Any

import pytest
import torch
from helpers.ppo_worlds import Armed, Mixed, Slots, World64
from helpers.sweep import VAULT, quiet

from curricle.agents.distill.agent import Distill, DistillOptions
from curricle.agents.networks.encoders import Pixels
from curricle.agents.ppo.agent import PPO, PPOOptions

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SMALL: dict[str, Any] = {
    "environments": 4,
    "steps": 16,
    "minibatches": 2,
    "hidden": 32,
    "channels": (4, 8),
    "blocks": 1,
}


@pytest.mark.parametrize("world", [VAULT, Slots, Armed, Mixed, World64])
@pytest.mark.parametrize("how", [{"graphs": True}, {"bf16": True}, {"graphs": True, "bf16": True}])
def test_fast_paths_agree_with_the_plain_one(world, how):
    plain = {"graphs": False, "bf16": False}
    metrics = []
    for changes in (plain, plain | how):
        agent = PPO(world(), PPOOptions(**SMALL, **changes))
        agent.practise([world().unaltered()], 64, seed=0, report=lambda done, some: metrics.append(some))
    first, second = metrics
    assert second["policy/entropy"] == pytest.approx(first["policy/entropy"], rel=0.02)
    assert second["loss/value"] == pytest.approx(first["loss/value"], rel=0.1, abs=0.02)


@pytest.mark.parametrize("kind", [PPO, Distill])
@pytest.mark.parametrize("world", [VAULT, Slots, World64])
def test_graphs_agree_with_plain_passes_and_with_a_cpu(world, kind):
    """Over four rollouts; rounding is all that tells them apart."""
    runs = []
    for how in ({"device": "cpu"}, {"graphs": False}, {"graphs": True}):
        agent, metrics = kind(world(), kind.Options(**SMALL, bf16=False, **how)), []
        agent.practise([world().unaltered()], 256, seed=0, report=lambda done, some, to=metrics: to.append(some))
        runs.append([some["policy/entropy"] for some in metrics])
    cpu, plain, graphs = runs
    assert len(cpu) == 4 and graphs == pytest.approx(plain, rel=0.02) and plain == pytest.approx(cpu, rel=0.05)


def test_weights_in_bfloat16_follow_the_weights(tmp_path):
    """Through updates and through a checkpoint."""
    world, options = World64(), PPOOptions(**SMALL)
    agent, other = PPO(world, options), PPO(world, options, seed=1)
    agent.practise([world.unaltered()], 192, seed=0, report=quiet)
    agent.save(tmp_path)
    other.load(tmp_path)
    for parameters in (agent.parameters, other.parameters):
        assert torch.equal(parameters.bf16_copy, parameters.flat.data.bfloat16())
    before = agent.parameters.flat.data.clone()
    for one in (agent, other):
        one.practise([world.unaltered()], 192, seed=1, report=quiet)
    assert not torch.equal(agent.parameters.flat.data, before)
    assert torch.allclose(agent.parameters.flat.data, other.parameters.flat.data, atol=1e-4)


@pytest.mark.parametrize("actors", [2, 3])
def test_actors_by_turns_play_what_actors_side_by_side_do(actors):
    """On a CPU each actor has a worker of its own; rounding is all that tells them apart."""
    runs = []
    for device in ("cpu", "cuda"):
        agent, metrics = PPO(Slots(), PPOOptions(**SMALL, workers=actors, bf16=False, device=device)), []
        agent.practise([Slots().unaltered()], 256, seed=0, report=lambda done, some, to=metrics: to.append(some))
        runs.append([some["policy/entropy"] for some in metrics])
    assert len(runs[0]) == 4 and runs[0] == pytest.approx(runs[1], rel=0.05)


@pytest.mark.parametrize("shape, channels", [((64, 64, 3), (64, 128, 128)), ((13, 10, 1), (4, 8)), ((9, 9, 2), (16,))])
@pytest.mark.parametrize("blocks", [0, 2])
def test_fused_layers_compute_what_the_plain_ones_do(shape, channels, blocks):
    torch.manual_seed(0)
    net = Pixels(shape, channels, blocks, 32).cuda().to(memory_format=torch.channels_last)
    seen = torch.randint(0, 256, (6, *shape), dtype=torch.uint8, device="cuda")
    found = []
    with torch.backends.cudnn.flags(allow_tf32=False):
        for fused in (False, True):
            net.fused = fused
            net.zero_grad()
            out = net(seen)
            (out * torch.arange(out.numel(), device="cuda").view_as(out).sin()).sum().backward()
            found.append([out.detach(), *(p.grad.clone() for p in net.parameters())])
    for plain, quick in zip(*found, strict=True):
        distance, length = torch.linalg.vector_norm(plain - quick), torch.linalg.vector_norm(plain)
        assert distance <= 1e-2 * length + 1e-4  # rounding moves a maximum to its neighbour here and there


def test_fused_layers_round_no_worse_than_the_plain_ones_in_bfloat16():
    """Both against single precision: the fused layers' error of each gradient is of the size of the plain ones'."""
    torch.manual_seed(0)
    net = Pixels((64, 64, 3), (64, 128, 128), 2, 256).cuda().to(memory_format=torch.channels_last)
    seen = torch.randint(0, 256, (32, 64, 64, 3), dtype=torch.uint8, device="cuda")
    found = []
    for fused, bf16 in ((False, False), (False, True), (True, True)):
        net.fused = fused
        net.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16), torch.backends.cudnn.flags(allow_tf32=False):
            out = net(seen)
        (out.float() * torch.arange(out.numel(), device="cuda").view_as(out).sin()).sum().backward()
        found.append([out.detach().float(), *(p.grad.clone() for p in net.parameters())])
    names = ["output", *(name for name, _ in net.named_parameters())]
    errors = {}
    for name, exact, plain, quick in zip(names, *found, strict=True):
        length = torch.linalg.vector_norm(exact)
        errors[name] = [float(torch.linalg.vector_norm(some - exact) / length) for some in (plain, quick)]
    worse = {name: pair for name, pair in errors.items() if pair[1] > 2 * pair[0] + 1e-2}
    assert not worse, worse
    assert sum(pair[1] for pair in errors.values()) < 1.2 * sum(pair[0] for pair in errors.values()), errors


def test_it_learns_the_vault_there_too():
    world = VAULT()
    agent = PPO(world, PPOOptions(steps=64, minibatches=4))
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    agent.practise([design], 12_000, seed=0, report=quiet)
    assert agent.device.type == "cuda"
    assert agent.measure([design], [1], 40)[0].share("open_3") > 0.8


def test_checkpoints_move_between_devices(tmp_path):
    world = Slots()
    there, here = PPO(world, PPOOptions(**SMALL)), PPO(world, PPOOptions(**SMALL, device="cpu"))
    there.practise([world.unaltered()], 200, seed=0, report=quiet)
    there.save(tmp_path)
    here.load(tmp_path)
    assert torch.equal(here.parameters.flat, there.parameters.flat.cpu())
    here.practise([world.unaltered()], 100, seed=1, report=quiet)


def test_distillation_as_graphs_agrees_with_the_plain_one():
    """One rollout, so that both play the same episodes."""
    world, found = VAULT(), []
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    small: dict[str, Any] = {
        "environments": 8,
        "steps": 256,
        "hidden": 32,
        "distill_every": 1,
        "distill_epochs": 2,
        "bf16": False,
    }
    for graphs in (False, True):
        agent = Distill(world, DistillOptions(**small, graphs=graphs))
        agent.practise([design], 2048, seed=0, report=lambda done, some: found.append(some))
        found[-1]["scale"] = agent.network.scale.moments.tolist()
    first, second = found
    assert {key[0] for key in agent._graphs} >= {"old_policy", "unlocks", "match", "predict"}
    for name in ("distill/match", "distill/predict"):
        assert second[name] == pytest.approx(first[name], rel=0.01)
    assert second["scale"] == pytest.approx(first["scale"], rel=1e-3)


def test_distillation_learns_there():
    world, metrics = VAULT(), []
    agent = Distill(world, DistillOptions(steps=64, minibatches=4, hidden=64, distill_epochs=1))
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    agent.practise([design], 12_000, seed=0, report=lambda done, some: metrics.append(some))
    distilled = [some["distill/predict"] for some in metrics if "distill/predict" in some]
    assert distilled[-1] < distilled[0]
    assert agent.measure([design], [1], 20)[0].share("open_2") > 0.7
