"""A world of text tasks: a language model works out sums. It has everything that a world of tasks needs.

curricle check examples/sums.py:Sums
curricle run examples/sums.py:Sums --out runs/sums
"""

import re
import zlib
from typing import Literal

from curricle import Setting, Skill, knob
from curricle.errors import WorldError
from curricle.records import Message, Task, Verdict
from curricle.seeds import generator, is_for_test
from curricle.world import TaskWorld


class SumsSetting(Setting):
    """How long and how many the numbers are."""

    terms: int = knob(3, "Numbers in a sum.", ge=2, le=6, harder="up")
    digits: int = knob(2, "Most digits of a number.", ge=1, le=4, harder="up")
    signs: Literal["plus", "minus", "both"] = knob("both", "Whether numbers are added, taken away, or either.")


class Sums(TaskWorld):
    """Sums of a few whole numbers, answered with one number."""

    id = "sums-v1"
    Setting = SumsSetting
    skills = (Skill(name="plus", eased_by={"signs": "plus"}), Skill(name="minus", eased_by={"signs": "minus"}))
    guide = "A task is a sum of whole numbers; the answer is one number. More and longer numbers are harder."
    suggests = {
        "agent": {"id": "grpo", "lora": 16, "learning_rate": 1e-4, "max_tokens": 16},
        "designer": {"id": "language", "lora": 16, "learning_rate": 1e-4, "aim": "task", "n": 10},
        "schedule": {"cycles": 10, "designs": 8, "per_cycle": 128, "ratio": "1:0", "final": 0, "test_episodes": 8},
    }

    def tasks(self, setting, n, seed):
        rng = generator(seed, "sums")
        tasks = []
        draws = 0
        while len(tasks) < n:
            draws += 1
            if draws > 1000 * n:  # the split below leaves tasks out, and a setting may have too few on one side
                split = "test" if is_for_test(seed) else "practice"
                raise WorldError(f"{self.id}: found {len(tasks)} of {n} {split} tasks in {setting!r}")
            task = self._draw(setting, rng)
            held_out = zlib.crc32(task.id.encode()) % 10 == 0  # a tenth of all sums is kept for tests
            if held_out == is_for_test(seed):
                tasks.append(task)
        return tasks

    def _draw(self, setting, rng):
        """Draw one sum; its text is the task's id, so that equal ids mean equal tasks."""
        numbers = [int(rng.integers(10**setting.digits)) for _ in range(setting.terms)]
        choices = {"plus": "+", "minus": "-", "both": "+-"}[setting.signs]
        signs = [choices[int(rng.integers(len(choices)))] for _ in numbers[1:]]
        total = numbers[0]
        text = str(numbers[0])
        for sign, number in zip(signs, numbers[1:], strict=True):
            total += number if sign == "+" else -number
            text += f" {sign} {number}"
        prompt = (Message(role="user", content=f"What is {text}? Answer with the number alone."),)
        return Task(id=text, prompt=prompt, gold=total, skill="minus" if "-" in signs else "plus")

    def solution(self, task):
        """The right answer. Agents can imitate it, and `curricle check` tries it on `score`."""
        return [str(task.gold)]

    def score(self, task, transcript):
        found = re.findall(r"-?\d+", transcript[-1].content[-200:])
        right = len(found) == 1 and int(found[0]) == task.gold
        return Verdict(reward=float(right), skills=(task.skill,) if right else ())
