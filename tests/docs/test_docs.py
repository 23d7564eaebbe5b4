"""Prose that can rot is executed: README, CONTRIBUTING, configs, examples."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers.pages import SMALL, blocks, part, tiny_players
from helpers.paths import ROOT
from helpers.skips import skip_without
from typer.testing import CliRunner

from curricle import config
from curricle.agent import Agent
from curricle.cli import app
from curricle.designer import Designer
from curricle.records import Outcome
from curricle.registry import BUILT_IN, find
from curricle.run import read_records
from curricle.world import World
from curricle.worlds.crafter import Crafter
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.observe import symbols

README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.slow
def test_readme_quickstart_runs(at_root):
    (code,) = blocks(README, "python")
    assert len(code.strip().splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "open_3" in done.stdout and "final" in done.stdout


@pytest.mark.slow
def test_readme_commands_run(at_root):
    skip_without("plots")
    (text,) = blocks(README, "sh")
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "curricle"
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, (line, done.stderr)


def test_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) < 180
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "lint"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make demo" in README and "make test" in README
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()


def paths_of(tree: str) -> set[str]:
    """The paths that an indented tree shows, two blanks a level; folders end with a slash."""
    paths = set()
    above: list[str] = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        above[indent // 2 :] = [line.split()[0]]
        paths.add("".join(above))
    return paths


def test_readme_tree_is_the_tree():
    """It shows the folders of the package, two levels deep, modules of the root, and no path that does not exist."""
    shown = paths_of(next(block for block in blocks(README, "") if block.startswith("src/curricle/")))
    for path in shown:
        assert (ROOT / path).exists(), f"the README's tree has {path}, which does not exist"
    package = ROOT / "src" / "curricle"
    needed = {f"src/curricle/{module.name}" for module in package.glob("[!_]*.py")}
    for init in [*package.glob("*/__init__.py"), *package.glob("*/*/__init__.py")]:
        needed.add(f"{init.parent.relative_to(ROOT)}/")
    for folder in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines():
        if "/" in folder and not folder.startswith((".", "src/")):
            needed.add(folder.split("/")[0] + "/")
    assert not needed - shown, f"the README's tree lacks {sorted(needed - shown)}"


def test_readme_lists_the_designers():
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", README, re.MULTILINE))
    assert rows == {id.rpartition("-v")[0] for id in BUILT_IN["designers"]}


def test_contributing_example_is_a_world_that_runs(tmp_path):
    (code,) = blocks(CONTRIBUTING, "python")
    (tmp_path / "lake.py").write_text(code)
    config.start(config.resolve(config.override(config.load(f"{tmp_path}/lake.py:Lake"), SMALL)), tmp_path / "run")
    assert read_records(tmp_path / "run", Outcome)


CRAFTER, TEXT = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("crafter", "text"))


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


@pytest.mark.slow
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


def test_the_page_on_worlds_runs(at_root):
    found = blocks((ROOT / "docs" / "your-world.md").read_text(), "sh")
    for line in "".join(found).strip().splitlines():
        words = shlex.split(line, comments=True)
        small = ["--set", "schedule.final=400", "--set", "schedule.per_cycle=400"] if words[1] == "run" else []
        done = CliRunner().invoke(app, [*words[1:], *small])
        assert done.exit_code == 0 and done.output, (line, done.output, done.exception)


@pytest.mark.slow
def test_agents_page_runs(at_root):
    page = (ROOT / "docs" / "agents.md").read_text()
    (text,), (code,) = blocks(page, "sh"), blocks(page, "python")
    for line in text.strip().splitlines():
        words = shlex.split(line)
        small = ["--set", "schedule.final=400", "--set", "schedule.per_cycle=400"] if words[1] == "run" else []
        done = CliRunner().invoke(app, [*words[1:], *small])
        assert done.exit_code == 0, (line, done.output, done.exception)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout.startswith("6 attempts, "), shown.stderr


@pytest.mark.slow
def test_the_benchmark_of_agents_runs():
    small = ["--view", "symbols", "--seconds", "0.1", "--no-reference", "--json", "--set", "environments=4", "steps=8"]
    command = [sys.executable, str(ROOT / "benchmarks" / "agents.py"), *small]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])["symbols"]
    assert found["steps_per_s"] > 0 and set(found) >= {"reference", "ratio"}
    assert all(0 < share <= 1 for share in found["shares"].values()), found


def test_the_benchmark_of_worlds_says_where_their_time_goes():
    command = [sys.executable, "-c", "import speed; speed.profile()"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "benchmarks")
    parts = dict(re.findall(r"^  (\S.*?)  +(-?[\d.]+)$", done.stderr, re.MULTILINE))
    assert float(parts["frame at night"]) > float(parts["frame by day"]) > 0, done.stderr
    assert float(parts["rules by day"]) > 0 and len(parts) == 6


@pytest.mark.slow
def test_the_benchmark_of_the_policy_runs():
    world, small = str(ROOT / "examples" / "vault.py:Vault"), ["--cycles", "2", "--set", "schedule.per_cycle=400"]
    command = [sys.executable, str(ROOT / "benchmarks" / "policy.py"), world, *small, "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert set(found) == {"ms_a_design", "ms_an_update", "share_of_practice"} and min(found.values()) > 0


def test_contributing_names_files_that_exist():
    for name in re.findall(r"`((?:src|examples|tests)/[\w/.]+)`", CONTRIBUTING):
        assert (ROOT / name).exists(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("configs/*.toml"), *ROOT.glob("tests/helpers/*.toml")]), ids=lambda p: p.stem
)
def test_every_config_runs(path, at_root):
    plain = tomllib.loads(path.read_text())
    resolved = config.resolve(plain)
    assert resolved.to_toml()["schedule"].items() >= plain["schedule"].items()
    small = [*SMALL, "schedule.test_episodes=1", "original.episode_length=100"] if resolved.world is Crafter else SMALL
    if resolved.world_options.model_dump().get("observation") == "pixels":
        small = [*small, "agent.channels=[4, 4]", "agent.blocks=1", "agent.hidden=16"]
        small += ["agent.environments=8", "agent.steps=16"]
    small = [*small, f"schedule.cycles={min(4, resolved.schedule.cycles)}"]
    config.start(config.resolve(config.override(plain, [*small, *tiny_players(plain)])), Path("run"))
    assert read_records(Path("run"), Outcome)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.py")), ids=lambda p: p.stem)
def test_every_example_runs(path, at_root):
    name = next(n for n in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE) if is_world(path, n))
    plain = config.load(f"{path}:{name}")
    config.start(config.resolve(config.override(plain, [*SMALL, *tiny_players(plain)])), Path("run"))
    assert read_records(Path("run"), Outcome)


def is_world(path, name):
    try:
        return bool(find(World, f"{path}:{name}"))
    except Exception:
        return False


def test_the_papers_schedules_are_config_files(at_root):
    envgen = config.resolve(config.load("configs/envgen-vault.toml")).schedule
    assert (envgen.cycles, envgen.designed, envgen.original, envgen.final) == (4, 120_000, 120_000, 1_000_000)
    genenv = config.resolve(config.load("tests/helpers/genenv-ladder.toml"))
    assert (genenv.schedule.designed, genenv.schedule.original, genenv.agent.unit) == (64 * 8, 0, "rollouts")


@pytest.mark.parametrize("kind", ["agents", "designers"])
def test_pages_name_options_by_the_names_they_have_now(kind):
    contract: Any = {"agents": Agent, "designers": Designer}[kind]
    known = {"id"}
    for name in BUILT_IN[kind]:
        known |= set(find(contract, name).Options.model_fields)
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for name in re.findall(rf"\b{kind[:-1]}\.([a-z_]+)(?:=|`| )", page.read_text()):
            assert name in known or name == "py", f"{page.name} names {kind[:-1]}.{name}, which is no option"
