"""Gymnasium's side: the single environment, the vector, and the world's declaration."""

import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from curricle.errors import UsageError
from curricle.worlds.crafter import Crafter, CrafterSetting, CrafterVector
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.twin import OrderedEnv


@pytest.mark.parametrize("observation", ["pixels", "symbols", "text"])
def test_gymnasium_accepts_the_environment(observation: str) -> None:
    env = gymnasium.make("curricle/Crafter-v1", observation=observation, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_a_seed_plays_the_reference_s_episodes() -> None:
    env, theirs = gymnasium.make("curricle/Crafter-v1"), OrderedEnv(seed=8)
    ours, _ = env.reset(seed=8)
    assert np.array_equal(ours, theirs.reset())
    for _ in range(3):
        done = False
        while not done:
            action = int(env.action_space.sample())
            ours, reward, died, over, _ = env.step(action)
            pixels, their_reward, done, _ = theirs.step(action)
            assert np.array_equal(ours, pixels) and reward == their_reward and done == (died or over)
        assert np.array_equal(env.reset()[0], theirs.reset())


def test_rendering_does_not_touch_the_episode() -> None:
    frames = []
    for look in (False, True):
        env = gymnasium.make("curricle/Crafter-v1", render_mode="rgb_array")
        env.reset(seed=1)
        for step in range(230):  # into the night
            frame = env.step(step % 5)[0]
            if look:
                assert env.render().shape == (576, 576, 3)
        frames.append(frame)
    assert np.array_equal(*frames)


def _vector(observation: Any = "symbols", **options: Any) -> CrafterVector:
    return CrafterVector([CrafterSetting(episode_length=100)] * 3, observation, **options)


@pytest.mark.parametrize("observation", ["pixels", "symbols", "text"])
def test_vector_steps_and_resets_in_the_same_step(observation: Any) -> None:
    vector = _vector(observation)
    observed, info = vector.reset(seed=[4, 5, 6])
    assert vector.observation_space.contains(observed) and not info["skills"].any()
    for step in range(1, 101):
        observed, _, died, over, info = vector.step(np.full(3, r.NOOP))
        assert vector.observation_space.contains(observed)
        assert not died.any() and over.all() == (step == 100) == ("final_obs" in info)
    assert (vector.engine.states["step"] == 0).all() and info["_final_obs"].all() and len(info["final_obs"]) == 3


def test_reset_takes_seeds_settings_and_a_mask() -> None:
    vector = _vector()
    first, _ = vector.reset(seed=[4, 5, 6])
    settings = [CrafterSetting(start_wood=9)] * 3
    mask = np.array([False, True, False])
    for _ in range(5):
        vector.step(np.full(3, r.LEFT))
    vector.reset(seed=[1, 5, 1], options={"settings": settings, "reset_mask": mask})
    states = vector.engine.states
    assert states["step"].tolist() == [5, 0, 5] and states["seed"].tolist() == [4, 5, 6]
    assert states["inventory"][:, r.WOOD].tolist() == [0, 9, 0]
    again, _ = _vector().reset(seed=[4, 5, 6])
    assert np.array_equal(first, again)


def test_snapshots_restore_exactly() -> None:
    vector, rng = _vector("pixels"), np.random.default_rng(0)
    vector.reset(seed=1)
    actions = rng.integers(len(r.ACTIONS), size=(300, 3))
    for action in actions[:150]:
        vector.step(action)
    saved = vector.snapshot()
    first = [vector.step(action)[0] for action in actions[150:]]
    other = _vector("pixels")
    other.restore(saved)
    assert all(np.array_equal(a, other.step(action)[0]) for a, action in zip(first, actions[150:], strict=True))


def test_skills_are_those_of_the_episode() -> None:
    vector = CrafterVector([CrafterSetting(start_sapling=3, episode_length=100)])
    vector.reset(seed=0)
    shown = [vector.step([r.PLACE_PLANT if i == 0 else r.NOOP])[4]["skills"][0].copy() for i in range(101)]
    place = r.ACHIEVEMENTS.index("place_plant")
    assert shown[0][place] and shown[99][place] and not shown[100].any()


def test_bad_calls_are_named() -> None:
    vector = _vector()
    vector.reset(seed=0)
    for actions in ([0, 0], [0, 0, 17], [0, -1, 0]):
        with pytest.raises(UsageError, match="actions from 0 to 16"):
            vector.step(actions)
    with pytest.raises(UsageError, match="2 settings for 3"):
        vector.reset(options={"settings": [CrafterSetting()] * 2})
    with pytest.raises(UsageError, match="reset_mask"):
        vector.reset(options={"reset_mask": [1, 0, 1]})


def test_the_world_declares_itself() -> None:
    world = Crafter()
    assert [s.name for s in world.skills] == list(r.ACHIEVEMENTS)
    rates = {s.name: (i + 1) / 100 for i, s in enumerate(world.skills)}
    score = math.exp(sum(math.log(1 + 100 * rate) for rate in rates.values()) / 22) - 1
    assert world.headline(rates) == pytest.approx(score)
    assert world.setting({"biome": "mountain"}).values["biome"] == "mountain"
    vector = world.vector([world.setting(skill.eased_by) for skill in world.skills])
    _, info = vector.reset(seed=0)
    assert info["skills"].shape == (22, 22) and not info["skills"].any()


def test_observations_of_vectors_that_share_threads_are_given_directly_if_their_pages_are_their_own() -> None:
    """A GPU's driver takes whole pages, and none twice."""
    for observation, direct in (("pixels", True), ("symbols", False), ("text", False)):
        world = Crafter(Crafter.Options.model_validate({"observation": observation}))
        vectors = world.vectors([[world.original] * 2, [world.original] * 3])
        found = [vector.observation_arrays() for vector in vectors]
        assert [memory is not None for memory in found] == [direct, direct]
        assert not direct or all(memory.ctypes.data % 4096 == 0 for memory in found)
        assert (world.vector([world.original] * 3).observation_arrays() is not None) == (observation != "text")
