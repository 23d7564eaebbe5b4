"""The command that tries a world out before anything is trained in it."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import typer

from curricle.cli.shell import WorldName, app, say
from curricle.errors import WorldError
from curricle.registry import find
from curricle.seeds import generator
from curricle.setting import Setting
from curricle.world import VectorWorld

Steps = Annotated[int, typer.Option(min=1, help="Steps played by chance in each setting.")]
Count = Annotated[int, typer.Option("--random", min=0, help="Random settings to try.")]


@app.command()
def check(world: WorldName, steps: Steps = 300, count: Count = 20) -> None:
    """Try a world of simulators: build the original, what eases each skill and random settings, and play by chance."""
    made = find(VectorWorld, world)()
    rng = generator(0, "check")
    settings = {"the original": made.original}
    settings |= {f"eased for {s.name}": made.setting(s.eased_by) for s in made.skills if s.eased_by}
    settings |= {f"random setting {i + 1}": made.Setting.sample(rng) for i in range(count)}
    made.vector(list(settings.values())).close()  # all at once, as agents practise: spaces must agree
    for name, setting in settings.items():
        say(f"{name}: {_played(made, setting, steps)}")
    for line in _advice(made):
        say(f"note: {line}")
    say(f"{made.id}: {len(settings)} settings built and played")


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


def _advice(world: VectorWorld) -> list[str]:
    """What a world can do without, but designers do better with."""
    bare = [skill.name for skill in world.skills if not skill.eased_by]
    open_ended = [knob.name for knob in world.Setting.knobs() if not knob.harder]
    notes = []
    if bare:
        notes.append(f"no eased_by: {', '.join(bare)}; the tutor and the policy begin from what eases a skill")
    if open_ended:
        notes.append(f"no harder: {', '.join(open_ended)}; right where a knob is neither easier nor harder")
    return notes
