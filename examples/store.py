"""A world that answers back: a store that a language model changes by commands, over several turns.

What an attempt did follows from its conversation alone: the commands are played again from the task's own beginning,
whoever asks. The store at the end is what counts, not how it came about.

curricle check examples/store.py:Store
curricle run examples/store.py:Store --out runs/store
"""

import re
import zlib

from curricle import Setting, Skill, knob
from curricle.errors import WorldError
from curricle.records import Message, Task, Verdict
from curricle.seeds import generator, is_for_test
from curricle.world import TaskWorld

GOODS = ("apples", "nuts", "pears", "plums", "figs", "dates")


class StoreSetting(Setting):
    """How much there is to do, and how much is known."""

    changes: int = knob(2, "Goods to change.", ge=1, le=4, harder="up")
    told: float = knob(
        0.5, "Share of tasks that say by how much; else it has to be looked up.", ge=0, le=1, harder="down"
    )


class Store(TaskWorld):
    """Goods and their numbers."""

    id, Setting = "store-v1", StoreSetting
    skills = (Skill(name="add", eased_by={"told": 1.0}), Skill(name="look", eased_by={"told": 0.0, "changes": 1}))
    guide = "A task asks for changes of a store. Those that name the new number only take a look before each change."
    suggests = {
        "agent": {"id": "grpo", "lora": 16, "rate": 1e-4, "most_tokens": 12, "turns": 10, "warm": 20},
        "designer": {"id": "language", "lora": 16, "rate": 1e-4, "aim": "task", "n": 10},
        "schedule": {"cycles": 10, "designs": 8, "per_cycle": 256, "ratio": "1:1", "final": 0, "test_episodes": 8},
    }

    def tasks(self, setting, n, seed):
        rng, made, tries = generator(seed, "store"), [], 0
        while len(made) < n:
            tries += 1
            if tries > 1000 * n:  # else it would look for ever where a setting has no tasks of this side
                raise WorldError(f"{self.id}: found {len(made)} of {n} tasks of seed {seed} in {setting!r}")
            names = [str(name) for name in rng.permutation(GOODS)[: setting.changes]]
            start = {name: int(rng.integers(1, 20)) for name in names}
            more = {name: int(rng.integers(1, 10)) for name in names}
            told = bool(rng.random() < setting.told)
            asked = [
                f"add {more[name]} {name}" if told else f"make it {start[name] + more[name]} {name}" for name in names
            ]
            text = f"In the store: {', '.join(asked)}. Say one command a message: show NAME, add NAME NUMBER, or done."
            if (zlib.crc32(text.encode()) % 10 == 0) != is_for_test(seed):
                continue  # a tenth is kept for tests
            gold = {"start": start, "more": more}
            prompt = (Message(role="user", content=text),)
            made.append(Task(id=f"{start}{text}", prompt=prompt, gold=gold, skill="add" if told else "look"))
        return made

    def reply(self, task, transcript):
        said = self._play(task, transcript)[1]
        return Message(role="user", content=said) if said else None  # None: the attempt is over

    def state(self, task, transcript):
        return f"{self._play(task, transcript)}"  # attempts that stand alike are compared by what they do next

    def score(self, task, transcript):
        stock, said = self._play(task, transcript)
        end = {name: number + task.gold["more"][name] for name, number in task.gold["start"].items()}
        right = said == "" and stock == end
        why = "" if right else f"the store holds {stock}" if said == "" else "it never said done"
        return Verdict(reward=float(right), skills=(task.skill,) if right else (), why=why)

    def solution(self, task):
        looks = task.skill == "look"
        steps = [
            line for name, m in task.gold["more"].items() for line in ([f"show {name}"] * looks + [f"add {name} {m}"])
        ]
        return [*steps, "done"]

    def _play(self, task, transcript):
        """The store after what the agent said, and what the world says to the last of it; nothing after `done`."""
        stock, said = dict(task.gold["start"]), "?"
        for words in (message.content.split() for message in transcript if message.role == "assistant"):
            match words:
                case ["done"]:
                    return stock, ""
                case ["show", name] if name in stock:
                    said = f"{stock[name]} {name}"
                case ["add", name, number] if name in stock and re.fullmatch(r"-?[0-9]{1,3}", number):
                    stock[name] += int(number)
                    said = "ok"
                case _:
                    said = "I do not understand."
        return stock, said
