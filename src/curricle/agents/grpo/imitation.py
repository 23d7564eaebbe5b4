"""Imitation: updates from solved tasks, before the agent's first attempts.

A model that solves nothing learns nothing from its attempts: all of a group fail alike. So it may first be shown tasks
of the original world with the world's own solutions, played out turn by turn. Only the agent's turns are learnt, and
all their tokens weigh the same. With a mean a reply, the first tokens of a short answer would count many times as much
as those of a long one, where a model has to choose between them by its first word.
"""

from collections.abc import Sequence

from curricle.agents.grpo.rollouts import DesignTask, roll_out
from curricle.errors import AgentError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, update
from curricle.records import Task
from curricle.world import TaskWorld


def imitate(
    world: TaskWorld, tasks: Sequence[Task], causal: CausalModel, max_tokens: int, max_turns: int, microbatch_size: int
) -> float:
    """Make one update from the solutions of some tasks; returns its loss."""
    examples = list[Example]()
    for task in tasks:
        example = solve(world, task, causal, max_tokens, max_turns)
        if example is not None:
            examples.append(example)
    if not examples:
        raise AgentError(
            f"imitation_updates needs solutions, and {world.id} gave none that it scores as right within {max_turns} "
            "turns; `curricle check` says what becomes of them, and imitation_updates = 0 goes without"
        )
    return update(causal, examples, 0.0, float("inf"), microbatch_size)["loss"]


def solve(world: TaskWorld, task: Task, causal: CausalModel, max_tokens: int, max_turns: int) -> Example | None:
    """Play the world's solution of a task; None if it has none, or if that is too long or not scored as right."""
    lines = iter(world.solution(task))

    def next_line(prompts: Sequence[list[int]], seed: int) -> list[Reply]:
        tokens = causal.tokenizer(next(lines, ""), add_special_tokens=False)["input_ids"]
        return [Reply([*tokens, causal.ends[0]], True) for _ in prompts]

    (one,) = roll_out(world, [DesignTask(task, 0)], causal, next_line, max_tokens, max_turns, 0)
    if one.fault or not one.shown:
        return None
    return Example(one.prompt, one.ids, float(one.length), one.mask)
