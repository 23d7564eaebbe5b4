"""Commands about the parts of a run: what is installed, and what a designer is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from curricle import config
from curricle.agent import Agent
from curricle.cli.shell import Trust, WorldName, app, put, say
from curricle.designer import Designer, OfOptions
from curricle.designers.llm.designer import LLM
from curricle.errors import UsageError
from curricle.llm.client import as_text
from curricle.loop import Schedule
from curricle.records import Cycle, Design, Message, Options, Outcome, Scores, checked
from curricle.registry import KINDS, find, installed
from curricle.run import read_config, read_records, trust
from curricle.seeds import derive
from curricle.tracking.watcher import Log
from curricle.world import World


@app.command()
def design(
    world: WorldName,
    run_folder: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Tell what happened in this run.")
    ] = None,
    trusted: Trust = False,
) -> None:
    """Print the exact prompt that a run's language model would get next, or that one would get in this world."""
    kind = find(World, world)
    plain = read_config(run_folder) if run_folder else {"world": {"id": world}, "designer": {"id": "tutor"}}
    if run_folder:
        trust.check(plain, run_folder, trusted)
    settled = config.resolve(plain)
    if settled.world.id != kind.id:
        raise UsageError(f"{run_folder} is a run in {settled.world.id}, not in {kind.id}")
    cycles = settled.schedule.cycles
    past = _past(run_folder) if run_folder else []
    maker = settled.designer
    options = settled.designer_options
    n = settled.schedule.designs
    if isinstance(options, OfOptions) and (inner := find(Designer, options.of)).prompts is not Designer.prompts:
        # asked once, as the run begins
        past = []
        n = getattr(options, "candidates", n)
        maker = inner
        options = checked(inner.Options, options.of_options, f"[designer] of_options of {inner.id}")
    cycle = min(len(past) + 1, cycles)  # of a finished run: the last one its designer got
    brief = settled.world(settled.world_options, settled.original).brief(cycle, cycles, past[: cycle - 1])
    prompts: Sequence[Sequence[Message]] = ()
    if maker.prompts is not Designer.prompts:
        prompts = maker(kind.Setting, options, derive(settled.seed, "designer")).prompts(brief, n)
    put("\n\n".join(as_text(prompt) for prompt in prompts or LLM(kind.Setting).prompts(brief, n)))


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


def _list(kind: type[World] | type[Designer] | type[Agent], name: str | None) -> None:
    """Print what is installed of a kind; a plug-in that does not load is shown with its error."""
    found = [(name, find(kind, name))] if name else list(installed(kind))
    if not found:
        say(f"no {KINDS[kind]} are installed; a file serves too: curricle run folder/file.py:Class")
    for id, part in found:
        if isinstance(part, Exception):
            say(Text.assemble((id, "bold red"), f"  broken: {part}"))
            continue
        first = ((part.__doc__ or "").strip().splitlines() or [""])[0]
        say(Text.assemble((part.id, "bold"), f"  {first}"))
        lines = _options(part.Options)
        if issubclass(part, World):
            lines += [f"original.{knob.line}" for knob in part.Setting.knobs()]
            lines += _skills(part) if name else []
        for line in lines:
            say(f"    {line}")


@app.command()
def schedule() -> None:
    """List what a run's schedule and its log can be told, with the defaults."""
    for section, options in (("schedule", Schedule), ("log", Log)):
        say(Text.assemble((section, "bold"), f"  {(options.__doc__ or '').strip()}"))
        for line in _options(options):
            say(f"    {section}.{line}")


def _skills(world: type[World]) -> list[str]:
    """A world's skills with what they need and what eases them, its guide, and the schedule it suggests."""
    lines = []
    for skill in world.skills:
        parts = [f"needs {', '.join(skill.needs)}"] if skill.needs else []
        parts += [f"eased by {', '.join(f'{k}={v}' for k, v in skill.eased_by.items())}"] if skill.eased_by else []
        lines.append(f"skill {skill.name}" + (f": {'; '.join(parts)}" if parts else ""))
    suggested = [f"{section}.{k} = {v!r}" for section, keys in world.suggests.items() for k, v in keys.items()]
    return [*lines, f"guide: {' '.join(world.guide.split())}", *(f"suggests {line}" for line in suggested)]


def _options(options: type[Options]) -> list[str]:
    return [f"{name} = {field.default!r}: {field.description}" for name, field in options.model_fields.items()]


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
