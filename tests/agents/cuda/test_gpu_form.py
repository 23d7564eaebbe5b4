"""What a GPU runs, on a CPU: one worker for all actors, whole minibatches, and graphs that warm up and are undone.

Only the order of sums tells the first two from the form for a CPU, and graphs change nothing at all: so what a step
changes is all in the list of what is restored after the warm-up.
"""

from collections.abc import Mapping

import pytest
import torch
from helpers.ppo_worlds import Mixed, Slots
from helpers.sweep import VAULT

from curricle.agents.cuda import backend
from curricle.agents.cuda.backend import CudaBackend
from curricle.agents.device import Backend
from curricle.agents.distill.agent import Distill
from curricle.agents.ppo import agent as agent_module
from curricle.agents.ppo.agent import PPO

SMALL = {"environments": 4, "steps": 16, "minibatches": 2, "hidden": 32, "channels": (4, 8), "blocks": 1}
KERNELS = ("sample_actions", "ppo_loss", "fill_advantages")


class GraphOnCPU:
    """Does what `CudaGraph` does with memory, but calls the function where that replays its kernels."""

    def __init__(self, function, undo=(), pool=None):
        self.function = function
        self.undo = undo
        self.inputs = None

    def __call__(self, *inputs):
        if self.inputs is None:
            self.inputs = [tensor.clone() for tensor in inputs]
            saved = [tensor.clone() for tensor in self.undo]
            for _ in range(3):
                self.function(*self.inputs)
            for tensor, before in zip(self.undo, saved, strict=True):
                tensor.copy_(before)
        for recorded, given in zip(self.inputs, inputs, strict=True):
            recorded.copy_(given)
        return self.function(*self.inputs)


class GPUFormOnCPU(CudaBackend):
    """The backend of a GPU, but for what only a GPU has: pinned memory, events and kernels."""

    def __init__(self, graphs):
        super().__init__(torch.device("cpu"), bf16=False, graphs=graphs)

    def _brief_pool(self):
        return "any"

    session = Backend.session
    host_memory = Backend.host_memory
    lend = Backend.lend
    upload = Backend.upload
    download = Backend.download
    event = Backend.event
    wait = Backend.wait

    def fastest(self, function):
        return function if function.__name__ in KERNELS else super().fastest(function)


def learn(kind, world, monkeypatch, gpu_form=None):
    if gpu_form is not None:
        monkeypatch.setattr(agent_module, "choose_backend", lambda *_, **__: gpu_form)
    agent = kind(world, kind.Options(**SMALL, workers=2, device="cpu"))
    monkeypatch.undo()
    metrics: list[Mapping[str, float]] = []
    for seed, designs in enumerate(([world.unaltered()], [world.unaltered()] * 6, [world.unaltered()])):
        agent.practise(designs, 256, seed=seed, report=lambda done, some: metrics.append(some))
    agent.measure([world.unaltered()], [1], 1)
    return agent.parameters.flat.detach().clone(), agent.network.scale.moments.clone(), metrics


@pytest.fixture
def graphs_on_cpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "CudaGraph", GraphOnCPU)
        yield patch


@pytest.mark.parametrize("kind", [PPO, Distill])
def test_one_worker_for_all_actors_learns_what_several_do(kind, monkeypatch):
    plain, _, _ = learn(kind, Slots(), monkeypatch)
    by_turns, _, _ = learn(kind, Slots(), monkeypatch, GPUFormOnCPU(graphs=False))
    assert torch.allclose(plain, by_turns, atol=1e-3)


@pytest.mark.parametrize("kind", [PPO, Distill])
@pytest.mark.parametrize("world", [VAULT, Mixed])
def test_graphs_change_nothing(kind, world, monkeypatch, graphs_on_cpu):
    plain = learn(kind, world(), monkeypatch, GPUFormOnCPU(graphs=False))
    recorded = GPUFormOnCPU(graphs=True)
    captured = learn(kind, world(), monkeypatch, recorded)
    assert {key[0] for key in recorded.recordings} >= {"policy step", "update"}
    assert torch.equal(plain[0], captured[0]) and torch.equal(plain[1], captured[1])
    assert plain[2] == captured[2]


def test_a_state_that_is_not_undone_would_be_noticed(monkeypatch, graphs_on_cpu):
    plain = learn(PPO, Slots(), monkeypatch, GPUFormOnCPU(graphs=False))
    graphs_on_cpu.setattr(PPO, "learnt_tensors", lambda self: [])
    captured = learn(PPO, Slots(), monkeypatch, GPUFormOnCPU(graphs=True))
    assert not torch.equal(plain[0], captured[0])
