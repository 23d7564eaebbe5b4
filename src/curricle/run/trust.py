"""Which code, and which address for a key, the config of a run folder may name.

A run folder may come from anybody, and its config may name Python files. Importing one runs it. So a config in a run
folder may only name what this user has named before in a command or config of their own, on this machine, or what
`--trust` allows. What was named is kept as one small file each in the user's folder for such things; a run folder
cannot write there. The same holds for an address that is to get a key from the environment.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from curricle.errors import RunError

ID_KEYS = ("id", "of", "fallback")
"""Keys of a config whose value may name code."""


def state_folder() -> Path:
    """The user's folder for what was named before: $XDG_STATE_HOME/curricle, or the system's place for such things."""
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return Path(xdg).expanduser() / "curricle"
    home = Path.home()
    places = {"win32": home / "AppData" / "Local", "darwin": home / "Library" / "Application Support"}
    return places.get(sys.platform, home / ".local" / "state") / "curricle"


def remember(config: Mapping[str, Any]) -> None:
    """Keep what a config of the user's own names; where that cannot be written, a resume needs `--trust`."""
    for thing in _named(config):
        path = _place(thing)
        with suppress(OSError):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{thing}\n", encoding="utf-8")


def check(config: Mapping[str, Any], folder: Path, trust: bool = False, advice: str = "add --trust") -> None:
    """Refuse a run folder's config that names what this user never named; `trust` takes it, and remembers it."""
    if trust:
        remember(config)
        return
    unknown = [thing for thing in _named(config) if not _place(thing).exists()]
    if not unknown:
        return
    kind, _, what = unknown[0].partition(" ")
    does = "it is code, and would run" if kind == "code" else "it would get the key"
    raise RunError(
        f"the config of {folder} names {what}: {does}. You have not named it in a command or config of your "
        f"own so far; if you know where this folder comes from, {advice}"
    )


def _named(table: Mapping[str, Any]) -> Iterator[str]:
    """The code that a config names, and the addresses that get a key; files by their full paths."""
    for key, value in table.items():
        if key == "original":  # knobs: plain values, some of them free text
            continue
        if isinstance(value, Mapping):
            yield from _named(value)
        elif isinstance(value, str) and (".py:" in value or (key in ID_KEYS and ":" in value)):
            place = value.rpartition(":")[0]
            if place.endswith(".py"):
                yield f"code {Path(place).resolve()}"
            elif place.partition(".")[0] != "curricle":
                yield f"code {place}{_origin(place)}"
    if table.get("key_env") and table.get("base_url"):
        yield f"key {table['base_url']} (for the key in {table['key_env']})"


def _origin(module: str) -> str:
    """Where a module's top package lies: it may be found in the current folder, which may be anybody's."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module.partition(".")[0])
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        for place in places:
            if place:
                return f" ({place})"
    return ""


def _place(thing: str) -> Path:
    return state_folder() / "named" / hashlib.sha256(thing.encode("utf-8", "replace")).hexdigest()[:32]
