"""The command that tries a world out before anything is trained in it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from curricle.agent import Agent
from curricle.cli.shell import WorldName, app, say
from curricle.cli.tried import naming, tried
from curricle.config import AUTO, DEFAULTS, SECTIONS
from curricle.designer import Designer, NamingOptions
from curricle.errors import CurricleError, DeclarationError, PluginError, WorldError, nearest
from curricle.loop import Schedule
from curricle.records import Message, Options, Task, Verdict, checked
from curricle.registry import find
from curricle.seeds import for_test, generator
from curricle.setting import Setting
from curricle.watcher import Log
from curricle.world import TaskWorld, VectorWorld, World, check_skills

Steps = Annotated[int, typer.Option(min=1, help="Steps played by chance in each setting of simulators.")]
Tasks = Annotated[int, typer.Option(min=1, help="Tasks drawn of each setting of text tasks.")]
Count = Annotated[int, typer.Option("--random", min=0, help="Random settings to try.")]
JUNK = ("", "?", "I do not know.", "[]", "{}", "0", "yes")
"""Answers that should earn nothing, beside the task's own words; some may be right by chance, and are counted."""


@app.command()
def check(world: WorldName, steps: Steps = 300, tasks: Tasks = 8, count: Count = 20) -> None:
    """Try a world before anything is trained in it: the original, what eases each skill, and random settings.

    Simulators are played by chance; text tasks are drawn, and given their solutions and junk as answers.
    """
    made = find(World, world)()
    check_skills(made)  # a world may set them when it is made
    notes = _advice_on_suggestions(made)
    rng = generator(0, "check")
    settings = {"the original": made.original}
    settings |= {f"eased for {s.name}": made.setting(s.eased_by) for s in made.skills if s.eased_by}
    settings |= {f"random setting {i + 1}": made.Setting.sample(rng) for i in range(count)}
    if isinstance(made, VectorWorld):
        notes += tried(made, settings, steps)
    elif isinstance(made, TaskWorld):
        for name, setting in settings.items():
            with naming(name, setting, made.original):
                say(f"{name}: {_answered(made, setting, tasks)}")
    for line in [*notes, *_advice(made), *(_advice_on_tasks(made) if isinstance(made, TaskWorld) else ())]:
        say(f"note: {line}")
    say(f"{made.id}: {len(settings)} settings tried")


def _advice_on_suggestions(world: World) -> list[str]:
    """Refuse suggestions that no run could follow; what is only not installed here is worth a note."""
    known, notes = [name for name in SECTIONS if name != "world"], list[str]()
    for section, table in world.suggested(world.options).items():
        if section not in known:
            raise DeclarationError(f"{world.id}.suggests: unknown section {section!r}, {nearest(str(section), known)}")
        try:
            _check_suggestion(world, section, table)
        except CurricleError as error:
            if isinstance(error, PluginError) and isinstance(error.__cause__, ImportError):
                notes.append(f"suggests[{section!r}] was not tried: {error}")
            else:
                raise DeclarationError(f"{world.id}.suggests[{section!r}]: {error}") from error
    return notes


def _check_suggestion(world: World, section: str, table: Mapping[str, Any]) -> None:
    """Check one section as a run would."""
    options = {name: value for name, value in table.items() if name != "id"}
    if section == "original":
        world.setting(table)
    elif section in ("schedule", "log"):
        checked(Schedule if section == "schedule" else Log, table, f"[{section}]")
    else:
        name = str(table.get("id", DEFAULTS[section]["id"]))
        part = find(Agent, name) if section == "agent" else find(Designer, "llm" if name == AUTO else name)
        _check_options(part.Options, options, f"[{section}] {part.id}")


def _check_options(kind: type[Options], given: Mapping[str, Any], what: str) -> None:
    """Check options, and those of the designers that they name."""
    options = checked(kind, given, what)
    for name in options.naming if isinstance(options, NamingOptions) else ():
        other = find(Designer, getattr(options, name))
        _check_options(other.Options, getattr(options, f"{name}_options"), f"{what}, {name}_options of {other.id}")


def _answered(world: TaskWorld, setting: Setting, count: int) -> str:
    """What solutions and junk earn in a setting; drawn twice from one seed, which must give the same tasks."""
    tasks = world.draw(setting, count, 1)
    if [task.to_json() for task in world.draw(setting, count, 1)] != [task.to_json() for task in tasks]:
        raise WorldError(
            f"{world.id} gave different tasks for the same seed in {setting!r}: its luck must come from the seed"
        )
    known = [task for task in tasks if world.solution(task)]
    for task in known:
        verdict = _judged(world, task, world.solution(task))
        if verdict.reward < 1 or task.skill not in verdict.skills:
            raise WorldError(
                f"{world.id}: its own solution {list(world.solution(task))!r:.200} of task {task.id} earns "
                f"{verdict.reward:g} and shows {list(verdict.skills)} instead of {task.skill!r}; {verdict.why}"
            )
    answers = [(task, junk) for task in tasks for junk in (*JUNK, task.prompt[-1].content)]
    paid = [junk for task, junk in answers if _judged(world, task, [junk]).reward > 0]
    if len(paid) == len(answers):
        raise WorldError(f"{world.id}: score() pays for all junk, even {paid[0]!r} and {paid[1]!r}, in {setting!r}")
    earned = f"something {len(paid)} of {len(answers)} times: {sorted(set(paid))!r:.100}" if paid else "nothing"
    solved = f"{len(known)} solved by their solutions" if known else "no solution is known"
    return f"{count} tasks, {solved}; junk earns {earned}"


def _judged(world: TaskWorld, task: Task, words: Sequence[str]) -> Verdict:
    """What an agent that says these words, turn by turn, would earn."""
    transcript = list[Message]()
    try:
        for line in words:
            transcript.append(Message(role="assistant", content=line))
            if (said := world.reply(task, transcript)) is None:
                break
            transcript.append(said)
        return world.judge(task, transcript)
    except DeclarationError:
        raise
    except Exception as error:
        what = f"{world.id} broke down on the words {list(words)!r:.200} in task {task.id}"
        raise WorldError(f"{what}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _advice_on_tasks(world: TaskWorld) -> list[str]:
    """What a world of tasks can do without, but agents learn and are tested better with."""
    notes, home = [], world.original
    practised = {str(task.prompt) for seed in range(20) for task in world.draw(home, 20, seed)}
    tests = [task for index in range(5) for task in world.draw(home, 20, for_test(index))]
    tested = [str(task.prompt) for task in tests]
    if missing := sorted({skill.name for skill in world.skills} - {task.skill for task in tests}):
        notes.append(f"no test task of {len(tests)} is about {', '.join(missing)}: what is not tested counts as 0")
    if seen := sum(prompt in practised for prompt in tested):
        notes.append(f"{seen} of {len(tested)} test tasks come up in practice too; hold some out (seeds.is_for_test)")
    if not any(world.solution(task) for task in world.draw(home, 4, 1)):
        notes.append("no solution(): whether right answers are paid was not tried, and agents cannot imitate (warm)")
    return notes


def _advice(world: World) -> list[str]:
    """What a world can do without, but designers do better with."""
    bare = [skill.name for skill in world.skills if not skill.eased_by]
    open_ended = [knob.name for knob in world.Setting.knobs() if not knob.harder]
    notes = []
    if bare:
        notes.append(f"no eased_by: {', '.join(bare)}; the tutor and the policy begin from what eases a skill")
    if open_ended:
        notes.append(f"no harder: {', '.join(open_ended)}; right where a knob is neither easier nor harder")
    return notes
