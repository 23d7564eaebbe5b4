"""The walks of CONTRIBUTING.md: the files that one cycle calls, no more and no less."""

import json
import re
import subprocess
import sys

import pytest
from helpers.paths import ROOT
from helpers.skips import skip_without

MOST = 25
"""Files that a reader of one cycle has to open, at most."""


def listed(heading):
    """The files of a walk, and those that stand below it."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    walk = re.findall(r"^\d+\. `([\w/]+\.py)`: \S", section, re.MULTILINE)
    aside = re.findall(r"`([\w/]+\.py)`", section.split("Also called:")[1])
    return walk, aside


@pytest.mark.slow
@pytest.mark.parametrize(("heading", "kind", "extra"), [("EnvGen", "envgen", "endpoints"), ("GenEnv", "genenv", "llm")])
def test_a_walk_is_what_a_cycle_calls(heading, kind, extra):
    skip_without(extra)
    walk, aside = listed(heading)
    command = [sys.executable, str(ROOT / "scripts" / "walk.py"), kind, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    called = [file for file, _ in json.loads(done.stdout.splitlines()[-1])]
    assert sorted([*walk, *aside]) == sorted(called), f"python scripts/walk.py {kind} --markdown prints the list"


@pytest.mark.parametrize("heading", ["EnvGen", "GenEnv"])
def test_a_walk_names_each_file_once(heading):
    walk, aside = listed(heading)
    files = [*walk, *aside]
    assert len(set(files)) == len(files)
    assert len(walk) <= MOST
    assert all((ROOT / "src" / "curricle" / file).exists() for file in files)
    numbers = re.findall(
        r"^(\d+)\. `", (ROOT / "CONTRIBUTING.md").read_text().split(f"\n### {heading}\n")[1], re.MULTILINE
    )
    assert numbers[: len(walk)] == [str(number) for number in range(1, len(walk) + 1)]
