"""Runs scripts in processes of their own, in which Triton interprets its kernels."""

import json
import os
import subprocess
import sys


def interpreted(script, *arguments, interpret="1"):
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"TRITON_INTERPRET": interpret},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
