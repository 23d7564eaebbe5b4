"""What every command shares: the app, the two consoles, and arguments that several commands take.

All text that reaches a terminal goes through `Terminal`: data may come from a model or from somebody else's folder.
"""

import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from curricle.config import override
from curricle.setting import Setting
from curricle.text.terminal import clean
from curricle.world import World


class Terminal(Console):
    """A console for data: no markup, no emoji names, and nothing in a text can act on the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Clean each piece of text; codes that rich itself makes, for colours and bars, are kept apart from text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


class CleanFormatter(logging.Formatter):
    """The same for what is logged."""

    def format(self, record: logging.LogRecord) -> str:
        """Format as usual, then clean."""
        return clean(super().format(record))


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains an agent in environments that are made for it while it learns.",
)
out = Terminal()
err = Terminal(stderr=True)
if not out.is_terminal:
    out.width = 160  # a table in a file or a pipe need not fit a window

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may still be running.")]
WorldName = Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")]
Knobs = Annotated[
    list[str] | None, typer.Option("--setting", help="Set a knob, as in biome=mountain; may be repeated.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code that the folder's config names, also where it is not yours.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Set a config key, as in schedule.cycles=2; may be repeated.")
]


Fields = TypeVar("Fields")


def takes(options: type[Fields]) -> Callable[[Callable[[Fields], None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as its arguments and options: for commands with many of them."""

    def decorate(command: Callable[[Fields], None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            command(options(**given))

        called.__name__ = command.__name__
        called.__doc__ = command.__doc__
        called.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]  # Typer reads the options here
        return called

    return decorate


def say(text: object) -> None:
    """Print one line of a result as it is: names and paths are not to be wrapped or coloured."""
    out.print(text if isinstance(text, Text) else str(text), soft_wrap=True)


def tell(text: object) -> None:
    """The same, on stderr."""
    err.print(text if isinstance(text, Text) else str(text), soft_wrap=True)


def put(text: str) -> None:
    """Print a long text as it is, such as a config or a prompt."""
    sys.stdout.write(f"{clean(text)}\n")


def adjusted(world: World, pairs: Sequence[str]) -> Setting:
    """A world's original with some knobs given as `knob=value` pairs."""
    return world.setting(override({}, [f"original.{pair}" for pair in pairs]).get("original", {}))
