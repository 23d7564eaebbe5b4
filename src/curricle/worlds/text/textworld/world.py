"""Games: TextWorld games over several turns. A design sets the size of the house and the length of the quest.

Each turn the agent gives one command, and the world answers with what happens. An attempt ends when the game is won or
the turns are used up. TextWorld's generator makes the games, each of which can be won, and the game itself decides
whether it was. `reply` and `score` play the transcript's commands again, so an attempt can be judged anywhere.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from curricle import records
from curricle import setting as knobs
from curricle.errors import WorldError
from curricle.records import Message, Skill, Task, Verdict
from curricle.seeds import derive, generator, is_for_test
from curricle.setting import knob
from curricle.world import TaskWorld
from curricle.worlds.text.answers import final_answer
from curricle.worlds.text.textworld.engine import GamePlayer, Plan, View, cache_folder, script, walkthrough_key
from curricle.worlds.text.tools.calls import without_thoughts

MIXED = (1, 3, 5)
"""Quest lengths that length 0 stands for."""
HELD_OUT = 3
"""One game in so many is held out, by its walkthrough, so that commands that win a test never win in practice."""
TRIES = 200
RULES = """You play a text game. {objective}

Answer with one command a turn and nothing else, such as: look, inventory, go north, open DOOR, take THING, \
take THING from PLACE, put THING on PLACE, insert THING into PLACE, unlock DOOR with KEY, eat THING, drop THING.

{view}"""


class GamesSetting(knobs.Setting):
    """The house, the quest, and how much the objective reveals."""

    length: int = knob(0, "Commands that the quest needs; 0: 1, 3 and 5 in turn.", ge=0, le=8, harder="up")
    rooms: int = knob(3, "Rooms of the house.", ge=1, le=8, harder="up")
    objects: int = knob(6, "Things that lie about.", ge=1, le=12, harder="up")
    told: Literal["every step", "the goal"] = knob("every step", "What the objective tells.", harder="up")
    hints: bool = knob(False, "Whether all possible commands are listed every turn.", harder="down")
    theme: Literal["house", "basic"] = knob("house", "What rooms and things are called.")


class GamesOptions(records.Options):
    """Options of the world of text games."""

    turns: int = Field(20, ge=1, description="Commands an attempt may take.")
    cache: str = Field("", description="Folder for compiled games; empty: one in the user's cache folder.")


class Games(TaskWorld):
    """TextWorld's quests in houses, over several turns."""

    id = "textworld-v1"
    Setting = GamesSetting
    Options = GamesOptions
    options: GamesOptions
    skills = (
        Skill(name="short_quest", eased_by={"length": 1, "rooms": 1, "objects": 2, "hints": True}),
        Skill(name="middle_quest", eased_by={"length": 3, "rooms": 2, "objects": 3, "hints": True}),
        Skill(name="long_quest", eased_by={"length": 5, "rooms": 3, "objects": 4, "hints": True}),
    )
    guide = """The player is in a house and is given a quest: go to rooms, open, unlock, take, put, eat things.

Short quests need one or two commands, middle ones three or four, long ones five or more. More rooms and things make it
harder to find what the quest is about; `told` = "the goal" leaves the steps to the player; `hints` lists what can be
done. Any combination of knobs gives a game that can be won."""

    def __init__(self, options: GamesOptions | None = None, original: knobs.Setting | None = None) -> None:
        super().__init__(options, original)
        self._player: GamePlayer | None = None

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Games of a setting; with length 0, quests of all lengths in turn."""
        assert isinstance(setting, GamesSetting)
        first = int(generator(seed, "first").integers(len(MIXED)))
        lengths = [setting.length or MIXED[(first + i) % len(MIXED)] for i in range(n)]
        return [self._task(setting, length, seed, i) for i, length in enumerate(lengths)]

    def _task(self, setting: GamesSetting, length: int, seed: int, index: int) -> Task:
        for turn in range(TRIES):
            number = derive(seed, "game", index, turn) % 2**31
            every_step = setting.told == "every step"
            plan = Plan(setting.rooms, setting.objects, length, setting.theme, every_step, number)
            if (walkthrough_key(plan) % HELD_OUT == 0) == is_for_test(seed) and self._won(plan, script(plan)[1]):
                break
        else:
            raise WorldError(f"no game of this side in {TRIES} draws with {setting!r}; choose more rooms or objects")
        objective, walkthrough = script(plan)
        gold = {"plan": dataclasses.asdict(plan), "hints": setting.hints, "walkthrough": list(walkthrough)}
        view = self._shown(self._view(plan, ()), setting.hints)
        prompt = Message(role="user", content=RULES.format(objective=objective, view=view))
        suffix = "hints" if setting.hints else "plain"
        return Task(id=f"{plan.name}-{suffix}", prompt=(prompt,), gold=gold, skill=_skill(length))

    def reply(self, task: Task, transcript: Sequence[Message]) -> Message | None:
        """What the game says, until it is over or the turns are used up."""
        view, turns = self._played(task, transcript)
        gold: Any = task.gold
        if view.over or not turns or turns >= self.options.turns:
            return None
        return Message(role="user", content=self._shown(view, gold["hints"]))

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """1 for a game that was won within the turns; a lost one is valid if at most half of its commands were refused.

        Whether a refused text was a command at all cannot be known: the game lists only what is possible.
        """
        view, turns = self._played(task, transcript)
        if view.won:
            return Verdict(reward=1.0, skills=(task.skill,))
        why = f"not won after {turns} commands" + (f", {view.refused} of them refused" if view.refused else "")
        return Verdict(reward=0.0, why=why, valid=2 * view.refused <= turns and turns > 0)

    def state(self, task: Task, transcript: Sequence[Message]) -> str:
        """Where the player is and what can be done there; that also tells what lies there and what is carried."""
        view = self._played(task, transcript)[0]
        return "\n".join([view.room, *sorted(view.possible)])

    def solution(self, task: Task) -> Sequence[str]:
        """The walkthrough."""
        gold: Any = task.gold
        return list(gold["walkthrough"])

    def _played(self, task: Task, transcript: Sequence[Message]) -> tuple[View, int]:
        said = [message.content for message in transcript if message.role == "assistant"][: self.options.turns]
        gold: Any = task.gold
        return self._view(Plan(**gold["plan"]), [command(text) for text in said]), len(said)

    def _won(self, plan: Plan, commands: Sequence[str]) -> bool:
        """Whether commands win; some walkthroughs do not, where two things have nearly the same name."""
        return self._view(plan, [command(text) for text in commands]).won

    def _view(self, plan: Plan, commands: Sequence[str]) -> View:
        if self._player is None:
            self._player = GamePlayer(cache_folder(self.options.cache))
        return self._player.view(plan, commands)

    @staticmethod
    def _shown(view: View, hints: bool) -> str:
        return f"{view.text}\nPossible commands: {', '.join(view.possible)}" if hints else view.text


def _skill(length: int) -> str:
    """The skill that a quest of this length needs."""
    if length < 3:
        return "short_quest"
    if length < 5:
        return "middle_quest"
    return "long_quest"


def command(text: str) -> str:
    """The command in an answer: what stands between <answer> and </answer>, or else its last line."""
    said = final_answer(text) or next(
        (line for line in reversed(without_thoughts(text)[-4000:].splitlines()) if line.strip()), ""
    )
    return " ".join(said.lower().replace(" the ", " ").split()).strip("> .")[:200]
