"""Imitation: updates from solved tasks, before the agent's first attempts.

A model that solves nothing learns nothing from its attempts: all of a group fail alike. So it may first be shown tasks
of the original world with the world's own solutions, played out turn by turn, or solved tasks from a file
(`demonstrations.py`). Only the agent's turns are learnt, and all their tokens weigh the same. With a mean a reply, the
first tokens of a short answer would count many times as much as those of a long one, where a model has to choose
between them by its first word.
"""

from collections.abc import Sequence

from curricle.agents.grpo.rollouts import Attempt, DesignTask, roll_out
from curricle.errors import AgentError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, update
from curricle.records import Task
from curricle.world import TaskWorld


def imitate(causal: CausalModel, examples: Sequence[Example], microbatch_size: int) -> float:
    """Make one update from solved tasks; returns its loss."""
    return update(causal, examples, 0.0, float("inf"), microbatch_size)["loss"]


def solve_all(
    world: TaskWorld, tasks: Sequence[Task], causal: CausalModel, max_tokens: int, max_turns: int
) -> list[Example]:
    """Return the world's solutions of some tasks; it may lack some, and some may not be scored as right."""
    found = [solve(world, task, causal, max_tokens, max_turns) for task in tasks]
    examples = [example for example in found if example is not None]
    if not examples:
        raise AgentError(
            f"imitation_updates needs solutions, and {world.id} gave none that it scores as right within {max_turns} "
            "turns; `curricle check` says what becomes of them, and imitation_updates = 0 goes without"
        )
    return examples


def solve(world: TaskWorld, task: Task, causal: CausalModel, max_tokens: int, max_turns: int) -> Example | None:
    """Play the world's solution of a task; None if it has none, or if that is too long or not scored as right."""
    one = play(world, task, world.solution(task), causal, max_tokens, max_turns)
    if one.fault or not one.shown:
        return None
    return as_example(one)


def play(
    world: TaskWorld, task: Task, replies: Sequence[str], causal: CausalModel, max_tokens: int, max_turns: int
) -> Attempt:
    """Attempt a task by saying these replies in turn, and nothing once all are said."""
    lines = iter(replies)

    def next_line(prompts: Sequence[list[int]], seed: int) -> list[Reply]:
        line = next(lines, "")
        tokens = causal.tokenizer(line, add_special_tokens=False)["input_ids"]
        _check_symbols(line, tokens, causal, world)
        return [Reply([*tokens, causal.ends[0]], True) for _ in prompts]

    (one,) = roll_out(world, [DesignTask(task, 0)], causal, next_line, max_tokens, max_turns, 0)
    return one


def as_example(one: Attempt) -> Example:
    """Return an attempt as a record to learn from; each of the agent's tokens weighs the same."""
    return Example(one.prompt, one.ids, float(one.length), one.mask)


def _check_symbols(line: str, tokens: Sequence[int], causal: CausalModel, world: TaskWorld) -> None:
    """Refuse a tokenizer that has no token for some symbol of a solution."""
    unknown = causal.tokenizer.unk_token_id
    if unknown is None or unknown not in tokens:
        return
    for symbol in line:
        if unknown in causal.tokenizer(symbol, add_special_tokens=False)["input_ids"]:
            raise AgentError(
                f"the tokenizer of {causal.options.model!r} cannot write {symbol!r}, which solutions of {world.id} "
                "have; choose another [agent] model"
            )
