"""Small runs with a language model as designer, and the command line inside this process."""

import logging
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest
from helpers import paths
from helpers.killing import contents

from curricle import cli, config

LADDER = paths.LADDER


SCHEDULE = {"cycles": 4, "designs": 2, "per_cycle": 80, "final": 40, "save_every": 40, "test_seeds": 3}


KEY = "sk-SENTINEL-0123456789"


def plain(server=None, **designer):
    """The config of a small run in the toy world."""
    address = {"model": "m", "base_url": server.url, "backoff": 0.001, "timeout": 30.0} if server else {}
    return {
        "world": {"id": LADDER},
        "designer": {"id": "llm", **address, **designer},
        "schedule": SCHEDULE,
        "log": {"tensorboard": False},
    }


def start(folder, chosen):
    config.start(config.resolve(chosen), folder)
    return folder


def results(folder):
    """All that a replay must repeat: everything but the config that says where the answers come from."""
    return {name: data for name, data in contents(folder).items() if name != "config.toml"}


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str
    traceback: str = ""
    """What escaped, where a process of its own would have printed a traceback."""


def curricle(*arguments, env=None, survives=False):
    """The command line inside this process, which has everything imported already."""
    log, before = logging.getLogger("curricle"), list(logging.getLogger("curricle").handlers)
    escaped = ""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        patch.setattr(sys, "argv", ["curricle", *map(str, arguments)])
        patch.setattr(sys, "stdin", StringIO())
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            cli.main()
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        except Exception as error:
            if not survives:
                raise
            code = 1
            escaped = "".join(traceback.format_exception(error))[-1500:]
    log.handlers[:] = before
    return Done(code, out.getvalue(), err.getvalue(), escaped)


def sets(section, values):
    return [word for name, value in values.items() for word in ("--set", f"{section}.{name}={value}")]


QUICK = [*sets("schedule", SCHEDULE), "--set", "log.tensorboard=false"]
