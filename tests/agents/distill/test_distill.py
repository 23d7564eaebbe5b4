"""Achievement Distillation: transport against slow references, episodes and unlocks, that it learns and resumes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from helpers.ppo_worlds import Slots, count, saved
from helpers.sweep import VAULT, quiet

from curricle.agents.cuda.backend import next_graph_size
from curricle.agents.device import Backend
from curricle.agents.distill.agent import Distill, DistillOptions, MemoryNetwork, is_due
from curricle.agents.distill.matching import match, transport
from curricle.agents.distill.window import (
    Episode,
    Window,
    capacity,
    find_episodes,
    matching_batch,
    prediction_batch,
)
from curricle.agents.networks.spaces import input_specs
from curricle.agents.ppo.rollout import RolloutPlan

SMALL: dict[str, Any] = {
    "environments": 4,
    "steps": 16,
    "minibatches": 2,
    "hidden": 16,
    "distill_every": 2,
    "distill_epochs": 2,
}


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


@pytest.mark.parametrize("reference", ["plain", "POT"])
def test_transport_agrees_with_a_slow_reference(reference):
    rng = np.random.default_rng(0)
    for shape in [(3, 5), (1, 1), (22, 22), (7, 2), (1, 9)]:
        costs = rng.random(shape) * 2
        plan = transport(costs, 0.05)
        if reference == "POT":
            ot = pytest.importorskip("ot")
            ones = (np.ones(n) for n in shape)
            theirs = ot.partial.entropic_partial_wasserstein(*ones, costs, reg=0.05, numItermax=100)
        else:
            theirs = slow(costs, 0.05)
        assert plan == pytest.approx(theirs, abs=1e-6)
        assert plan.sum() == pytest.approx(min(shape))


def test_transport_bears_costs_beyond_what_numbers_hold():
    assert transport(np.full((2, 2), 1e6), 0.05).tolist() == [[0, 0], [0, 0]]


def test_the_same_vectors_find_each_other():
    torch.manual_seed(0)
    mine = torch.nn.functional.normalize(torch.randn(5, 32), dim=-1)
    theirs = torch.cat([mine[[3, 0, 4]], mine[:1]])
    found = match((mine @ theirs.T).numpy(), [3, 1], 0.05, 0.5)
    assert [(a.tolist(), b.tolist()) for a, b in found] == [([0, 3, 4], [1, 0, 2]), ([0], [0])]


def test_the_network_is_the_papers():
    pixels = input_specs(gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8), "test")
    shape: dict[str, Any] = {
        "channels": (64, 128, 128),
        "blocks": 2,
        "width": 256,
        "hidden": 1024,
        "value_norm_decay": 0.99,
    }
    assert count(MemoryNetwork(pixels, gymnasium.spaces.Discrete(17), **shape)) == pytest.approx(9.23e6, rel=0.01)


def test_memory_is_the_direction_of_the_last_unlock():
    parts = input_specs(gymnasium.spaces.Discrete(3), "test")
    shape: dict[str, Any] = {"channels": (), "blocks": 0, "width": 4, "hidden": 2, "value_norm_decay": 0.99}
    net = MemoryNetwork(parts, gymnasium.spaces.Discrete(2), **shape)
    flag = torch.tensor([[True], [False]])
    memory, before, after = torch.ones(2, 2), torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    updated = net.update_memory(memory, before, after, flag, ~flag)
    assert updated.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert net.update_memory(memory, before, after, ~flag, flag)[0].tolist() == [0, 0]


def test_episodes_are_found_with_their_unlocks():
    ended = np.zeros((9, 2), bool)
    ended[[1, 6], 1] = True
    shown = np.zeros((9, 2, 3), bool)
    shown[3:7, 1, 0] = shown[4:7, 1, 2] = shown[6, 1, 1] = True  # the last one comes with the end: nothing follows it
    (episode,) = find_episodes(ended, shown, 1)
    assert list(find_episodes(ended, shown, 0)) == []
    assert episode.rows.tolist() == [5, 7, 9, 11, 13]
    assert episode.unlocks.tolist() == [1, 2]
    assert episode.unlock_rows.tolist() == [[7, 9], [9, 11]]
    assert episode.next_unlock.tolist() == [0, 0, 1, 2, 2]


EPISODE = Episode(np.arange(10, 20), np.array([2, 6]))


def test_a_prediction_names_each_row_once_and_counts_it_as_often_as_it_serves():
    made = prediction_batch(EPISODE, np.array([1, 9]), np.array([9, 4]), next_graph_size)
    rows, weights, before, after, positives, negatives, pair_weights = made
    assert made.shape == (7, 64)
    assert rows[:7].tolist() == [11, 12, 13, 14, 16, 17, 19]  # steps 1, 9 and 4, the ends of unlocks, and the last
    assert weights[:7].tolist() == [1, 0, 0, 1, 0, 0, 2]
    assert (weights.sum(), pair_weights.sum()) == (4, 2)
    assert rows[before[:2] - 1].tolist() == [12, 19]  # step 1 leads to the unlock after step 2, step 9 to the end,
    assert (rows[after[0] - 1], after[1]) == (13, 0)  # after which nothing is seen
    assert (rows[positives[:2]].tolist(), rows[negatives[:2]].tolist()) == ([11, 19], [19, 14])


def test_a_matching_holds_the_policy_at_other_rows_than_it_compares():
    pairs = np.array([[1, 0, 1], [5, 6, 7], [8, 9, 8]])  # anchors, positives, negatives
    made = matching_batch(EPISODE, np.array([0, 9, 9]), pairs[0], pairs[1], pairs[2], int)
    rows, weights, before, after, positives, negatives, pair_weights = made
    assert rows.tolist() == [12, 16, 13, 17, 10, 19, 19]
    assert weights.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert (rows[before[:3] - 1].tolist(), rows[after[:3] - 1].tolist()) == ([16, 12, 16], [17, 13, 17])
    assert (positives[:3].tolist(), negatives[:3].tolist()) == ([5, 6, 7], [8, 9, 8])
    assert pair_weights.tolist() == [1, 1, 1, 0, 0, 0, 0]


def test_sizes_are_few_and_large_enough():
    sizes = [next_graph_size(count) for count in range(1, 3000)]
    assert len(set(sizes)) == 10
    assert all(count <= size <= max(64, 2 * count) for count, size in enumerate(sizes, 1))


@pytest.mark.parametrize("every", [1, 2, 3, 8])
def test_no_window_exceeds_its_room(every):
    steps = 5
    for budget in range(1, 400, 3):
        plan = RolloutPlan(2, 1, budget, steps, 0)
        rows = 0
        for index in range(plan.rollouts):
            rows += 2 * plan.steps(index)
            assert rows <= capacity(every, steps, 2)
            if is_due(index, plan.rollouts, every):
                rows = 0
        assert rows == 0, "one follows the last rollout"


def test_every_episode_is_used_once_whichever_rollouts_it_lies_in():
    """Rows carry their number in the whole run, so that what is used can be compared with what happened."""
    rng, steps, count, every, before = np.random.default_rng(0), 5, 3, 4, 30
    ended = rng.random((400, count)) < 0.08
    shown = np.zeros((400, count, 2), bool)
    shown[..., 0] = rng.random((400, count)) < 0.3
    numbers = torch.arange(400 * count).view(400, count)

    class Buffer:
        device = torch.device("cpu")
        backend = Backend(device)

        def __init__(self):
            self.environments = count
            self.at = slice(0, steps)

        def flatten(self):
            return {"returns": numbers[self.at].flatten()}

        ended = property(lambda self: ended[self.at])
        skills = property(lambda self: shown[self.at])

    buffer: Any = Buffer()
    window, used, kept = Window(buffer, every * steps * count, before, 2), list[list[int]](), list[int]()
    for number in range(400 // steps):
        buffer.at = slice(number * steps, (number + 1) * steps)
        window.add(steps)
        if number % every == every - 1:
            used += [window.data["returns"][one.rows].tolist() for one in window.new_episodes()]
            window.start_next()
            kept.append(window.old_steps)
    whole = [one.rows.tolist() for env in range(count) for one in find_episodes(ended, shown, env) if len(one.unlocks)]
    assert sorted(used) == sorted(rows for rows in whole if rows in used) and max(kept) <= before
    missed = [rows for rows in whole if rows not in used]
    assert len(used) > 40 and all(len(rows) > before for rows in missed), "but for those that are too long"
    inside = [rows for rows in whole if rows[0] // (count * every * steps) == rows[-1] // (count * every * steps)]
    assert len(inside) < 0.7 * len(used), "many began before the last distillation"


@pytest.mark.parametrize("most", [512, 3])
def test_what_pads_a_batch_teaches_nothing(most):
    world, runs = VAULT(), []
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.0}).values})
    for size in (int, next_graph_size):
        agent, gradients = (
            Distill(world, DistillOptions(**SMALL | {"workers": 1, "distill_batch_size": most, "steps": 64})),
            [],
        )
        agent.backend.padded_size = size  # type: ignore[assignment,method-assign]

        def step(gradient, optimiser="adam", agent=agent, gradients=gradients):
            if optimiser != "adam":  # stands still, so that rounding does not grow from step to step
                gradients.append((optimiser, gradient.clone(), agent.network.scale.moments.clone()))

        agent.take_step = step  # type: ignore[method-assign]
        agent.practise([design], 512, seed=0, report=quiet)
        runs.append(gradients)
    assert {kind for kind, *_ in runs[0]} == {"match", "predict"}
    for (kind, gradient, moments), (padded_kind, padded_gradient, padded_moments) in zip(*runs, strict=True):
        assert kind == padded_kind
        assert torch.allclose(gradient, padded_gradient, rtol=1e-4, atol=1e-6)
        assert torch.allclose(moments, padded_moments, rtol=1e-5)
    assert any(gradient.norm() > 0.01 for _, gradient, _ in runs[0])


def test_it_learns_and_distils():
    world = VAULT()
    agent = Distill(world, DistillOptions(steps=64, minibatches=4, hidden=64, distill_epochs=1))
    design = world.unaltered().model_copy(update={"setting": world.setting({"dials": 3, "alarm": 0.2}).values})
    metrics = []
    agent.practise([design], 12_000, seed=0, report=lambda done, some: metrics.append(some))
    distilled = [some for some in metrics if "distill/match" in some]
    assert len(distilled) == round(len(metrics) / 8)
    assert distilled[-1]["distill/predict"] < distilled[0]["distill/predict"] < np.log(2)
    assert agent.measure([design], [1], 20)[0].share("open_2") > 0.7


@pytest.mark.slow
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
