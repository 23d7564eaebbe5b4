"""Text tasks as a world: sums that a language model is to work out. What a world of tasks needs is all here.

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
    """Sums of a few numbers."""

    id, Setting = "sums-v1", SumsSetting
    skills = (Skill(name="plus", eased_by={"signs": "plus"}), Skill(name="minus", eased_by={"signs": "minus"}))
    guide = "A task is a sum of whole numbers; the answer is one number. More and longer numbers are harder."
    suggests = {
        "agent": {"id": "grpo", "lora": 16, "rate": 1e-4, "most_tokens": 16},
        "designer": {"id": "language", "lora": 16, "rate": 1e-4, "aim": "task", "n": 10},
        "schedule": {"cycles": 10, "designs": 8, "per_cycle": 128, "ratio": "1:0", "final": 0, "test_episodes": 8},
    }

    def tasks(self, setting, n, seed):
        rng, made, tries = generator(seed, "sums"), [], 0
        while len(made) < n:
            tries += 1
            if tries > 1000 * n:  # a loop that leaves tasks out must end where a setting has no others
                side = "test" if is_for_test(seed) else "practice"
                raise WorldError(f"{self.id}: found {len(made)} of {n} {side} tasks in {setting!r}")
            numbers = [int(rng.integers(10**setting.digits)) for _ in range(setting.terms)]
            signs = {"plus": "+", "minus": "-", "both": "+-"}[setting.signs]
            drawn = [signs[int(rng.integers(len(signs)))] for _ in numbers[1:]]
            total = numbers[0] + sum(n if sign == "+" else -n for sign, n in zip(drawn, numbers[1:], strict=True))
            text = " ".join([str(numbers[0]), *(f"{sign} {n}" for sign, n in zip(drawn, numbers[1:], strict=True))])
            if (zlib.crc32(text.encode()) % 10 == 0) != is_for_test(seed):
                continue  # a tenth of all sums is kept for tests
            prompt = (Message(role="user", content=f"What is {text}? Answer with the number alone."),)
            skill = "minus" if "-" in drawn else "plus"
            made.append(Task(id=text, prompt=prompt, gold=total, skill=skill))
        return made

    def solution(self, task):
        return [str(task.gold)]  # with this, agents can imitate (agent.warm), and `curricle check` can try score

    def score(self, task, transcript):
        found = re.findall(r"-?\d+", transcript[-1].content[-200:])
        right = len(found) == 1 and int(found[0]) == task.gold
        return Verdict(reward=float(right), skills=(task.skill,) if right else ())
