"""Whether a run folder is whole: what `resume` asks before it changes anything, and all that `curricle verify` says.

The last line of every record file and every byte of the newest checkpoints can be checked, because each marker of the
journal holds fingerprints (length and BLAKE2b) of all files as they were when its step was done. Markers of runs that
an earlier version began have lengths only.
"""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curricle.errors import RunDamaged, RunError, UsageError
from curricle.records import Exchange, Frozen, FrozenMap, Record
from curricle.run.names import (
    BESIDE,
    CHECKPOINT_NAME,
    CHECKPOINTS,
    CONFIG,
    EXCHANGES,
    FILES,
    FINGERPRINTED,
    FOLDERS,
    JOURNAL,
    LOCK,
    METRICS,
    TRIMMED,
    Step,
)
from curricle.run.reading import (
    BAD,
    COPY,
    one_line,
    read_config,
    read_environment,
    read_file,
    read_metrics,
    read_tagged,
    read_timings,
    whole_lines,
)
from curricle.tracking import checkpoint
from curricle.tracking.environment import packages

CHUNK = 2**20
TRIES = 5


class Fingerprint(Record):
    """Length and BLAKE2b hash of a file, or of its beginning."""

    size: int
    blake2b: str


class Marker(Record):
    """One line of the journal: this step is done, and this is what the folder then held."""

    step: Step
    lengths: FrozenMap[str, int]
    saved: FrozenMap[str, str]
    """Checkpoint folder of each part that has state."""
    files: FrozenMap[str, Fingerprint] = Frozen()
    """The beginning of every file of records, of the journal before this line, and every file of the checkpoints."""


@dataclass
class Running:
    """Length and hash of a file that grows."""

    size: int = 0
    hash: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, data: bytes) -> None:
        """Some more was written."""
        self.size += len(data)
        self.hash.update(data)

    @property
    def fingerprint(self) -> Fingerprint:
        """As it is now."""
        return Fingerprint(size=self.size, blake2b=self.hash.hexdigest())


@dataclass
class Found:
    """What a folder holds up to the last step that counts."""

    markers: list[Marker]
    running: dict[str, Running]
    """The part of each file that counts; what follows it is to be cut."""


def look(folder: Path, steps: int | None = None) -> Found:
    """Find the last state in which journal, records and checkpoints agree; changes nothing.

    That is the last marker's. If it is damaged, an earlier one that is whole is offered in the message; `steps` takes
    the offer: go on after so many finished steps.
    """
    refuse_links(folder)
    data = {name: read_file(folder / name) for name in FINGERPRINTED if (folder / name).exists()}
    markers, trouble = _markers(folder, data.get(JOURNAL, b""))
    if steps is None:
        trouble = trouble or next(_faults(folder, markers, len(markers), data), "")
        if trouble:
            raise RunDamaged(trouble + _offer(folder, markers, data))
        steps = len(markers)
    elif not 1 <= steps <= len(markers):
        raise UsageError(f"--from-step {steps}: {folder / JOURNAL} has {len(markers)} steps that can be read")
    elif trouble := next(_faults(folder, markers, steps, data), ""):
        raise RunDamaged(trouble + _offer(folder, markers[: steps - 1], data))
    markers = markers[:steps]
    read_tagged(folder / EXCHANGES, Exchange)  # they were paid for: damage is named before anything is cut
    return Found(markers, _counted(folder, markers, data))


def _counted(folder: Path, markers: Sequence[Marker], data: dict[str, bytes]) -> dict[str, Running]:
    """The part of each file that counts: records up to the marker, all whole lines of the rest."""
    lengths = markers[-1].lengths if markers else {}
    running = {name: Running() for name in (*FINGERPRINTED, *BESIDE)}
    for name in FINGERPRINTED:
        content = data.get(name, b"")
        end = content.rfind(b"\n") + 1
        if name in TRIMMED:
            end = lengths.get(name, 0)
        elif name == JOURNAL:
            end = sum(len(line) + 1 for line in content.split(b"\n")[: len(markers)])
        running[name].add(content[:end])
    for name in BESIDE:
        running[name].size = sum(map(len, whole_lines(folder / name)))
    return running


def _markers(folder: Path, journal: bytes) -> tuple[list[Marker], str]:
    """The markers up to the first line that cannot be read, and what is wrong with that line."""
    markers = list[Marker]()
    place = 0
    for number, line in enumerate(journal.split(b"\n")[:-1], start=1):
        try:
            marker = Marker.from_json(line)
            if marker.files and marker.to_json().encode() != line:
                raise ValueError("it is not as it was written")
            if marker.files and marker.files[JOURNAL].size != place:
                raise ValueError("it does not belong here: lines before it are missing or were added")
        except BAD as error:
            return markers, f"{folder / JOURNAL}, line {number}: {one_line(error)}; {COPY}"
        markers.append(marker)
        place += len(line) + 1
    return markers, ""


def _faults(folder: Path, markers: Sequence[Marker], steps: int, data: dict[str, bytes]) -> Iterator[str]:
    """What keeps a run from going on after so many finished steps; what costs least is looked at first."""
    if not steps:
        yield from _faults_at_start(folder, data)
        return
    marker = markers[steps - 1]
    for part, name in marker.saved.items():
        path = folder / CHECKPOINTS / name
        if not CHECKPOINT_NAME.fullmatch(name):
            yield f"{folder / JOURNAL}, line {steps}: {name!r:.60} is not a checkpoint of the {part:.60}; {COPY}"
        elif not path.is_dir() or path.is_symlink():
            yield (
                f"{path} is missing, the checkpoint of step {steps}, which is the last of {JOURNAL}; restore the "
                "folder or the journal from a copy (nothing was changed)"
            )
    for name in TRIMMED:
        length = marker.lengths.get(name, 0)
        content = data.get(name, b"")
        if len(content) < length:
            yield f"{folder / name} is shorter than its {length} bytes in the journal; {COPY}"
        elif length < 0 or (length and content[length - 1 : length] != b"\n"):
            yield f"{folder / JOURNAL}, line {steps}: {folder / name} has no line that ends at byte {length}; {COPY}"
    for name, known in marker.files.items():
        yield from _differs(folder, name, known, data)


def _differs(folder: Path, name: str, known: Fingerprint, data: dict[str, bytes]) -> Iterator[str]:
    """Whether a file, or its beginning, is no longer as a marker says."""
    path = folder / name
    if name in FINGERPRINTED:
        if len(data.get(name, b"")) < known.size:
            yield f"{path} is shorter than its {known.size} bytes in the journal; {COPY}"
            return
        running = Running()
        running.add(data.get(name, b"")[: known.size])
        found = running.fingerprint
    elif not name.startswith(f"{CHECKPOINTS}/") or ".." in Path(name).parts:
        yield f"{folder / JOURNAL} names {name!r}, which is not a file of a run; {COPY}"
        return
    else:
        try:
            found = fingerprint(path, known.size)
        except RunDamaged as error:
            yield str(error)
            return
    if found != known:
        yield f"{path} is not as it was written: a byte of it has changed since; {COPY}"


def _faults_at_start(folder: Path, data: dict[str, bytes]) -> Iterator[str]:
    """A journal without a line: a run that was killed in its first step leaves traces of that step and no other."""
    steps = set[str]()
    for name in (*FILES.values(), EXCHANGES):
        for line in data.get(name, b"").split(b"\n")[:-1]:
            try:
                values = json.loads(line)
                steps.add(f"{values['cycle']} {values['phase']} {values['part']}")
            except BAD:
                steps.add("unreadable")
    numbers = [int(path.name.partition("-")[0]) for path in checkpoints(folder)]
    late = [number for number in numbers if 1 < number < UNBORN]
    if len(steps) > 1 or late or data.get(METRICS, b"").count(b'"test/headline"') > 0:
        state = "is empty" if (folder / JOURNAL).exists() else "is missing"
        yield (
            f"{folder / JOURNAL} {state}, but the folder holds records or checkpoints of finished steps; restore the "
            "journal from a copy, or begin a new run in another folder (nothing was changed)"
        )


UNBORN = 99_999
"""Number of the checkpoints that a run begins with while they are being written."""


def _offer(folder: Path, markers: Sequence[Marker], data: dict[str, bytes]) -> str:
    """An earlier step after which the run can go on, if there is one."""
    for steps in range(len(markers), 0, -1):
        if next(_faults(folder, markers, steps, data), None) is None:
            step = markers[steps - 1].step
            what = f"cycle {step.cycle}, {step.phase}"
            return (
                f". Or go on after step {steps} ({what}), which is whole: curricle resume {folder} --from-step {steps}"
            )
    return ""


def refuse_links(folder: Path) -> None:
    """Refuse links and devices where a run has its files: whoever writes through them writes elsewhere."""
    for name in (CONFIG, f"{CONFIG}.new", LOCK, *FINGERPRINTED, *BESIDE):
        _refuse_other_kind(folder / name, stat.S_ISREG, "regular file")
    for name in FOLDERS:
        _refuse_other_kind(folder / name, stat.S_ISDIR, "folder")


def refuse_second_names(folder: Path) -> None:
    """Refuse to write to a file that has a second name: it may be a backup, or no file of a run at all."""
    for name in (LOCK, *FINGERPRINTED, *BESIDE):
        path = folder / name
        if path.exists() and path.stat().st_nlink > 1:
            raise RunDamaged(
                f"{path} has a second name (a hard link), and what is written would change that file, too; copy the "
                "folder with cp -r and resume the copy"
            )


def _refuse_other_kind(path: Path, fits: Any, what: str) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error.strerror or error}; {COPY}") from error
    if not fits(mode):
        raise RunDamaged(f"{path} is not a {what}: links in a run folder are not followed; move it away or {COPY}")


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run: folders with a name that it may have written itself, and no links."""
    place = folder / CHECKPOINTS
    if not place.is_dir() or place.is_symlink():
        return []
    found = [path for path in place.iterdir() if CHECKPOINT_NAME.fullmatch(path.name)]
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def fingerprint(path: Path, longest: int | None = None) -> Fingerprint:
    """Length and hash of a regular file; one longer than it may be is not read."""
    running = Running()
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise RunDamaged(f"{path} is not a regular file; {COPY}")
        if longest is not None and state.st_size != longest:
            raise RunDamaged(f"{path} has {state.st_size:,} bytes instead of {longest:,}; {COPY}")
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                running.add(chunk)
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error.strerror or error}; {COPY}") from error
    return running.fingerprint


def fingerprints(folder: Path, checkpoint: str) -> dict[str, Fingerprint]:
    """The fingerprints of all files of a checkpoint, by their names in the run folder."""
    files = sorted(path for path in (folder / CHECKPOINTS / checkpoint).rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): fingerprint(path) for path in files}


def read_markers(folder: Path) -> list[Marker]:
    """All markers of a run."""
    data = read_file(folder / JOURNAL) if (folder / JOURNAL).exists() else b""
    markers, trouble = _markers(folder, data)
    if trouble:
        raise RunDamaged(trouble)
    return markers


def read_steps(folder: Path) -> list[Step]:
    """The steps that are done."""
    return [marker.step for marker in read_markers(folder)]


def read_checkpoint(folder: Path, part: str) -> Path:
    """Where the newest state of the agent or the designer lies, with every byte as it was written."""
    markers = read_markers(folder)
    if not markers or part not in markers[-1].saved:
        raise RunError(f"{folder} has no {part} yet: none of its steps has finished")
    name = markers[-1].saved[part]
    path = folder / CHECKPOINTS / name
    if not CHECKPOINT_NAME.fullmatch(name) or not path.is_dir() or path.is_symlink():
        raise RunDamaged(f"{path} is missing; {COPY}")
    for file, known in markers[-1].files.items():
        if file.startswith(f"{CHECKPOINTS}/{name}/"):
            for trouble in _differs(folder, file, known, {}):
                raise RunDamaged(trouble)
    return path


def verify(folder: Path) -> tuple[list[str], list[str]]:
    """All that is wrong with a run folder, and what else is worth knowing, a line each; changes nothing.

    A run that goes on meanwhile replaces its checkpoints: what looks damaged then is looked at again.
    """
    for _ in range(TRIES):
        before = (folder / JOURNAL).stat().st_size if (folder / JOURNAL).exists() else 0
        problems, notes = _verify(folder)
        after = (folder / JOURNAL).stat().st_size if (folder / JOURNAL).exists() else 0
        if not problems or before == after:
            break
    return problems, notes


def _verify(folder: Path) -> tuple[list[str], list[str]]:
    config = read_config(folder)
    try:
        refuse_links(folder)
    except RunDamaged as error:
        return [str(error)], []
    problems = list[str]()
    data = dict[str, bytes]()
    for name in FINGERPRINTED:
        try:
            data[name] = read_file(folder / name) if (folder / name).exists() else b""
        except RunDamaged as error:
            problems.append(str(error))
    markers, trouble = _markers(folder, data.get(JOURNAL, b""))
    if trouble:
        problems.append(trouble)
    problems += _faults(folder, markers, len(markers), data)
    problems += _unreadable(folder, markers)
    notes = [f"{folder}: {len(markers)} finished steps"]
    if markers and not markers[-1].files:
        notes.append("it was begun by a version that kept no hashes: a byte that changed may go unseen")
    return list(dict.fromkeys(problems)), [*notes, *_other_versions(folder, config)]


def _unreadable(folder: Path, markers: Sequence[Marker]) -> Iterator[str]:
    """Lines and checkpoints that cannot be read, whatever the journal says of them."""
    kinds: dict[type[Record], str] = {**FILES, Exchange: EXCHANGES}
    for kind, name in kinds.items():
        try:
            read_tagged(folder / name, kind)
        except RunDamaged as error:
            yield str(error)
    for read in (read_metrics, read_environment, read_timings):
        try:
            read(folder)
        except RunDamaged as error:
            yield str(error)
    known = markers[-1].saved.values() if markers and not markers[-1].files else ()  # else their hashes tell
    for name in known:
        for path in (folder / CHECKPOINTS / name).rglob(checkpoint.ARRAYS):
            try:
                checkpoint.read(path.parent)
            except RunDamaged as error:
                yield str(error)


def _other_versions(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Versions that differ between the last time somebody worked in the run and now."""
    try:
        lines = read_environment(folder)
    except RunDamaged:  # which is among the problems
        return
    before = lines[-1].get("packages") if lines else None
    if not isinstance(before, Mapping):
        yield "it does not say with which versions it was made"
        return
    now = packages()
    for name in sorted(set(before) | set(now)):
        if before.get(name) != now.get(name):
            yield f"{name} was {before.get(name, 'not installed')} and is {now.get(name, 'not installed')} here"
    if lines[-1].get("config") not in (None, dict(config)):
        yield f"{CONFIG} was changed since somebody last worked in the run; a resume says what is different"
