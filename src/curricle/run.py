"""Run: the folder of one experiment, and the only file that knows names on disk.

    config.toml          resolved config; itself runnable, written first: it makes a folder a run
    journal.jsonl        one line a finished step: the marker, written last
    designs.jsonl  outcomes.jsonl  scores.jsonl  metrics.jsonl      records, one a line, in the order they were made
    exchanges.jsonl      every exchange with a language model, kept the moment it is over: also the ledger of its cost
    by_hand/             prompts that a person is to answer, and the answers
    checkpoints/         agent and designer as of the last marker (safetensors and JSON)
    environment.jsonl  timings.jsonl  tensorboard/      when, where and how fast; not part of the result

A marker holds the length of every record file. Opening a run cuts the files back to the last marker, so a step that was
killed half-way leaves no trace, is done again, and gives the same bytes. Exchanges alone outlive a killed step: they
cost money, and are not asked for twice.
"""

import json
import math
import os
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import filelock
import safetensors
import tomli_w
from pydantic import ValidationError

from curricle.errors import RunBusy, RunDamaged, RunError, RunUnwritable
from curricle.records import Design, Exchange, FrozenMap, Outcome, Record, Scores
from curricle.scale import ranks
from curricle.tracking.environment import environment

L = TypeVar("L", bound=Record)
R = TypeVar("R", Design, Outcome, Scores)

CONFIG = "config.toml"
JOURNAL = "journal.jsonl"
METRICS = "metrics.jsonl"
EXCHANGES = "exchanges.jsonl"
ENVIRONMENT = "environment.jsonl"
TIMINGS = "timings.jsonl"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
LOCK = "lock"
BY_HAND = "by_hand"
FILES: dict[type[Record], str] = {Design: "designs.jsonl", Outcome: "outcomes.jsonl", Scores: "scores.jsonl"}
TRIMMED = (*FILES.values(), METRICS)
UNTRIMMED = (JOURNAL, EXCHANGES, ENVIRONMENT, TIMINGS)


class Saved(Protocol):
    """Anything with state to checkpoint: an agent, a designer."""

    def save(self, folder: Path) -> None:
        """Write all state into an existing, empty folder."""

    def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""


class Step(Record):
    """Where in the loop something happened; long practice has several parts."""

    cycle: int
    phase: str
    part: int = 0


class Marker(Record):
    """One line of the journal: this step is done, and this is what the folder then held."""

    step: Step
    lengths: FrozenMap[str, int]
    saved: FrozenMap[str, str]
    """Checkpoint folder of each part that has state."""


class Run:
    """A run folder opened for work by this process; `with Run.open(folder) as run:`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensorboard = folder / TENSORBOARD
        self.by_hand = folder / BY_HAND
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
            self.markers = _lines(folder / JOURNAL, Marker)
            self._trim()
            self._exchanges = _tagged_lines(folder / EXCHANGES, Exchange)
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
            run._note(ENVIRONMENT, {"started": _now(), **environment(read_config(folder), ranks.count())})
            for name, part in parts.items():
                whole = folder / CHECKPOINTS / run._checkpoint(name, part, 99_999)
                whole.rename(whole.with_name(f"00000-{name}"))
        except BaseException:
            run._lock.release()
            raise
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Open an existing run to go on with it."""
        config = read_config(folder)  # says what is wrong before anything is touched
        run = cls(folder)
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
        first = {path.name.partition("-")[2]: path.name for path in (self.folder / CHECKPOINTS).glob("00000-*")}
        return self.markers[-1].saved if self.markers else first

    def restore(self, parts: Mapping[str, Saved]) -> None:
        """Bring agent and designer to where the last marker left them."""
        for name, checkpoint in self.saved.items():
            folder = self.folder / CHECKPOINTS / checkpoint
            if not folder.is_dir():
                raise RunDamaged(f"{folder} is missing; the run cannot be resumed without it")
            parts[name].load(folder)

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
        self._mark(Marker(step=step, lengths={name: self._length(name) for name in TRIMMED}, saved=saved))
        return records

    def metrics(self, step: Step, at: int, figures: Mapping[str, float]) -> None:
        """Append figures of the running step; `at` is the budget spent since the run began."""
        finite = {name: float(v) if math.isfinite(v) else None for name, v in figures.items()}  # JSON has no NaN
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
        self._append(JOURNAL, marker.to_json() + "\n")
        self.markers.append(marker)
        self._replayed += 1
        self._note(TIMINGS, {**marker.step.model_dump(), "seconds": time.monotonic() - self._started, "at": _now()})
        self._prune()

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

    def _prune(self) -> None:
        """Remove checkpoints that no longer count: older ones, and those of a step that was never marked."""
        current = set(self.saved.values())
        with self._writing(self.folder / CHECKPOINTS):
            for path in (self.folder / CHECKPOINTS).glob("*-*"):
                if path.name not in current and path.is_dir():
                    shutil.rmtree(path)

    def _trim(self) -> None:
        """Cut every record file back to the last marker, and all others back to their last whole line."""
        lengths = self.markers[-1].lengths if self.markers else {}
        whole = {name: sum(map(len, _whole_lines(self.folder / name))) for name in UNTRIMMED}
        for name, length in ({name: lengths.get(name, 0) for name in TRIMMED} | whole).items():
            path = self.folder / name
            if self._length(name) < length:
                raise RunDamaged(f"{path} is shorter than its {length} bytes in the journal; restore it from a copy")
            if self._length(name) > length:
                with self._writing(path):
                    os.truncate(path, length)
        self._prune()

    def _length(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    def _append(self, name: str, text: str, sync: bool = True) -> None:
        path = self.folder / name
        is_new = not path.exists()
        with self._writing(path), path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
                if is_new:
                    _sync(self.folder)

    def _note(self, name: str, line: Mapping[str, Any]) -> None:
        self._append(name, json.dumps(line) + "\n", sync=False)

    def _write(self, name: str, content: bytes) -> None:
        """Write a whole file so that it is either there or not."""
        path = self.folder / name
        new = self.folder / f"{name}.new"
        with self._writing(path):
            new.write_bytes(content)
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


# -- reading: for views and everyone else; needs no lock ---------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved config of a run, as plain data."""
    path = folder / CONFIG
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {CONFIG} (a run that never began is run again)")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDamaged(f"{path} cannot be read: {error}") from error


def read_records(folder: Path, kind: type[R]) -> list[tuple[Step, R]]:
    """All records of a kind with the step that made them."""
    return _tagged_lines(folder / FILES[kind], kind)


def read_exchanges(folder: Path) -> list[tuple[Step, Exchange]]:
    """All exchanges with language models, with the step that made them."""
    return _tagged_lines(folder / EXCHANGES, Exchange)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All figures: one dict a line, with `at`, `cycle` and `phase`."""
    return [json.loads(line) for line in _whole_lines(folder / METRICS)]


def read_timings(folder: Path) -> list[dict[str, Any]]:
    """How long each step took, repeated ones included: not part of the result."""
    return [json.loads(line) for line in _whole_lines(folder / TIMINGS)]


def read_environment(folder: Path) -> list[dict[str, Any]]:
    """Config, machine and versions at the start and at every resume."""
    return [json.loads(line) for line in _whole_lines(folder / ENVIRONMENT)]


def read_checkpoint(folder: Path, part: str) -> Path:
    """Where the newest state of the agent or the designer lies."""
    markers = _lines(folder / JOURNAL, Marker)
    if not markers or part not in markers[-1].saved:
        raise RunError(f"{folder} has no {part} yet: none of its steps has finished")
    return folder / CHECKPOINTS / markers[-1].saved[part]


def read_steps(folder: Path) -> list[Step]:
    """The steps that are done."""
    return [marker.step for marker in _lines(folder / JOURNAL, Marker)]


def _tagged(step: Step, record: Record) -> str:
    """A record as a line that says where it came from."""
    return json.dumps({**step.model_dump(), **json.loads(record.to_json())}, ensure_ascii=False) + "\n"


def _tagged_lines(path: Path, kind: type[L]) -> list[tuple[Step, L]]:
    """The records of a file with their steps: what `_tagged` wrote."""
    found = []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            values = json.loads(line)
            step = Step(**{name: values.pop(name) for name in Step.model_fields})
            found.append((step, kind.from_json(json.dumps(values))))
        except (ValueError, KeyError) as error:
            raise RunDamaged(f"{path}, line {number}: {error}") from error
    return found


def _lines(path: Path, kind: type[L]) -> list[L]:
    """The records of a file; a line torn by a crash at the very end is dropped, any other bad line is damage."""
    found = []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            found.append(kind.from_json(line))
        except ValidationError as error:
            raise RunDamaged(f"{path}, line {number}: {error}") from error
    return found


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    try:
        return [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]]
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error}") from error


def _refuse_occupied(folder: Path) -> None:
    """A new run needs a folder of its own; what an unborn run left behind does not count."""
    if {path.name for path in folder.iterdir()} <= {LOCK, CONFIG + ".new"}:
        return
    hint = f"to go on with it: curricle resume {folder}" if (folder / CONFIG).exists() else "choose another"
    raise RunError(f"{folder} exists already; {hint}")


def _owner(folder: Path) -> str:
    try:
        return (folder / LOCK).read_text(encoding="utf-8").strip() or "unknown"
    except OSError:
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
