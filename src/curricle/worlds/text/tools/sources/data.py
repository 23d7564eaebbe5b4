"""Sources: base tasks from data on disk, as items with a training side and a held-out side.

Data is a folder or a tar archive. Only sound items are kept (`verify.task_fault`). All items of a dialogue are on the
same side.
"""

import functools
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from curricle.errors import UsageError
from curricle.seeds import derive
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.schema import Json, shown
from curricle.worlds.text.tools.sources import apibank, bfcl
from curricle.worlds.text.tools.verify import task_fault

HELD_OUT = 5
"""One dialogue in so many is held out."""
Sides = dict[bool, list[Item]]
"""Held out or not, and its items."""
Reader = Callable[["Data"], Iterator[tuple[str, Item]]]


class Data:
    """The files of a benchmark."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.files = _folder(path) if path.is_dir() else _archive(path)
        except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
            raise UsageError(f"data = {str(path)!r} cannot be read: {error}") from None

    def rows(self, name: str) -> list[Json]:
        """A file as a list: a JSON list, or JSON lines. Of several with this name, the one nearest to the top."""
        found = [file for file in self.files if f"/{file}".endswith(f"/{name}")]
        if not found:
            raise UsageError(f"data = {str(self.path)!r} has no file {name!r}")
        return _parse(self.files[min(found, key=lambda file: file.count("/"))], name)


def _parse(text: str, name: str) -> list[Json]:
    try:
        data = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return list(data)


def _folder(path: Path) -> dict[str, str]:
    files = [file for file in sorted(path.rglob("*")) if file.suffix in (".json", ".jsonl")]
    archives = sorted(path.glob("*.tar*"))
    if not files and len(archives) == 1:
        return _archive(archives[0])
    return {file.relative_to(path).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _archive(path: Path) -> dict[str, str]:
    if path.suffix in (".json", ".jsonl"):
        return {path.name: path.read_text(encoding="utf-8")}
    with tarfile.open(path) as archive:
        members = [m for m in archive.getmembers() if m.isfile() and m.name.endswith((".json", ".jsonl"))]
        return {m.name: file.read().decode() for m in members if (file := archive.extractfile(m))}


def questions(data: Data) -> Iterator[tuple[str, Item]]:
    """Questions with short answers: one file of JSON lines with `question` and `answer`."""
    names = list(data.files)
    if len(names) != 1:
        raise UsageError(f"data = {str(data.path)!r}: give the one file of questions, not {shown(names)}")
    for row in data.rows(names[0]):
        yield str(row["question"]), Item(request=str(row["question"]), answer=str(row["answer"]))


READERS: dict[str, Reader] = {"bfcl": bfcl.items, "api-bank": apibank.items, "questions": questions}


def load(source: str, data: str) -> Sides:
    """The items of a source by side; nothing for the pool, which draws its own."""
    if source == "pool":
        return {}
    if not data:
        raise UsageError(f"source = {source!r} needs data, the folder or archive of its files")
    return _load(source, str(Path(data).resolve()))


@functools.lru_cache(maxsize=4)
def _load(source: str, data: str) -> Sides:
    sides: Sides = {False: [], True: []}
    for dialogue, item in read(source, data):
        if not task_fault(item):
            sides[derive(0, "held out", source, dialogue) % HELD_OUT == 0].append(item)
    tested = {(item.before, item.request) for item in sides[True]}  # data repeats itself; tests must not be practised
    sides[False] = [item for item in sides[False] if (item.before, item.request) not in tested]
    if not all(sides.values()):
        raise UsageError(
            f"data = {data!r} has too few sound tasks: {len(sides[False])} and {len(sides[True])} held out"
        )
    return sides


def read(source: str, data: str) -> list[tuple[str, Item]]:
    """All items of a source, sound or not, each with the name of its dialogue."""
    try:
        return list(READERS[source](Data(Path(data))))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"data = {data!r} is not as {source} lays it out: {type(error).__name__}: {error}") from None
