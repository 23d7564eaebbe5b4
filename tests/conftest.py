import atexit
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
for name in [name for name in os.environ if name.startswith(("CURRICLE_", "OPENAI_"))]:
    del os.environ[name]  # no test may talk to an endpoint that somebody configured for other things
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="curricle-tests-")  # which files a run may import
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], True)
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # nor to a hub, from a thread that lives on

settings.register_profile("same", deadline=None, derandomize=True)  # a busy machine and luck decide nothing
settings.load_profile("same")


@pytest.fixture
def at_root(tmp_path, monkeypatch):
    """A folder that looks like the repository's root, to run its commands in."""
    for name in ("examples", "configs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(monkeypatch, capsys):
    """Run a script of the repository in this process: importing all that it needs takes seconds."""

    def go(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *words])
        monkeypatch.syspath_prepend(ROOT / Path(name).parent)
        capsys.readouterr()
        runpy.run_path(str(ROOT / name), run_name="__main__")
        return capsys.readouterr().out

    return go
