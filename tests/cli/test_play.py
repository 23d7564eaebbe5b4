"""Playing a world by hand and drawing it."""

import io
import os
import pty
import select
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import paths
from helpers.sweep import VAULT
from PIL import Image

from curricle.cli.play import Game, blocks, in_terminal, in_window
from curricle.errors import UsageError
from curricle.worlds.crafter import Crafter, CrafterSetting


def command(*words, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "curricle", *map(str, words)], capture_output=True, text=True, **kwargs
    )


def test_keys_from_a_pipe_move_the_player():
    game, screen = Game(Crafter(), CrafterSetting(start_wood=9), 0), io.StringIO()
    in_terminal(game, io.StringIO("t1?4q3"), screen)
    shown = screen.getvalue()
    assert "place_table; reward +1.0" in shown and "make_wood_sword; reward +1.0" in shown
    assert "Achieved: make_wood_pickaxe, make_wood_sword, place_table." in shown
    assert game.steps == 3, "an unknown key does nothing, and nothing happens after q"


def test_the_end_of_an_episode_is_reported():
    game = Game(Crafter(), CrafterSetting(episode_length=100), 0)
    for _ in range(100):
        assert game.press(".")
    assert "the episode ended after 100 steps" in game.said and game.steps == 0


def test_a_terminal_shows_the_picture_at_once(tmp_path):
    reader, writer = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "curricle", "play", "crafter"], stdin=writer, stdout=writer)
    os.close(writer)
    seen, deadline = b"", time.monotonic() + 90
    while child.poll() is None and time.monotonic() < deadline:
        if select.select([reader], [], [], 0.1)[0]:
            try:
                seen += os.read(reader, 65536)
            except OSError:  # the child is gone
                break
            if b"q quit" in seen:
                os.write(reader, b"q")
    assert child.wait(timeout=10) == 0
    assert "▀".encode() in seen


def test_half_blocks_show_two_pixels_each():
    picture = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3)
    lines = blocks(picture).splitlines()
    assert len(lines) == 2 and lines[0].count("▀") == 3
    assert lines[0].startswith("\x1b[38;2;0;1;2m\x1b[48;2;9;10;11m▀")


def test_what_cannot_be_played_says_so():
    with pytest.raises(UsageError, match="vault-v1 cannot be played: it declares no keys"):
        Game(VAULT(), VAULT.Setting(), 0)
    done = command("play", paths.LADDER)
    assert done.returncode == 2 and "ladder-v1 is a world of text tasks: there is nothing to play" in done.stderr


def test_without_a_screen_the_window_says_so(monkeypatch):
    pytest.importorskip("tkinter", reason="this Python has no tkinter")
    monkeypatch.delenv("DISPLAY", raising=False)
    if sys.platform != "linux" or os.environ.get("WAYLAND_DISPLAY"):
        pytest.skip("there is a screen")
    with pytest.raises(UsageError, match=r"no window can be opened .* play in the terminal instead"):
        in_window(Game(Crafter(), CrafterSetting(), 0))


def test_look_draws_maps_and_views(tmp_path):
    knobs = ["--setting", "biome=mountain", "--setting", "area=32"]
    done = command("look", "crafter", *knobs, "--count", 2, "--size", 320, "--out", tmp_path / "pictures")
    assert done.returncode == 0, done.stderr
    names = [f"crafter-v1-{seed}-{what}.png" for seed in (0, 1) for what in ("map", "view")]
    assert [line.rpartition("/")[2] for line in done.stdout.split()] == names
    pictures = {name: np.asarray(Image.open(tmp_path / "pictures" / name)) for name in names}
    assert all(picture.shape == (320, 320, 3) for picture in pictures.values())
    assert not np.array_equal(pictures[names[0]], pictures[names[2]])
    wrong = command("look", "crafter", "--setting", "biome=moutain")
    assert wrong.returncode == 2 and "did you mean 'mountain'?" in wrong.stderr


def test_drawing_for_people_leaves_the_world_alone():
    vector = Crafter().vector([CrafterSetting()])
    vector.reset(seed=[5])
    for _ in range(250):  # into the night, when drawing takes random numbers
        vector.step(np.array([0]))
    before = vector.snapshot()["states"].tobytes()
    small, wide = vector.picture(0, (90, 180)), vector.picture(0, (300, 200), whole=True)
    assert small.shape == (90, 180, 3) and wide.shape == (300, 200, 3)
    assert vector.snapshot()["states"].tobytes() == before
    with pytest.raises(UsageError, match="a picture of 20 x 20 has no room for 64 x 64 cells"):
        vector.picture(0, (20, 20), whole=True)


def test_the_chart_shows_the_map():
    vector = Crafter().vector([CrafterSetting()])
    vector.reset(seed=[1])
    chart = vector.picture(0, (640, 640), whole=True)
    state = vector.engine.states[0]
    looks = {}
    for x, y in np.ndindex(64, 64):
        if not state["who"][x, y]:
            looks.setdefault(int(state["material"][x, y]), set()).add(
                chart[10 * y : 10 * y + 10, 10 * x : 10 * x + 10].tobytes()
            )
    assert all(len(pictures) == 1 for pictures in looks.values()) and len(looks) >= 6


def test_gymnasium_makes_crafter_by_its_name():
    code = "import gymnasium; print(gymnasium.make('curricle.worlds:curricle/Crafter-v1').reset(seed=0)[0].shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "(64, 64, 3)", done.stderr
