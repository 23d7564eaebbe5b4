"""Demonstrations: solved tasks from a file, which imitation learns from instead of the world's own solutions.

In: a file of JSON lines, such as

    {"setting": {"level": 1}, "seed": 7, "replies": ["657015"]}

`setting` and `seed` decide the task as `world.draw` does: knobs that are left out have the original's value, and a text
knob may hold a written task. `replies` are the agent's messages in turn. Out: one example a line to learn from. Every
line is checked before anything is learnt: the world must accept its setting, and the world's verifier must score its
replies as right. The file may come from anywhere: it is data, and no more than a bearable size of it is read.
"""

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from curricle.agents.grpo.imitation import as_example, play
from curricle.agents.grpo.rollouts import Attempt
from curricle.errors import AgentError, CurricleError
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example
from curricle.records import LARGEST, Frozen, Options, Task, Values, checked, refuse_unbearable
from curricle.seeds import generator, is_for_test
from curricle.world import TaskWorld

LONGEST = 2**26
LONGEST_LINE = 2**20
MOST = 100_000
"""Bytes of a file, bytes of a line and lines that are read."""
MENDED = "correct the line or delete it"


class Line(Options):
    """One line of the file."""

    setting: Values = Field(Frozen(), description="Knobs of the task; those left out have the original's value.")
    seed: int = Field(0, ge=0, le=LARGEST, description="Seed that the task is drawn with.")
    replies: tuple[str, ...] = Field(strict=False, min_length=1, description="The agent's messages, in turn.")


@dataclass(frozen=True)
class Demonstrations:
    """The solved tasks of a file, in tokens."""

    path: str
    sha256: str
    examples: Sequence[Example]

    def draw(self, seed: int, update: int, count: int) -> list[Example]:
        """Return what an update learns from; all are used once before any is used again.

        Seed and number of the update decide it, so a resumed run draws the same. Where the file has fewer than `count`,
        every update takes all of them.
        """
        total = len(self.examples)
        taken = min(count, total)
        drawn = list[Example]()
        for place in range(update * taken, (update + 1) * taken):
            epoch, at = divmod(place, total)
            order = generator(seed, "demonstrations", epoch).permutation(total)
            drawn.append(self.examples[int(order[at])])
        return drawn


def load(path: str, world: TaskWorld, causal: CausalModel, max_tokens: int, max_turns: int) -> Demonstrations:
    """Read a file and check every line of it."""
    data = _read(path)
    lines = data.removesuffix(b"\n").split(b"\n")
    if not data.strip():
        raise AgentError(f"demonstrations = {path!r} holds no line; write one solved task a line, as JSON")
    if len(lines) > MOST:
        raise AgentError(f"demonstrations = {path!r} has {len(lines):,} lines; at most {MOST:,} are read, name fewer")
    examples = list[Example]()
    for number, line in enumerate(lines, start=1):
        where = f"demonstrations = {path!r}, line {number}"
        try:
            shown = _parse(line)
            examples.append(as_example(_solve(shown, _draw(shown, world), world, causal, max_tokens, max_turns)))
        except CurricleError as error:
            raise AgentError(f"{where}: {error}") from error
    return Demonstrations(path, hashlib.sha256(data).hexdigest(), examples)


def refuse_change(path: str, sha256: str) -> None:
    """Refuse a file that is another than the one with this hash; one that is gone is not needed any more."""
    if sha256 and Path(path).expanduser().exists():
        refuse_other(path, hashlib.sha256(_read(path)).hexdigest(), sha256)


def refuse_other(path: str, now: str, before: str) -> None:
    """Refuse demonstrations with another hash than those that the agent imitated before."""
    if before and now != before:
        raise AgentError(
            f"demonstrations = {path!r} has changed: its SHA-256 is {now[:16]}..., and the agent imitated "
            f"{before[:16]}...; restore the file, or begin a new run"
        )


def _read(path: str) -> bytes:
    """Return the content of a regular file of a bearable size."""
    what = f"demonstrations = {path!r}"
    try:
        place = Path(path).expanduser()
        with os.fdopen(os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AgentError(f"{what} is not a regular file; name a file of JSON lines")
            data = file.read(LONGEST + 1)
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        where = f"; a relative path begins in the current folder, {Path.cwd()}" if not Path(path).is_absolute() else ""
        raise AgentError(f"{what} cannot be read: {why}{where}") from error
    if len(data) > LONGEST:
        raise AgentError(f"{what} has more than {LONGEST:,} bytes, and no more are read; name a smaller file")
    return data


def _parse(line: bytes) -> Line:
    """Return one line, if it is what it should be."""
    if len(line) > LONGEST_LINE:
        raise AgentError(f"it has {len(line):,} bytes; at most {LONGEST_LINE:,} are read; {MENDED}")
    try:
        values = json.loads(line.decode())
    except json.JSONDecodeError as error:
        raise AgentError(f"it is not JSON: {error.msg} at column {error.colno}; {MENDED}") from error
    except UnicodeDecodeError as error:
        raise AgentError(f"it is not UTF-8: byte {error.start + 1} is {line[error.start]:#04x}; {MENDED}") from error
    except (ValueError, RecursionError) as error:
        raise AgentError(f"it cannot be read: {' '.join(str(error).split()):.200}; {MENDED}") from error
    if not isinstance(values, dict):
        raise AgentError(f"{values!r:.60} is not a JSON object with setting, seed and replies; {MENDED}")
    refuse_unbearable(values)
    return checked(Line, values, "a demonstration")


def _draw(shown: Line, world: TaskWorld) -> Task:
    """Return the task that a line is about."""
    if is_for_test(shown.seed):
        raise AgentError(f"seed = {shown.seed} is for tests, whose tasks no practice may see; take another seed")
    (task,) = world.draw(world.setting(shown.setting), 1, shown.seed)
    return task


def _solve(shown: Line, task: Task, world: TaskWorld, causal: CausalModel, max_tokens: int, max_turns: int) -> Attempt:
    """Say the replies of a line to the world, and refuse what its verifier does not score as right."""
    count = len(shown.replies)
    if count > max_turns:
        raise AgentError(f"it has {count} replies, but [agent] max_turns = {max_turns}; raise that, or {MENDED}")
    for number, reply in enumerate(shown.replies, start=1):
        tokens = len(causal.tokenizer(reply, add_special_tokens=False)["input_ids"]) + 1
        if not reply.strip():
            raise AgentError(f"reply {number} is empty; {MENDED}")
        if tokens > max_tokens:
            raise AgentError(
                f"reply {number}, {reply!r:.60}, takes {tokens} tokens with its end, but [agent] max_tokens = "
                f"{max_tokens}; raise that, or {MENDED}"
            )
    one = play(world, task, shown.replies, causal, max_tokens, max_turns)
    asked = task.prompt[-1].content if task.prompt else ""
    if len(one.turns) > count:
        raise AgentError(f"{world.id} waits for more than its {count} replies to {asked!r:.100}; {MENDED}")
    if one.fault == "too_long":
        raise AgentError(
            f"the conversation does not fit into the {causal.context} tokens that the model looks at; lower [agent] "
            f"max_tokens, or {MENDED}"
        )
    if len(one.turns) < count and not one.fault:
        raise AgentError(f"{world.id} ends the attempt after {len(one.turns)} of {count} replies; {MENDED}")
    if one.fault or not one.shown:
        why = f" ({one.verdict.why:.200})" if one.verdict.why else ""
        raise AgentError(
            f"replies = {list(shown.replies)!r:.200} do not solve {asked!r:.100}, says {world.id}{why}; {MENDED}"
        )
    return one
