"""Commands around a run: start it, go on with it, look at it, test its agent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tomli_w
import typer

from curricle import config, signals
from curricle.cli.shell import (
    Knobs,
    Run,
    Set,
    Trust,
    WorldName,
    adjusted,
    app,
    err,
    out,
    print_message,
    print_result,
    takes,
    write_text,
)
from curricle.designer import OfOptions
from curricle.errors import UsageError
from curricle.loop import evaluate_agent
from curricle.registry import find
from curricle.run import CONFIG, is_run, shown
from curricle.run import trust as trust_rule
from curricle.run import verify as check_folder
from curricle.scale import ranks
from curricle.tracking.watcher import Watcher
from curricle.world import World

EXPORTS = {"model": "agent", "hf": "dataset"}
"""What `export` writes, and the folder that gets it unless another one is named."""


@dataclass(frozen=True)
class RunOptions:
    """The arguments and options of `curricle run`."""

    source: Annotated[
        str, typer.Argument(metavar="WORLD|CONFIG.toml", help="A world (see `worlds`), or a config file.")
    ]
    designer: Annotated[str | None, typer.Option(help="Who makes the designs (see `designers`); auto by default.")] = (
        None
    )
    agent: Annotated[str | None, typer.Option(help="Who learns (see `agents`).")] = None
    seed: Annotated[int | None, typer.Option(help="The seed of the whole run.")] = None
    begin: Annotated[Path | None, typer.Option(help="A run or an exported agent: begin with its agent.")] = None
    llm: Annotated[
        str | None, typer.Option(help="Its language model: hand, replay:RUN, local, a name, or name@http://...")
    ] = None
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run folder (default: a new one in runs/).")] = (
        None
    )
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved config and start nothing.")] = False
    pairs: Set = None


@app.command()
@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Start a run and see it through."""
    if ranks.follows():
        return None if options.dry_run else _follow()
    resolved = _resolve(options)
    if options.dry_run:
        write_text(tomli_w.dumps(resolved.to_toml()).removesuffix("\n"))
        return
    folder = options.out_folder or _new_folder(resolved)
    print_message(
        f"{folder}: world {resolved.world.id}, designer {_designer_line(resolved)}, agent {_agent_line(resolved)}, "
        f"seed {resolved.seed}"
    )
    with _progress(folder) as progress:
        config.start(resolved, folder, progress)
    _show(folder)


@app.command()
def resume(
    folder: Run,
    from_step: Annotated[
        int | None, typer.Option(min=1, help="Go on after this finished step; later ones go to lost+found/.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Go on with a run that was interrupted."""
    if ranks.follows():
        return _follow()
    with _progress(folder) as progress:
        config.resume(folder, progress, from_step=from_step, trusted=trust)
    _show(folder)


@app.command()
def verify(folder: Run) -> None:
    """Check all of a run: journal, records, checkpoints, versions. Changes nothing; status 1 if a file is damaged."""
    problems, notes = check_folder(folder)
    for problem in problems:
        print_result(f"damaged: {problem}")
    for note in notes:
        print_result(note)
    if problems:
        raise typer.Exit(1)
    print_result("whole: every line can be read, and every file is as the journal says")


@app.command()
def show(folder: Run) -> None:
    """Print the table of skills over cycles."""
    _show(folder)


@app.command()
def designs(
    folder: Run,
    cycle: Annotated[int | None, typer.Option(min=1, help="Those of one cycle only.")] = None,
) -> None:
    """List the designs of a run: aim, knobs that were moved, success, and why."""
    from curricle.views.designs import designs_table

    with shown(folder):
        out.print(designs_table(folder, cycle))


@app.command()
def chain(
    world: WorldName,
    folder: Run,
    lately: Annotated[int, typer.Option(min=1, help="Cycles, the last ones, whose designs count.")] = 4,
) -> None:
    """Show link by link what the agent of a run masters, what it is learning, and where no setting leads on."""
    from curricle.views.chain import chain_table, links

    skills = find(World, world).skills
    with shown(folder):
        out.print(chain_table(folder, links(folder, skills, lately), lately))


@app.command()
def plot(
    folder: Run,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where the PNG files go; else RUN/plots.")] = None,
) -> None:
    """Draw a run: designs around the band, knobs drifting, skills over cycles."""
    from curricle.views.plots import plots

    with shown(folder):
        paths = plots(folder, out_folder or folder / "plots")
    for path in paths:
        print_result(path)


@app.command()
def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders; seeds of one config are put together.")
    ],
) -> None:
    """Print the last scores of several runs, by both protocols; those that differ by the seed alone are one row."""
    from curricle.views.compare import comparison

    with shown(*folders):
        out.print(comparison(folders))


@app.command()
def export(
    folder: Run,
    path: Annotated[
        Path | None, typer.Option("--out", help="A new folder for it (default: agent, or dataset for hf).")
    ] = None,
    kind: Annotated[
        str, typer.Option("--as", metavar="model|hf", help="model: the agent; hf: the designs, as a dataset.")
    ] = "model",
    merged: Annotated[bool, typer.Option(help="A language model and its adapter as one.")] = False,
    trust: Trust = False,
) -> None:
    """Write the agent of a run into a folder of its own; `eval`, `film` and `play --agent` take it like a run.

    Of a language model there is also a folder `model`, for PEFT, transformers or vLLM. With `--as hf` it is the designs
    of the run instead, as a dataset that Hugging Face's `datasets` loads.
    """
    out_folder = path or Path(EXPORTS.get(kind, ""))
    if kind not in EXPORTS:
        raise UsageError(f"--as {kind!r} is not known; write one of: {', '.join(EXPORTS)}")
    if kind == "model":
        config.export(folder, out_folder, merged, trust)
    elif merged:
        raise UsageError("--merged is for a model; leave it out, or leave --as hf out")
    else:
        from curricle.views.dataset import export_dataset

        with shown(folder):
            notes = export_dataset(folder, out_folder, trust)
        for note in notes:
            print_message(f"note: {note}")
    print_result(out_folder)


@app.command("eval")
def evaluate(
    folder: Run,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Test seeds, the run's first; else as many as it has.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Episodes (or tasks) a seed; else as the run.")
    ] = None,
    knobs: Knobs = None,
    trust: Trust = False,
) -> None:
    """Test the agent of a run in its original world, or one with other knobs, without learning."""
    from curricle.views.table import scores_table

    settled, agent = config.trained(folder, trust)
    if knobs:
        agent.world.original = adjusted(agent.world, knobs)
    scores = evaluate_agent(agent, seeds or settled.schedule.test_seeds, episodes or settled.schedule.test_episodes)
    out.print(scores_table(scores, ", ".join([settled.world.id, settled.agent.id, *(knobs or [])])))


def _resolve(options: RunOptions) -> config.Config:
    """The config of a run: its world or config file, then the options with a name, then the pairs of `--set`."""
    source = Path(options.source)
    chosen = config.load(options.source)
    if source.name == CONFIG and is_run(source.parent):
        trust_rule.check(chosen, source.parent, advice="copy the config to a place of your own and run that")
    given = {"designer.id": options.designer, "agent.id": options.agent, "seed": options.seed}
    chosen = config.override(chosen, [f"{key}={value}" for key, value in given.items() if value is not None])
    if options.begin is not None:
        chosen["begin"] = str(options.begin)
    if options.llm is not None:
        chosen = config.with_llm(chosen, options.llm)
    return config.resolve(config.override(chosen, options.pairs or []))


def _follow() -> None:
    """Be one of the ranks that work for the first; it alone reads the command, prints and writes."""
    config.follow()


def _designer_line(resolved: config.Config) -> str:
    """The designer, its language model, and why it was chosen where nobody named one."""
    options = resolved.designer_options
    of = options.of if isinstance(options, OfOptions) and options.of != "none-v1" else ""
    given = options.of_options if isinstance(options, OfOptions) else options.model_dump()
    model = str(given.get("model", ""))
    address = "" if model == "hand" or model.startswith(("replay:", "local")) else str(given.get("base_url", ""))
    inner = f"of {of}" if of else ""
    details = ", ".join(text for text in (inner, f"{model} {address}".strip(), resolved.why) if text)
    return resolved.designer.id + (f" ({details})" if details else "")


def _agent_line(resolved: config.Config) -> str:
    """The agent, and its language model if it is one."""
    model = str(getattr(resolved.agent_options, "model", ""))
    return resolved.agent.id + (f" ({model})" if model else "")


def _show(folder: Path) -> None:
    from curricle.views.table import table

    with shown(folder):
        out.print(table(folder))


@contextmanager
def _progress(folder: Path) -> Iterator[Watcher]:
    """Show how a run gets on; an interrupt prints how to go on."""
    from curricle.views.progress import Progress

    signals.advise(f"go on with: curricle resume {folder}")
    with Progress(err) as progress:
        yield progress
    signals.advise("")


def _new_folder(resolved: config.Config) -> Path:
    """A folder in runs/ that says what it holds and does not exist yet."""
    parts = (resolved.world.id, resolved.designer.id, resolved.agent.id, f"s{resolved.seed}")
    base = Path("runs") / "--".join(parts)
    numbered = (base.with_name(f"{base.name}--{i}") for i in range(2, 10_000))
    return next(folder for folder in (base, *numbered) if not folder.exists())
