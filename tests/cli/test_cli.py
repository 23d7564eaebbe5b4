"""The command line, as a user meets it: real processes, exit codes, what goes to stdout and what to stderr."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from helpers import paths
from helpers.paths import ROOT
from rich.console import Console

from curricle import config
from curricle.cli import runs
from curricle.views.progress import Progress

VAULT = paths.VAULT
QUICK = ["--set", "schedule.per_cycle=400", "--set", "schedule.final=100", "--set", "schedule.cycles=2"]
QUIET = [*QUICK, "--set", "log.tensorboard=false"]


def curricle(*arguments, cwd=None):
    command = [sys.executable, "-m", "curricle", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_the_first_line_names_the_model_of_an_agent_that_is_one():
    players = config.resolve(config.load(f"{ROOT}/configs/genenv-small.toml"))
    assert runs._learner(players) == "grpo-v1 (embedded)"


def test_run_then_show_then_resume(tmp_path):
    first = curricle("run", VAULT, "--out", tmp_path / "run", "--seed", 3, "--designer", "random", *QUIET)
    assert first.returncode == 0, first.stderr
    assert first.stderr.splitlines() == [
        f"{tmp_path / 'run'}: world vault-v1, designer random-v1, agent tabular-v1, seed 3",
        "cycle 1: random-v1 designs",
    ], "no bars when nobody watches"
    for word in ("open_1", "open_3", "cycle 1", "cycle 2", "final", "headline", "reward", "training attempts"):
        assert word in first.stdout
    assert curricle("show", tmp_path / "run").stdout == first.stdout
    assert curricle("resume", tmp_path / "run").stdout == first.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x[/red]", "a b", "[red]x", "ünder"])
def test_odd_folder_names(name, tmp_path):
    done = curricle("run", VAULT, "--out", tmp_path / name, *QUICK)
    assert done.returncode == 0 and f"{tmp_path / name}: world" in done.stderr
    assert curricle("show", tmp_path / name).stdout == done.stdout


def test_what_cannot_be_built_leaves_no_folder(tmp_path):
    done = curricle("run", paths.LADDER, "--agent", "tabular", "--out", tmp_path / "run")
    assert done.returncode == 1 and "world of text tasks; choose grpo" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_is_shown_without_the_worlds_code(tmp_path):
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "vault.py").read_text())
    done = curricle("run", f"{tmp_path}/mine.py:Vault", "--out", tmp_path / "run", *QUICK)
    (tmp_path / "mine.py").unlink()
    assert curricle("show", tmp_path / "run").stdout == done.stdout


@pytest.mark.slow
def test_runs_get_a_folder_of_their_own(tmp_path):
    for _ in range(2):
        assert curricle("run", VAULT, *QUICK, cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [
        "vault-v1--tutor-v1--tabular-v1--s0",
        "vault-v1--tutor-v1--tabular-v1--s0--2",
    ]


@pytest.mark.slow
def test_progress_is_drawn_for_a_person(tmp_path):
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "curricle", "run", VAULT, "--out", str(tmp_path / "run")]
    child = subprocess.Popen(command, stderr=writer, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(writer)
    seen = b""
    try:
        while piece := os.read(reader, 65536):
            seen += piece
    except OSError:  # the child closed its end
        pass
    assert child.wait() == 0
    assert b"practice" in seen and b"steps/s" in seen


@pytest.mark.slow
def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    long = ["--set", "schedule.per_cycle=4000000", "--set", "schedule.save_every=4000000"]
    command = [sys.executable, "-m", "curricle", "run", VAULT, "--out", str(tmp_path / "run"), *long]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs are deaf to it
    child = subprocess.Popen(command, preexec_fn=listen, **pipes)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert f"interrupted; go on with: curricle resume {tmp_path / 'run'}" in stderr and "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "crafterr_"], 2, "there is no world 'crafterr_'"),
        (["run", VAULT, "--set", "schedule.cycels=2"], 2, "unknown key 'cycels', did you mean 'cycles'?"),
        (["run", VAULT, "--set", "original.dials=9"], 2, "dials = 9 is not allowed: whole number from 1 to 5"),
        (["run", "nowhere.toml"], 2, "config nowhere.toml:"),
        (["run", "nowhere.py:World"], 1, "no such file"),
        (["show", "nowhere"], 1, "nowhere is not a run folder"),
        (["designs", "nowhere"], 1, "nowhere is not a run folder"),
        (["resume", "nowhere"], 1, "nowhere is not a run folder"),
        (["resum", "nowhere"], 2, "resume"),
        (["worlds", "zzz"], 2, "there is no world 'zzz'"),
    ],
)
def test_mistakes_get_one_line_and_an_exit_code(arguments, code, message, tmp_path):
    done = curricle(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.slow
def test_lists_show_the_knobs():
    designers = curricle("designers").stdout
    for word in ("tutor-v1", "none-v1", "easy_to_hard-v1", "candidates = 16: How many designs are ranked."):
        assert word in designers
    assert "gamma = 0.97: Discount factor." in curricle("agents", "tabular").stdout
    world = curricle("worlds", VAULT).stdout
    assert "original.dials (whole number from 1 to 5; original 5): Dials of each combination. Harder: up." in world
    assert curricle("worlds").returncode == 0


@pytest.mark.slow
def test_the_brief_of_a_designer(tmp_path):
    first = curricle("design", VAULT).stdout
    assert first.startswith("# vault-v1\n") and "## Cycle 1 of 4" in first and "+/-" not in first
    curricle("run", VAULT, "--out", tmp_path / "run", *QUICK)
    later = curricle("design", VAULT, "--run", tmp_path / "run").stdout
    assert "## Cycle 2 of 2" in later and "- open_1: " in later and "1. aim open_1; " in later
    other = curricle("design", paths.LADDER, "--run", tmp_path / "run")
    assert other.returncode == 2 and "is a run in vault-v1, not in ladder-v1" in other.stderr


def test_version():
    from curricle import __version__

    assert curricle("--version").stdout.strip() == f"curricle {__version__}"


def test_a_log_gets_a_sign_of_life_now_and_then(monkeypatch):
    text = io.StringIO()
    with Progress(Console(file=text)) as progress:
        progress.begin("cycle 1: someone designs", 0, "")
        progress.begin("cycle 1: practice", 100, "steps")
        progress.report(10, 10, {})
        assert text.getvalue() == "cycle 1: someone designs\n", "the first, and nothing more within a minute"
        monkeypatch.setattr("curricle.views.progress.EVERY", 0.0)
        progress.report(5000, 5000, {})
        progress.begin("cycle 2: someone designs", 0, "")
        progress.report(100, 0, {"design/warmed": 3.0, "design/warm_loss": 0.25})
        progress.report(100, 0, {"design/total": 3.0})
    assert text.getvalue().splitlines()[1:] == [
        "cycle 1: practice: 5,000 of 100 steps",
        "cycle 2: someone designs",
        "cycle 2: someone designs: warmed 3, warm_loss 0.25",
    ]
