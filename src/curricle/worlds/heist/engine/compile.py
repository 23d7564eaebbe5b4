"""The decorator of Crafter's kernels, for Heist's.

Heist calls Crafter's random words and copying, so its cached kernels are deleted when sources of either change.
"""

from pathlib import Path

from curricle.worlds import crafter
from curricle.worlds.crafter.engine.compile import drop_stale, kernel

__all__ = ["kernel"]

drop_stale(Path(__file__).parent.parent, Path(crafter.__file__).parent)
