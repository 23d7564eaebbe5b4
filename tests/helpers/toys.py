"""A world with closed-form success rates, an agent counted in rollouts, and a designer that talks: for tests only.

A task of difficulty d is solved by a student of ability a with probability sigmoid(8 (a - d)); practice at p adds
`rate` * 4 p (1 - p), so that learning is fastest at p = 1/2, as GenEnv's theory has it.
"""

import json
import math
from collections.abc import Sequence
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from curricle.agent import Agent, Report
from curricle.designer import Context, Designer
from curricle.records import Brief, Design, Exchange, Message, Options, Outcome, Skill, Task, Verdict
from curricle.seeds import derive, generator
from curricle.setting import Setting, knob
from curricle.tracking import checkpoint
from curricle.tracking.watcher import Watcher
from curricle.world import TaskWorld


def chance(ability: float, difficulty: float) -> float:
    return 1 / (1 + math.exp(-8 * (ability - difficulty)))


class LadderSetting(Setting):
    difficulty: float = knob(0.8, "How hard the tasks are.", ge=0.0, le=1.0, harder="up")
    topic: Literal["both", "sums", "words"] = knob("both", "What the tasks are about.")


class Ladder(TaskWorld):
    """Tasks on a ladder of difficulty."""

    id = "ladder-v1"
    Setting = LadderSetting
    skills = (
        Skill(name="sums", eased_by={"difficulty": 0.1, "topic": "sums"}),
        Skill(name="words", needs=("sums",), eased_by={"difficulty": 0.1, "topic": "words"}),
    )
    guide = "Tasks have a topic and a difficulty."
    suggests = {"agent": {"id": f"{__file__}:Student"}}  # noqa: RUF012

    def tasks(self, setting: Any, n: int, seed: int) -> list[Task]:
        rng = generator(seed, "tasks")
        made = []
        for i in range(n):
            topic = setting.topic if setting.topic != "both" else ("sums", "words")[i % 2]
            gold = {"difficulty": setting.difficulty, "luck": float(rng.random())}
            prompt = (Message(role="user", content=f"How able are you at {topic}?"),)
            made.append(Task(id=f"{seed}-{i}", prompt=prompt, gold=gold, skill=topic))
        return made

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        assert isinstance(task.gold, dict)
        try:
            ability = float(transcript[-1].content)
        except ValueError:
            return Verdict(reward=0.0, why="no number")
        gold: Any = task.gold
        solved = gold["luck"] < chance(ability, gold["difficulty"])
        return Verdict(reward=float(solved), skills=(task.skill,) if solved else ())


class StudentOptions(Options):
    rate: float = Field(0.02, description="Gain of one attempt at even odds.")


class Student(Agent):
    """Has an ability for each topic; its budget is counted in rollouts of tasks."""

    id = "student-v1"
    unit = "rollouts"
    Options = StudentOptions
    options: StudentOptions
    world: Ladder

    def __init__(self, world: Ladder, options: StudentOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self.ability = {"sums": 0.0, "words": 0.0}

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        each = [budget // len(designs) + (i < budget % len(designs)) for i in range(len(designs))]
        outcomes = []
        for i, (design, n) in enumerate(zip(designs, each, strict=True)):
            outcomes.append(self._attempt(design, n, derive(seed, i), learn=True))
            report(sum(each[: i + 1]), {f"ability/{name}": value for name, value in self.ability.items()})
        return outcomes

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        return [self._attempt(d, episodes, seed, learn=False) for d, seed in zip(designs, seeds, strict=True)]

    def _attempt(self, design: Design, n: int, seed: int, learn: bool) -> Outcome:
        shown: dict[str, int] = {}
        tried: dict[str, int] = {}
        successes = 0
        for task in self.world.tasks(self.world.setting(design.setting), n, seed):
            answer = Message(role="assistant", content=repr(self.ability[task.skill]))
            verdict = self.world.score(task, [answer])
            successes += self.world.succeeded(design.aim, verdict.skills)
            tried[task.skill] = tried.get(task.skill, 0) + 1
            for name in verdict.skills:
                shown[name] = shown.get(name, 0) + 1
            if learn:
                gold: Any = task.gold
                p = chance(self.ability[task.skill], gold["difficulty"])
                self.ability[task.skill] += self.options.rate * 4 * p * (1 - p)
        reward = float(sum(shown.values()))
        return Outcome(
            design=design, attempts=n, successes=successes, skills=shown, tried=tried, reward=reward, spent=n
        )

    def save(self, folder: Path) -> None:
        checkpoint.write(folder, {"ability": np.array(list(self.ability.values()))}, {"names": list(self.ability)})

    def load(self, folder: Path) -> None:
        arrays, state = checkpoint.read(folder)
        self.ability = dict(zip(state["names"], arrays["ability"].tolist(), strict=True))


class Chatty(Designer):
    """Designs with a 'language model' that would cost money: it must be asked once for each prompt, killed or not."""

    id = "chatty-v1"

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        rng = generator(self.seed, "chatty", brief.cycle)
        designs = []
        for i in range(n):
            prompt = (Message(role="user", content="Design, please."),)  # the same in every cycle
            known = context.kept()[i : i + 1]
            if not known:
                reply = json.dumps({"difficulty": round(float(rng.random()), 3)})
                context.keep(Exchange(prompt=prompt, reply=reply, model="toy", usage={"calls": 1}))
            else:
                rng.random()
                reply = known[0].reply
            designs.append(Design(setting=json.loads(reply), aim="sums", why="asked"))
        return designs


def board(context: BaseContext) -> Any:
    """A text that processes share, without a lock: whoever is killed while holding one would keep it for ever."""
    return context.Array("c", 500, lock=False)


class Pointer(Watcher):
    """Tells another process which step is running, through shared memory."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def begin(self, title: str, total: int, unit: str) -> None:
        self.shared.value = title.encode()
