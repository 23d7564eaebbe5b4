"""The command line. Results go to stdout, progress and errors to stderr; it is quiet when nobody watches.

Exit codes: 0 done, 1 the run could not go on, 2 the command or config is wrong, 130 interrupted (and resumable).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from curricle import __version__, config
from curricle.agent import Agent
from curricle.designer import Designer, describe
from curricle.errors import CurricleError
from curricle.loop import Schedule
from curricle.records import Cycle, Design, Options, Outcome, Scores
from curricle.registry import KINDS, find, installed
from curricle.run import read_config, read_records
from curricle.views.progress import Progress
from curricle.views.table import table
from curricle.world import World

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains an agent in environments that are made for it while it learns.",
)
out, err = Console(), Console(stderr=True)
if not out.is_terminal:
    out.width = 160  # a table in a file or a pipe need not fit a window

Set = Annotated[
    list[str] | None, typer.Option("--set", help="Set a config key, as in schedule.cycles=2; may be repeated.")
]


@app.command()
def run(
    source: Annotated[
        str, typer.Argument(metavar="WORLD|CONFIG.toml", help="A world (see `worlds`), or a config file.")
    ],
    designer: Annotated[str | None, typer.Option(help="Who makes the designs (see `designers`).")] = None,
    agent: Annotated[str | None, typer.Option(help="Who learns (see `agents`).")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the whole run.")] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder [default: a new one in runs/].")
    ] = None,
    pairs: Set = None,
) -> None:
    """Start a run and see it through."""
    chosen = config.load(source)
    given = {"designer.id": designer, "agent.id": agent, "seed": seed}
    named = [f"{key}={value}" for key, value in given.items() if value is not None]
    resolved = config.resolve(config.override(chosen, [*named, *(pairs or [])]))
    folder = out_folder or _new_folder(resolved)
    err.print(
        f"{folder}: world {resolved.world.id}, designer {resolved.designer.id}, agent {resolved.agent.id}, "
        f"seed {resolved.seed}",
        highlight=False,
        soft_wrap=True,
    )
    with _progress(folder) as progress:
        config.start(resolved, folder, progress)
    out.print(table(folder))


@app.command()
def resume(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]) -> None:
    """Go on with a run that was interrupted."""
    with _progress(folder) as progress:
        config.resume(folder, progress)
    out.print(table(folder))


@app.command()
def show(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may still be running.")]) -> None:
    """Print the table of skills over cycles."""
    out.print(table(folder))


@app.command()
def design(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")],
    run_folder: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Tell what happened in this run.")
    ] = None,
) -> None:
    """Print the brief that a designer would get."""
    kind = find(World, world)
    if run_folder is None:
        cycles = config.resolve({"world": {"id": world}}).schedule.cycles
        print(describe(kind().brief(1, cycles)), end="")
        return
    settled = config.resolve(read_config(run_folder))
    past = _past(run_folder, settled.schedule)
    brief = settled.world(settled.world_options, settled.original).brief(len(past) + 1, settled.schedule.cycles, past)
    print(describe(brief), end="")


@app.command()
def worlds(name: Annotated[str | None, typer.Argument(help="Show one world whole.")] = None) -> None:
    """List the worlds that are installed, with their knobs."""
    _list(World, name)


@app.command()
def designers(name: Annotated[str | None, typer.Argument(help="Show one designer.")] = None) -> None:
    """List the designers that are installed, with their options."""
    _list(Designer, name)


@app.command()
def agents(name: Annotated[str | None, typer.Argument(help="Show one agent.")] = None) -> None:
    """List the agents that are installed, with their options."""
    _list(Agent, name)


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Trains an agent in environments that are made for it while it learns."""
    if show_version:
        print(f"curricle {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; what a user can act on is one line on stderr, not a traceback."""
    try:
        app()
    except CurricleError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)


@contextmanager
def _progress(folder: Path) -> Iterator[Progress]:
    """Show how a run gets on; whoever interrupts it is told how to go on."""
    try:
        with Progress(err) as progress:
            yield progress
    except KeyboardInterrupt:
        err.print(f"interrupted; go on with: curricle resume {folder}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _list(kind: type[World] | type[Designer] | type[Agent], name: str | None) -> None:
    """Print what is installed of a kind; a plug-in that does not load is shown with its error."""
    found = [(name, find(kind, name))] if name else list(installed(kind))
    if not found:
        out.print(
            f"no {KINDS[kind]} are installed; a file serves too: curricle run folder/file.py:Class", highlight=False
        )
    for id, part in found:
        if isinstance(part, Exception):
            out.print(f"[bold red]{escape(id)}[/]  broken: {escape(str(part))}", highlight=False, soft_wrap=True)
            continue
        first = (part.__doc__ or "").strip().splitlines()[0]
        out.print(f"[bold]{part.id}[/]  {escape(first)}", highlight=False, soft_wrap=True)
        for line in _options(part.Options):
            out.print(f"    {escape(line)}", highlight=False, soft_wrap=True)
        if issubclass(part, World):
            for knob in part.Setting.knobs():
                out.print(f"    original.{escape(knob.line)}", highlight=False, soft_wrap=True)


def _options(options: type[Options]) -> list[str]:
    return [f"{name} = {field.default!r}: {field.description}" for name, field in options.model_fields.items()]


def _new_folder(resolved: config.Config) -> Path:
    """A folder in runs/ that says what it holds and does not exist yet."""
    parts = (resolved.world.id, resolved.designer.id, resolved.agent.id, f"s{resolved.seed}")
    base = Path("runs") / "--".join(parts)
    numbered = (base.with_name(f"{base.name}--{i}") for i in range(2, 10_000))
    return next(folder for folder in (base, *numbered) if not folder.exists())


def _past(folder: Path, schedule: Schedule) -> list[Cycle]:
    """The finished cycles of a run, as its designer was told of them."""
    designs = {step.cycle for step, _ in read_records(folder, Design)}
    parts: dict[int, dict[Design, list[Outcome]]] = {}
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed" and step.cycle in designs:
            parts.setdefault(step.cycle, {}).setdefault(outcome.design, []).append(outcome)
    scores = {step.cycle: record for step, record in read_records(folder, Scores) if step.cycle <= schedule.cycles}
    return [
        Cycle(number=n, designed=tuple(Outcome.merge(p) for p in parts.get(n, {}).values()), scores=record)
        for n, record in sorted(scores.items())
    ]
