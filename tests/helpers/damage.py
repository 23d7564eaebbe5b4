"""Damage to a run folder, by kind, and what must hold after each: a refusal in one line, or the same bytes.

Whatever was whole before stays so: a refusal changes nothing, and what a resume cuts lies in lost+found/.
"""

import os
import random
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

from helpers.killing import NOT_RESULTS, contents
from helpers.llm_runs import curricle as command_line

from curricle.records import leaves
from curricle.run import BY_HAND, CONFIG, ENVIRONMENT, LOCK, LOST, TENSORBOARD

HUGE = 1 << 40
CHANGED_BY_A_TRY = {LOCK, ENVIRONMENT}
"""Files that a resume may add a line to before it refuses."""


def truncate(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    os.truncate(path, rng.randrange(size) if size else 0)


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)


def flip_bit(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def duplicate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() * 2)


def cut_lines(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: rng.randrange(len(lines) + 1)]))


def repeat_a_line(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(lines)) if lines else 0
    path.write_bytes(b"".join([*lines[:at], *lines[at : at + 1], *lines[at:]]))


def swap_lines(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    rng.shuffle(lines)
    path.write_bytes(b"".join(lines))


def garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.randint(1, 5_000)))


def zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def append_zeros(path: Path, rng: random.Random) -> None:
    """As a file system leaves a file after a power cut."""
    with path.open("ab") as file:
        file.write(bytes(rng.randint(1, 5_000)))


def deep(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"[" * 200_000 + b"\n")


def huge(path: Path, rng: random.Random) -> None:
    os.truncate(path, HUGE)


def symlink(path: Path, rng: random.Random) -> None:
    elsewhere = path.parent.parent / f"elsewhere-{path.name}"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def read_only(path: Path, rng: random.Random) -> None:
    path.chmod(0o444)


def foreign(path: Path, rng: random.Random) -> None:
    """Files and folders of somebody else, with names that look almost like a run's."""
    for name in ("best-agent", "99-agent", "notes", "00001-agent.bak"):
        (path.parent / name).mkdir(exist_ok=True)
        (path.parent / name / "mine.txt").write_text("do not touch")
    (path.parent / "00001").write_text("do not touch")
    (path.parent / f"{path.name}.bak").write_text("do not touch")


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    **{
        f.__name__: f
        for f in (truncate, flip, flip_bit, empty, delete, duplicate, cut_lines, repeat_a_line, swap_lines)
    },
    **{f.__name__: f for f in (garbage, zeros, append_zeros, deep, huge, symlink, dangling, folder, fifo, read_only)},
    "foreign": foreign,
}


def targets(base: Path) -> list[str]:
    """Every file of a run folder but its lock."""
    files = [path for path in sorted(base.rglob("*")) if path.is_file()]
    return [str(path.relative_to(base)) for path in files if path.name != LOCK]


def snapshot(place: Path) -> dict[str, bytes]:
    """All files below a folder, links not followed; of the huge ones only that they are there."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(place))] = os.readlink(path).encode()
        elif path.is_file():
            large = path.stat().st_size > 2**24
            found[str(path.relative_to(place))] = b"huge" if large else path.read_bytes()
    return found


def curricle(*words):
    """A command in this process; what escapes it is kept, as a process of its own would print it."""
    return command_line(*words, survives=True)


def faults(base: Path, whole: Path, place: Path, kind: str, target: str, seed: int) -> list[str]:
    """Damage a copy of a run folder, try every command on it that reads it, and say what must not be."""
    shutil.rmtree(place, ignore_errors=True)
    run = place / "run"
    shutil.copytree(base, run)
    KINDS[kind](run / target, random.Random(seed))
    before = snapshot(place)
    found = []
    verified = curricle("verify", run)
    found += _faults_of(verified, "verify")
    for command in ("show", "designs", "compare"):
        found += _faults_of(curricle(command, run), command)
    found += [] if snapshot(place) == before else ["looking at it changed it"]
    done = curricle("resume", run)
    found += _faults_of(done, "resume")
    after = snapshot(place)
    lost = b"".join(data for name, data in after.items() if f"/{LOST}/" in f"/{name}")
    found += [
        f"lost: {name}" for name, data in before.items() if not _is_there(name, data, after, lost, done.returncode)
    ]
    if done.returncode == 0:
        found += _differences(run, whole, target, done.stderr)
    elif offer := re.search(r"--from-step \d+", done.stderr):
        again = curricle("resume", run, *offer[0].split())
        found += _faults_of(again, offer[0])
        if again.returncode == 0 and contents(run) != contents(whole):
            found.append(f"{offer[0]} ends with other bytes")
    return found


def _faults_of(done, command: str) -> list[str]:
    """A command ends well, or with one line that says why not."""
    found = [f"{command}: {done.traceback}"] if done.traceback else []
    if done.returncode not in (0, 1, 2):
        found.append(f"{command}: exit status {done.returncode}")
    if done.returncode and command != "verify":
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        if len(errors) != 1:
            found.append(f"{command}: {len(errors)} lines of error: {done.stderr!r:.300}")
    return found


def _is_there(name: str, data: bytes, after: dict[str, bytes], lost: bytes, status: int) -> bool:
    """Whether a file is as it was, or grew, or was cut and the rest kept."""
    now = after.get(name)
    top = name.removeprefix("run/").split("/")[0]
    if top in CHANGED_BY_A_TRY or top == TENSORBOARD:
        return True
    if now is None:  # a finished step replaces the checkpoint before it
        return "/checkpoints/" in name and (data in lost or status == 0)
    same = 0
    while same < min(len(now), len(data)) and now[same] == data[same]:
        same += 1
    return data[same:] in lost


def _differences(run: Path, whole: Path, target: str, said: str) -> list[str]:
    """What a run that went on has other than the whole one; a config that was changed is told instead."""
    theirs = contents(whole)
    ours = {name: data for name, data in contents(run).items() if name in theirs}
    if target.split("/")[0] in NOT_RESULTS | {BY_HAND}:
        ours.pop(target, None)
        theirs.pop(target, None)
    if target == CONFIG:
        old = dict(leaves(tomllib.loads(theirs.pop(CONFIG).decode())))
        new = dict(leaves(tomllib.loads(ours.pop(CONFIG).decode())))
        changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        untold = [key for key in changed if f"{key} was " not in said]
        return [f"a changed config was not told: {untold}"] if untold else []
    return [f"other bytes in {name}" for name in theirs if ours.get(name) != theirs[name]]
