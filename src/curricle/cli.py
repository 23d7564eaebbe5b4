"""The command line. Results go to stdout, progress and errors to stderr; it is quiet when nobody watches.

Exit codes: 0 done, 1 the run could not go on, 2 the command or config is wrong, 130 interrupted (and resumable).
"""

import logging
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
from curricle.errors import CurricleError, UsageError
from curricle.loop import test_scores
from curricle.records import Cycle, Design, Options, Outcome, Scores
from curricle.registry import KINDS, find, installed
from curricle.run import read_config, read_records
from curricle.watcher import Watcher
from curricle.world import VectorWorld, World, WorldVector

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains an agent in environments that are made for it while it learns.",
)
out, err = Console(), Console(stderr=True)
if not out.is_terminal:
    out.width = 160  # a table in a file or a pipe need not fit a window

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may still be running.")]
Knobs = Annotated[
    list[str] | None, typer.Option("--setting", help="Set a knob, as in biome=mountain; may be repeated.")
]
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
        markup=False,
    )
    with _progress(folder) as progress:
        config.start(resolved, folder, progress)
    _show(folder)


@app.command()
def resume(folder: Run) -> None:
    """Go on with a run that was interrupted."""
    with _progress(folder) as progress:
        config.resume(folder, progress)
    _show(folder)


@app.command()
def show(folder: Run) -> None:
    """Print the table of skills over cycles."""
    _show(folder)


@app.command()
def design(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")],
    run_folder: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Tell what happened in this run.")
    ] = None,
) -> None:
    """Print the brief that a designer would get next."""
    kind = find(World, world)
    if run_folder is None:
        cycles = config.resolve({"world": {"id": world}}).schedule.cycles
        print(describe(kind().brief(1, cycles)), end="")
        return
    settled = config.resolve(read_config(run_folder))
    if settled.world.id != kind.id:
        raise UsageError(f"{run_folder} is a run in {settled.world.id}, not in {kind.id}")
    cycles, past = settled.schedule.cycles, _past(run_folder)
    cycle = min(len(past) + 1, cycles)  # of a finished run: the last one its designer got
    brief = settled.world(settled.world_options, settled.original).brief(cycle, cycles, past[: cycle - 1])
    print(describe(brief), end="")


@app.command()
def play(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")],
    knobs: Knobs = None,
    seed: Annotated[int, typer.Option(help="Seed of the first episode.")] = 0,
    window: Annotated[bool, typer.Option("--window", help="Play in a window instead of the terminal.")] = False,
    agent: Annotated[Path | None, typer.Option("--agent", metavar="RUN", help="Let the agent of a run play.")] = None,
) -> None:
    """Play a world yourself, or watch an agent play it."""
    from curricle.play import Game, in_terminal, in_window, watch

    kind = find(VectorWorld, world)
    if agent is not None:
        watch(_performance(agent, kind, knobs, seed), sys.stdout)
        return
    game = Game(kind(), config.original(kind, knobs or []), seed)
    if window:
        in_window(game)
    else:
        in_terminal(game, sys.stdin, sys.stdout)


@app.command()
def film(
    folder: Run,
    knobs: Knobs = None,
    seed: Annotated[int, typer.Option(help="Seed of the episode.")] = 0,
    size: Annotated[int, typer.Option(min=9, help="Side of the picture in pixels.")] = 288,
    longest: Annotated[int, typer.Option(min=1, help="Frames after which the film ends.")] = 1000,
    path: Annotated[Path, typer.Option("--out", help="A .gif or .mp4 file.")] = Path("film.gif"),
) -> None:
    """Film an episode of a run's agent."""
    from curricle.play import film as write

    frames = write(_performance(folder, VectorWorld, knobs, seed), path, size, longest)
    out.print(f"{path}: {frames} frames", highlight=False, soft_wrap=True, markup=False)


@app.command("eval")
def evaluate(
    folder: Run,
    seeds: Annotated[int, typer.Option(min=1, help="Test seeds; the first ones are those of the run.")] = 12,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes (or tasks) a seed.")] = 4,
) -> None:
    """Test the agent of a run in its original world, without learning."""
    from curricle.views.table import scores_table

    settled, agent = config.trained(folder)
    out.print(scores_table(test_scores(agent, seeds, episodes), f"{settled.world.id}, {settled.agent.id}"))


@app.command()
def look(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world (see `worlds`).")],
    knobs: Knobs = None,
    seed: Annotated[int, typer.Option(help="Seed of the first picture.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many worlds to draw.")] = 1,
    size: Annotated[int, typer.Option(min=9, help="Side of each picture in pixels.")] = 640,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the PNG files go.")] = Path("pictures"),
) -> None:
    """Draw worlds of a setting: the whole map, and what the player sees at the start."""
    from curricle.play import png

    kind = find(VectorWorld, world)
    vector = kind().vector([config.original(kind, knobs or [])] * count)
    vector.reset(seed=list(range(seed, seed + count)))
    out_folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        for name, whole in (("map", True), ("view", False)):
            path = out_folder / f"{kind.id}-{seed + index}-{name}.png"
            path.write_bytes(png(vector.picture(index, (size, size), whole)))
            out.print(str(path), highlight=False, soft_wrap=True, markup=False)


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
    logger = logging.getLogger("curricle")  # the library is silent by itself
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
    try:
        app()
    except CurricleError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _show(folder: Path) -> None:
    from curricle.views.table import table

    out.print(table(folder))


def _performance(folder: Path, kind: type[VectorWorld], knobs: list[str] | None, seed: int) -> Iterator[WorldVector]:
    """An episode of a run's agent, in its original world or with other knobs."""
    settled, agent = config.trained(folder)
    if not issubclass(settled.world, kind):
        raise UsageError(f"{folder} is a run in {settled.world.id}")
    design = agent.world.unaltered()
    if knobs:
        design = design.model_copy(update={"setting": config.original(settled.world, knobs).values})
    return agent.perform(design, seed)


@contextmanager
def _progress(folder: Path) -> Iterator[Watcher]:
    """Show how a run gets on; whoever interrupts it is told how to go on."""
    from curricle.views.progress import Progress

    try:
        with Progress(err) as progress:
            yield progress
    except KeyboardInterrupt:
        err.print(f"interrupted; go on with: curricle resume {folder}", highlight=False, soft_wrap=True, markup=False)
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


def _past(folder: Path) -> list[Cycle]:
    """The finished cycles of a run, as its designer was told of them."""
    with_designs = {step.cycle for step, _ in read_records(folder, Design)}
    parts: dict[int, dict[int, list[Outcome]]] = {}
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed" and step.cycle in with_designs:
            parts.setdefault(step.cycle, {}).setdefault(step.part, []).append(outcome)
    cycles = []
    for step, scores in read_records(folder, Scores):
        designed = zip(*parts.get(step.cycle, {}).values(), strict=True)
        cycles.append(Cycle(number=step.cycle, designed=tuple(Outcome.merge(one) for one in designed), scores=scores))
    return cycles
