"""Signals at random moments and a disk that is full at any write: one line, and the same bytes in the end."""

import multiprocessing
import random
import shutil
import signal

import pytest
import tomli_w
from helpers.full_disk import full_disk
from helpers.killing import WARM, contents, stopped

from curricle import config
from curricle.errors import RunUnwritable
from curricle.run import CONFIG

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


@pytest.fixture(scope="module")
def forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_at_any_moment(number, forks, bases, tmp_path):
    """One line, no traceback, the exit status of the signal, and a resume that ends with the same bytes."""
    rng = random.Random(int(number))
    source = tmp_path / "run.toml"
    source.write_text(tomli_w.dumps(config.parse_config(bases["whole"])))
    folder = tmp_path / "run"
    stops = 0
    for _ in range(40):
        begun = (folder / CONFIG).exists()
        words = ["resume", str(folder)] if begun else ["run", str(source), "--out", str(folder)]
        code, said = stopped(forks, words, tmp_path / "said", number, rng)
        assert "Traceback" not in said
        if code == 0:
            assert contents(folder) == contents(bases["whole"])
            shutil.rmtree(folder)
        elif said:  # else it was stopped before Curricle's first line
            assert code == CODES[number], said
            if number != signal.SIGKILL:
                assert said.count("interrupted") + said.count("ended by SIGTERM") == 1, said
            stops += 1
        if stops == 8:
            break
    assert stops == 8
    if (folder / CONFIG).exists():
        config.resume(folder)
        assert contents(folder) == contents(bases["whole"])


def test_a_disk_that_is_full_at_any_write(bases, tmp_path):
    plain = config.parse_config(bases["whole"])
    with full_disk(tmp_path / "count", 10**9) as disk:
        config.start(config.resolve(plain), tmp_path / "count")
    assert disk.writes > 100
    for attempt, full_from in enumerate(range(0, disk.writes, disk.writes // 12)):
        folder = tmp_path / f"run{attempt}"
        with full_disk(folder, full_from), pytest.raises(RunUnwritable, match=r"^cannot (write|make|lock)[^\n]*$"):
            config.start(config.resolve(plain), folder)
        if (folder / CONFIG).exists():
            with full_disk(folder, 3), pytest.raises(RunUnwritable):
                config.resume(folder)
            config.resume(folder)
        else:
            config.start(config.resolve(plain), folder)
        assert contents(folder) == contents(bases["whole"])
