"""Environment of a run: the config, versions, hardware and source state it was made with, as data."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("curricle", "numpy", "pydantic", "gymnasium", "numba", "crafter", "torch", "transformers", "trl")


def environment(config: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """What is run, and this process and machine; what is not there is left out."""
    return {
        "config": config,
        "ranks": ranks,
        "python": platform.python_version(),
        "packages": packages(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": _ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "git": {"here": _git(Path.cwd()), "curricle": _git(Path(__file__).parent)},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def packages() -> dict[str, str]:
    """The versions of what results depend on; what is not installed is left out."""
    return {name: version for name in PACKAGES if (version := _version(name))}


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit of the repository a folder lies in, and whether tracked files were changed since."""
    commit = _ask("git", "-C", str(folder), "rev-parse", "HEAD")
    changed = _ask("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": bool(changed)} if commit else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _ask(*command: str) -> str | None:
    """What a program prints; None where it is not installed or does not succeed."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
