"""Compare what two versions of Curricle write: the runs of REV against those of the working tree, byte for byte.

    python scripts/same_bytes.py REV                 all runs of same_bytes_runs.py
    python scripts/same_bytes.py REV --only tools    some of them

REV is checked out as a git worktree in a cache inside the repository's git folder, and its runs are kept there: only
the working tree is run again the next time. Some runs are also killed half-way and resumed by the working tree: begun
by the old tree (`-resumed`) or by the new one (`-killed`).

Everything in a run folder is compared byte for byte, checkpoints and exchanges included, but for the files of
`IGNORED`, which say when, where and how fast. There are three exceptions:

- journal.jsonl: the hashes of files are left out, because not every version writes them. The files are compared.
- config.toml: the working tree reads the old config, and the result is compared with its own config, value by value. So
  a renamed or removed key counts as equal where the working tree understands it. A run that the old tree began keeps
  the old keys; its config is read, too. The addresses of endpoints are not compared, because each run has another one.

- Keys of records that were renamed since stand in `RENAMED`. They are mapped, and printed for the runs that have them.

Prints one line a run, and below it the keys of the config that were renamed or removed. Exits with 0 only if all runs
are equal.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from same_bytes_runs import RESUMED, Endpoint, fill, make_model, rl_runs, text_runs

HERE = Path(__file__).resolve().parent
TREE = HERE.parent
IGNORED = {"environment.jsonl", "timings.jsonl", "tensorboard", "lock", "lost+found"}
"""Files of a run folder that say when, where and how fast."""
UNREADABLE = "unreadable"
"""Stands in for a config that the new tree refuses; its value is the reason."""
RENAMED_KNOBS = {"ahead": "raised_attributes", "told": "amounts_given"}
RENAMED = {
    "designs.jsonl": RENAMED_KNOBS,
    "outcomes.jsonl": RENAMED_KNOBS,
    "metrics.jsonl": {
        "practice/even": "practice/no_signal",
        "practice/warmed": "practice/imitation_updates",
        "practice/warm_loss": "practice/imitation_loss",
        "design/warmed": "design/imitation_passes",
        "design/warm_loss": "design/imitation_loss",
    },
}
"""By file of records: keys of the old tree -> their names in the new one (knobs of reasoning and store, metrics)."""
KNOBS = {f"{old} -> {new}" for old, new in RENAMED_KNOBS.items()}
KILL_AFTER = 5
"""Finished steps after which a run is killed."""


def main() -> int:
    """Make the runs of both trees and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rev", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", metavar="RUN", default=[], help="compare only these runs")
    parser.add_argument("--fresh", action="store_true", help="make the runs of REV again")
    arguments = parser.parse_args()
    runs = {"rl": rl_runs(), "text": text_runs()}
    known = [name for group in runs.values() for name in group]
    for name in arguments.only:
        if name not in known:
            parser.error(f"there is no run {name!r}; runs: {', '.join(known)}")
    if arguments.only:
        runs = {group: {n: c for n, c in made.items() if n in arguments.only} for group, made in runs.items()}

    cache = _cache(arguments.rev, arguments.fresh)
    model = cache / "model"
    if not model.is_dir():
        make_model(model)
        shutil.copy(HERE / "same_bytes_world.py", model)
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as scratch, Endpoint() as endpoint:
        names = {"model": str(model), "endpoint": f"http://{endpoint.address}/v1"}
        old = Side(cache / "tree", cache / "runs", names)
        new = Side(TREE, Path(scratch), names)
        _make(runs, old, new)
        return _compare(runs, old, new)


class Side:
    """One of the two trees, and the folder with its runs."""

    def __init__(self, tree: Path, folder: Path, names: Mapping[str, str]) -> None:
        self.tree = tree
        self.folder = folder
        self.names = {**names, "tree": str(tree)}

    def start(self, configs: Mapping[str, Any], resume: bool = False) -> subprocess.Popen[str]:
        """Make runs, or resume them, one after another in a process of this tree."""
        self.folder.mkdir(parents=True, exist_ok=True)
        plan = {name: None if resume else fill(config, self.names) for name, config in configs.items()}
        environment = {**os.environ, "PYTHONPATH": str(self.tree / "src"), "CUDA_VISIBLE_DEVICES": ""}
        environment["OMP_NUM_THREADS"] = "1"  # the groups run side by side; more threads would wait for each other
        for name in [name for name in environment if name.startswith(("CURRICLE_", "OPENAI_"))]:
            del environment[name]
        command = [sys.executable, str(HERE / "same_bytes_worker.py"), str(self.folder), json.dumps(plan)]
        return subprocess.Popen(
            command, cwd=self.tree, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def kill_half_way(self, name: str, config: Any) -> None:
        """Begin a run and kill it with SIGKILL after some of its steps; a run that ends before is an error."""
        journal = self.folder / name / "journal.jsonl"
        process = self.start({name: config})
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n") >= KILL_AFTER:
                break
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise SystemExit(f"{name} in {self.tree.name}: it ended before it could be killed; make it longer")

    def contents(self, name: str) -> dict[str, bytes]:
        """The files of a run that are its result, with this tree's place and address taken out."""
        folder = self.folder / name
        found: dict[str, bytes] = {}
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            if path.is_file() and relative.parts[0] not in IGNORED:
                data = path.read_bytes()
                if path.suffix in (".jsonl", ".toml", ".json"):
                    data = data.replace(self.names["model"].encode(), b"MODEL")  # first: it may lie inside a tree
                    data = data.replace(str(self.tree).encode(), b"TREE")
                    data = re.sub(rb"127\.0\.0\.1:\d+", b"ADDRESS", data)
                if path.name == "journal.jsonl":
                    data = re.sub(
                        rb', "files": \{.*\}\}\}$', b"}", data, flags=re.MULTILINE
                    )  # hashes, not in all versions
                found[str(relative)] = data
        return found


def _make(runs: Mapping[str, Mapping[str, Any]], old: Side, new: Side) -> None:
    """Make all runs: RL and text side by side, the old tree's only where they are not in the cache."""
    for side in (old, new):
        processes = []
        for group in runs.values():
            missing = {name: c for name, c in group.items() if not (side.folder / f"{name}.log").exists()}
            if missing:
                processes.append(side.start(missing))
        for process in processes:
            _wait(process)
        for name, config in _resumed(runs).items():
            if not (side.folder / f"{name}-killed.log").exists():
                side.kill_half_way(f"{name}-killed", config)
                (side.folder / f"{name}-killed.log").write_text("")
    begun_by_old = {f"{name}-resumed": None for name in _resumed(runs)}
    for name in _resumed(runs):
        shutil.copytree(old.folder / f"{name}-killed", new.folder / f"{name}-resumed")
        config = new.folder / f"{name}-resumed" / "config.toml"
        config.write_text(config.read_text().replace(str(old.tree), str(new.tree)))
    begun_by_new = {f"{name}-killed": None for name in _resumed(runs)}
    if begun_by_old:
        for process in (new.start(begun_by_old, resume=True), new.start(begun_by_new, resume=True)):
            _wait(process)


def _resumed(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: config for group in runs.values() for name, config in group.items() if name in RESUMED}


def _wait(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate()
    if process.returncode:
        print(output[-4000:], file=sys.stderr)


def _compare(runs: Mapping[str, Mapping[str, Any]], old: Side, new: Side) -> int:
    """Print a line a run; returns 1 if any differs, else 0."""
    pairs = [(name, name) for group in runs.values() for name in group]
    for name in _resumed(runs):
        pairs += [(name, f"{name}-resumed"), (name, f"{name}-killed")]
    differing = 0
    for before, after in pairs:
        problems = _differences(before, after, old, new)
        differing += bool(problems)
        print(f"{after:24} {'; '.join(problems) if problems else 'equal'}")
        keys = [] if problems else renamed(before, after, old, new)
        if keys:
            print(f"  renamed or removed in the config: {', '.join(keys)}")
    return int(differing > 0)


def _differences(before: str, after: str, old: Side, new: Side) -> list[str]:
    """What differs between a run of the old tree and one of the new, in words."""
    for side, name in ((old, before), (new, after)):
        log = side.folder / f"{name}.log"
        failure = log.read_text() if log.exists() else "it was never run"
        if failure:
            return [f"failed in {side.tree.name}: {failure.strip().splitlines()[-1]}"]
    theirs = old.contents(before)
    ours = new.contents(after)
    theirs_config = theirs.pop("config.toml")
    ours_config = ours.pop("config.toml")
    _map_records(after, theirs, ours)
    problems = file_differences(theirs, ours)
    if theirs_config != ours_config:
        problems += config_differences(
            read_config(old.folder / before, old.tree, new.tree), read_config(new.folder / after, old.tree, new.tree)
        )
    return problems


def renamed(before: str, after: str, old: Side, new: Side) -> list[str]:
    """The keys of the config that only one of the two trees wrote, or wrote with another value."""
    theirs = tomllib.loads(old.contents(before)["config.toml"].decode())
    ours = tomllib.loads(new.contents(after)["config.toml"].decode())
    return sorted({key for key, _ in _leaves(theirs) ^ _leaves(ours)})


def file_differences(theirs: Mapping[str, bytes], ours: Mapping[str, bytes]) -> list[str]:
    """Which files differ, and where."""
    problems = []
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            problems.append(f"{name} {_where(theirs.get(name), ours.get(name))}")
    return problems


def config_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Which values differ between two configs that the same tree has read; addresses of endpoints may."""
    for config in (theirs, ours):
        if UNREADABLE in config:
            return [f"config.toml is not read: {config[UNREADABLE]}"]
    differing = {(key, value) for key, value in _leaves(theirs) ^ _leaves(ours) if not key.endswith("base_url")}
    return [f"config.toml: {key} = {value}" for key, value in sorted(differing)]


def _map_records(run: str, theirs: dict[str, bytes], ours: dict[str, bytes]) -> None:
    """Give the records of the old tree the keys of today; says which ones were renamed."""
    mapped = _map_keys(theirs)
    if run.endswith("-resumed"):  # its first lines were written by the old tree
        _map_keys(ours)
    if mapped:
        print(f"  {run}: renamed in the records: {', '.join(sorted(mapped))}")
    if mapped & KNOBS:  # the agent's checkpoint holds a hash of the designs, knobs' names included
        print(f"  {run}: the hash of the designs in the agent's checkpoint is not compared")
        for files in (theirs, ours):
            _take_out_design_hashes(files)


def _map_keys(files: dict[str, bytes]) -> set[str]:
    """Give the keys of records their new names, and the journal the lengths that follow; returns what was renamed."""
    mapped = set[str]()
    lines = []
    for line in files.get("journal.jsonl", b"").splitlines():
        marker = json.loads(line)
        for name in RENAMED:
            if name not in marker.get("lengths", {}):
                continue
            length = marker["lengths"][name]
            marker["lengths"][name] = len(_with_new_keys(name, files.get(name, b"")[:length], mapped))
        lines.append(json.dumps(marker, ensure_ascii=False).encode() + b"\n")
    if lines:
        files["journal.jsonl"] = b"".join(lines)
    for name in RENAMED.keys() & files.keys():
        files[name] = _with_new_keys(name, files[name], mapped)
    return mapped


def _with_new_keys(name: str, data: bytes, mapped: set[str]) -> bytes:
    """Lines of JSON with renamed keys; adds those that were found to `mapped`."""
    for old, new in RENAMED[name].items():
        found = f'"{old}": '.encode()
        if found in data:
            data = data.replace(found, f'"{new}": '.encode())
            mapped.add(f"{old} -> {new}")
    return data


def _take_out_design_hashes(files: dict[str, bytes]) -> None:
    for name in files:
        if name.startswith("checkpoints/") and name.endswith("-agent/state.json"):
            files[name] = re.sub(rb'("turn":\s*\[\s*)\d+', rb"\1HASH", files[name])


def _where(theirs: bytes | None, ours: bytes | None) -> str:
    if theirs is None or ours is None:
        return "is new" if theirs is None else "is missing"
    same = 0
    for one, other in zip(theirs, ours, strict=False):
        if one != other:
            break
        same += 1
    line = theirs[:same].count(b"\n") + 1
    return f"differs at byte {same} (line {line}; {len(theirs)} and {len(ours)} bytes)"


def read_config(run: Path, old_tree: Path, new_tree: Path) -> dict[str, Any]:
    """The config of a run as the new tree reads it: with its names of keys, and without notes on renamed ones."""
    text = (run / "config.toml").read_text().replace(str(old_tree), str(new_tree))
    program = (
        "import sys, tomllib, tomli_w; from curricle.config import resolve;"
        "print(tomli_w.dumps(resolve(tomllib.loads(sys.stdin.read())).to_toml()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(new_tree / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, env=environment, cwd=new_tree, capture_output=True, text=True
    )
    if done.returncode:
        return {UNREADABLE: done.stderr.strip().splitlines()[-1]}
    return tomllib.loads(done.stdout)


def _leaves(table: Mapping[str, Any], head: str = "") -> set[tuple[str, str]]:
    """All values of nested tables with their dotted keys."""
    found: set[tuple[str, str]] = set()
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{head}{key}.")
        else:
            found.add((head + key, repr(value)))
    return found


def _cache(rev: str, fresh: bool) -> Path:
    """The folder for a revision's tree and runs; another version of the runs or of Python gets another one."""
    commit = _git("rev-parse", "--verify", f"{rev}^{{commit}}")
    sources = [path for path in sorted(HERE.glob("same_bytes*.py")) if path.name != "same_bytes.py"]
    marks = [commit, sys.version, sys.prefix, *(_hash(path) for path in sources)]
    name = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:12]
    shared = Path(_git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "same_bytes"
    cache = shared / f"{commit[:10]}-{name}"
    if fresh and (cache / "runs").exists():
        shutil.rmtree(cache / "runs")
    if not (cache / "tree" / "src").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", "--force", str(cache / "tree"), commit)
    return cache


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(TREE), *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
