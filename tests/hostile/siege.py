"""The long campaign: kills, bad replies, damage, full disks, engine steps; it writes a table of what held.

    python tests/hostile/siege.py                        all of it: about a day on two cores
    python tests/hostile/siege.py --scale 0.01           a hundredth of it
    python tests/hostile/siege.py --only damage kills    some of it

It can be ended at any moment and started again: what is done stands in the state file. Servers listen on loopback only,
and only processes that it started itself are ended. Exit status 1 if anything did not hold.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
for _name in [_name for _name in os.environ if _name.startswith(("CURRICLE_", "OPENAI_"))]:
    del os.environ[_name]
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers that have a core each

from helpers import bad_replies, damage, paths  # noqa: E402
from helpers.full_disk import full_disk  # noqa: E402
from helpers.killing import WARM, contents, stopped  # noqa: E402
from helpers.siege_replies import KEY, KEY_ENV, faults  # noqa: E402

from curricle import config  # noqa: E402
from curricle.errors import RunUnwritable  # noqa: E402
from curricle.run import CONFIG  # noqa: E402
from curricle.tracking.watcher import Watcher  # noqa: E402

FULL = {"kills": 1_000, "replies": 10_000, "damage": 10_000, "disks": 1_000, "engine": 100_000_000}
ENGINE_STEPS = 250_000
"""Steps of one process of the engine: it compiles anew with bounds checks, and is done in a minute."""
PAGE = ROOT / "docs" / "reliability.md"
BEGIN = "<!-- made by: make siege -->"
END = "<!-- end -->"
SCHEDULE = {"cycles": 2, "designs": 2, "per_cycle": 96, "final": 32, "save_every": 32, "test_seeds": 2}
SMALL: dict[str, Any] = {"world": {"id": paths.VAULT}, "schedule": SCHEDULE, "log": {"tensorboard": False}}
PPO = {"id": "ppo", "environments": 4, "steps": 8, "minibatches": 1, "epochs": 1, "width": 8, "hidden": 8, "workers": 2}
RUNS = {
    "tutor": {**SMALL, "designer": {"id": "tutor"}},
    "policy": {**SMALL, "designer": {"id": "policy", "search_rounds": 1, "imagined_samples": 4}},
    "ppo": {**SMALL, "designer": {"id": "random"}, "agent": PPO},
}
PROMISES = {
    "kills": "A run that is killed, ended or interrupted at any moment ends with the same bytes when it is resumed; "
    "signals are one line",
    "replies": "A bad reply is kept, breaks nothing and is read the same way at every resume; no key is stored",
    "damage": "Damage to a file of a run is refused in one line or repaired to the same bytes; nothing whole is lost",
    "disks": "A disk that is full at any write is one line, and the run goes on to the same bytes when there is room",
    "engine": "Crafter's engine stays inside its arrays, with random settings and actions, under bounds checks",
}
UNITS = {"kills": "signals", "replies": "replies", "damage": "damages", "disks": "full disks", "engine": "steps"}


class State:
    """What is done so far, in a file that outlives this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, part: str, count: int, found: list[str], seconds: float) -> None:
        """Count some more, with what did not hold."""
        known = self.parts.setdefault(part, {"done": 0, "faults": [], "seconds": 0.0})
        known["done"] += count
        known["faults"] += found
        known["seconds"] += seconds
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.parts, indent=1))
        new.replace(self.path)

    def done(self, part: str) -> int:
        return int(self.parts.get(part, {}).get("done", 0))


def kills(place: Path, start: int) -> Iterator[tuple[int, list[str]]]:
    """Signals at random moments, to the leader or to all its processes, until each run is over; again and again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*WARM, "curricle.agents.ppo.agent"])
    whole = {}
    for name, plain in RUNS.items():
        config.start(config.resolve(plain), place / f"whole-{name}")
        whole[name] = contents(place / f"whole-{name}")
    number = start
    while True:
        number += 1
        rng = random.Random(number)
        name = rng.choice(list(RUNS))
        folder = place / f"run-{number}"
        source = place / f"whole-{name}" / CONFIG
        stops = 0
        found: list[str] = []
        while not found and stops < 25:
            words = (
                ["resume", str(folder)] if (folder / CONFIG).exists() else ["run", str(source), "--out", str(folder)]
            )
            sent = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            code, said = stopped(context, words, place / "said", sent, rng)
            if code == 0:
                break
            if said and code != (-sent if sent == signal.SIGKILL else 128 + sent):
                found.append(f"{name}, {number}: exit status {code} after signal {sent}: {said!r:.300}")
            if "Traceback" in said:
                found.append(f"{name}, {number}: a traceback after signal {sent}: {said!r:.300}")
            stops += 1
        if not (folder / CONFIG).exists():
            config.start(config.resolve(RUNS[name]), folder)
        config.resume(folder)
        if contents(folder) != whole[name]:
            found.append(f"{name}, {number}: other bytes after {stops} signals")
        else:
            shutil.rmtree(folder)
        yield stops, found


def replies(place: Path, start: int) -> Iterator[tuple[int, list[str]]]:
    """Each kind in turn, and as many spoiled at random."""
    os.environ[KEY_ENV] = KEY
    kinds = list(bad_replies.KINDS.items())
    number = start
    while True:
        number += 1
        if number % 2:
            name, act = kinds[number // 2 % len(kinds)]
        else:
            name, act = f"spoiled {number}", bad_replies.spoiled(random.Random(number))
        yield 1, [f"{name}: {fault}" for fault in faults(act, seconds=3.0)]


def damages(place: Path, start: int) -> Iterator[tuple[int, list[str]]]:
    """Any kind to any file of a whole run or of one that was stopped half-way."""
    _ask_machine_once()
    bases = _bases(place)
    names = {base: damage.targets(folder) for base, folder in bases.items()}
    number = start
    while True:
        number += 1
        rng = random.Random(number)
        base = rng.choice(list(bases))
        kind = rng.choice(list(damage.KINDS))
        target = rng.choice(names[base])
        found = damage.faults(bases[base], bases["whole"], place / "damaged", kind, target, number)
        yield 1, [f"{kind} of {target} ({base}, {number}): {fault}" for fault in found]


def disks(place: Path, start: int) -> Iterator[tuple[int, list[str]]]:
    """A disk that is full from the n-th write on, for every n, over and over."""
    _ask_machine_once()
    whole = _bases(place)["whole"]
    plain = config.parse_config(whole)
    with full_disk(place / "count", 10**9) as disk:
        config.start(config.resolve(plain), place / "count")
    number = start
    while True:
        number += 1
        full_from = number % disk.writes
        folder = place / f"run-{number}"
        found = []
        try:
            with full_disk(folder, full_from):
                config.start(config.resolve(plain), folder)
            found.append(f"write {full_from}: nobody noticed")
        except RunUnwritable as error:
            found += [f"write {full_from}: {error!s:.300}"] if "\n" in str(error) else []
        except Exception as error:
            found.append(f"write {full_from}: {type(error).__name__}: {error}")
        if (folder / CONFIG).exists():
            config.resume(folder)
        else:
            config.start(config.resolve(plain), folder)
        if contents(folder) != contents(whole):
            found.append(f"write {full_from}: other bytes")
        shutil.rmtree(folder)
        yield 1, found


def engine(place: Path, start: int) -> Iterator[tuple[int, list[str]]]:
    """Random settings and actions in a process that checks every index; each seed has its own settings."""
    number = start // ENGINE_STEPS
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(place / "numba")}
    while True:
        number += 1
        script = ROOT / "tests" / "helpers" / "crafter_fuzz.py"
        words = [sys.executable, str(script), str(ENGINE_STEPS), str(number)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        found = [] if done.stdout == "no fault\n" else [f"seed {number}: {done.stderr[-500:]}"]
        yield ENGINE_STEPS, found


PARTS: dict[str, Callable[[Path, int], Iterator[tuple[int, list[str]]]]] = {
    "kills": kills,
    "replies": replies,
    "damage": damages,
    "disks": disks,
    "engine": engine,
}


class _Stop(Watcher):
    """Ends a run in its second cycle."""

    def begin(self, title: str, total: int, unit: str) -> None:
        if title.startswith("cycle 2: practice, original"):
            raise KeyboardInterrupt


def _bases(place: Path) -> dict[str, Path]:
    """A whole run, and one that was stopped half-way."""
    plain = RUNS["tutor"]
    config.start(config.resolve(plain), place / "whole")
    with contextlib.suppress(KeyboardInterrupt):
        config.start(config.resolve(plain), place / "half", _Stop())
    return {"whole": place / "whole", "half": place / "half"}


def _ask_machine_once() -> None:
    """What machine this is does not change; git and nvidia-smi take longer than all else."""
    from curricle.run import folder as folder_module

    known = folder_module.environment({}, 1)
    folder_module.environment = lambda config, ranks: {**known, "config": config}


def table(state: State) -> str:
    """The table of what was promised, what tested it, and what came out."""
    rows = ["| promise | tested by | tried | did not hold |", "|---|---|---|---|"]
    for part, promise in PROMISES.items():
        known = state.parts.get(part)
        if known:
            tried = f"{known['done']:,} {UNITS[part]}"
            rows.append(f"| {promise} | `make siege`, part `{part}` | {tried} | {len(known['faults'])} |")
    return "\n".join([BEGIN, *rows, END])


def write(page: Path, state: State) -> None:
    """Put the table into the page."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    page.write_text(head + table(state) + rest.partition(END)[2], encoding="utf-8")


def main() -> int:
    """Run the parts, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the long campaign")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts of it")
    parser.add_argument("--state", type=Path, default=ROOT / ".siege.json", help="where it is kept what is done")
    parser.add_argument("--no-page", action="store_true", help="leave docs/reliability.md as it is")
    options = parser.parse_args()
    state = State(options.state)
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="siege-state-")
    for part in options.only:
        goal = max(1, round(FULL[part] * options.scale))
        if state.done(part) >= goal:
            continue
        place = Path(tempfile.mkdtemp(prefix=f"siege-{part}-"))
        started = shown = time.monotonic()
        for count, found in PARTS[part](place, state.done(part)):
            now = time.monotonic()
            state.add(part, count, found, now - started)
            started = now
            for fault in found:
                print(f"{part}: {fault}", flush=True)
            if now - shown > 10 or state.done(part) >= goal:
                shown = now
                print(f"{part}: {state.done(part):,} of {goal:,} {UNITS[part]}", file=sys.stderr, flush=True)
            if state.done(part) >= goal:
                break
        shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)
    if not options.no_page:
        write(PAGE, state)
    return int(any(known["faults"] for known in state.parts.values()))


if __name__ == "__main__":
    sys.exit(main())
