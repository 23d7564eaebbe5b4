"""Commands that show a world or an agent in it: play, film, look."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from curricle import config
from curricle.cli.shell import Knobs, Run, Trust, WorldName, adjusted, app, say
from curricle.errors import UsageError
from curricle.registry import find
from curricle.world import TaskWorld, VectorWorld, World, WorldVector


@app.command()
def play(
    world: WorldName,
    knobs: Knobs = None,
    seed: Annotated[int, typer.Option(help="Seed of the first episode.")] = 0,
    window: Annotated[bool, typer.Option("--window", help="Play in a window instead of the terminal.")] = False,
    agent: Annotated[Path | None, typer.Option("--agent", metavar="RUN", help="Let the agent of a run play.")] = None,
    trust: Trust = False,
) -> None:
    """Play a world yourself, or watch an agent play it."""
    from curricle.cli.play import Game, in_terminal, in_window, watch

    kind = _simulator(world)
    if agent is not None:
        if window:
            raise UsageError("--window is for playing yourself; an agent is watched in the terminal, or filmed")
        watch(_performance(agent, kind, knobs, seed, trust), sys.stdout)
        return
    game = Game(made := kind(), adjusted(made, knobs or []), seed)
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
    trust: Trust = False,
) -> None:
    """Film an episode of a run's agent."""
    from curricle.cli.play import film as write

    frames = write(_performance(folder, VectorWorld, knobs, seed, trust), path, size, longest)
    say(f"{path}: {frames} frames")


@app.command()
def look(
    world: WorldName,
    knobs: Knobs = None,
    seed: Annotated[int, typer.Option(help="Seed of the first picture.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many worlds to draw.")] = 1,
    size: Annotated[int, typer.Option(min=9, help="Side of each picture in pixels.")] = 640,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the PNG files go.")] = Path("pictures"),
) -> None:
    """Draw worlds of a setting: the whole map, and what the player sees at the start."""
    from curricle.cli.play import png

    kind = _simulator(world)
    made = kind()
    vector = made.vector([adjusted(made, knobs or [])] * count)
    vector.reset(seed=list(range(seed, seed + count)))
    out_folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        for name, whole in (("map", True), ("view", False)):
            path = out_folder / f"{kind.id}-{seed + index}-{name}.png"
            path.write_bytes(png(vector.picture(index, (size, size), whole)))
            say(path)


def _simulator(name: str) -> type[VectorWorld]:
    """A world that can be played and drawn."""
    kind = find(World, name)
    if not issubclass(kind, VectorWorld):
        raise UsageError(f"{kind.id} is a world of text tasks: there is nothing to play or draw; try `curricle check`")
    return kind


def _performance(
    folder: Path, kind: type[VectorWorld], knobs: list[str] | None, seed: int, trust: bool = False
) -> Iterator[WorldVector]:
    """An episode of a run's agent, in its original world or with other knobs."""
    settled, agent = config.trained(folder, trust)
    if not issubclass(settled.world, kind):
        text = " of text tasks: there is nothing to watch" if issubclass(settled.world, TaskWorld) else ""
        raise UsageError(f"{folder} is a run in {settled.world.id}" + (text and f", a world{text}"))
    design = agent.world.unaltered()
    if knobs:
        design = design.model_copy(update={"setting": adjusted(agent.world, knobs).values})
    return agent.perform(design, seed)
