"""The command line. Results go to stdout, progress and errors to stderr; it is quiet when nobody watches.

Exit codes: 0 done, 1 the run could not go on, 2 the command or config is wrong, 3 a person is to answer a prompt first
(and resumable), 130 interrupted and 143 ended by SIGTERM (both resumable).
"""

import logging
import os
import signal
import sys
from typing import Annotated

import typer
from rich.text import Text

from curricle import __version__, signals
from curricle.cli import check, components, models, runs, scenes  # noqa: F401 - each adds its commands to the app
from curricle.cli.shell import CleanFormatter, app, tell
from curricle.errors import CurricleError, Waiting
from curricle.run.reading import one_line
from curricle.scale import ranks

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Trains an agent in environments that are made for it while it learns."""
    if show_version:
        print(f"curricle {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; what a user can act on is one line on stderr, not a traceback."""
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter())
    logger = logging.getLogger("curricle")  # the library is silent by itself
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    warned = logging.getLogger("py.warnings")
    warned.addHandler(handler)
    logging.captureWarnings(True)
    is_new = signals.listen()
    signals.begin_work()
    try:
        app()
    except CurricleError as error:
        _tell_error(str(error), waits=isinstance(error, Waiting))
        sys.exit(error.exit_code)
    except (signals.Stopped, KeyboardInterrupt) as stopped:
        number = stopped.number if isinstance(stopped, signals.Stopped) else signal.SIGINT
        signals.tell(number)
        sys.exit(128 + number)
    except OSError as error:
        if error.filename is None:
            raise
        _tell_error(f"{error.filename}: {error.strerror}")
        sys.exit(1)
    except MemoryError as error:
        _tell_error(f"memory ran out: {one_line(error)}; choose smaller sizes")
        sys.exit(1)
    finally:
        logging.captureWarnings(False)
        warned.removeHandler(handler)
        if is_new:
            signals.restore()


def _tell_error(text: str, waits: bool = False) -> None:
    """Print an error in one line; of several ranks, each says which it is."""
    rank = f"rank {os.environ['RANK']}: " if ranks.follows() else ""
    word = ("waiting:", "bold yellow") if waits else ("error:", "bold red")
    tell(Text.assemble(rank, word, f" {text}"))
