"""Achievement Distillation: its transport against slow references, its book of unlocks, that it learns and resumes."""

import gymnasium
import numpy as np
import pytest
import torch
from parts import VAULT, quiet
from ppo_worlds import Slots
from test_ppo import count, saved

from curricle.agents.distill import Distill, DistillOptions, Remembering, Window, _episodes
from curricle.agents.matching import match, transport
from curricle.agents.spaces import parts_of

SMALL = {"environments": 4, "steps": 16, "minibatches": 2, "hidden": 16, "every": 2, "passes": 2}


def slow(costs, blur, rounds=100):
    """Benamou et al. 2015, one pair of sets, plainly."""
    n, m = costs.shape
    plan = np.exp(-costs / blur)
    plan *= min(n, m) / plan.sum()
    a, b, c = np.ones((n, m)), np.ones((n, m)), np.ones((n, m))
    for _ in range(rounds):
        before = plan
        plan = plan * a
        rowed = np.diag(np.minimum(1 / plan.sum(1), 1)) @ plan
        a = a * before / rowed
        held = rowed * b
        columned = held @ np.diag(np.minimum(1 / held.sum(0), 1))
        b = b * rowed / columned
        held = columned * c
        plan = held * min(n, m) / held.sum()
        c = c * columned / plan
    return plan


def padded(sizes, rng):
    n, m = max(s[0] for s in sizes), max(s[1] for s in sizes)
    costs, rows, columns = (
        np.zeros((len(sizes), n, m)),
        np.zeros((len(sizes), n), bool),
        np.zeros((len(sizes), m), bool),
    )
    for i, (a, b) in enumerate(sizes):
        costs[i, :a, :b], rows[i, :a], columns[i, :b] = rng.random((a, b)) * 2, True, True
    return torch.from_numpy(costs), torch.from_numpy(rows), torch.from_numpy(columns)


@pytest.mark.parametrize("reference", ["plain", "POT"])
def test_transport_agrees_with_a_slow_reference(reference):
    sizes, rng = [(3, 5), (1, 1), (22, 22), (7, 2), (1, 9)], np.random.default_rng(0)
    costs, rows, columns = padded(sizes, rng)
    plans = transport(costs, rows, columns, 0.05).numpy()
    for i, (a, b) in enumerate(sizes):
        mine, cost = plans[i, :a, :b], costs[i, :a, :b].numpy()
        if reference == "POT":
            ot = pytest.importorskip("ot")
            theirs = ot.partial.entropic_partial_wasserstein(np.ones(a), np.ones(b), cost, reg=0.05, numItermax=100)
        else:
            theirs = slow(cost, 0.05)
        assert mine == pytest.approx(theirs, abs=1e-6)
        assert plans[i].sum() == pytest.approx(min(a, b))


def test_the_same_vectors_find_each_other():
    torch.manual_seed(0)
    mine = torch.nn.functional.normalize(torch.randn(5, 32), dim=-1)
    order = [3, 0, 4]
    assert match(mine, [mine[order], mine[:1]], 0.05, 0.5) == [[(0, 1), (3, 0), (4, 2)], [(0, 0)]]


def test_the_network_is_the_papers():
    pixels = parts_of(gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8), "test")
    shape = {"channels": (64, 128, 128), "blocks": 2, "width": 256, "hidden": 1024, "keep": 0.99}
    assert count(Remembering(pixels, gymnasium.spaces.Discrete(17), **shape)) == pytest.approx(9.23e6, rel=0.01)


def test_memory_is_the_direction_of_the_last_unlock():
    parts = parts_of(gymnasium.spaces.Discrete(3), "test")
    net = Remembering(parts, gymnasium.spaces.Discrete(2), channels=(), blocks=0, width=4, hidden=2, keep=0.99)
    flag = torch.tensor([[True], [False]])
    memory, before, after = torch.ones(2, 2), torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    assert net.recall(memory, before, after, flag, ~flag).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert net.recall(memory, before, after, ~flag, flag)[0].tolist() == [0, 0]


def test_episodes_are_found_with_their_unlocks():
    ended = np.zeros((9, 2), bool)
    ended[[1, 6], 1] = True
    shown = np.zeros((9, 2, 3), bool)
    shown[3:7, 1, 0] = shown[4:7, 1, 2] = shown[6, 1, 1] = True  # the last one comes with the end: nothing follows it
    (episode,) = _episodes(ended, shown, 1)
    assert list(_episodes(ended, shown, 0)) == []
    assert episode.rows.tolist() == [5, 7, 9, 11, 13]
    assert episode.goals == [1, 2]
    assert episode.following.tolist() == [0, 0, 1, 2, 2]
    returns = {"returns": torch.zeros(18), "seen.all": torch.arange(18)}
    window = Window([returns], ended, shown)
    assert window.seen(episode.rows)["all"].tolist() == [5, 7, 9, 11, 13]


def test_it_learns_and_distils():
    world = VAULT()
    agent = Distill(world, DistillOptions(steps=64, minibatches=4, hidden=64, passes=1))
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    figures = []
    agent.practise([design], 8_000, seed=0, report=lambda done, some: figures.append(some))
    distilled = [some for some in figures if "distill/match" in some]
    assert len(distilled) == round(len(figures) / 8)
    assert distilled[-1]["distill/predict"] < distilled[0]["distill/predict"] < np.log(2)
    assert agent.measure([design], [1], 20)[0].share("open_2") > 0.7


@pytest.mark.parametrize("world", [VAULT, Slots])
def test_a_loaded_one_goes_on_with_the_same_bytes(world, tmp_path):
    whole, part = (Distill(world(), DistillOptions(**SMALL)) for _ in range(2))
    for number, budget in enumerate((200, 130)):
        first, second = (a.practise([world().unaltered()], budget, seed=number, report=quiet) for a in (whole, part))
        assert first == second
        bytes_ = saved(part, tmp_path / str(number))
        part = Distill(world(), DistillOptions(**SMALL), seed=9)
        part.load(tmp_path / str(number))
    assert saved(whole, tmp_path / "whole") == bytes_
