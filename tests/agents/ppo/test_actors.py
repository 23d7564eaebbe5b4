"""Actors: those that take turns play what each plays alone, and they read observations where the world draws them."""

import numpy as np
import torch
from helpers.sweep import quiet

from curricle.agents.ppo.actors import Actor, PolicyStep
from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.agents.ppo.rollout import RolloutBuffer
from curricle.worlds.crafter import Crafter
from curricle.worlds.crafter.env import CrafterVector


def weights(agent):
    return agent.parameters.flat.detach().clone()


def test_observations_read_where_a_world_keeps_them_are_those_it_hands_out(monkeypatch):
    """Two practices, so that episodes also go on from a snapshot."""
    world, found = Crafter(), []
    for lends in (True, False):
        if not lends:
            monkeypatch.setattr(CrafterVector, "observation_arrays", lambda self: None)
        agent = PPO(world, PPOOptions(environments=4, steps=16, minibatches=2, workers=1, device="cpu"))
        for seed in range(2):
            agent.practise([world.unaltered()], 256, seed=seed, report=quiet)
        (name,) = agent.inputs
        found.append((weights(agent), agent.environment_state.arrays[f"seen.{name}"]))
    assert torch.equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])


def test_actors_by_turns_play_what_each_plays_alone():
    world = Crafter()
    agent = PPO(world, PPOOptions(environments=5, steps=8, workers=2, device="cpu"))
    slices = [slice(0, 2), slice(2, 5)]
    noise = [np.random.default_rng(count).random((8, count, 1), np.float32) for count in (2, 3)]
    played = []
    for order in ([[0, 1]], [[1], [0]]):
        buffer = RolloutBuffer(agent.network, agent.device, 8, 5, len(world.skills))
        vectors = world.vectors([[world.original] * (here.stop - here.start) for here in slices])
        actors = []
        for vector, here in zip(vectors, slices, strict=True):
            actors.append(Actor(vector, PolicyStep(agent.network, buffer, here, bf16=False)))
            actors[-1].reset(range(here.start, here.stop))
        for together in order:
            for i in together:
                actors[i].start_rollout(noise[i])
            agent.collect_rollout([actors[i] for i in together], 8)
        played.append([*(tensor.clone() for tensor in buffer.flatten().values()), buffer.rewards, buffer.skills])
        for actor in actors:
            actor.close()
    for both, alone in zip(*played, strict=True):
        assert np.array_equal(both, alone)
    assert any(len(np.unique(both[2:])) > 1 for both in played[0])


def test_an_actor_reads_what_the_world_drew():
    world = Crafter(Crafter.Options(observation="pixels"))
    agent = PPO(world, PPOOptions(environments=2, steps=4, workers=1, device="cpu"))
    vector = world.vector([world.original] * 2)
    buffer = RolloutBuffer(agent.network, agent.device, 4, 2, len(world.skills))
    actor = Actor(vector, PolicyStep(agent.network, buffer, slice(0, 2), bf16=False))
    actor.reset([1, 2])
    (staged,) = actor.staged.values()
    assert staged.data_ptr() == vector.engine.observed.ctypes.data and staged.data_ptr() % 4096 == 0
    actor.start_rollout(np.zeros((4, 2, 1), np.float32))
    agent.collect_rollout([actor], 4)
    assert np.array_equal(staged.numpy(), vector.engine.observed) and staged.any()
    actor.close()
