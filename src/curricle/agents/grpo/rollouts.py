"""Attempts: an agent's tries at text tasks, turn by turn and many at once, and what they add up to.

In: tasks, each with the design it belongs to, and a sampler. Out: for every try its tokens, which of them the agent
said itself (the world's turns are masked from the loss), the verifier's verdict, and what is wrong with it, if so.
A response is judged as it is; the verifier sees nothing else. One that never ended is none: it earns nothing, whatever
stands in it, in practice and in tests.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from curricle.errors import DeclarationError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.chat import answered, rendered, spoken
from curricle.llm.models.model import CausalModel
from curricle.records import Design, Frozen, Message, Outcome, Task, Verdict
from curricle.seeds import derive
from curricle.world import TaskWorld

LOG = logging.getLogger("curricle")
COMPLAINTS = set[tuple[str, str, str]]()
"""What was said of worlds that broke down: once is enough."""
FAULTS = ("endless", "empty", "too_long", "unjudged")
"""Ran into the token limit; said nothing; the conversation outgrew the model; the verifier broke down."""
Speak = Callable[[Sequence[list[int]], int], list[Reply]]
"""From conversations so far and a seed to the next replies."""


@dataclass(frozen=True)
class Turn:
    """One turn of the agent: its first token, the one past its last, and the world's state before it."""

    start: int
    end: int
    state: str


@dataclass
class Attempt:
    """One try at a task."""

    task: Task
    owner: int
    """Which design it counts for; -1 for a task of the pool, which counts for none."""
    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
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


def attempt(
    world: TaskWorld,
    tasks: Sequence[tuple[Task, int]],
    causal: CausalModel,
    speak: Speak,
    room: int,
    turns: int,
    seed: int,
) -> list[Attempt]:
    """Try every task once; `room` is what one reply may take, `turns` how often the agent may speak."""
    asked = {
        id(task): rendered(causal.tokenizer, task.prompt) for task, _ in {id(t): (t, o) for t, o in tasks}.values()
    }
    tries = [Attempt(task, owner, list(asked[id(task)])) for task, owner in tasks]
    going = [one for one in tries if _fits(one, causal.context, room)]
    for turn in range(turns):
        if not going:
            break
        replies = speak([one.prompt + one.ids for one in going], derive(seed, "turn", turn))
        for one, reply in zip(going, replies, strict=True):
            _hear(one, reply, world, causal)
        if turn + 1 < turns:
            going = [one for one in going if not one.fault and _goes_on(one, world, causal, room)]
    for one in tries:
        _judge(one, world)
        if not one.ids:  # nothing was said: an end that weighs nothing keeps the trainer's rows whole
            one.ids = [causal.ends[0]]
            one.mask = [0]
    return tries


def _fits(one: Attempt, context: int, room: int) -> bool:
    if len(one.prompt) + len(one.ids) + room <= context:
        return True
    # nothing of it is learnt, so it need not pass the network
    one.fault = "too_long"
    one.prompt = one.prompt[:1]
    return False


def _hear(one: Attempt, reply: Reply, world: TaskWorld, causal: CausalModel) -> None:
    """Add what the agent said."""
    try:
        state = world.state(one.task, one.transcript)
    except Exception as error:
        state = ""
        _give_up(one, world, "state", error)
    one.turns.append(Turn(len(one.ids), len(one.ids) + len(reply.ids), state))
    one.ids += reply.ids
    one.mask += [1] * len(reply.ids)
    words = spoken(causal.tokenizer, reply.ids, causal.ends)
    one.transcript.append(Message(role="assistant", content=words))
    one.fault = one.fault or ("endless" if not reply.ended else "" if words.strip() else "empty")


def _goes_on(one: Attempt, world: TaskWorld, causal: CausalModel, room: int) -> bool:
    """Let the world answer; False when it has nothing more to say."""
    try:
        said = world.reply(one.task, one.transcript)
    except Exception as error:  # a model's words may break a world; that is data, not a reason to stop
        _give_up(one, world, "reply", error)
        return False
    if said is None:
        return False
    tokens = answered(causal.tokenizer, said)
    if len(one.prompt) + len(one.ids) + len(tokens) + room > causal.context:
        one.fault = "too_long"
        return False
    one.transcript.append(said)
    one.ids += tokens
    one.mask += [0] * len(tokens)
    return True


def _judge(one: Attempt, world: TaskWorld) -> None:
    if one.fault == "endless":  # else a model could be paid for going on until something right is among its words
        one.verdict = Verdict(reward=0.0, why="endless: the reply ran into the limit of tokens")
    if not one.transcript or one.fault in ("endless", "unjudged"):
        return
    try:
        one.verdict = world.judge(one.task, one.transcript)
    except DeclarationError:
        raise
    except Exception as error:
        _give_up(one, world, "score", error)


def _give_up(one: Attempt, world: TaskWorld, where: str, error: Exception) -> None:
    """Count an attempt that its world cannot deal with for nothing, and say so the first time."""
    why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    one.fault = "unjudged"
    one.verdict = Verdict(reward=0.0, why=why)
    kind = (world.id, where, type(error).__name__)
    if kind not in COMPLAINTS:
        COMPLAINTS.add(kind)
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}, line {at.lineno}"
        words = "%s: %s broke down: %s (%s); attempts with which it does earn nothing (practice/unjudged)"
        LOG.warning(words, world.id, where, why, place)


class Counts:
    """Adds attempts up to one outcome a design."""

    def __init__(self, world: TaskWorld, designs: Sequence[Design]) -> None:
        self.world = world
        self.designs = list(designs)
        self.attempts, self.successes, self.spent = ([0] * len(designs) for _ in range(3))
        self.reward = [0.0] * len(designs)
        self.skills: list[dict[str, int]] = [{} for _ in designs]
        self.tried: list[dict[str, int]] = [{} for _ in designs]

    def add(self, one: Attempt) -> None:
        """Count one attempt for its design."""
        at = one.owner
        skill = one.task.skill
        self.attempts[at] += 1
        self.successes[at] += self.world.succeeded(self.designs[at].aim, one.shown)
        self.reward[at] += one.verdict.reward
        self.tried[at][skill] = self.tried[at].get(skill, 0) + 1
        for name in one.shown:
            self.skills[at][name] = self.skills[at].get(name, 0) + 1

    def outcomes(self) -> list[Outcome]:
        """One outcome a design."""
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
