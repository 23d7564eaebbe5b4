"""Chains: a ladder of text tasks. Level k has k steps, and its last step is of a kind that no shorter chain has.

A task is a row of operations and a digit to start from: `+4 -6 ~2 .. .. 3`. The agent answers with the result of every
step, here `7, 1, 1`; each result is the last digit of a whole number. A dot does nothing: dots make all rows equally
long. An attempt counts only if every result is right. So an agent that knows the first k kinds solves a tenth of the
next level by guessing, and a hundredth of the one after that. Practice at the top teaches nothing at first, while each
rung can be reached from the one below.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from curricle import records
from curricle import setting as knobs
from curricle.errors import WorldError
from curricle.records import Message, Skill, Task, Verdict
from curricle.seeds import derive, generator, is_for_test
from curricle.setting import knob
from curricle.world import TaskWorld

KINDS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "+": ("adds", lambda a, b: (a + b) % 10),
    "-": ("subtracts", lambda a, b: (a - b) % 10),
    "~": ("takes the distance", lambda a, b: abs(a - b)),
    "*": ("multiplies", lambda a, b: (a * b) % 10),
    "^": ("takes the larger", max),
    "v": ("takes the smaller", min),
}
"""The kinds of step 1, step 2, ... by their signs: what each does, in words and in code."""
SIGNS = tuple(KINDS)
LEVELS = len(KINDS)
PLACES = 5
"""Steps and dots in a row; a longer chain has no dots."""
HELD_OUT = 10
"""One chain in this many is kept for tests, chosen by a checksum of its text."""
DRAWS = 1000
"""Draws per task after which a setting counts as having no task on the side that is asked for."""


class ChainsSetting(knobs.Setting):
    """How long chains are."""

    level: int = knob(
        5, "Number of steps; step k is of a kind that no shorter chain has.", ge=1, le=LEVELS, harder="up"
    )


class ChainsOptions(records.Options):
    """Options of the world of chains."""

    base: int = Field(0, ge=0, description="Number of tasks that practice in the original has; 0: no limit.")
    partial: float = Field(
        0.0, ge=0, lt=1, description="Reward for the share of right results in a chain that has wrong ones; 0: none."
    )


class Chains(TaskWorld):
    """Chains of operations on digits, answered with every result."""

    id = "chains-v1"
    Setting = ChainsSetting
    Options = ChainsOptions
    options: ChainsOptions
    skills = tuple(
        Skill(
            name=f"level_{level}",
            needs=(f"level_{level - 1}",) if level > 1 else (),
            eased_by={"level": level},
        )
        for level in range(1, LEVELS + 1)
    )
    guide = "A row of steps on a digit. The answer is the last digit after each step. " + "; ".join(
        f"step {number} {words} ({sign})" for number, (sign, (words, _)) in enumerate(KINDS.items(), start=1)
    )
    suggests: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agent": {
            "id": "grpo",
            "model": "scratch",
            "learning_rate": 1e-3,
            "kl_coef": 0.0,
            "group_size": 8,
            "tasks_per_update": 16,
            "microbatch_size": 128,
            "sample_batch": 128,
            "max_tokens": 18,
            "imitation_updates": 200,
            "imitation_tasks": 128,
            "imitation_learning_rate": 3e-3,
            "imitation_settings": ({"level": 1}, {"level": 2}),
        },
        "designer": {
            "id": "language",
            "model": "scratch",
            "learning_rate": 1e-3,
            "aim": "task",
            "text": "off",
            "n": 16,
        },
        "schedule": {
            "cycles": 20,
            "designs": 32,
            "per_cycle": 4096,
            "ratio": "1:0",
            "final": 0,
            "save_every": 4096,
            "test_seeds": 1,
            "test_episodes": 100,
        },
    }

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Draw chains of one level; tests draw from chains that practice never sees."""
        held_out = is_for_test(seed)
        if self.options.base and not held_out and setting.values == self.original.values:
            base = self._draw(setting, self.options.base, generator(derive(0, "base"), "chains"), held_out)
            order = generator(seed, "rows").permutation(len(base))
            return [base[int(order[i % len(base)])] for i in range(n)]
        return self._draw(setting, n, generator(seed, "chains"), held_out)

    def _draw(self, setting: knobs.Setting, n: int, rng: np.random.Generator, held_out: bool) -> list[Task]:
        """Draw n chains of one side: held out for tests, or for practice."""
        assert isinstance(setting, ChainsSetting)
        found = list[Task]()
        for _ in range(DRAWS * n):
            if len(found) == n:
                return found
            task = draw_chain(setting, rng)
            if (zlib.crc32(task.id.encode()) % HELD_OUT == 0) == held_out:
                found.append(task)
        if len(found) == n:
            return found
        side = "test" if held_out else "practice"
        raise WorldError(f"{self.id}: found {len(found)} of {n} {side} tasks in {setting!r}; raise the level")

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """All results must be right."""
        assert isinstance(task.gold, list)
        replies = [message.content for message in transcript if message.role == "assistant"]
        said = replies[-1].strip() if replies else ""
        if not re.fullmatch(r"[0-9](, [0-9])*", said):
            return Verdict(reward=0.0, why="the answer is no list of digits like '7, 1, 1'", valid=False)
        answers = [int(part) for part in said.split(", ")]
        if answers == task.gold:
            return Verdict(reward=1.0, skills=(task.skill,))
        if len(answers) != len(task.gold):
            return Verdict(reward=0.0, why=f"{len(answers)} results for {len(task.gold)} steps")
        right = sum(answer == gold for answer, gold in zip(answers, task.gold, strict=True))
        return Verdict(reward=self.options.partial * right / len(answers), why=f"{right} of {len(answers)} results")

    def solution(self, task: Task) -> Sequence[str]:
        """The right answer."""
        assert isinstance(task.gold, list)
        return [", ".join(str(result) for result in task.gold)]

    def headline(self, rates: Mapping[str, float]) -> float:
        """Success at the level of the original, in percent."""
        return 100 * rates.get(f"level_{self.original.values['level']}", 0.0)


def draw_chain(setting: ChainsSetting, rng: np.random.Generator) -> Task:
    """Draw one chain. Its text is the task's id, so equal ids mean equal tasks."""
    digit = int(rng.integers(10))
    steps = list[str]()
    results = list[int]()
    result = digit
    for sign in SIGNS[: setting.level]:
        number = int(rng.integers(1, 10))
        _, work = KINDS[sign]
        result = work(result, number)
        steps.append(f"{sign}{number}")
        results.append(result)
    dots = [".."] * (PLACES - setting.level)
    text = " ".join([*steps, *dots, str(digit)])
    prompt = (Message(role="user", content=text),)
    return Task(id=text, prompt=prompt, gold=list(results), skill=f"level_{setting.level}")
