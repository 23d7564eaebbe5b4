"""`@kernel` compiles a function with numba, caches it on disk, and releases the GIL while it runs.

numba notices when the file of a cached function changes, but not when a function that it calls in another file does.
The kernels here call each other across files. So `drop_stale` deletes all of Crafter's cached kernels whenever its
sources differ from those that they were compiled from. No fastmath: rounding is part of the results.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function of numbers, arrays and records."""
    return cast(F, njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Compile a function into each kernel that calls it: a kernel of its own would be compiled once more by itself."""
    return cast(F, njit(inline="always")(function))


def drop_stale(folder: Path, *used: Path) -> None:
    """Delete the cached kernels below a folder if sources of it, or of folders it uses, changed since their making."""
    sources = [path.read_bytes() for place in (folder, *used) for path in sorted(place.rglob("*.py"))]
    digest = hashlib.sha256(b"".join(sources)).hexdigest()
    stamp = folder / "__pycache__" / "kernels.sha256"
    try:
        if stamp.exists() and stamp.read_text() == digest:
            return
        for pattern in ("*.nbi", "*.nbc"):
            for path in folder.rglob(f"__pycache__/{pattern}"):
                path.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
    except OSError:
        return  # a read-only installation never changes; numba then caches in the user's own folder


drop_stale(Path(__file__).parent.parent)
