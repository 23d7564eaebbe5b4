"""Procgen's pictures: taken once out of the PyPI wheel `procgen2`, which is not installed, and kept in the cache.

The pictures of walls, player, keys, doors and gem are by Kenney (CC0), those of floors by davis123 (CC-BY 3.0), as
Procgen's ASSET_LICENSES.md says. Curricle ships none of them.
"""

import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from curricle.downloads.wheels import cache, fetch
from curricle.errors import FetchFailed, UsageError
from curricle.worlds.heist.observe.images import FILES

PACKAGE: Final = "procgen2==0.10.7"
BUILT_FOR: Final = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
SYSTEM: Final = ("--platform", "manylinux2014_x86_64")
"""The pictures are the same in every wheel; there is none for the newest Pythons."""
INSIDE: Final = "procgen/data/assets/"
SHA256: Final = "7db4d3b92e19fd876473d29de21ba8e194e83bfd42155c9527d8d6fb1feed903"
"""Of all files, one after the other."""
LICENCES: Final = (
    "pictures by Kenney (CC0, https://www.kenney.nl/assets) and, the floors, by davis123 "
    "(CC-BY 3.0, https://opengameart.org/content/backgrounds-topdown-games), out of OpenAI's Procgen (MIT)"
)


def folder() -> Path:
    """Where the pictures are kept."""
    return cache() / "heist"


def stock() -> Path:
    """The folder of the pictures, which `get` has filled."""
    if not (folder() / FILES[-1]).is_file():
        raise UsageError(f"Procgen's pictures are not in {folder()} yet; get them once with: curricle data heist")
    return folder()


def get(source: str = "pypi") -> tuple[Path, bool]:
    """Make sure that the pictures are there, from `pypi` or a wheel; returns where, and whether they are new."""
    target = folder()
    if digest(target) == SHA256:
        return target, False
    with tempfile.TemporaryDirectory(prefix="curricle-") as temporary:
        place = Path(temporary)
        wheel = fetch(PACKAGE, place, [*BUILT_FOR, *SYSTEM]) if source == "pypi" else Path(source).expanduser()
        try:
            with zipfile.ZipFile(wheel) as archive:
                found = {name: archive.read(INSIDE + name) for name in FILES}
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise FetchFailed(f"{wheel} is not a wheel of {PACKAGE}: {error}") from error
    for name, content in found.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    if digest(target) != SHA256:
        raise FetchFailed(f"the pictures of {wheel.name} are not those of {PACKAGE}; they are in {target}")
    return target, True


def digest(place: Path) -> str:
    """The hash of all pictures in a folder, or nothing where one is missing."""
    whole = hashlib.sha256()
    for name in FILES:
        try:
            whole.update((place / name).read_bytes())
        except OSError:
            return ""
    return whole.hexdigest()
