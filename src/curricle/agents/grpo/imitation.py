"""Imitation: solved tasks to learn from before the first try of its own.

A model that solves nothing learns nothing from its tries: all of a group fail alike. So it may first be shown tasks of
the original world with the world's own solutions, played out turn by turn; only the agent's turns are learnt. All their
tokens weigh the same: with a mean a reply, how a short answer begins would count many times as much as how a long one
does, where a model has to choose between them by its first word.
"""

from collections.abc import Sequence

from curricle.agents.grpo.rollouts import attempt
from curricle.errors import AgentError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, step
from curricle.records import Task
from curricle.world import TaskWorld


def imitate(world: TaskWorld, tasks: Sequence[Task], causal: CausalModel, room: int, turns: int, micro: int) -> float:
    """One update from the solutions of some tasks; returns its loss."""
    shown = [example for task in tasks if (example := solved(world, task, causal, room, turns))]
    if not shown:
        raise AgentError(
            f"imitation_updates needs solutions, and {world.id} gave none that it scores as right within {turns} "
            "turns; `curricle check` says what becomes of them, and imitation_updates = 0 goes without"
        )
    return step(causal, shown, 0.0, float("inf"), micro)["loss"]


def solved(world: TaskWorld, task: Task, causal: CausalModel, room: int, turns: int) -> Example | None:
    """A task as one who knows would solve it; None where the world does not say how, or it does not fit."""
    lines = iter(world.solution(task))

    def speak(prompts: Sequence[list[int]], seed: int) -> list[Reply]:
        words = causal.tokenizer(next(lines, ""), add_special_tokens=False)["input_ids"]
        return [Reply([*words, causal.ends[0]], True) for _ in prompts]

    (one,) = attempt(world, [(task, 0)], causal, speak, room, turns, 0)
    if one.fault or not one.shown:
        return None
    return Example(one.prompt, one.ids, float(one.length), one.mask)
