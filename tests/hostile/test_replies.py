"""Bad replies, by kind and at random: each is kept, read the same way again, and breaks nothing."""

import random

import pytest
from helpers import bad_replies
from helpers.siege_replies import CORE, KEY, KEY_ENV, faults
from helpers.skips import skip_without

skip_without("endpoints")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(KEY_ENV, KEY)


def test_there_are_at_least_ninety_kinds():
    assert len(bad_replies.KINDS) >= 90


@pytest.mark.parametrize("name", [*bad_replies.KINDS, *bad_replies.SLOW])
def test_a_bad_reply_breaks_nothing(name, caplog, capfd):
    act = (bad_replies.KINDS | bad_replies.SLOW)[name]
    assert not faults(act, seconds=0.3 if name in bad_replies.SLOW else 2.0)
    said = capfd.readouterr()
    assert CORE not in caplog.text + said.out + said.err


@pytest.mark.parametrize("seed", range(10))
def test_a_spoiled_reply_breaks_nothing(seed):
    assert not faults(bad_replies.spoiled(random.Random(seed)))
