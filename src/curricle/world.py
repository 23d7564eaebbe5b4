"""World: the contract of everything that an agent can be trained in.

A world declares a versioned id, its knobs (`Setting`), its skills and a guide. It makes either a vector of simulators
(`VectorWorld`) or text tasks with a verifier (`TaskWorld`). Designers see only the declaration. The id's version goes
up with every change that can move results. Start from `examples/vault.py`.
"""

import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from curricle import records
from curricle import setting as knobs
from curricle.errors import CurricleError, DeclarationError, UsageError, ValueRefused, WorldError, nearest
from curricle.records import Brief, Cycle, Design, Message, Skill, Task, Verdict

ID = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*-v[0-9]+")


class World(ABC):
    """What every world declares; a concrete world is a `VectorWorld` or a `TaskWorld`."""

    id: ClassVar[str]
    Options: ClassVar[type[records.Options]] = records.Options
    Setting: type[knobs.Setting]
    """The class of its settings; an instance with stricter options may have a stricter one."""
    skills: ClassVar[tuple[Skill, ...]]
    guide: ClassVar[str]
    """The rules of the world in markdown, for a designer that has never seen it."""
    suggests: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Config that this world uses where the user says nothing, e.g. {"agent": {"id": "ppo"}}."""

    @classmethod
    def suggested(cls, options: records.Options) -> Mapping[str, Mapping[str, Any]]:
        """The same for these options, for worlds where it depends on them."""
        return cls.suggests

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "id") and not {"id", "Setting", "skills", "suggests"}.isdisjoint(cls.__dict__):
            _check_declaration(cls)  # an abstract subclass has no id

    def __init__(self, options: records.Options | None = None, original: knobs.Setting | None = None) -> None:
        self.options = options or self.Options()
        self.original = original or self.Setting()
        """The setting that agents are tested in."""
        if hasattr(self, "id"):
            check_skills(self)  # they may be set after the class is made

    def setting(self, values: Mapping[str, Any]) -> knobs.Setting:
        """Turn plain values into a setting of this world; knobs that are left out have the original's value."""
        given = self.Setting.updated(values, f"setting of {self.id}")
        try:
            return self.Setting.of({**self.original.values, **given})
        except ValueRefused as error:
            raise ValueRefused(f"setting of {self.id}: {error}") from None

    def updated(self, design: Design) -> Design:
        """A design from a run folder, with the names that knobs have today."""
        return knobs.updated_design(self.Setting, design, f"setting of {self.id}")

    def brief(self, cycle: int, cycles: int, past: Sequence[Cycle] = ()) -> Brief:
        """Describe to a designer what this world offers and how the agent has done so far."""
        original = self.original.values
        return Brief(
            world=self.id,
            guide=self.guide,
            skills=self.skills,
            knobs=tuple(k.model_copy(update={"default": original[k.name]}) for k in self.Setting.knobs()),
            original=original,
            cycle=cycle,
            cycles=cycles,
            past=tuple(past),
            examples=tuple(self.examples(cycle)),
        )

    def examples(self, cycle: int) -> Sequence[records.Values]:
        """Seed tasks: a few settings for a designer to vary, others each cycle. For worlds with text knobs."""
        return ()

    def unaltered(self) -> Design:
        """The original world, as a design."""
        return Design(setting=self.original.values, by="original")

    def succeeded(self, aim: str | None, shown: Iterable[str]) -> bool:
        """Whether an attempt that showed these skills met an aim; without an aim it must show every skill."""
        seen = set(shown)
        return aim in seen if aim else all(skill.name in seen for skill in self.skills)

    def headline(self, rates: Mapping[str, float]) -> float:
        """Turn the success rates of the skills (0 to 1) into one number, in percent: the score of this world."""
        return 100 * sum(rates.get(s.name, 0.0) for s in self.skills) / len(self.skills)


class WorldVector(VectorEnv[Any, Any, Any]):
    """A Gymnasium vector environment in which every sub-environment has a setting of its own.

    - Autoreset is SAME_STEP: a step that ends an episode returns the first observation of the next one;
      `info["final_obs"][i]` is the last one of the episode that ended in sub-environment i.
    - `info["skills"]`, bool (environments, skills): which skills the episode has shown so far, this step included.
    - `reset(seed=[...], options={"settings": [...], "reset_mask": mask})` restarts the masked ones (default: all).
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form
    copies: bool = True
    """Whether the caller gets copies of observations. A caller that needs each only until the next step may set it to
    False; a world that can then returns its own arrays."""

    def observation_arrays(self) -> Any | None:
        """The arrays that hold every observation while `copies` is False, or None if there are none.

        They have memory pages of their own, so that a GPU may read them directly.
        """
        return None

    @abstractmethod
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start sub-environments, each from its own seed."""

    @abstractmethod
    def assign(self, index: int, setting: knobs.Setting) -> None:
        """Give a sub-environment another setting, from its next reset on."""

    def snapshot(self) -> dict[str, NDArray[Any]] | None:
        """The whole state as arrays, or None where it cannot be saved (episodes then restart after a checkpoint)."""
        return None

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        raise UsageError(f"{type(self).__name__} takes no snapshots")

    def picture(self, index: int, size: tuple[int, int], whole: bool = False) -> NDArray[np.uint8]:
        """What a sub-environment's player sees, or its whole world, as (height, width, 3)."""
        raise UsageError(f"{type(self).__name__} draws no pictures")

    def text(self, index: int) -> str:
        """What a sub-environment's player sees, in words."""
        raise UsageError(f"{type(self).__name__} has no view in words")


class VectorWorld(World):
    """A world of simulators, for agents that act step by step."""

    keys: ClassVar[Mapping[str, tuple[int, str]]] = {}
    """Keys for people who play it: a character, its action and that action's name."""

    @abstractmethod
    def vector(self, settings: Sequence[knobs.Setting]) -> WorldVector:
        """One sub-environment a setting."""

    def vectors(self, groups: Sequence[Sequence[knobs.Setting]]) -> Sequence[WorldVector]:
        """A vector for each group of settings, for a caller that steps one at a time and closes all together.

        So a world that has threads may let these vectors share them.
        """
        return [self.vector(group) for group in groups]

    def names(self, shown: NDArray[np.bool_]) -> list[str]:
        """The skills of one row of `info["skills"]`."""
        return [skill.name for skill, yes in zip(self.skills, shown, strict=True) if yes]


class TaskWorld(World):
    """A world of text tasks, for agents that answer in words. Whoever writes a task does not score it.

    A task is about one skill; an agent counts in `Outcome.tried` how many tasks were about each.

    A conversation is the task's prompt followed by the transcript: agent, world, agent, ... `reply` and `score` depend
    on it alone, so an attempt can be replayed, batched and verified anywhere.
    """

    suggests: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agent": {
            "id": "grpo",
            "lora": 16,
            "learning_rate": 1e-4,
            "max_tokens": 48,
            "tasks_per_update": 2,
            "microbatch_size": 2,
        },
        "designer": {
            "id": "language",
            "lora": 16,
            "learning_rate": 1e-4,
            "aim": "task",
            "n": 5,
            "text": "off",
            "microbatch_size": 1,  # a request holds the whole guide; training keeps a megabyte for each of its tokens
        },
        "schedule": {
            "cycles": 2,
            "designs": 2,
            "per_cycle": 32,  # 16 attempts a design: of 8 only p = 1/2 itself would lie in the band
            "ratio": "1:0",
            "final": 0,
            "save_every": 16,
            "test_seeds": 1,
            "test_episodes": 7,  # one of each kind of tool task
        },
    }
    """Two language models that co-evolve, with toy sizes for two cores; `configs/genenv-small.toml` is for a GPU."""

    def succeeded(self, aim: str | None, shown: Iterable[str]) -> bool:
        """Whether an attempt met an aim; without an aim, its task's own skill counts."""
        return aim in set(shown) if aim else any(True for _ in shown)

    @abstractmethod
    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Draw n tasks of a setting; the same seed gives the same tasks, and equal ids mean equal tasks.

        Seeds for which `seeds.is_for_test` holds draw from tasks that are held out: no other seed ever gives them.
        Agents pass the seeds of `measure` on unchanged.
        """

    def draw(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """Call `tasks` and check what it returns."""
        try:
            found = self.tasks(setting, n, seed)
        except CurricleError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            why = " ".join(str(error).split())
            at = [frame for frame in frames if frame.filename != __file__][:1] or frames
            what = f"{self.id}: tasks(setting, n={n}, seed={seed}) broke down in {setting!r}"
            place = f"{Path(at[0].filename).name}, line {at[0].lineno}"
            raise WorldError(f"{what}: {type(error).__name__}: {why:.300} ({place})") from error
        if not isinstance(found, list) or not all(isinstance(task, Task) for task in found) or len(found) != n:
            what = f"{len(found)} tasks" if isinstance(found, list) else f"{found!r:.100}"
            raise WorldError(f"{self.id}: tasks(setting, n={n}, seed={seed}) gave {what} in {setting!r}")
        names = {skill.name for skill in self.skills}
        if odd := [task.skill for task in found if task.skill not in names]:
            raise WorldError(f"{self.id}: a task is about {odd[0]!r}, which is not one of its skills: {sorted(names)}")
        return found

    @abstractmethod
    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Return the verdict on a finished attempt."""

    def verify(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Call `score` and check what it returns."""
        verdict = self.score(task, transcript)
        if not isinstance(verdict, Verdict):
            wanted = "a Verdict, as in Verdict(reward=1.0, skills=(task.skill,))"
            raise DeclarationError(f"{self.id}: score(task, transcript) gave {verdict!r:.100}; it must return {wanted}")
        return verdict

    def reply(self, task: Task, transcript: Sequence[Message]) -> Message | None:
        """The world's answer to the agent's last message, or None if the attempt is over; by default it always is."""
        return None

    def state(self, task: Task, transcript: Sequence[Message]) -> str:
        """The state of an attempt: attempts in the same state can be compared by what they do next (GiGPO).

        By default it is the world's last message. Override it if that does not say everything.
        """
        said = [message.content for message in (*task.prompt, *transcript) if message.role != "assistant"]
        return said[-1] if said else ""

    def solution(self, task: Task) -> Sequence[str]:
        """What a perfect agent would say, turn by turn; empty if the world does not know."""
        return ()


def _check_declaration(cls: type[World]) -> None:
    """Refuse a world whose parts do not fit together, when its class is made."""
    if not ID.fullmatch(cls.id):
        raise DeclarationError(
            f"{cls.__name__}.id = {cls.id!r}: an id is a lower-case name with a version, like 'pond-v1'"
        )
    for name in ("Setting", "skills", "guide"):
        if not hasattr(cls, name):
            raise DeclarationError(f"{cls.__name__} ({cls.id}) lacks {name!r}")
    given = cls.suggests
    if not isinstance(given, Mapping) or not all(isinstance(table, Mapping) for table in given.values()):
        form = "a dict of options by section, as in {'agent': {'id': 'ppo'}}"
        raise DeclarationError(f"{cls.id}.suggests = {given!r:.100} must be {form}")
    check_skills(cls)


def check_skills(world: World | type[World]) -> None:
    """Refuse skills that do not fit together or into their world."""
    if not world.skills:
        raise DeclarationError(f"{world.id}: a world needs at least one skill")
    ready: set[str] = set()
    waiting = {skill.name: set(skill.needs) for skill in world.skills}
    names = [skill.name for skill in world.skills]
    if twice := [name for name in waiting if names.count(name) > 1]:
        raise DeclarationError(f"{world.id}: two skills share the name {twice[0]!r}; give each a name of its own")
    for skill in world.skills:
        if unknown := sorted(set(skill.needs) - set(waiting)):
            what = f"skill {skill.name!r} needs {unknown[0]!r}, which is not a skill of this world"
            raise DeclarationError(f"{world.id}: {what}; {nearest(unknown[0], set(waiting) - {skill.name})}")
        try:
            world.Setting.of(skill.eased_by)
        except ValueRefused as error:
            raise DeclarationError(f"{world.id}: skill {skill.name!r} is eased by a bad setting: {error}") from None
    while free := {name for name, needs in waiting.items() if needs <= ready} - ready:
        ready |= free
    if ready != set(waiting):
        raise DeclarationError(f"{world.id}: the skills {sorted(set(waiting) - ready)} need each other in a circle")
