"""Chains: a ladder of text tasks. Level k has k steps, and its last step is of a kind that no shorter chain has.

A task has the signs of its steps, their numbers, and a digit to start from: `+-~... 452... 3` stands for 3 + 4, then
- 5, then the distance to 2. The agent answers with six digits, the result of each step: `720000`. Results are taken
modulo 8. Where the task has dots, any digit will do. An attempt counts only if the result of every step is right. So an
agent that knows the first k kinds solves an eighth of the next level by guessing, and a 64th of the one after that.
Levels 5 and 6 can be guessed more often: the larger or smaller of two numbers is often the second. Practice at the top
teaches nothing at first, while each rung can be reached from the one below.

A design sets the level, or holds one written chain in the knob `task`.
"""

import functools
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from curricle import records
from curricle import setting as knobs
from curricle.errors import UsageError, WorldError
from curricle.records import Message, Skill, Task, Values, Verdict
from curricle.seeds import derive, generator, is_for_test
from curricle.setting import knob
from curricle.world import TaskWorld

KINDS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "+": ("adds", lambda a, b: a + b),
    "-": ("subtracts", lambda a, b: a - b),
    "~": ("takes the distance", lambda a, b: abs(a - b)),
    "*": ("multiplies", lambda a, b: a * b),
    "^": ("takes the larger", max),
    "v": ("takes the smaller", min),
}
"""The kinds of step 1, step 2, ... by their signs: what each does, in words and in code."""
BASE = 8
"""Results are taken modulo this, so the digits are those below it."""
DIGITS = "".join(str(digit) for digit in range(BASE))
SIGNS = tuple(KINDS)
LEVELS = len(KINDS)
DOT = "."
"""What stands in place of a sign and in place of a number where there is no step."""
EXAMPLE = "+-~... 452... 3"
"""A chain of level 3,"""
ANSWER = "720000"
"""and an answer to it that is right."""
HELD_OUT = 10
"""One chain in this many is kept for tests, chosen by a checksum of its text."""
DRAWS = 1000
"""Draws per task after which a setting counts as having no task on the side that is asked for."""


def is_held_out(text: str) -> bool:
    """Whether a chain is kept for tests."""
    return zlib.crc32(text.encode()) % HELD_OUT == 0


def _steps_in_words() -> str:
    """Return what each step does, for the guide."""
    steps = [f"Step {number} {words} ({sign})." for number, (sign, (words, _)) in enumerate(KINDS.items(), start=1)]
    return " ".join(steps)


class ChainsSetting(knobs.Setting):
    """How long chains are, or one written chain."""

    level: int = knob(
        LEVELS, "Number of steps; step k is of a kind that no shorter chain has.", ge=1, le=LEVELS, harder="up"
    )
    task: str = knob("", f"One chain, written like {EXAMPLE}; empty: chains of the level.", max_length=len(EXAMPLE))

    @classmethod
    def follows(cls, name: str, said: str) -> Sequence[str] | None:
        """A written chain keeps to its form: what it may say next is a step, the digit at its end, or nothing more."""
        if name != "task":
            return None
        signs, first_space, rest = said.partition(" ")
        numbers, second_space, start = rest.partition(" ")
        if not signs:
            return [SIGNS[0]]
        if len(signs) < LEVELS:
            return [DOT] if DOT in signs else [SIGNS[len(signs)], DOT]
        if not first_space:
            return [" "]
        if len(numbers) < LEVELS:
            return [DOT] if signs[len(numbers)] == DOT else list(DIGITS[1:])
        if not second_space:
            return [" "]
        return [""] if start else [f"{digit}\n" for digit in DIGITS]

    @model_validator(mode="after")
    def _task_is_sound(self) -> Self:
        if self.task:
            read_chain(self.task)
            if is_held_out(self.task):
                raise ValueError(f"the chain {self.task!r} is kept for tests; write another one")
        return self


class ChainsOptions(records.Options):
    """Options of the world of chains."""

    base: int = Field(0, ge=0, description="Number of tasks that practice in the original has; 0: no limit.")
    partial: float = Field(
        0.0, ge=0, lt=1, description="Reward for the share of right results in a chain that has wrong ones; 0: none."
    )
    tested: Literal["original", "all"] = Field(
        "original",
        description="Which levels tests of the original have: its own, or all in turn; the headline is its own.",
    )
    examples: int = Field(4, ge=0, le=64, description="Seed tasks of each level that a designer is shown, to vary.")


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
    guide = (
        f"A chain of steps on a digit, like {EXAMPLE}: signs, numbers, and the digit to start from. Results are taken "
        f"modulo {BASE}. The answer is {LEVELS} digits: the result of each step, and any digit for dots. "
        f"{_steps_in_words()}"
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
            "max_tokens": LEVELS + 1,
            "imitation_updates": 1000,
            "imitation_tasks": 64,
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

    def __init__(self, options: ChainsOptions | None = None, original: knobs.Setting | None = None) -> None:
        super().__init__(options, original)
        if self.original.values["task"]:
            raise UsageError(
                f"original.task = {self.original.values['task']!r}: tests would have no chain but this one"
            )

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Return a written chain n times, or draw chains of one level; tests draw some that practice never sees."""
        assert isinstance(setting, ChainsSetting)
        if setting.task:
            return [read_chain(setting.task)] * n
        held_out = is_for_test(seed)
        if self.options.tested == "all" and held_out and setting.values == self.original.values:
            return self._draw_all_levels(n, seed)
        if self.options.base and not held_out and setting.values == self.original.values:
            order = generator(seed, "rows").permutation(len(self._base))
            return [self._base[int(order[i % len(order)])] for i in range(n)]
        return self._draw(setting.level, n, generator(seed, "chains"), held_out)

    @functools.cached_property
    def _base(self) -> list[Task]:
        """The fixed tasks of practice in the original, if the option `base` asks for such."""
        level = int(str(self.original.values["level"]))
        return self._draw(level, self.options.base, generator(derive(0, "base"), "chains"), held_out=False)

    def _draw_all_levels(self, n: int, seed: int) -> list[Task]:
        """Draw n test tasks, of all levels in turn."""
        found = list[Task]()
        for number in range(n):
            level = 1 + number % LEVELS
            found += self._draw(level, 1, generator(seed, "chains", number), held_out=True)
        return found

    def _draw(self, level: int, n: int, rng: np.random.Generator, held_out: bool) -> list[Task]:
        """Draw n chains of one side: held out for tests, or for practice."""
        found = list[Task]()
        for _ in range(DRAWS * n):
            if len(found) == n:
                return found
            text = draw_chain(level, rng)
            if is_held_out(text) == held_out:
                found.append(read_chain(text))
        if len(found) == n:
            return found
        side = "test" if held_out else "practice"
        raise WorldError(f"{self.id}: found {len(found)} of {n} {side} tasks of level {level}; raise the level")

    def examples(self, cycle: int) -> Sequence[Values]:
        """Some chains of every level, as seed tasks, the same in every cycle; with `base`, the original's are of it."""
        found = list[Values]()
        for level in range(1, LEVELS + 1):
            if self.options.base and level == self.original.values["level"]:
                tasks = self._base[: self.options.examples]
            else:
                rng = generator(derive(0, "examples", level), "chains")
                tasks = self._draw(level, self.options.examples, rng, held_out=False)
            found += [self.setting({"task": task.id}).values for task in tasks]
        return found

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """The results of all steps must be right; what stands for dots does not matter."""
        assert isinstance(task.gold, list)
        replies = [message.content for message in transcript if message.role == "assistant"]
        said = replies[-1].strip() if replies else ""
        if not re.fullmatch(f"[{DIGITS}]{{{LEVELS}}}", said):
            return Verdict(reward=0.0, why=f"the answer is not {LEVELS} digits, like {ANSWER!r}", valid=False)
        steps = len(task.gold)
        right = sum(digit == str(gold) for digit, gold in zip(said, task.gold, strict=False))
        if right == steps:
            return Verdict(reward=1.0, skills=(task.skill,))
        return Verdict(reward=self.options.partial * right / steps, why=f"{right} of {steps} results")

    def solution(self, task: Task) -> Sequence[str]:
        """The right answer; digits for dots follow from the task, and are all alike over many tasks."""
        assert isinstance(task.gold, list)
        checksum = zlib.crc32(task.id.encode())
        filling = [DIGITS[checksum // BASE**place % BASE] for place in range(LEVELS)]
        digits = [str(result) for result in task.gold]
        return ["".join([*digits, *filling[len(digits) :]])]

    def headline(self, rates: Mapping[str, float]) -> float:
        """Success at the level of the original, in percent."""
        return 100 * rates.get(f"level_{self.original.values['level']}", 0.0)


def draw_chain(level: int, rng: np.random.Generator) -> str:
    """Draw the text of one chain."""
    digit = int(rng.integers(BASE))
    dots = DOT * (LEVELS - level)
    signs = "".join(SIGNS[:level])
    numbers = "".join(str(int(rng.integers(1, BASE))) for _ in range(level))
    return f"{signs}{dots} {numbers}{dots} {digit}"


def read_chain(text: str) -> Task:
    """Return the task of a chain. Its text is the task's id, so equal ids mean equal tasks."""
    signs, _, rest = text.partition(" ")
    numbers, _, start = rest.partition(" ")
    level = len(signs.rstrip(DOT))
    dots = DOT * (LEVELS - level)
    if not level or signs != "".join(SIGNS[:level]) + dots:
        rows = ", ".join("".join(SIGNS[:level]) + DOT * (LEVELS - level) for level in range(1, LEVELS + 1))
        raise ValueError(f"the signs of the chain {text!r} are {signs!r}; they must be one of {rows}")
    if not re.fullmatch(f"[{DIGITS[1:]}]{{{level}}}{re.escape(dots)}", numbers):
        raise ValueError(
            f"the chain {text!r} needs a number from 1 to {BASE - 1} for each sign, and then dots, like {EXAMPLE!r}"
        )
    if not re.fullmatch(f"[{DIGITS}]", start):
        raise ValueError(
            f"the chain {text!r} ends in {start!r}; it must end with the digit to start from, 0 to {BASE - 1}, like "
            f"{EXAMPLE!r}"
        )
    result = int(start)
    results = list[int]()
    for sign, number in zip(signs[:level], numbers[:level], strict=True):
        _, work = KINDS[sign]
        result = work(result, int(number)) % BASE
        results.append(result)
    prompt = (Message(role="user", content=text),)
    return Task(id=text, prompt=prompt, gold=list(results), skill=f"level_{level}")
