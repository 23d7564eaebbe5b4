"""The command that tries a world out before anything is trained in it."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import typer

from curricle.cli.shell import WorldName, app, say
from curricle.errors import WorldError
from curricle.records import Message, Task, Verdict
from curricle.registry import find
from curricle.seeds import for_test, generator
from curricle.setting import Setting
from curricle.world import TaskWorld, VectorWorld, World

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
    rng = generator(0, "check")
    settings = {"the original": made.original}
    settings |= {f"eased for {s.name}": made.setting(s.eased_by) for s in made.skills if s.eased_by}
    settings |= {f"random setting {i + 1}": made.Setting.sample(rng) for i in range(count)}
    if isinstance(made, VectorWorld):
        made.vector(list(settings.values())).close()  # all at once, as agents practise: spaces must agree
    for name, setting in settings.items():
        if isinstance(made, VectorWorld):
            say(f"{name}: {_played(made, setting, steps)}")
        elif isinstance(made, TaskWorld):
            say(f"{name}: {_answered(made, setting, tasks)}")
    for line in [*_advice(made), *(_advice_on_tasks(made) if isinstance(made, TaskWorld) else ())]:
        say(f"note: {line}")
    say(f"{made.id}: {len(settings)} settings tried")


def _played(world: VectorWorld, setting: Setting, steps: int) -> str:
    """What chance shows in a setting; played twice from one seed, which must give the same."""
    courses = [_course(world, setting, steps) for _ in range(2)]
    if courses[0] != courses[1]:
        raise WorldError(
            f"{world.id} played twice from the same seed gave different rewards in {setting!r}: "
            "its luck must come from the seed of reset()"
        )
    ended, shown, total = courses[0]
    skills = ", ".join(f"{name} {count}" for name, count in shown.items() if count) or "none"
    return f"{ended} episodes ended in {steps} steps, reward {total:g}; skills shown in them: {skills}"


def _course(world: VectorWorld, setting: Setting, steps: int) -> tuple[int, Mapping[str, int], float]:
    """Episodes that ended, skills shown in them, and the reward of a while of play by chance."""
    vector, ended, total = world.vector([setting]), 0, 0.0
    shown = {skill.name: 0 for skill in world.skills}
    vector.reset(seed=[1])
    vector.action_space.seed(1)
    for _ in range(steps):
        _, rewards, terminated, truncated, info = vector.step(vector.action_space.sample())
        total += float(np.sum(rewards))
        if terminated[0] or truncated[0]:
            ended += 1
            for name in world.names(info["skills"][0]):
                shown[name] += 1
    vector.close()
    return ended, shown, round(total, 9)


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
    earned = f"something {len(paid)} of {len(answers)} times: {sorted(set(paid))!r:.100}" if paid else "nothing"
    return f"{count} tasks, {len(known)} solved by their solutions; junk earns {earned}"


def _judged(world: TaskWorld, task: Task, words: Sequence[str]) -> Verdict:
    """What an agent that says these words, turn by turn, would earn."""
    transcript = list[Message]()
    try:
        for line in words:
            transcript.append(Message(role="assistant", content=line))
            if (said := world.reply(task, transcript)) is None:
                break
            transcript.append(said)
        return world.score(task, transcript)
    except Exception as error:
        what = f"{world.id} broke down on the words {list(words)!r:.200} in task {task.id}"
        raise WorldError(f"{what}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _advice_on_tasks(world: TaskWorld) -> list[str]:
    """What a world of tasks can do without, but agents learn and are tested better with."""
    notes, home = [], world.original
    practised = {str(task.prompt) for seed in range(20) for task in world.draw(home, 20, seed)}
    tested = [str(task.prompt) for index in range(5) for task in world.draw(home, 20, for_test(index))]
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
