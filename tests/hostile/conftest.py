"""Run folders for the campaign: a whole one, and one that was stopped half-way."""

import functools

import pytest
from helpers import paths
from helpers.killing import contents

from curricle import config
from curricle.run import folder as folder_module
from curricle.tracking.environment import environment
from curricle.tracking.watcher import Watcher

SMALL = {
    "world": {"id": paths.VAULT},
    "designer": {"id": "tutor"},
    "schedule": {"cycles": 2, "designs": 2, "per_cycle": 96, "final": 32, "save_every": 32, "test_seeds": 2},
    "log": {"tensorboard": False},
}
HALF = "cycle 2: practice, original"


@pytest.fixture(scope="session", autouse=True)
def same_machine():
    """Ask this machine once what it is: git and nvidia-smi take longer than all else."""
    known = {}

    @functools.wraps(environment)
    def once(plain, ranks):
        if not known:
            known.update(environment({}, ranks))
        return {**known, "config": plain}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_module, "environment", once)
        yield


class Stop(Watcher):
    """Ends a run in the middle of a step."""

    def __init__(self, title):
        self.title = title

    def begin(self, title, total, unit):
        if title.startswith(self.title):
            raise KeyboardInterrupt


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """A whole run, and the same one stopped half-way."""
    place = tmp_path_factory.mktemp("bases")
    config.start(config.resolve(SMALL), place / "whole")
    with pytest.raises(KeyboardInterrupt):
        config.start(config.resolve(SMALL), place / "half", Stop(HALF))
    assert contents(place / "half") != contents(place / "whole")
    return {"whole": place / "whole", "half": place / "half"}
