"""Procgen's pictures: fetched once, checked, never installed; frames drawn with them are Procgen's."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from curricle.cli import app
from curricle.errors import FetchFailed, UsageError
from curricle.worlds.heist import Heist
from curricle.worlds.heist.observe import fetch
from curricle.worlds.heist.observe.images import FILES, own_pictures, pictures_from


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with small pictures where the real one has Procgen's, and a cache of its own."""
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "procgen2-0.10.7-cp311-cp311-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(FILES):
            picture = tmp_path / "one.png"
            Image.new("RGBA", (8, 8), (number, 50, 90, 255)).save(picture)
            archive.write(picture, fetch.INSIDE + name)
            (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "unpacked" / name).write_bytes(picture.read_bytes())
    monkeypatch.setattr(fetch, "SHA256", fetch.digest(tmp_path / "unpacked"))
    return path


def test_pictures_are_fetched_once(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="get them once with: curricle data heist"):
        fetch.stock()
    done = CliRunner().invoke(app, ["data", "heist", "--from", str(wheel)])
    assert done.exit_code == 0 and str(fetch.folder()) in done.stdout and "CC-BY 3.0" in done.stderr
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert fetch.get() == (fetch.stock(), False), "offline from now on"
    found = pictures_from(fetch.stock())
    assert found.wall.shape == (8, 8, 4) and found.floors.shape == (9, 8, 8, 4)
    world = Heist(Heist.Options(observation="pixels", pictures="procgen"))
    frames, _ = world.vector([world.original]).reset(seed=[0])
    assert set(np.unique(frames[..., 1])) == {50}


def test_other_wheels_are_refused(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchFailed, match="is not a wheel of procgen2"):
        fetch.get(str(tmp_path / "nothing.whl"))
    monkeypatch.setattr(fetch, "SHA256", "0")
    with pytest.raises(FetchFailed, match="are not those of procgen2"):
        fetch.get(str(wheel))
    done = CliRunner().invoke(app, ["data", "crafter"])
    assert isinstance(done.exception, UsageError) and "has no data to fetch" in str(done.exception)


def test_our_own_pictures_have_procgens_sizes() -> None:
    own = own_pictures()
    assert own.keys.shape == (3, 52, 84, 4) and own.gem.shape == (48, 70, 4)
    assert own.locks.shape == (3, 70, 70, 4) and own.player.shape == (44, 37, 4)
    for picture in (own.keys, own.gem, own.locks, own.player):
        assert (picture[..., :3] <= picture[..., 3:]).all(), "colours are multiplied by alpha"
