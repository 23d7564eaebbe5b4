"""Prose that can rot is executed: README, CONTRIBUTING, configs, examples."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from parts import ROOT

from curricle import config
from curricle.records import Outcome
from curricle.registry import BUILT_IN, find
from curricle.run import read_records
from curricle.world import World
from curricle.worlds.crafter import Crafter, symbols
from curricle.worlds.crafter.state import STATE

README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
SMALL = ["schedule.per_cycle=400", "schedule.final=100", "schedule.save_every=200", "schedule.test_seeds=2"]


def blocks(text, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [content for name, content in found if name == language]


@pytest.fixture
def at_root(tmp_path, monkeypatch):
    """A folder that looks like the repository's root, to run its commands in."""
    for name in ("examples", "configs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_quickstart_runs(at_root):
    (code,) = blocks(README, "python")
    assert len(code.strip().splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "open_3" in done.stdout and "final" in done.stdout


def test_readme_commands_run(at_root):
    (text,) = blocks(README, "sh")
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "curricle"
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, (line, done.stderr)


def test_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) < 150
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "lint"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make demo" in README and "make test" in README
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()


def test_readme_tree_is_the_tree():
    tree = next(block for block in blocks(README, "") if block.startswith("src/curricle/"))
    named = set(re.findall(r"\b([a-z_]+\.py)\b", tree)) | set(re.findall(r"\b([a-z_]+)/(?= |$)", tree, re.MULTILINE))
    package = ROOT / "src" / "curricle"
    shown = [p for p in package.rglob("*") if "__" not in str(p.relative_to(package)) and p.suffix in ("", ".py")]
    inside = {p.name for p in shown if len(p.relative_to(package).parts) <= 2 and (p.is_dir() or p.suffix)}
    outside = {
        p.name
        for p in ROOT.iterdir()
        if p.is_dir() and p.name in ("configs", "examples", "experiments", "tests", "benchmarks", "docs")
    }
    missing = {n for n in inside | outside if n not in named}
    assert not missing, f"the README's tree lacks {sorted(missing)}"
    for name in named - {"src", "curricle", "vault.py", "parity.py", "speed.py", "agents.py", "designs.py"}:
        assert name in inside | outside, f"the README's tree has {name}, which does not exist"


def test_readme_lists_the_designers():
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", README, re.MULTILINE))
    assert rows == {id.rpartition("-v")[0] for id in BUILT_IN["designers"]}


def test_contributing_example_is_a_world_that_runs(tmp_path):
    (code,) = blocks(CONTRIBUTING, "python")
    (tmp_path / "lake.py").write_text(code)
    config.start(config.resolve(config.override(config.load(f"{tmp_path}/lake.py:Lake"), SMALL)), tmp_path / "run")
    assert read_records(tmp_path / "run", Outcome)


CRAFTER, TEXT = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("crafter", "text"))


def part(text, name):
    """What stands between the comments of a generated part."""
    return text.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip().splitlines()


def test_crafter_page_shows_the_knobs_and_symbols_there_are():
    def row(k):
        original = str(k.default).lower() if k.kind == "bool" else k.default
        return f"| `{k.name}` | {k.allowed.replace('|', ',')} | {original} | {k.sentence} | {k.harder or ''} |"

    assert part(CRAFTER, "knobs")[2:] == [row(k) for k in Crafter.Setting.knobs()]
    assert part(CRAFTER, "layout") == [line for line in symbols.__doc__.splitlines() if line.startswith("|")]
    assert f"takes {STATE.itemsize / 1000:.0f} kB" in CRAFTER


@pytest.mark.parametrize(("name", "world"), [("tools", "tools"), ("reasoning", "reasoning"), ("games", "textworld")])
def test_text_page_shows_the_knobs_there_are(name, world):
    def row(k):
        original = str(k.default).lower() if k.kind == "bool" else k.default
        allowed = f"any, {len(k.choices) - 1} families" if k.name == "family" else k.allowed.replace("|", ",")
        return f"| `{k.name}` | {allowed} | {original} | {k.sentence} | {k.harder or ''} |"

    assert part(TEXT, name)[2:] == [row(k) for k in find(World, world).Setting.knobs()]


def test_text_page_runs():
    (code,) = blocks(TEXT, "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "reward=1.0" in done.stdout and "no call" in done.stdout, done.stderr


def test_experiments_page_shows_the_data_there_is():
    done = subprocess.run([sys.executable, str(ROOT / "experiments" / "tables.py")], capture_output=True, text=True)
    assert part((ROOT / "experiments" / "README.md").read_text(), "table") == done.stdout.strip().splitlines()


def test_crafter_page_runs(at_root):
    (code,), (text,) = blocks(CRAFTER, "python"), blocks(CRAFTER, "sh")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "Vitals: health 9" in done.stdout, done.stderr
    (at_root / "benchmarks").symlink_to(ROOT / "benchmarks")
    for line in text.strip().splitlines():
        words = shlex.split(line)
        words = words[1:] if words[0] == "python" else ["-m", *words]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, (line, done.stderr)


def test_contributing_names_files_that_exist():
    for name in re.findall(r"`((?:src|examples|tests)/[\w/.]+)`", CONTRIBUTING):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("configs/*.toml"), *ROOT.glob("tests/*.toml")]), ids=lambda p: p.stem
)
def test_every_config_runs(path, at_root):
    plain = tomllib.loads(path.read_text())
    resolved = config.resolve(plain)
    assert resolved.to_toml()["schedule"].items() >= plain["schedule"].items()
    small = [*SMALL, "schedule.test_episodes=1", "original.episode_length=100"] if resolved.world is Crafter else SMALL
    if resolved.world_options.model_dump().get("observation") == "pixels":
        small = [*small, "agent.channels=[4, 4]", "agent.blocks=1", "agent.hidden=16"]
        small += ["agent.environments=8", "agent.steps=16"]
    config.start(config.resolve(config.override(plain, small)), Path("run"))
    assert read_records(Path("run"), Outcome)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.py")), ids=lambda p: p.stem)
def test_every_example_runs(path, at_root):
    name = next(n for n in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE) if is_world(path, n))
    config.start(config.resolve(config.override(config.load(f"{path}:{name}"), SMALL)), Path("run"))
    assert read_records(Path("run"), Outcome)


def is_world(path, name):
    try:
        return bool(find(World, f"{path}:{name}"))
    except Exception:
        return False


def test_the_papers_schedules_are_config_files(at_root):
    envgen = config.resolve(config.load("configs/envgen-vault.toml")).schedule
    assert (envgen.cycles, envgen.designed, envgen.original, envgen.final) == (4, 120_000, 120_000, 1_000_000)
    genenv = config.resolve(config.load("tests/genenv-ladder.toml"))
    assert (genenv.schedule.designed, genenv.schedule.original, genenv.agent.unit) == (64 * 8, 0, "rollouts")
