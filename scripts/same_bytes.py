"""Compare what two versions of Curricle write: the runs of REV against those of the working tree, byte for byte.

    python scripts/same_bytes.py REV                 all runs of same_bytes_runs.py
    python scripts/same_bytes.py REV --only tools    some of them

REV is checked out as a git worktree in a cache inside the repository's git folder, and its runs are kept there: only
the working tree is run again the next time. Run folders are compared without timings. Their configs are compared after
the working tree has read the old one, so renamed and removed keys count as equal where the new tree understands the old
ones. Some runs are also killed half-way and resumed by the working tree, begun by the old tree or by the new one.
Everything in a run folder is compared, checkpoints and exchanges included, but for `IGNORED`. Prints one line a run and
exits with 0 only if all are equal.
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
    """Print a line a run; returns how many differ, at most 1."""
    pairs = [(name, name) for group in runs.values() for name in group]
    for name in _resumed(runs):
        pairs += [(name, f"{name}-resumed"), (name, f"{name}-killed")]
    differing = 0
    for before, after in pairs:
        problems = _differences(before, after, old, new)
        differing += bool(problems)
        print(f"{after:24} {'; '.join(problems) if problems else 'equal'}")
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
    problems = []
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            problems.append(f"{name} {_where(theirs.get(name), ours.get(name))}")
    if theirs_config != ours_config and not after.endswith(("-resumed", "-killed")):
        problems += _config_differences(old.folder / before, new)
        changed = _leaves(tomllib.loads(theirs_config.decode())) ^ _leaves(tomllib.loads(ours_config.decode()))
        if not problems:
            print(f"  {after}: renamed or removed in the config: {', '.join(sorted(key for key, _ in changed))}")
    return problems


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


def _config_differences(run: Path, new: Side) -> list[str]:
    """Whether the new tree reads the old tree's config as the config it made itself."""
    place = Path(tempfile.mkdtemp(prefix="same-bytes-"))
    try:
        old_tree = run.parent.parent / "tree"
        text = (run / "config.toml").read_text().replace(str(old_tree), str(new.tree))
        (place / "config.toml").write_text(text)
        program = (
            "import sys, tomllib; from curricle.config import resolve; import tomli_w;"
            "print(tomli_w.dumps(resolve(tomllib.load(open(sys.argv[1], 'rb'))).to_toml()))"
        )
        environment = {**os.environ, "PYTHONPATH": str(new.tree / "src")}
        done = subprocess.run(
            [sys.executable, "-c", program, str(place / "config.toml")],
            env=environment,
            cwd=new.tree,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return [f"config.toml of the old tree is not read: {done.stderr.strip().splitlines()[-1]}"]
        read = _leaves(tomllib.loads(done.stdout))
        made = _leaves(tomllib.loads((new.folder / run.name / "config.toml").read_text()))
        differing = {item for item in read ^ made if "base_url" not in item[0]}
        return [f"config.toml: {key} = {value}" for key, value in sorted(differing)]
    finally:
        shutil.rmtree(place)


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
