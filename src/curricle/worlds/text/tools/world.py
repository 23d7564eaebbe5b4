"""Tools: a world of tool calls. A task is a request, some tools, and gold that only the verifier sees.

A design either sets the knobs of the world's own pool of tasks, or holds one written task in the knob `task`. A written
task is refused unless it is sound (`verify.py`). `docs/text.md` describes the formats.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from curricle import records
from curricle import setting as knobs
from curricle.errors import CurricleError, UsageError
from curricle.records import Message, Skill, Task, Values, Verdict
from curricle.seeds import derive, generator, is_for_test
from curricle.setting import knob
from curricle.world import TaskWorld
from curricle.worlds.text.answers import likeness
from curricle.worlds.text.tools import grammar
from curricle.worlds.text.tools.catalogue import TOOLS
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.named import doubtful
from curricle.worlds.text.tools.pool import SKILLS, About, draw_item
from curricle.worlds.text.tools.schema import Tool, shown
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.sources import data as sources
from curricle.worlds.text.tools.verify import (
    FLOOR,
    JUNK,
    end,
    is_well_formed,
    respond,
    score_attempt,
    solution,
    task_fault,
)
from curricle.worlds.text.tools.writing import LONGEST, write, written

DRAWS_PER_EXAMPLE = 10
"""Base tasks drawn for each seed task that is wanted, because some cannot be used."""
MARGIN = 0.05
"""By how much the likeness of an answer must exceed that of an echo of the question, with a sentence model."""


def signature(tool: Tool) -> str:
    """A tool in one line: `get_forecast(city, days?)`."""
    fields = tool["parameters"]["properties"]
    required = tool["parameters"]["required"]
    return f"{tool['name']}({', '.join(name if name in required else f'{name}?' for name in fields)})"


@functools.lru_cache(maxsize=4096)
def sound(text: str) -> Item:
    """Read a written task and check that it is sound; any fault is a `ValueError` that says what is wrong."""
    try:
        item = written(text)
        fault = task_fault(item)
    except (CurricleError, MemoryError, ValueError):
        raise
    except Exception as error:  # a text that breaks the checks must not stop the run
        raise ValueError(f"the task cannot be checked: {type(error).__name__}: {shown(str(error), 200)}") from error
    if fault:
        raise ValueError(fault)
    return item


def _is_sound(text: str) -> bool:
    """Whether a text fits the knob `task`; a task of the data may be too long, or have too many tools."""
    try:
        return len(text) <= LONGEST and bool(sound(text))
    except ValueError:
        return False


class ToolsSetting(knobs.Setting):
    """Knobs of the pool, or one written task."""

    about: About = knob("any", "Which skill the tasks are about; any: all in turn.")
    distractors: int = knob(
        3, "Tools shown beside the right one; as many in all where none or several are.", ge=0, le=8, harder="up"
    )
    parallel: int = knob(2, "Calls that a task with parallel calls needs.", ge=2, le=4, harder="up")
    steps: int = knob(2, "Chores of a task with several steps.", ge=1, le=4, harder="up")
    task: str = knob("", "One task, written as the guide says; empty: tasks of the pool.", max_length=LONGEST)

    @classmethod
    def follows(cls, name: str, said: str) -> Sequence[str] | knobs.Span | None:
        """A written task keeps to its grammar."""
        return grammar.follows(said) if name == "task" else None

    @classmethod
    def essence(cls, name: str, text: str) -> str:
        """Request and gold: another order, more tools beside them or another start make no new task."""
        try:
            item = written(text)
        except ValueError:
            return text
        if item.lacks:  # no copy of the task that has the tool, but its counterpart
            return text
        gold = [json.dumps([call.name, dict(call.arguments)], sort_keys=True) for call in item.calls]
        return "\n".join([item.request, *sorted(gold), item.answer])

    @model_validator(mode="after")
    def _task_is_sound(self) -> Self:
        if self.task:
            sound(self.task)
        return self


class NamedSetting(ToolsSetting):
    """The same, for environments that cannot be trusted to ask for what gold does."""

    @classmethod
    def follows(cls, name: str, said: str) -> Sequence[str] | knobs.Span | None:
        """A written task keeps to its grammar, and its calls to what it says."""
        return grammar.follows(said, named=True) if name == "task" else None

    @model_validator(mode="after")
    def _task_is_named(self) -> Self:
        if self.task and (wrong := doubtful(sound(self.task))):
            raise ValueError(wrong)
        return self


class ToolsOptions(records.Options):
    """Options of the world of tool calls."""

    source: Literal["pool", "bfcl", "api-bank", "questions"] = Field(
        "pool", description="Where base tasks come from: the world's own pool, or data of a benchmark."
    )
    data: str = Field("", description="The folder or archive with that benchmark's data.")
    base: int = Field(
        0, ge=0, description="Tasks of the pool that practice in the original has, always the same; 0: ever new ones."
    )
    examples: int = Field(4, ge=1, le=64, description="Seed tasks that a designer is shown each cycle, to vary.")
    named: bool = Field(
        False,
        description="Refuse written tasks whose gold passes on what nothing names, forgets a number, or makes no call "
        "and does not say which it lacks.",
    )
    turns: int = Field(36, ge=1, description="Answers an attempt may take.")
    likeness: Literal["words", "embedding"] = Field("words", description="How answers in words are compared with gold.")
    sentence_model: str = Field("", description="Folder of a sentence model, for embeddings.")
    floor: float = Field(FLOOR, ge=0, le=1, description="Likeness up to this counts as none, unless it is 1.")
    threshold: float = Field(0.8, ge=0, le=1, description="Reward from which an attempt counts as a success.")


def _rows(items: Sequence[Item], n: int, seed: int) -> list[Item]:
    """Items in random order, none twice before all were used."""
    order = generator(seed, "rows").permutation(len(items))
    return [items[int(order[i % len(order)])] for i in range(n)]


class Tools(TaskWorld):
    """Tool calls, at once and in several steps, checked strictly."""

    id = "tools-v1"
    Setting = ToolsSetting
    Options = ToolsOptions
    options: ToolsOptions
    skills = tuple(
        Skill(name=name, eased_by={"about": name, "distractors": 0, "steps": 1, "parallel": 2}) for name in SKILLS
    )
    guide = f"""A task gives an agent tools and a request. It answers with tool calls, which are checked strictly.

The knob `task` may hold one task, in lines. It is refused unless its gold calls are right and junk is wrong.
One answer:

tools: get_forecast, set_timer
request: How will Rome be for 3 days?
call: get_forecast(city="Rome", days=3)

`tools` are names of the list below; a line `tool:` holds the schema of another one, as JSON. Several calls are made in
parallel, in any order. Without a call, the right answer is that no tool fits; say which call it is that lacks its tool:

tools: set_timer
request: When does the sun rise in Oslo?
lacks: get_sunrise(city="Oslo")

Several steps, on a simulator:

simulator: bank 7
request: Freeze my silver card.
call: set_frozen(card="silver", frozen=true)

The number picks a state to start from, 0 to 9999. The calls must run and change something; the end state is compared.
With a line `answer:` the agent must also find out and say it.

A good task names every value in its request, has exactly one right solution and is not a copy of another.

Tools: {"; ".join(signature(tool) for tool in TOOLS.values())}.
{"".join(f"Simulator {s.name}: {'; '.join(map(signature, s.tools))}.{chr(10)}" for s in SIMULATORS.values())}"""

    def __init__(self, options: ToolsOptions | None = None, original: knobs.Setting | None = None) -> None:
        super().__init__(options, original)
        if self.options.named:
            self.Setting = NamedSetting
            self.setting({})  # the original was read by the laxer one
        self._likeness = likeness(self.options.likeness, self.options.sentence_model)
        if self.options.base and self.options.source != "pool":
            raise UsageError(f"base = {self.options.base} is for the world's own pool, not for {self.options.source}")
        self._items = sources.load(self.options.source, self.options.data)

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Tasks of the pool or the data; a written task n times over."""
        assert isinstance(setting, ToolsSetting)
        if setting.task:
            return [sound(setting.task).task()] * n
        return [item.task() for item in self._draw(setting, n, seed)]

    def _draw(self, setting: ToolsSetting, n: int, seed: int) -> Iterable[Item]:
        """Base tasks, drawn one by one on demand."""
        held_out = is_for_test(seed)
        about = SKILLS if setting.about == "any" else (setting.about,)
        if self._items:
            return self._from_data(about, n, seed, held_out)
        if self.options.base and not held_out and setting.values == self._pool.values:
            return _rows(self._base, n, seed)
        return self._new(setting, about, n, seed)

    def _new(self, setting: ToolsSetting, about: Sequence[str], n: int, seed: int) -> Iterable[Item]:
        """New tasks of the pool."""
        held_out = is_for_test(seed)
        level = {"distractors": setting.distractors, "parallel": setting.parallel, "steps": setting.steps}
        first = int(generator(seed, "first").integers(len(about)))
        return (
            draw_item(about[(first + i) % len(about)], generator(seed, "item", i), held_out, **level) for i in range(n)
        )

    def _from_data(self, about: Sequence[str], n: int, seed: int, held_out: bool) -> Iterable[Item]:
        """Rows of the data."""
        fitting = [item for item in self._items[held_out] if item.skill in about]
        if not fitting:
            raise UsageError(f"{self.options.source} has no task about {' or '.join(about)}; choose another `about`")
        return _rows(fitting, n, seed)

    @functools.cached_property
    def _pool(self) -> ToolsSetting:
        """The original, without a written task."""
        return ToolsSetting.of({**self.original.values, "task": ""})

    @functools.cached_property
    def _base(self) -> list[Item]:
        """The fixed tasks of practice in the original, if the option `base` asks for such."""
        about = SKILLS if self._pool.about == "any" else (self._pool.about,)
        return list(self._new(self._pool, about, self.options.base, derive(0, "base")))

    def examples(self, cycle: int) -> Sequence[Values]:
        """Some base tasks of the training side, written out."""
        items = self._draw(self._pool, DRAWS_PER_EXAMPLE * self.options.examples, derive(0, "examples", cycle))
        found = dict[str, None]()
        for item in items:
            if len(found) == self.options.examples:
                break
            if not item.before and not (self.options.named and doubtful(item)) and _is_sound(text := write(item)):
                found[text] = None
        return [self.setting({"task": text}).values for text in found]

    def headline(self, rates: Mapping[str, float]) -> float:
        """Mean over the skills that the base tasks are about."""
        names = [name for name in SKILLS if not self._items or any(item.skill == name for item in self._items[True])]
        return 100 * sum(rates.get(name, 0.0) for name in names) / len(names)

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Compare the attempt with gold."""
        item = Item.of(task)
        reward, why = score_attempt(item, transcript, self._likeness, self._floor(item))
        success = bool(reward) and reward >= self.options.threshold
        skills = (task.skill,) if success else ()
        return Verdict(reward=reward, skills=skills, why=why, valid=bool(reward) or is_well_formed(item, transcript))

    def _floor(self, item: Item) -> float:
        """Likeness up to which an answer earns nothing; with a sentence model, above that of echoes of the prompt."""
        if self.options.likeness == "words" or not item.answer:
            return self.options.floor
        echoes = (*JUNK, *(message.content for message in item.task().prompt), item.request)
        return min(1.0, max(self.options.floor, MARGIN + max(self._likeness(text, item.answer) for text in echoes)))

    def reply(self, task: Task, transcript: Sequence[Message]) -> Message | None:
        """Results of the calls, until the agent answers in words or runs out of turns."""
        said = sum(message.role == "assistant" for message in transcript)
        return respond(Item.of(task), transcript) if said < self.options.turns else None

    def state(self, task: Task, transcript: Sequence[Message]) -> str:
        """A digest of the simulator's state and of all results shown so far, in any order."""
        seen = sorted({message.content for message in transcript if message.role != "assistant"})
        return hashlib.sha256(json.dumps([end(Item.of(task), transcript), seen]).encode()).hexdigest()

    def solution(self, task: Task) -> Sequence[str]:
        """Gold, as the agent's messages."""
        return solution(Item.of(task))
