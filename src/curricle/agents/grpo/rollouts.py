"""Rollouts: an agent's attempts at text tasks, many at once and turn by turn, and their sums.

In: tasks, each with the design it counts for, and a function that samples replies. Out: for every attempt its tokens,
which of them the agent said itself (the world's turns are masked from the loss), the verifier's verdict, and a fault if
something went wrong. The verifier sees the replies and nothing else. A reply that never ended earns nothing, whatever
it says, in practice and in tests.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from curricle.errors import DeclarationError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CausalModel
from curricle.records import Design, Frozen, Message, Outcome, Task, Verdict
from curricle.seeds import derive
from curricle.world import TaskWorld

LOG = logging.getLogger("curricle")
FAULTS = ("endless", "empty", "too_long", "unverified")
"""Ran into the token limit; said nothing; the conversation outgrew the model; the world or its verifier failed."""
NO_DESIGN = -1
"""The design of a task from the pool, which counts for none."""
SampleReplies = Callable[[Sequence[list[int]], int], list[Reply]]
"""From conversations so far and a seed to the next replies."""
_warned = set[tuple[str, str, str]]()
"""Failures of worlds that were logged already."""


class DesignTask(NamedTuple):
    """A task, and the index of the design that it counts for."""

    task: Task
    design: int


@dataclass(frozen=True)
class Turn:
    """One turn of the agent: its first token, the one after its last, and the world's state before it."""

    start: int
    end: int
    state: str


@dataclass
class Attempt:
    """One attempt at a task."""

    task: Task
    design: int
    """Index of the design that it counts for, or NO_DESIGN."""
    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    """All tokens after the prompt: the agent's replies and the world's turns."""
    mask: list[int] = field(default_factory=list)
    """1 for each of these tokens that the agent said itself, else 0."""
    turns: list[Turn] = field(default_factory=list)
    transcript: list[Message] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(reward=0.0))
    fault: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        """The skill of its task, if it was shown."""
        return (self.task.skill,) if self.task.skill in self.verdict.skills else ()

    @property
    def length(self) -> int:
        """Tokens that the agent said."""
        return sum(self.mask)


def roll_out(
    world: TaskWorld,
    tasks: Sequence[DesignTask],
    causal: CausalModel,
    sample: SampleReplies,
    max_tokens: int,
    max_turns: int,
    seed: int,
) -> list[Attempt]:
    """Attempt every task once, with at most `max_tokens` a reply and `max_turns` replies."""
    prompts = dict[int, list[int]]()
    for task, _ in tasks:  # a group attempts the same task object; render it once
        if id(task) not in prompts:
            prompts[id(task)] = causal.render_prompt(task.prompt)
    attempts = [Attempt(task, design, list(prompts[id(task)])) for task, design in tasks]
    active = [one for one in attempts if _fits(one, causal.context, max_tokens)]
    for turn in range(max_turns):
        if not active:
            break
        replies = sample([one.prompt + one.ids for one in active], derive(seed, "turn", turn))
        for one, reply in zip(active, replies, strict=True):
            _add_reply(one, reply, world, causal)
        if turn + 1 < max_turns:
            active = [one for one in active if not one.fault and _add_world_turn(one, world, causal, max_tokens)]
    for one in attempts:
        _verify(one, world)
        if not one.ids:  # nothing was said: a masked end token keeps the trainer's rows whole
            one.ids = [causal.ends[0]]
            one.mask = [0]
    return attempts


def _fits(one: Attempt, context: int, max_tokens: int) -> bool:
    """Whether there is room for a first reply."""
    if len(one.prompt) + len(one.ids) + max_tokens <= context:
        return True
    one.fault = "too_long"
    one.prompt = one.prompt[:1]  # nothing of it is learnt, so it need not go through the network
    return False


def _add_reply(one: Attempt, reply: Reply, world: TaskWorld, causal: CausalModel) -> None:
    """Add what the agent said."""
    try:
        state = world.state(one.task, one.transcript)
    except Exception as error:
        state = ""
        _mark_unverified(one, world, "state", error)
    one.turns.append(Turn(len(one.ids), len(one.ids) + len(reply.ids), state))
    one.ids += reply.ids
    one.mask += [1] * len(reply.ids)
    text = causal.decode_reply(reply.ids)
    one.transcript.append(Message(role="assistant", content=text))
    if one.fault:
        return
    if not reply.ended:
        one.fault = "endless"
    elif not text.strip():
        one.fault = "empty"


def _add_world_turn(one: Attempt, world: TaskWorld, causal: CausalModel, max_tokens: int) -> bool:
    """Add the world's answer; False if the conversation is over."""
    try:
        answer = world.reply(one.task, one.transcript)
    except Exception as error:  # a model's words may break a world; that is data, not a reason to stop
        _mark_unverified(one, world, "reply", error)
        return False
    if answer is None:
        return False
    tokens = causal.render_turn(answer)
    if len(one.prompt) + len(one.ids) + len(tokens) + max_tokens > causal.context:
        one.fault = "too_long"
        return False
    one.transcript.append(answer)
    one.ids += tokens
    one.mask += [0] * len(tokens)
    return True


def _verify(one: Attempt, world: TaskWorld) -> None:
    """Let the world's verifier give the reward."""
    if one.fault == "endless":  # else a model could be paid for going on until something right is among its words
        one.verdict = Verdict(reward=0.0, why="endless: the reply ran into the limit of tokens")
    if not one.transcript or one.fault in ("endless", "unverified"):
        return
    try:
        one.verdict = world.verify(one.task, one.transcript)
    except DeclarationError:
        raise
    except Exception as error:
        _mark_unverified(one, world, "score", error)


def _mark_unverified(one: Attempt, world: TaskWorld, method: str, error: Exception) -> None:
    """Let an attempt with which its world fails earn nothing, and log the first failure of a kind."""
    why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    one.fault = "unverified"
    one.verdict = Verdict(reward=0.0, why=why)
    kind = (world.id, method, type(error).__name__)
    if kind not in _warned:
        _warned.add(kind)
        frame = traceback.extract_tb(error.__traceback__)[-1]  # for the author of the world
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        message = "%s: %s broke down: %s (%s); attempts with which it does earn nothing (practice/unverified)"
        LOG.warning(message, world.id, method, why, place)


class Counts:
    """Adds attempts up to one outcome a design."""

    def __init__(self, world: TaskWorld, designs: Sequence[Design]) -> None:
        self.world = world
        self.designs = list(designs)
        self.attempts = [0] * len(designs)
        self.successes = [0] * len(designs)
        self.spent = [0] * len(designs)
        self.reward = [0.0] * len(designs)
        self.skills: list[dict[str, int]] = [{} for _ in designs]
        self.tried: list[dict[str, int]] = [{} for _ in designs]

    def add(self, one: Attempt) -> None:
        """Count one attempt for its design."""
        at = one.design
        skill = one.task.skill
        self.attempts[at] += 1
        self.successes[at] += self.world.succeeded(self.designs[at].aim, one.shown)
        self.reward[at] += one.verdict.reward
        self.tried[at][skill] = self.tried[at].get(skill, 0) + 1
        for name in one.shown:
            self.skills[at][name] = self.skills[at].get(name, 0) + 1

    def outcomes(self) -> list[Outcome]:
        """Return one outcome a design."""
        return [
            Outcome(
                design=design,
                attempts=self.attempts[i],
                successes=self.successes[i],
                skills=Frozen(dict(sorted(self.skills[i].items()))),
                tried=Frozen(dict(sorted(self.tried[i].items()))),
                reward=self.reward[i],
                spent=self.spent[i],
            )
            for i, design in enumerate(self.designs)
        ]
