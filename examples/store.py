"""A world with several turns: a language model changes the stock of a store by commands, and the store replies.

The world keeps no state between calls. Whoever asks what an attempt did, the world runs its commands again from the
task's start. Only the stock at the end counts, not how it was reached.

curricle check examples/store.py:Store
curricle run examples/store.py:Store --out runs/store
"""

import re
import zlib
from typing import ClassVar

from curricle import Setting, Skill, knob
from curricle.errors import WorldError
from curricle.records import Message, Task, Verdict
from curricle.seeds import generator, is_for_test
from curricle.world import TaskWorld

GOODS = ("apples", "nuts", "pears", "plums", "figs", "dates")


class StoreSetting(Setting):
    """How many goods to change, and how much of each task has to be looked up."""

    changes: int = knob(2, "Goods to change.", ge=1, le=4, harder="up")
    amounts_given: float = knob(
        0.5, "Share of tasks that say by how much; else it has to be looked up.", ge=0, le=1, harder="down"
    )
    renamed: ClassVar = {"told": "amounts_given"}  # the old name is still read, in configs and in run folders


class Store(TaskWorld):
    """A store of goods, each with a number in stock."""

    id = "store-v1"
    Setting = StoreSetting
    skills = (
        Skill(name="add", eased_by={"amounts_given": 1.0}),
        Skill(name="look", eased_by={"amounts_given": 0.0, "changes": 1}),
    )
    guide = "A task asks for changes of a store. Those that name the new number only take a look before each change."
    suggests = {
        "agent": {
            "id": "grpo",
            "lora": 16,
            "learning_rate": 1e-4,
            "max_tokens": 12,
            "max_turns": 10,
            "imitation_updates": 20,
        },
        "designer": {"id": "language", "lora": 16, "learning_rate": 1e-4, "aim": "task", "n": 10},
        "schedule": {"cycles": 10, "designs": 8, "per_cycle": 256, "ratio": "1:1", "final": 0, "test_episodes": 8},
    }

    def tasks(self, setting, n, seed):
        rng = generator(seed, "store")
        tasks = []
        draws = 0
        while len(tasks) < n:
            draws += 1
            if draws > 1000 * n:  # the split below leaves tasks out, and a setting may have too few on one side
                raise WorldError(f"{self.id}: found {len(tasks)} of {n} tasks of seed {seed} in {setting!r}")
            task = self._draw(setting, rng)
            held_out = zlib.crc32(task.prompt[0].content.encode()) % 10 == 0  # a tenth of all tasks is kept for tests
            if held_out == is_for_test(seed):
                tasks.append(task)
        return tasks

    def _draw(self, setting, rng):
        names = [str(name) for name in rng.permutation(GOODS)[: setting.changes]]
        start = {name: int(rng.integers(1, 20)) for name in names}
        more = {name: int(rng.integers(1, 10)) for name in names}
        amount_given = bool(rng.random() < setting.amounts_given)
        if amount_given:
            changes = [f"add {more[name]} {name}" for name in names]
        else:
            changes = [f"make it {start[name] + more[name]} {name}" for name in names]
        text = f"In the store: {', '.join(changes)}. Say one command a message: show NAME, add NAME NUMBER, or done."
        prompt = (Message(role="user", content=text),)
        skill = "add" if amount_given else "look"
        return Task(id=f"{start}{text}", prompt=prompt, gold={"start": start, "more": more}, skill=skill)

    def reply(self, task, transcript):
        _, reply = self._run(task, transcript)
        return Message(role="user", content=reply) if reply else None  # None ends the attempt

    def state(self, task, transcript):
        """The stock and the last reply: attempts in the same state can be compared by what they do next."""
        return f"{self._run(task, transcript)}"

    def score(self, task, transcript):
        stock, reply = self._run(task, transcript)
        wanted = {name: number + task.gold["more"][name] for name, number in task.gold["start"].items()}
        if reply:
            return Verdict(reward=0.0, why="it never said done")
        if stock != wanted:
            return Verdict(reward=0.0, why=f"the store holds {stock}")
        return Verdict(reward=1.0, skills=(task.skill,))

    def solution(self, task):
        """Messages that solve the task; where the task names the new number only, each good is looked up first."""
        commands = []
        for name, number in task.gold["more"].items():
            if task.skill == "look":
                commands.append(f"show {name}")
            commands.append(f"add {name} {number}")
        return [*commands, "done"]

    def _run(self, task, transcript):
        """Run the agent's commands: the stock after them, and the reply to the last one (empty after `done`)."""
        stock = dict(task.gold["start"])
        reply = "?"
        for message in transcript:
            if message.role != "assistant":
                continue
            match message.content.split():
                case ["done"]:
                    return stock, ""
                case ["show", name] if name in stock:
                    reply = f"{stock[name]} {name}"
                case ["add", name, number] if name in stock and re.fullmatch(r"-?[0-9]{1,3}", number):
                    stock[name] += int(number)
                    reply = "ok"
                case _:
                    reply = "I do not understand."
        return stock, reply
