"""The command line in a process of its own."""

import subprocess
import sys


def curricle(*words):
    return subprocess.run(
        [sys.executable, "-m", "curricle", *map(str, words)], capture_output=True, text=True, timeout=120
    )
