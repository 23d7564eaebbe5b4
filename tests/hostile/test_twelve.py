"""The faults that the first campaign of attacks found, each with the test that would find it again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
import unicodedata

import numpy as np
import pytest
import tomli_w
from helpers import bad_replies, paths
from helpers import endpoint_server as lo
from helpers.damage import curricle, snapshot
from helpers.killing import contents
from helpers.siege_replies import CORE, KEY, KEY_ENV, faults
from helpers.skips import skip_without

from curricle import config
from curricle.errors import RunDamaged
from curricle.llm.clients import bounded
from curricle.llm.clients.secrets import without_key
from curricle.run import JOURNAL, LOST, read_exchanges
from curricle.tracking import checkpoint


def without_hashes(run):
    """Make its journal one of an earlier version."""
    lines = [json.loads(line) for line in (run / JOURNAL).read_text().splitlines()]
    old = [{name: value for name, value in line.items() if name != "files"} for line in lines]
    (run / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in old))


@pytest.fixture
def run(bases, tmp_path):
    """A copy of a whole run."""
    shutil.copytree(bases["whole"], tmp_path / "run")
    return tmp_path / "run"


def refused(done, *words):
    """The one line of an error."""
    assert not done.traceback and done.returncode in (1, 2), done
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert all(str(word) in line for word in words), line
    return line


@pytest.mark.parametrize("lines", [1, 2, 3, 5, None], ids=lambda n: f"without {n or 'all'} lines")
def test_1_resume_looks_before_it_changes_anything(lines, run, bases):
    journal = (run / JOURNAL).read_bytes()
    kept = journal.splitlines(keepends=True)[: -lines if lines else 0]
    (run / JOURNAL).write_bytes(b"".join(kept))
    before = snapshot(run)
    done = curricle("resume", run)
    if done.returncode:
        refused(done, JOURNAL)
        assert snapshot(run) == before, "nothing is changed where nothing is whole"
        (run / JOURNAL).write_bytes(journal)
        assert curricle("resume", run).returncode == 0
    else:
        assert list((run / LOST).iterdir()), "what was cut is put aside"
    assert contents(run) == contents(bases["whole"])


def test_1_a_missing_journal_is_no_new_run(run):
    (run / JOURNAL).unlink()
    before = snapshot(run)
    refused(curricle("resume", run), JOURNAL, "is missing", "restore")
    assert snapshot(run) == before


def test_1_an_earlier_step_that_is_whole_is_offered(run, bases):
    with (run / "scores.jsonl").open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"?")
    line = refused(curricle("resume", run), "scores.jsonl", "--from-step")
    words = line.rpartition("curricle resume ")[2].split()
    assert curricle("resume", *words).returncode == 0
    assert contents(run) == contents(bases["whole"])
    refused(curricle("resume", run, "--from-step", 99), "99")


@pytest.mark.parametrize("name", ["lock", JOURNAL, "scores.jsonl", "timings.jsonl"])
def test_1_a_file_with_a_second_name_is_not_written(name, run, tmp_path):
    os.link(run / name, tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    with (run / "metrics.jsonl").open("a") as file:
        file.write("torn")
    refused(curricle("resume", run), run / name, "hard link", "copy")
    assert (tmp_path / "backup").read_bytes() == before
    assert curricle("verify", run).returncode == 0


@pytest.mark.parametrize("length", [-5, 100])
def test_1_a_marker_that_would_cut_a_line_in_two_cuts_nothing(length, run):
    """In a journal without hashes, as an earlier version wrote it."""
    without_hashes(run)
    text = (run / JOURNAL).read_text()
    size = (run / "designs.jsonl").stat().st_size
    (run / JOURNAL).write_text(text.replace(f'"designs.jsonl": {size}', f'"designs.jsonl": {length}'))
    before = snapshot(run)
    refused(curricle("resume", run), JOURNAL, "designs.jsonl", f"byte {length}")
    assert snapshot(run) == before


def test_2_a_number_of_350_digits_is_out_of_range_like_any_other(tmp_path):
    plain = {
        "world": {"id": paths.VAULT},
        "designer": {"id": "llm", "model": "hand", "max_reprompts": 0},
        "schedule": {"cycles": 1, "designs": 1, "per_cycle": 64, "final": 0, "save_every": 32, "test_seeds": 1},
        "log": {"tensorboard": False},
    }
    (tmp_path / "c.toml").write_text(tomli_w.dumps(plain))
    assert curricle("run", tmp_path / "c.toml", "--out", tmp_path / "run").returncode == 3
    (question,) = (tmp_path / "run" / "by_hand").glob("*prompt*")
    answer = {"designs": [{"setting": {"dials": 10**350}, "aim": "open_1", "why": "x"}]}
    question.with_name(question.name.replace("prompt", "answer")).write_text(json.dumps(answer))
    for _ in range(2):
        done = curricle("resume", tmp_path / "run")
        assert done.returncode == 0 and not done.traceback, done
    assert len(read_exchanges(tmp_path / "run")) == 1


@pytest.mark.parametrize("name", ["Retry-After nan", "finish_reason '\\ud800'", "tokens 999999999999"])
def test_3_an_exchange_is_kept_whatever_it_holds(name, monkeypatch):
    skip_without("endpoints")
    monkeypatch.setenv(KEY_ENV, KEY)
    assert not faults(bad_replies.KINDS[name])


def checkpoint_file(run, name="arrays.safetensors"):
    return next((run / "checkpoints").glob(f"*-agent/{name}"))


def test_4_a_changed_byte_of_a_checkpoint_is_noticed(run):
    assert curricle("verify", run).returncode == 0
    path = checkpoint_file(run)
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    done = curricle("verify", run)
    assert done.returncode == 1 and str(path) in done.stdout
    refused(curricle("resume", run), path)
    refused(curricle("eval", run), path)


@pytest.mark.parametrize("change", [lambda a: a * np.nan, lambda a: a.astype(np.float32), lambda a: a[:1]])
def test_4_other_arrays_are_noticed(change, run):
    folder = checkpoint_file(run).parent
    arrays, state = checkpoint.read(folder)
    checkpoint.write(folder, {name: change(array) for name, array in arrays.items()}, state)
    refused(curricle("resume", run), folder)


def test_4_a_run_without_hashes_goes_on(run, bases):
    """As an earlier version wrote it."""
    without_hashes(run)
    assert curricle("verify", run).returncode == 0
    assert curricle("resume", run).returncode == 0
    assert {n: d for n, d in contents(run).items() if n != JOURNAL} == {
        n: d for n, d in contents(bases["whole"]).items() if n != JOURNAL
    }


def test_5_only_what_the_run_wrote_is_touched(bases, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(bases["half"], run)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "me.jpg").write_text("me")
    place = run / "checkpoints"
    for name in ("best-agent", "1-agent", "00001-agent copy"):
        (place / name).mkdir()
        (place / name / "mine").write_text("mine")
    (place / "00001-photos").symlink_to(photos)
    assert curricle("resume", run).returncode == 0
    assert (photos / "me.jpg").exists() and (place / "00001-photos").is_symlink()
    assert all((place / name / "mine").exists() for name in ("best-agent", "1-agent", "00001-agent copy"))


@pytest.mark.parametrize("name", ["lock", "config.toml", "journal.jsonl", "config.toml.new", "checkpoints"])
def test_5_no_link_is_written_through(name, run, tmp_path):
    other = tmp_path / "precious"
    if (run / name).exists():
        shutil.move(run / name, other)
    else:
        other.write_text("precious")
    (run / name).symlink_to(other)
    before = snapshot(tmp_path)
    refused(curricle("resume", run), name)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("kind", ["endless", "bomb"])
def test_6_no_answer_takes_more_memory_than_it_may(kind, status, monkeypatch):
    skip_without("endpoints")
    monkeypatch.setenv(KEY_ENV, KEY)
    monkeypatch.setattr(bounded, "LONGEST", 200_000)
    act = getattr(bad_replies, kind)(status)
    assert not faults(bad_replies.says("warm"))
    tracemalloc.start()
    try:
        assert not faults(act, seconds=5.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20e6, f"{most / 1e6:.0f} MB"


def test_6_depth_and_unpacked_size_are_bounded():
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        bounded.parsed("[" * 101 + "]" * 101)
    assert bounded.parsed('{"a": "[[[[", "b": "\\\\\\"{{"}')["a"] == "[[[["
    packed = b"".join(bad_replies.gzip.compress(b" " * 10_000_000)[i : i + 100] for i in range(0, 10_000, 100))
    pieces = [packed[i : i + 1_000] for i in range(0, len(packed), 1_000)]
    assert sum(map(len, bounded.unpacked(iter(pieces), "gzip", time.monotonic() + 9, 5_000))) == 5_000
    assert list(bounded.unpacked(iter([b"a", b"b", b"c"]), "", 0.0)) == [b"a"], "time is over"


def nothing_of(path):
    path.unlink() if path.is_file() else None


@pytest.mark.parametrize(
    ("name", "content", "commands"),
    [
        ("metrics.jsonl", b'{"at": 1, "cyc\n', ["show", "resume"]),
        ("environment.jsonl", b"\xff\xfe\n", ["compare", "resume"]),
        ("environment.jsonl", b"[]\n", ["compare", "resume"]),
        ("config.toml", b"", ["show", "designs", "compare", "plot", "resume", "eval", "verify"]),
        ("config.toml", b"seed = 0\n[schedule]\n", ["show", "designs", "compare", "plot", "resume", "verify"]),
        ("config.toml", b"a = " + b"[" * 50_000, ["show", "resume", "run"]),
        ("scores.jsonl", b"[" * 50_000 + b"\n", ["show", "plot", "compare"]),
        ("designs.jsonl", b'{"cycle": 1}\n', ["show", "designs", "plot"]),
    ],
)
def test_7_a_damaged_folder_is_one_line(name, content, commands, run):
    if "plot" in commands:
        skip_without("plots")
    (run / name).write_bytes(content)
    for command in commands:
        where = run / name if command == "run" else run
        refused(curricle(command, where), name)


def test_7_a_deep_state_is_one_line(run):
    without_hashes(run)
    checkpoint_file(run, "state.json").write_text("[" * 100_000)
    refused(curricle("resume", run), "checkpoint", "cannot be read")


def test_7_tensorboard_may_be_anything(run, caplog):
    skip_without("tensorboard")
    text = (run / "config.toml").read_text().replace("tensorboard = false", "tensorboard = true")
    (run / "config.toml").write_text(text)
    (run / "tensorboard").write_text("mine")
    done = curricle("resume", run)
    assert done.returncode == 0 and not done.traceback
    assert (run / "tensorboard").read_text() == "mine"


@pytest.mark.parametrize("command", ["plot", "export"])
def test_7_a_place_that_cannot_be_written_is_one_line(command, run, tmp_path):
    if command == "plot":
        skip_without("plots")
    (tmp_path / "file").write_text("")
    refused(curricle(command, run, "--out", tmp_path / "file" / "out"), tmp_path / "file")


EVIL = "\x1b[31m\x1b]52;c;cm0=\x07\x9b2J\u202egnp\u2066\u200b a:b:c :warning: [red]x[/red]"


def test_8_nothing_of_a_folder_acts_on_a_terminal(run):
    lines = [json.loads(line) for line in (run / "designs.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"why": EVIL, "aim": EVIL, "by": EVIL, "changed": [EVIL]}
    (run / "designs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = (run / "scores.jsonl").read_text().replace("open_1", json.dumps(EVIL)[1:-1])
    (run / "scores.jsonl").write_text(scores)
    text = (run / "config.toml").read_text().replace("tutor-v1", json.dumps(EVIL)[1:-1].replace("\\x", "\\u00"))
    (run / "config.toml").write_text(text)
    shown = ""
    for command in ("show", "designs", "compare", "resume", "verify", "eval", "plot"):
        done = curricle(command, run)
        assert not done.traceback
        shown += done.stdout + done.stderr
    bad = {char for char in shown if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not bad, bad
    assert "a:b:c" in shown and ":warning:" in shown and "[red]x[/red]" in shown


CODE = "import pathlib\npathlib.Path(__file__).with_name('owned').write_text('')\n"


@pytest.mark.parametrize("where", ["inside", "beside"])
@pytest.mark.parametrize("command", ["resume", "eval", "film", "export", "design", "play", "run"])
def test_9_a_foreign_folder_is_no_code(command, where, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = (run if where == "inside" else tmp_path) / "evil.py"
    source = paths.ROOT / "examples" / "vault.py"
    evil.write_text(CODE + source.read_text())
    text = (run / "config.toml").read_text().replace(str(source), str(evil))
    (run / "config.toml").write_text(text)
    words = {
        "design": ["design", paths.VAULT, "--run", run],
        "play": ["play", paths.VAULT, "--agent", run],
        "run": ["run", run / "config.toml"],
        "export": ["export", run, "--out", tmp_path / "agent"],
    }.get(command, [command, run])
    refused(curricle(*words), evil)
    assert not evil.with_name("owned").exists()
    if command == "resume":
        assert curricle("resume", run, "--trust").returncode == 0
        assert evil.with_name("owned").exists()
        assert curricle("resume", run).returncode == 0, "it is known from now on"


@pytest.mark.parametrize("words", [["resume"], ["eval"], ["run", "--agent", "random"]], ids=lambda words: words[0])
def test_9_a_name_that_is_no_text_is_no_way_to_a_file(words, run, tmp_path, monkeypatch):
    """A list as text begins with a bracket; `..` after that folder, which does not exist, would lead anywhere."""
    monkeypatch.chdir(tmp_path)
    (run / "evil.py").write_text(CODE)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace(f'"{paths.VAULT}"', '["/../run/evil.py:World"]'))
    command, *options = words
    refused(curricle(command, run / "config.toml" if command == "run" else run, *options), "id", "is not a name")
    assert not (run / "owned").exists()


def test_8_no_name_makes_a_line_of_its_own(run, tmp_path):
    named = run.rename(tmp_path / "run\nerror: forged")
    (named / "scores.jsonl").write_text("?\n")
    assert "forged" in refused(curricle("show", named), "scores.jsonl, line 1")
    text = (named / "config.toml").read_text()
    (named / "config.toml").write_text(text.replace('"tutor-v1"', '"tutor\\nerror: forged"'))
    for command in ("show", "designs", "resume"):
        assert "forged" in refused(curricle(command, named), "[designer]" if command != "resume" else "tutor")


def test_9_a_config_of_thousands_of_tables_is_refused(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(f"{'.'.join('a' * 3_000)} = 1\n{text}")
    refused(curricle("resume", run), "config.toml", "nested")


def test_9_no_key_goes_where_a_foreign_folder_says(tmp_path, monkeypatch):
    skip_without("endpoints")
    monkeypatch.setenv(KEY_ENV, KEY)
    plain = {"world": {"id": paths.VAULT}, "log": {"tensorboard": False}}
    with lo.Loopback([lo.says("x")]) as server:
        plain["designer"] = {"id": "llm", "model": "m", "base_url": server.url, "key_env": KEY_ENV}
        (tmp_path / "config.toml").write_text(tomli_w.dumps(config.resolve(plain).to_toml()))
        refused(curricle("resume", tmp_path), server.url, KEY_ENV)
        assert not server.requests


@pytest.mark.parametrize("words", [["--episodes", 10**20], ["--seeds", 10**11]], ids=lambda words: words[0])
def test_10_a_test_that_never_ends_is_refused(words, run):
    done = curricle("eval", run, *words)
    assert done.returncode in (1, 2) and not done.traceback, done


BAD_SETTINGS = [
    "x.y=" + "[" * 5_000,
    "seed=" + "9" * 5_000,
    "seed=0x" + "f" * 5_000,
    "seed=99999999999999999999",
    "world.id=" + "x" * 300,
    "agent.id=" + "x" * 300,
    "agent.id=" + "x" * 300 + ".py:X",
    "designer.id=" + "x" * 300,
    "y" * 300 + ".z=1",
    "schedule." + "y" * 300 + "=1",
    "begin=" + "x" * 300,
    "schedule.designs=1000000000",
    "schedule.designs=100000000000000000000",
    "schedule.test_episodes=100000000000000000000",
    "schedule.cycles=100000000000",
    "schedule.per_cycle=1000000000000000000",
    "schedule.ratio='" + "9" * 5_000 + ":1'",
    "schedule.ratio='\u00b2:1'",
    "agent.environments=1000000000",
    "agent.environments=1000000000000000000000000000",
    "agent={a={b={c={d={e={f={g={h={i={j={k={l={m={n={o={p={q=1}}}}}}}}}}}}}}}}}",
    "original.dials=1" + "0" * 400,
    'original.dials="\\u0000"',
    "log.wandb=x",
]


@pytest.mark.parametrize("pair", BAD_SETTINGS, ids=lambda pair: f"{pair:.40}")
def test_10_a_bad_setting_is_one_line_and_leaves_nothing(pair, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    started = time.monotonic()
    line = refused(curricle("run", paths.VAULT, "--out", tmp_path / "run", "--set", pair))
    assert len(line) < 1_500 and time.monotonic() - started < 30
    assert not (tmp_path / "run").exists()


def test_10_memory_is_estimated_before_it_is_taken(tmp_path):
    pair = ["--agent", "ppo", "--set", "agent.environments=900000", "--set", "agent.steps=1000000"]
    refused(curricle("run", paths.VAULT, "--out", tmp_path / "run", *pair), "GB", "fewer environments")


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = 0x" + "f" * 9_000, 'a = "\\ud800"', "\x00", "[a]\n[a]\n"])
def test_10_a_bad_file_is_one_line(text, tmp_path):
    (tmp_path / "c.toml").write_text(text)
    refused(curricle("run", tmp_path / "c.toml"))


@pytest.mark.parametrize("name", bad_replies.KEYS)
def test_11_a_key_that_comes_back_is_taken_out(name, monkeypatch):
    skip_without("endpoints")
    monkeypatch.setenv(KEY_ENV, KEY)
    assert not faults(bad_replies.KEYS[name])


def test_11_looking_for_a_key_takes_no_time():
    for text in ("\\" * 500_000, "%25" * 200_000, "s" * 500_000, "\\u0073" * 80_000):
        started = time.monotonic()
        assert CORE not in without_key(text + KEY, KEY)
        assert time.monotonic() - started < 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("after", [0.1, 0.3, 1.0])
def test_12_a_signal_while_it_starts_is_one_line(number, after, tmp_path):
    words = [sys.executable, "-m", "curricle", "run", paths.VAULT, "--out", str(tmp_path / "run")]
    listen = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    child = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **listen)
    time.sleep(after)
    child.send_signal(number)
    time.sleep(0.002)
    child.send_signal(number)
    said = child.communicate(timeout=60)[1]
    if child.returncode == -number or "site.py" in said:
        pytest.skip("it came before the first line of Curricle's own code")
    assert child.returncode == 128 + number, said
    assert "Traceback" not in said
    assert said.count("interrupted") + said.count("ended by SIGTERM") == 1


def test_4_verify_says_where(run):
    (run / "outcomes.jsonl").write_bytes((run / "outcomes.jsonl").read_bytes()[:-40])
    (run / "timings.jsonl").write_text("?\n")
    done = curricle("verify", run)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if "outcomes.jsonl" in line and line.startswith("damaged: ")]
    assert "timings.jsonl, line 1" in done.stdout
    with pytest.raises(RunDamaged, match=r"outcomes\.jsonl is shorter"):
        config.resume(run)
