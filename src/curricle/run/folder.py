"""The loop's side of a run folder: finished steps, records, checkpoints, resume.

A marker of the journal holds the length and hash of every file of the run. Opening a run looks first: journal, records
and checkpoints must agree (`checking.py`). Only then are the files cut back to the last marker, so a step that was
killed half-way leaves no trace, is done again, and gives the same bytes. What is cut lies in lost+found/ afterwards.
Exchanges alone outlive a killed step: they cost money, and are not asked for twice.
"""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import filelock
import safetensors
import tomli_w

from curricle.errors import RunBusy, RunDamaged, RunError, RunUnwritable, out_of_memory
from curricle.records import Design, Exchange, Outcome, Record, Scores
from curricle.run.checking import (
    UNBORN,
    Fingerprint,
    Marker,
    checkpoints,
    fingerprints,
    look,
    refuse_links,
    refuse_second_names,
)
from curricle.run.names import (
    BY_HAND,
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    EXCHANGES,
    FILES,
    FINGERPRINTED,
    JOURNAL,
    LOCK,
    LOST,
    METRICS,
    TENSORBOARD,
    TIMINGS,
    TRIMMED,
    Step,
)
from curricle.run.reading import BAD, COPY, one_line, parse_config, read_exchanges, read_records
from curricle.scale import ranks
from curricle.tracking.environment import environment

R = TypeVar("R", Design, Outcome, Scores)
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Saved(Protocol):
    """Anything with state to checkpoint: an agent, a designer."""

    def save(self, folder: Path) -> None:
        """Write all state into an existing, empty folder."""

    def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""


class Run:
    """A run folder opened for work by this process; `with Run.open(folder) as run:`."""

    def __init__(self, folder: Path, steps: int | None = None) -> None:
        self.folder = folder
        self.tensorboard = folder / TENSORBOARD
        self.by_hand = folder / BY_HAND
        refuse_links(folder)  # the lock is written to
        refuse_second_names(folder)
        self._lock = filelock.FileLock(folder / LOCK, timeout=0)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise RunBusy(f"{folder} is in use by another process ({_owner(folder)}); wait for it or end it") from None
        except OSError as error:
            raise RunUnwritable(f"cannot lock {folder}: {error}") from error
        try:
            with suppress(OSError):  # who holds the lock is good to know, no more
                (folder / LOCK).write_text(f"process {os.getpid()}\n", encoding="utf-8")
            found = look(folder, steps)
            self.markers = found.markers
            self._running = found.running
            self._exchanges = read_exchanges(folder)
            self._trim()
            self._known: dict[type[Record], dict[Step, list[Any]]] = {}
        except BaseException:
            self._lock.release()
            raise
        self._replayed = 0  # how many of the markers the loop has passed again
        self._started = time.monotonic()

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any], **parts: Saved) -> "Run":
        """Make a new run folder, unless it holds anything but an unborn run; what `parts` begin as is kept in it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_occupied(folder)
        except OSError as error:
            raise RunUnwritable(f"cannot make the run folder {folder}: {error.strerror}") from error
        run = cls(folder)
        try:
            _refuse_occupied(folder)  # again, now that nobody else can begin a run in it
            run._write(CONFIG, tomli_w.dumps(config).encode())
            run._note(ENVIRONMENT, {"started": _now(), **environment(parse_config(folder), ranks.count())})
            for name, part in parts.items():
                whole = folder / CHECKPOINTS / run._checkpoint(name, part, UNBORN)
                whole.rename(whole.with_name(f"00000-{name}"))
        except BaseException:
            run._lock.release()
            raise
        return run

    @classmethod
    def open(cls, folder: Path, steps: int | None = None) -> "Run":
        """Open an existing run to go on with it, after its last step or after as many as are given."""
        config = parse_config(folder)  # says what is wrong before anything is touched
        run = cls(folder, steps)
        run._note(ENVIRONMENT, {"resumed": _now(), **environment(config, ranks.count())})
        return run

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    # -- the loop's side -------------------------------------------------------------------------------------------

    @property
    def saved(self) -> Mapping[str, str]:
        """Checkpoint folder of each part that was saved: as of the last marker, or before the first step."""
        if self.markers:
            return self.markers[-1].saved
        first = [path.name for path in checkpoints(self.folder) if path.name.startswith("00000-")]
        return {name.partition("-")[2]: name for name in first}

    def restore(self, parts: Mapping[str, Saved]) -> None:
        """Bring agent and designer to where the last marker left them."""
        for name, checkpoint in self.saved.items():
            folder = self.folder / CHECKPOINTS / checkpoint
            if name not in parts:
                raise RunDamaged(f"{self.folder / JOURNAL} names {name!r}, of which a run keeps nothing; {COPY}")
            take_up(parts[name], folder)

    def step(self, step: Step, kind: type[R], work: Callable[[], Sequence[R]], **parts: Saved) -> list[R]:
        """Do a step of the loop and mark it done, or return its records if it was done before.

        Records first, then checkpoints of the parts that changed, then the marker; `parts` are named as in `restore`.
        """
        if self._replayed < len(self.markers):
            return self._replay(step, kind)
        self._started = time.monotonic()
        records = list(work())
        self._append(FILES[kind], "".join(_tagged(step, record) for record in records))
        saved = {**self.saved, **{n: self._checkpoint(n, part, len(self.markers) + 1) for n, part in parts.items()}}
        lengths = {name: self._running[name].size for name in TRIMMED}
        self._mark(Marker(step=step, lengths=lengths, saved=saved, files=self._fingerprints(saved)))
        return records

    def metrics(self, step: Step, at: int, metrics: Mapping[str, float]) -> None:
        """Append metrics of the running step; `at` is the budget spent since the run began."""
        finite = {name: float(v) if math.isfinite(v) else None for name, v in metrics.items()}  # JSON has no NaN
        self._note(METRICS, {"at": at, "cycle": step.cycle, "phase": step.phase} | finite)

    def keep(self, step: Step, exchange: Exchange) -> None:
        """Store an exchange with a language model, whatever becomes of the step it belongs to."""
        self._append(EXCHANGES, _tagged(step, exchange))
        self._exchanges.append((step, exchange))

    def kept(self, step: Step) -> list[Exchange]:
        """The exchanges of a step, those of earlier sittings included."""
        return [exchange for at, exchange in self._exchanges if at == step]

    def spent(self) -> dict[str, float]:
        """What the exchanges of all steps cost so far."""
        return Exchange.total(exchange for _, exchange in self._exchanges)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _replay(self, step: Step, kind: type[R]) -> list[R]:
        marker = self.markers[self._replayed]
        if marker.step != step:
            raise RunDamaged(
                f"{self.folder / JOURNAL} has {marker.step} where the config leads to {step}: "
                "finished steps cannot be moved. Put [schedule] back as it was, or start a new run"
            )
        self._replayed += 1
        if kind not in self._known:
            self._known[kind] = {}
            for at, record in read_records(self.folder, kind):
                self._known[kind].setdefault(at, []).append(record)
        return self._known[kind].get(step, [])

    def _mark(self, marker: Marker) -> None:
        with self._writing(self.folder):
            for path in (self.folder / METRICS, self.folder):  # metrics are not synced line by line
                if path.exists():
                    _sync(path)
        before = self.saved
        self._append(JOURNAL, marker.to_json() + "\n")
        self.markers.append(marker)
        self._replayed += 1
        self._note(TIMINGS, {**marker.step.model_dump(), "seconds": time.monotonic() - self._started, "at": _now()})
        self._prune(before)

    def _checkpoint(self, name: str, part: Saved, number: int) -> str:
        folder = self.folder / CHECKPOINTS / f"{number:05}-{name}"
        with self._writing(folder):
            folder.mkdir(parents=True)
            try:
                part.save(folder)
            except safetensors.SafetensorError as error:  # how its own writer reports a full disk
                raise OSError(str(error)) from error
            for path in folder.rglob("*"):
                _sync(path)
            _sync(folder)
            _sync(folder.parent)
        return folder.name

    def _fingerprints(self, saved: Mapping[str, str]) -> dict[str, Fingerprint]:
        """Of everything that the next marker stands for; checkpoints that did not change are not read again."""
        known = self.markers[-1].files if self.markers else {}
        found = {name: self._running[name].fingerprint for name in FINGERPRINTED}
        for checkpoint in saved.values():
            head = f"{CHECKPOINTS}/{checkpoint}/"
            before = {name: mark for name, mark in known.items() if name.startswith(head)}
            found |= before or fingerprints(self.folder, checkpoint)
        return found

    def _prune(self, before: Mapping[str, str]) -> None:
        """Remove the checkpoints that a new marker has replaced, and nothing else."""
        replaced = set(before.values()) - set(self.saved.values())
        with self._writing(self.folder / CHECKPOINTS):
            for path in checkpoints(self.folder):
                if path.name in replaced:
                    shutil.rmtree(path)

    def _trim(self) -> None:
        """Cut every file back to what counts, and put aside the checkpoints of a step that was never marked."""
        for name, running in self._running.items():
            path = self.folder / name
            if _size(path) > running.size:
                with self._writing(path):
                    self._put_aside(path, running.size)
                    os.truncate(path, running.size)
        current = set(self.saved.values())
        for path in checkpoints(self.folder):
            possible = int(path.name.partition("-")[0]) <= max(UNBORN, len(self.markers) + 1)
            if possible and path.name not in current:
                with self._writing(path):
                    path.rename(self._place_aside(path.name))

    def _put_aside(self, path: Path, start: int) -> None:
        """Copy what is about to be cut off a file."""
        with path.open("rb") as file:
            file.seek(start)
            with self._place_aside(path.name).open("xb") as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        _sync(self.folder / LOST)

    def _place_aside(self, name: str) -> Path:
        """A new name in the folder of what was cut off."""
        place = self.folder / LOST
        place.mkdir(exist_ok=True)
        numbers = [int(known.name.rpartition(".")[2]) for known in place.glob(f"{name}.*") if _is_numbered(known)]
        return place / f"{name}.{max(numbers, default=0) + 1}"

    def _append(self, name: str, text: str, sync: bool = True) -> None:
        path = self.folder / name
        is_new = not path.exists()
        data = text.encode()
        with self._writing(path), os.fdopen(os.open(path, APPEND, 0o666), "ab") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
                if is_new:
                    _sync(self.folder)
        self._running[name].add(data)

    def _note(self, name: str, line: Mapping[str, Any]) -> None:
        self._append(name, json.dumps(line) + "\n", sync=False)

    def _write(self, name: str, content: bytes) -> None:
        """Write a whole file so that it is either there or not."""
        path = self.folder / name
        new = self.folder / f"{name}.new"
        with self._writing(path):
            new.unlink(missing_ok=True)  # never through a link
            with new.open("xb") as file:
                file.write(content)
            _sync(new)
            new.replace(path)
            _sync(self.folder)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "nothing has begun; when it is put right, run it again"
            if (self.folder / CONFIG).exists():
                advice = f"finished steps are safe; when it is put right: curricle resume {self.folder}"
            raise RunUnwritable(f"cannot write {path}: {reason}; {advice}") from error


def take_up(part: Saved, folder: Path) -> None:
    """Let an agent or a designer load a checkpoint; one that does not fit is damage, whatever it breaks."""
    try:
        part.load(folder)
    except (*BAD, IndexError, RuntimeError) as error:
        if out_of_memory(error):
            raise
        what = f"{type(error).__name__}: {one_line(error)}"
        raise RunDamaged(f"checkpoint {folder} cannot be taken up ({what}); {COPY}") from error


def _tagged(step: Step, record: Record) -> str:
    """A record as a line that says where it came from."""
    return json.dumps({**step.model_dump(), **record.model_dump(mode="json")}, ensure_ascii=False) + "\n"


def _refuse_occupied(folder: Path) -> None:
    """A new run needs a folder of its own; what an unborn run left behind does not count."""
    if {path.name for path in folder.iterdir()} <= {LOCK, CONFIG + ".new"}:
        return
    hint = f"to go on with it: curricle resume {folder}" if (folder / CONFIG).exists() else "choose another"
    raise RunError(f"{folder} exists already; {hint}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_numbered(path: Path) -> bool:
    return path.name.rpartition(".")[2].isdecimal()


def _owner(folder: Path) -> str:
    try:
        return (folder / LOCK).read_text(encoding="utf-8")[:100].strip() or "unknown"
    except (OSError, ValueError):
        return "unknown"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _sync(path: Path) -> None:
    """Force a file or folder onto the disk; Windows has no such call for what is open for reading."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
