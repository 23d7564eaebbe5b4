"""What every command shares: the app, the two consoles, and arguments that several commands take."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from curricle.config import override
from curricle.setting import Setting
from curricle.world import World

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains an agent in environments that are made for it while it learns.",
)
out = Console()
err = Console(stderr=True)
if not out.is_terminal:
    out.width = 160  # a table in a file or a pipe need not fit a window

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may still be running.")]
WorldName = Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")]
Knobs = Annotated[
    list[str] | None, typer.Option("--setting", help="Set a knob, as in biome=mountain; may be repeated.")
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
    out.print(str(text), highlight=False, soft_wrap=True, markup=False)


def tell(text: object) -> None:
    """The same, on stderr."""
    err.print(str(text), highlight=False, soft_wrap=True, markup=False)


def adjusted(world: World, pairs: Sequence[str]) -> Setting:
    """A world's original with some knobs given as `knob=value` pairs."""
    return world.setting(override({}, [f"original.{pair}" for pair in pairs]).get("original", {}))
