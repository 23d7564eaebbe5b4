"""Random settings, random actions: no crash, no index out of bounds, the map agrees with what is in it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.heist_fuzz import fuzz
from helpers.paths import HELPERS


@pytest.mark.parametrize(("view", "steps"), [("state", 300_000), ("symbols", 150_000), ("pixels", 50_000)])
def test_nothing_breaks(view: Any, steps: int) -> None:
    fuzz(steps, view, seed=0)


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    """Compiled anew with bounds checks, in a process of its own."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    script = HELPERS / "heist_fuzz.py"
    done = subprocess.run([sys.executable, str(script), "20000"], env=environment, capture_output=True, text=True)
    assert done.stdout == "no fault\n", done.stderr
