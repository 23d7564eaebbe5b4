"""The command line. Results go to stdout, progress and errors to stderr; it is quiet when nobody watches.

Exit codes: 0 done, 1 the run could not go on, 2 the command or config is wrong, 3 a person is to answer a prompt first
(and resumable), 130 interrupted (and resumable).
"""

import logging
import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from curricle import __version__
from curricle.cli import check, components, models, runs, scenes  # noqa: F401 - each adds its commands to the app
from curricle.cli.shell import app, err
from curricle.errors import CurricleError, Waiting
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
    logger = logging.getLogger("curricle")  # the library is silent by itself
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
    try:
        app()
    except CurricleError as error:
        word = "[bold yellow]waiting:[/]" if isinstance(error, Waiting) else "[bold red]error:[/]"
        rank = f"rank {os.environ['RANK']}: " if ranks.follows() else ""
        err.print(f"{rank}{word} {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
