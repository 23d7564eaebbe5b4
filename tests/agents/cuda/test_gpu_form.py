"""What a GPU runs, on a CPU: one worker for all actors, whole minibatches, and graphs that warm up and are undone.

Only the order of sums tells the first two from the form for a CPU, and graphs change nothing at all: so what a step
changes is all in the list of what is restored after the warm-up.
"""

from collections.abc import Mapping

import pytest
import torch
from helpers.ppo_worlds import Mixed, Slots
from helpers.sweep import VAULT

from curricle.agents.cuda import graphs
from curricle.agents.distill.agent import Distill
from curricle.agents.ppo.agent import PPO

SMALL = {"environments": 4, "steps": 16, "minibatches": 2, "hidden": 32, "channels": (4, 8), "blocks": 1}


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


def learn(kind, world, *, on_gpu=False, uses_graphs=False):
    agent = kind(world, kind.Options(**SMALL, workers=2, device="cpu"))
    agent.on_gpu = on_gpu
    agent.uses_graphs = uses_graphs
    if uses_graphs and kind is Distill:
        agent._graph_pool = "any"
    metrics: list[Mapping[str, float]] = []
    for seed, designs in enumerate(([world.unaltered()], [world.unaltered()] * 6, [world.unaltered()])):
        agent.practise(designs, 256, seed=seed, report=lambda done, some: metrics.append(some))
    agent.measure([world.unaltered()], [1], 1)
    return agent.parameters.flat.detach().clone(), agent.network.scale.moments.clone(), metrics


@pytest.mark.parametrize("kind", [PPO, Distill])
def test_one_worker_for_all_actors_learns_what_several_do(kind):
    plain, _, _ = learn(kind, Slots())
    by_turns, _, _ = learn(kind, Slots(), on_gpu=True)
    assert torch.allclose(plain, by_turns, atol=1e-3)


@pytest.mark.parametrize("kind", [PPO, Distill])
@pytest.mark.parametrize("world", [VAULT, Mixed])
def test_graphs_change_nothing(kind, world, monkeypatch):
    plain = learn(kind, world(), on_gpu=True)
    monkeypatch.setattr(graphs, "CudaGraph", GraphOnCPU)
    captured = learn(kind, world(), on_gpu=True, uses_graphs=True)
    assert torch.equal(plain[0], captured[0]) and torch.equal(plain[1], captured[1])
    assert plain[2] == captured[2]


def test_a_state_that_is_not_undone_would_be_noticed(monkeypatch):
    monkeypatch.setattr(graphs, "CudaGraph", GraphOnCPU)
    plain = learn(PPO, Slots(), on_gpu=True)
    monkeypatch.setattr(PPO, "learnt_tensors", lambda self: [])
    captured = learn(PPO, Slots(), on_gpu=True, uses_graphs=True)
    assert not torch.equal(plain[0], captured[0])
