"""Reasoning: puzzles of reasoning-gym, which its own code draws and scores. A design names a family and a level.

Only the families that passed the tests in `families.py` are here. The agent's answer is what stands between <answer>
and </answer>; nothing else it says counts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from curricle import records
from curricle import setting as knobs
from curricle.errors import WorldError
from curricle.records import Frozen, Message, Skill, Task, Verdict
from curricle.seeds import derive, generator, is_for_test
from curricle.setting import knob
from curricle.world import TaskWorld
from curricle.worlds.text.answers import final_answer
from curricle.worlds.text.reasoning.families import FAMILIES, LEVELS, MIN_SCORE, MOST_RAISED, SIZE, puzzle, score

if TYPE_CHECKING:
    Family = str
else:
    Family = Literal[("any", *FAMILIES)]
GROUPS = tuple(sorted({family["group"] for family in FAMILIES.values()}))
HELD_OUT = 4
"""One puzzle in so many is held out, by a digest of its text."""
ASK = "\n\nThink as long as you need, then give the answer alone, between <answer> and </answer>."
TRIES = 200


class ReasoningSetting(knobs.Setting):
    """Which puzzles, and how hard."""

    family: Family = knob("any", "Which family of puzzles; any: the groups of families in turn.")
    level: int = knob(
        0,
        "Level of the family's own difficulty curriculum; for any, each family's highest where it has fewer.",
        ge=0,
        le=LEVELS - 1,
        harder="up",
    )
    raised_attributes: int = knob(
        0,
        "How many of the family's attributes are one level higher; for any, as many as each family allows.",
        ge=0,
        le=MOST_RAISED,
        harder="up",
    )
    renamed = Frozen({"ahead": "raised_attributes"})

    @model_validator(mode="after")
    def _level_exists(self) -> Self:
        family = FAMILIES.get(self.family, {"levels": LEVELS, "raised": MOST_RAISED})
        highest = family["levels"] - 1
        most = family["raised"]
        if self.level > highest:
            raise ValueError(f"level = {self.level} is too high: the highest of {self.family} is {highest}")
        most = most if self.level < highest else 0
        if self.family != "any" and self.raised_attributes > most:
            raise ValueError(
                f"raised_attributes = {self.raised_attributes} is too high: the most at level {self.level} of "
                f"{self.family} is {most}"
            )
        return self


class ReasoningOptions(records.Options):
    """Options of the world of puzzles."""

    threshold: float = Field(
        1.0,
        ge=MIN_SCORE,
        le=1,
        description="Score from which an answer counts as a success; a lower one has no reward.",
    )


class Reasoning(TaskWorld):
    """Puzzles of reasoning-gym, with levels and exact scorers."""

    id = "reasoning-v1"
    Setting = ReasoningSetting
    Options = ReasoningOptions
    options: ReasoningOptions
    skills = tuple(
        Skill(name=group, eased_by={"family": next(name for name, f in FAMILIES.items() if f["group"] == group)})
        for group in GROUPS
    )
    guide = "Puzzles with one answer that an engine makes and scores. A skill is a group of families:\n\n" + "\n".join(
        f"- {group}: " + ", ".join(f"{n} (0 to {f['levels'] - 1})" for n, f in FAMILIES.items() if f["group"] == group)
        for group in GROUPS
    )

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Puzzles of one family, or of all groups in turn."""
        assert isinstance(setting, ReasoningSetting)
        first = int(generator(seed, "first").integers(len(GROUPS)))
        made = []
        for i in range(n):
            family = setting.family
            if family == "any":
                names = [name for name, f in FAMILIES.items() if f["group"] == GROUPS[(first + i) % len(GROUPS)]]
                family = names[int(generator(seed, "family", i).integers(len(names)))]
            highest = FAMILIES[family]["levels"] - 1
            most = FAMILIES[family]["raised"]
            level = min(setting.level, highest)
            raised = min(setting.raised_attributes, most) if level < highest else 0
            made.append(self._draw(family, level, raised, seed, i))
        return made

    def _draw(self, family: str, level: int, raised: int, seed: int, index: int) -> Task:
        """A puzzle for practice or, with a seed of tests, one that is held out."""
        for turn in range(TRIES):
            number = derive(seed, "puzzle", index, turn) % SIZE
            entry = puzzle(family, level, raised, number)
            digest = hashlib.sha256(f"{family}\n{entry['question']}".encode()).hexdigest()
            if (int(digest, 16) % HELD_OUT == 0) == is_for_test(seed):
                gold = {  # "ahead" is what the knob was called when the first records were written
                    "family": family,
                    "level": level,
                    "ahead": raised,
                    "number": number,
                    "answer": entry["answer"],
                }
                prompt = Message(role="user", content=entry["question"] + ASK)
                name = f"{family}-{level}.{raised}-{number}"
                return Task(id=name, prompt=(prompt,), gold=gold, skill=FAMILIES[family]["group"])
        raise WorldError(f"{family} at level {level} has no task of this side in {TRIES} draws; choose another level")

    def headline(self, rates: Mapping[str, float]) -> float:
        """Mean over the groups that the original has puzzles of."""
        family = str(self.original.values["family"])
        groups = GROUPS if family == "any" else (FAMILIES[family]["group"],)
        return 100 * sum(rates.get(group, 0.0) for group in groups) / len(groups)

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Score the final answer with the family's scorer; the puzzle is made again from its number."""
        said = [message.content for message in transcript if message.role == "assistant"]
        answer = final_answer(said[-1]) if said else ""
        if not answer:
            return Verdict(reward=0.0, why="no answer between <answer> and </answer>", valid=False)
        gold: Any = task.gold
        found = score(gold["family"], gold["level"], gold["ahead"], gold["number"], answer)
        if found < self.options.threshold:
            return Verdict(reward=0.0, why=f"scores {found:.2f}")
        return Verdict(reward=found, skills=(task.skill,))

    def solution(self, task: Task) -> Sequence[str]:
        """The stored answer."""
        gold: Any = task.gold
        return [f"<answer>{gold['answer']}</answer>"]
