"""Heist as a Gymnasium environment: spaces, seeds, snapshots, observations, pictures."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.worlds.heist import Heist, HeistEnv, HeistSetting, HeistVector
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.observe import symbols
from curricle.worlds.heist.observe.frames import draw
from curricle.worlds.heist.observe.images import own_pictures
from curricle.worlds.heist.solver import next_action


@pytest.mark.parametrize("observation", ["pixels", "symbols", "text"])
def test_gymnasium_s_checker_is_content(observation: str) -> None:
    env = gymnasium.make("curricle.worlds:curricle/Heist-v1", observation=observation, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.reset(seed=0)
    picture: Any = env.render()
    assert picture.shape == (512, 512, 3)


def test_a_vector_plays_procgens_levels() -> None:
    """`ProcgenEnv(num_envs=3, rand_seed=5)` begins with these level seeds; the words come from numpy."""
    words = np.random.RandomState(5).randint(2**32, size=3, dtype=np.uint32)
    expected = [
        np.random.RandomState(word).randint(2**32, size=2, dtype=np.uint32).astype(int) % (2**31 - 1) for word in words
    ]
    vector = HeistVector([HeistSetting()] * 3)
    vector.reset(seed=5)
    assert vector.engine.states["level"].tolist() == [pair[0] for pair in expected]
    vector.reset()
    assert vector.engine.states["level"].tolist() == [pair[1] for pair in expected]
    vector.reset(seed=[5, 5, None])
    assert vector.engine.states["level"].tolist()[:2] == [expected[0][0]] * 2


def test_levels_can_be_limited() -> None:
    vector = HeistVector([HeistSetting()] * 64, levels=3, first_level=100)
    vector.reset(seed=0)
    assert set(vector.engine.states["level"].tolist()) == {100, 101, 102}


def test_skills_belong_to_the_episode_that_ended_and_the_next_begins() -> None:
    world = Heist()
    vector = world.vector([world.setting({"keys": "1", "maze_size": "5"})])
    vector.reset(seed=[1])
    shown = list[str]()
    for _ in range(300):
        observed, rewards, terminated, truncated, info = vector.step([next_action(vector.engine.states[0])])
        if terminated[0]:
            shown = world.names(info["skills"][0])
            break
    assert shown == ["collect_key_1", "open_door_1", "reach_gem"]
    assert rewards[0] == r.REWARD and not truncated[0] and info["_final_obs"][0]
    assert vector.engine.states["step"][0] == 0 and vector.engine.states["episode"][0] == 2
    assert not np.array_equal(observed[0], info["final_obs"][0])


@pytest.mark.parametrize("observation", ["pixels", "symbols"])
def test_a_snapshot_goes_on_with_the_same_bytes(observation: str) -> None:
    settings = [HeistSetting(), HeistSetting(world_size=9, time_limit=50), HeistSetting(partial_view=True)]
    rng = np.random.default_rng(0)
    actions = rng.integers(r.ACTIONS, size=(120, 3))
    one = HeistVector(settings, observation)  # type: ignore[arg-type]
    other = HeistVector(settings, observation)  # type: ignore[arg-type]
    one.reset(seed=[1, 2, 3])
    other.reset(seed=[4, 5, 6])
    for action in actions[:60]:
        one.step(action)
        other.step(action)
    other.restore(one.snapshot())
    for action in actions[60:]:
        mine, reward, *_ = one.step(action)
        its, same, *_ = other.step(action)
        assert np.array_equal(mine, its) and np.array_equal(reward, same)


def test_frames_that_are_kept_are_those_drawn_anew() -> None:
    settings = [HeistSetting(), HeistSetting(world_size=9, keys_held=1, time_limit=70), HeistSetting(partial_view=True)]
    vector = HeistVector(settings, "pixels")
    vector.reset(seed=[1, 2, 3])
    rng = np.random.default_rng(0)
    for step in range(300):
        actions = [next_action(s) if step % 3 else int(rng.integers(r.ACTIONS)) for s in vector.engine.states]
        frames, *_ = vector.step(actions)
        for frame, state in zip(frames, vector.engine.states, strict=True):
            fresh = np.zeros_like(frame)
            draw(state, fresh, own_pictures(), False)
            assert np.array_equal(frame, fresh)


def test_symbols_say_where_things_are() -> None:
    vector = HeistVector(
        [HeistSetting(keys="2", keys_held=1), HeistSetting(keys="3", partial_view=True, world_size=23)]
    )
    seen, _ = vector.reset(seed=[3, 8])
    for row, s in zip(seen, vector.engine.states, strict=True):
        view = row[: symbols.CELLS].reshape(symbols.SPAN, symbols.SPAN)
        assert view[5, 5] == r.FREE, "the player stands in the middle"
        for i in range(s["items"]):
            dx = int(s["item_x"][i]) - int(s["x"])
            dy = int(s["item_y"][i]) - int(s["y"])
            first = {r.KEY: 0, r.DOOR: 3, r.GEM: 6}[int(s["kind"][i])]
            place = row[symbols.PLACES + 2 * (first + s["number"][i]) :][:2].astype(int) - symbols.HERE
            if not s["knobs"]["centred"] or max(abs(dx), abs(dy)) < 4:
                assert place.tolist() == [dx, dy]
            elif max(abs(dx), abs(dy)) > 5:
                assert place.tolist() == [-symbols.HERE, -symbols.HERE]
            if max(abs(dx), abs(dy)) < 4:
                assert view[5 - dy, 5 + dx] == {0: r.FIRST_KEY, 3: r.FIRST_DOOR, 6: r.GEM_CELL}[first] + s["number"][i]
    assert seen[0, symbols.HELD : symbols.WITHIN].tolist() == [1, 0, 0]
    assert (seen[1, : symbols.CELLS].reshape(11, 11)[[0, -1]] == symbols.OUT_OF_SIGHT).all()
    assert not (seen[0, : symbols.CELLS] == symbols.OUT_OF_SIGHT).any()


def test_text_says_what_is_seen() -> None:
    vector = HeistVector([HeistSetting(keys="1", maze_size="5", keys_held=1)], "text")
    (words,), _ = vector.reset(seed=[0])
    assert words.startswith("Step 0 of 1000.") and "blue door (closed)" in words and "the gem" in words
    assert "Keys held: blue." in words and "blue key" not in words


def test_a_whole_picture_shows_more_than_a_partial_view() -> None:
    vector = HeistVector([HeistSetting(partial_view=True)])
    vector.reset(seed=[0])
    view, whole = (vector.picture(0, (70, 90), whole) for whole in (False, True))
    assert view.shape == whole.shape == (70, 90, 3) and not np.array_equal(view, whole)
    assert not view[:, :10].any(), "a border that fits no square"


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    world = Heist()
    with pytest.raises(UsageError, match=r"lacks kenney/Ground/Dirt/dirtCenter\.png; `curricle data heist` fetches"):
        Heist(Heist.Options(observation="pixels", pictures=str(tmp_path))).vector([world.original])
    vector = world.vector([world.original])
    vector.reset(seed=[0])
    with pytest.raises(UsageError, match="1 actions from 0 to 14 are needed"):
        vector.step([15])
    with pytest.raises(UsageError, match="needs settings of its own, HeistSetting"):
        world.vector([Setting()])


def test_a_single_environment_ends_at_the_gem() -> None:
    env = HeistEnv({"keys": "0", "maze_size": "5"}, "symbols")
    env.reset(seed=0)
    for _ in range(300):
        *_, terminated, truncated, info = env.step(next_action(env.vector.engine.states[0]))
        if terminated:
            break
    assert terminated and not truncated and info["skills"][r.REACH]
