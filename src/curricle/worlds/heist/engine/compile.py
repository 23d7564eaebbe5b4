"""The decorators of Crafter's kernels, for Heist's: stale ones in this folder are deleted when it is imported."""

from pathlib import Path

from curricle.worlds.crafter.engine.compile import drop_stale, kernel

__all__ = ["kernel"]

drop_stale(Path(__file__).parent.parent)
