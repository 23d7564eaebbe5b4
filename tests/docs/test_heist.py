"""The page on Heist: its tables are those of the code, and what it tells the reader to run runs."""

import shlex
import subprocess
import sys
from pathlib import Path

from helpers.pages import blocks, part
from helpers.paths import ROOT

from curricle.records import Knob
from curricle.worlds.heist import Heist
from curricle.worlds.heist.observe import symbols

PAGE = (ROOT / "docs" / "heist.md").read_text()


def test_the_page_shows_the_knobs_and_symbols_there_are() -> None:
    def row(k: Knob) -> str:
        original = str(k.default).lower() if k.kind == "bool" else k.default
        return f"| `{k.name}` | {k.allowed.replace('|', ',')} | {original} | {k.sentence} | {k.harder or ''} |"

    assert part(PAGE, "knobs")[2:] == [row(k) for k in Heist.Setting.knobs()]
    assert part(PAGE, "layout") == [line for line in (symbols.__doc__ or "").splitlines() if line.startswith("|")]


def test_the_page_runs(at_root: Path) -> None:
    code = "\n".join(blocks(PAGE, "python")) + "\nprint(reward, done, state['agent'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "Keys held: blue" in done.stdout and "0.0 False ['" in done.stdout, done.stderr
    (at_root / "benchmarks").symlink_to(ROOT / "benchmarks")
    for line in "".join(blocks(PAGE, "sh")).strip().splitlines():
        words = shlex.split(line)
        words = words[1:] if words[0] == "python" else ["-m", *words]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, (line, done.stderr)
