"""GRPO: a language model that learns text tasks from its own attempts (Shao et al. 2024), as in GenEnv.

    practise          step 2 and 3a of the loop; every update goes through these steps:
      _draw_tasks       tasks of the designs in turn, or now and then an old one from the pool `D_train`
      _roll_out         `group_size` attempts at each task (`rollouts.py`), judged by the world
      GRPOTrainer       rewards, advantages inside each group, and the update by TRL (`trainer.py`)
      _Practice         counts the attempts, and the pool keeps the best
    measure           step 3b: attempts without updates

Any Hugging Face causal model, all weights or a LoRA adapter. The attempts that train are those that the outcomes count.
A task from the pool (`replay_share`) is practised and paid for, but counts for no design.
"""

import gc
import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from curricle.agent import Agent, Report
from curricle.agents.grpo import demonstrations, sharding
from curricle.agents.grpo.demonstrations import Demonstrations
from curricle.agents.grpo.imitation import imitate, solve_all
from curricle.agents.grpo.options import LearningOptions, check_settings, check_version
from curricle.agents.grpo.rollouts import FAULTS, NO_DESIGN, Attempt, Counts, DesignTask, roll_out
from curricle.errors import AgentError, needed
from curricle.llm import pools
from curricle.llm.generate.sampling import Kind, Reply, Sampler
from curricle.llm.models.export import publish
from curricle.llm.models.layers import original_attention
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example
from curricle.records import Design, FrozenMap, Outcome, Task
from curricle.scale import ranks
from curricle.seeds import derive, generator
from curricle.tracking import checkpoint
from curricle.world import TaskWorld, World

if TYPE_CHECKING:
    from curricle.agents.grpo.trainer import GRPOTrainer

LOG = logging.getLogger("curricle")


class GRPOOptions(LearningOptions):
    """Options of the language-model agent."""

    renamed: ClassVar[Mapping[str, str]] = {
        "warm": "imitation_updates",
        "warm_tasks": "imitation_tasks",
        "warm_rate": "imitation_learning_rate",
        "turns": "max_turns",
        "replay": "replay_share",
        "pool": "pool_size",
    }

    imitation_updates: int = Field(
        0, ge=0, description="Updates by imitating solutions of the original world, before all else: for small models."
    )
    imitation_tasks: int = Field(64, ge=1, description="Solved tasks that an update by imitation takes.")
    imitation_settings: tuple[FrozenMap[str, Any], ...] = Field(
        (),
        strict=False,
        description="Settings whose solved tasks are imitated, equally many of each; none: the original.",
    )
    demonstrations: str = Field(
        "", description="File of JSON lines with solved tasks that are imitated instead of the world's own solutions."
    )
    imitation_learning_rate: float = Field(0.0, ge=0, description="Learning rate of imitation; 0: as in practice.")
    max_turns: int = Field(16, ge=1, description="Most turns of the agent in one attempt, where a world answers back.")
    replay_share: float = Field(0.0, ge=0, le=1, description="Share of tasks drawn from the pool of earlier ones.")
    pool_size: int = Field(20_000, ge=0, description="Tasks the pool holds; the oldest make room.")
    sampler: Literal["auto", "plain", "static", "continuous", "trl"] = Field(
        "auto",
        description="How replies are drawn: static: in fixed shapes, fast; plain: by generate; continuous: by "
        "transformers' continuous batching; trl: as TRL's own settings say (vLLM); auto: static where it can.",
    )
    sample_batch: int = Field(64, ge=1, description="Replies drawn at a time.")
    test_temperature: float = Field(0.0, ge=0, description="Temperature of tests; 0: greedy.")


class GRPO(Agent):
    """One model, trained on groups of its own attempts."""

    id = "grpo-v1"
    unit = "rollouts"
    several = True
    Options = GRPOOptions
    options: GRPOOptions

    def __init__(self, world: World, options: GRPOOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        if not isinstance(world, TaskWorld):
            raise AgentError(
                f"{self.id} answers text tasks, but {world.id} is a world of simulators; choose another agent"
            )
        self.task_world = world
        o = self.options
        sharding.check(o, o.imitation_updates)
        if o.demonstrations and o.imitation_settings:
            raise AgentError(
                f"demonstrations = {o.demonstrations!r} and imitation_settings are both given, but each alone says "
                "what is imitated; leave one out (imitation_settings = [] where the world suggests some)"
            )
        check_version()
        check_settings(o.trl, o.sampler == "trl")
        self.agent_number = ranks.register_agent()
        self.causal = CausalModel(o, self.id, seed, shared=True, sharded=sharding.is_sharded(o))
        if o.max_tokens >= self.causal.context:
            raise AgentError(
                f"max_tokens = {o.max_tokens} leaves no room for a task: {o.model!r} looks at {self.causal.context} "
                "tokens in all; lower [agent] max_tokens"
            )
        self._trainer: GRPOTrainer | None = None
        if self.causal.sharded:  # it shards the model, before anything is loaded
            self._make_trainer()
        kind: Kind = "auto" if o.sampler == "trl" else o.sampler
        self.sampler = Sampler(self.causal, kind, o.sample_batch)
        self.pool: dict[str, pools.Row] = {}
        self.imitated = 0  # updates by imitation so far,
        self._imitated_hash = ""  # and the SHA-256 of the file that they were made from, if any
        self._demonstrations: Demonstrations | None = None
        self._designs_key = 0  # which designs were practised last,
        self._turns_taken = 0  # and how many tasks were drawn from them
        self._practice_seed = 0
        self._rollouts = 0  # rollouts of the running practice so far
        self._warned = set[str]()

    @property
    def trainer(self) -> "GRPOTrainer":
        """The trainer, made when it is first needed."""
        return self._make_trainer() if self._trainer is None else self._trainer

    def _make_trainer(self) -> "GRPOTrainer":
        needed("trl")
        from curricle.agents.grpo.trainer import GRPOTrainer

        self._trainer = GRPOTrainer(self.causal, self.options, self._roll_out)
        return self._trainer

    # -- practice ------------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Check all demonstrations before a run begins."""
        o = self.options
        if o.demonstrations and o.imitation_updates:
            self._read_demonstrations()
        elif o.demonstrations:
            self._warn_once("demonstrations", f"imitation_updates = 0, so {o.demonstrations!r} is not imitated")

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Make as many whole updates as cover the budget."""
        arguments = {"designs": list(designs), "budget": budget, "seed": seed, "report": _ignore}
        ranks.call_followers(self.agent_number, "practise", **arguments)
        self._imitate(report)
        if self.options.demonstrations and self._demonstrations is None:  # imitation was over before it was resumed
            demonstrations.refuse_change(self.options.demonstrations, self._imitated_hash)
        self._practice_seed = seed
        self._rollouts = 0
        rows = self.options.rollouts_per_update
        updates = math.ceil(budget / rows)
        if budget % rows:
            self._warn_once(
                "budget",
                f"{budget} rollouts are asked for, but an update takes group_size * tasks_per_update = {rows}: "
                f"{updates * rows} are made",
            )
        designs_key = derive(0, *(design.to_json() for design in designs))
        first_turn = 0
        if designs_key == self._designs_key:  # the next part of a practice goes on with the design whose turn it is
            first_turn = self._turns_taken
        practice = _Practice(self, designs, budget, report)
        if budget:
            tasks = self._draw_tasks(designs, seed, first_turn)
            with _garbage_frozen():
                self.trainer.run(tasks, updates, derive(seed, "trainer"), practice.add_update)
        self._warn_without_signal(practice)
        self._designs_key = designs_key
        self._turns_taken = first_turn + practice.turns
        return practice.outcomes(first_turn)

    def _draw_tasks(self, designs: Sequence[Design], seed: int, first_turn: int) -> Iterator[DesignTask]:
        """Yield tasks without end: of each design in turn, from a turn on, or now and then one from the pool."""
        settings = [self.task_world.setting(design.setting) for design in designs]
        turn = first_turn
        for number in itertools.count():
            rng = generator(seed, "replay", number)
            if self.pool and rng.random() < self.options.replay_share:
                rows = list(self.pool.values())
                yield DesignTask(rows[int(rng.integers(len(rows)))].task, NO_DESIGN)  # takes no design's turn
            else:
                design = turn % len(designs)
                (task,) = self.task_world.draw(settings[design], 1, derive(seed, "task", number))
                yield DesignTask(task, design)
                turn += 1

    def _roll_out(self, tasks: Sequence[DesignTask]) -> list[Attempt]:
        """Attempt the tasks of one update, all groups at once; of several ranks each attempts its share."""
        o = self.options
        seed = ranks.rank_seed(derive(self._practice_seed, "rollout", self._rollouts))
        self._rollouts += 1
        if o.sampler != "trl":
            self.sampler.refresh()
        attempts = roll_out(self.task_world, tasks, self.causal, self._sample, o.max_tokens, o.max_turns, seed)
        while o.sampler == "trl" and self._sample_by_trl([]) is not None:
            pass  # other ranks are still in conversation, and TRL samples for all at once
        return attempts

    def _sample(self, prompts: Sequence[list[int]], seed: int) -> list[Reply]:
        """Sample the next replies of practice."""
        o = self.options
        if o.sampler == "trl":
            return self._sample_by_trl(prompts) or []
        return self.sampler.sample(prompts, max_tokens=o.max_tokens, temperature=o.temperature, seed=seed)

    def _sample_by_trl(self, prompts: Sequence[list[int]]) -> list[Reply] | None:
        """Sample by TRL, which wants equally many prompts of every rank, so some get fillers; None: no rank has any."""
        most = max(ranks.all_gather(len(prompts)))
        if not most:
            return None
        fillers = [[self.causal.ends[0]]] * (most - len(prompts))
        continuous = self.options.trl.get("use_transformers_continuous_batching")
        with original_attention(self.causal.model) if continuous else nullcontext():
            replies, _ = self.trainer._generate_single_turn([*prompts, *fillers], None, {}, 1)
        return [Reply(list(ids), bool(ids) and ids[-1] in self.causal.ends) for ids in replies[: len(prompts)]]

    def _imitate(self, report: Report = lambda done, metrics: None) -> None:
        """Imitate solutions, before anything else is asked of the agent; costs no budget.

        Of several ranks all do the same. GPUs may differ in the last bits, so all take over the leader's result.
        """
        o = self.options
        if self.imitated >= o.imitation_updates:
            return
        (group,) = self.causal.optimizer.param_groups
        group["lr"] = o.imitation_learning_rate or o.learning_rate
        while self.imitated < o.imitation_updates:
            loss = imitate(self.causal, self._solved_examples(), o.microbatch_size)
            self.imitated += 1
            report(0, {"practice/imitation_updates": float(self.imitated), "practice/imitation_loss": loss})
        group["lr"] = o.learning_rate
        self.causal.make_initial()
        if ranks.count() > 1:
            self.causal.restore(self.causal.arrays(), Path())

    def _solved_examples(self) -> list[Example]:
        """The solved tasks that the next update imitates: from the file, or by the world's own solutions."""
        o = self.options
        if o.demonstrations:
            return self._read_demonstrations().draw(self.seed, self.imitated, o.imitation_tasks)
        return solve_all(self.task_world, self._solved_tasks(), self.causal, o.max_tokens, o.max_turns)

    def _read_demonstrations(self) -> Demonstrations:
        """Read the file when it is first needed; it must be the one that was imitated before, if any was."""
        if self._demonstrations is None:
            o = self.options
            found = demonstrations.load(o.demonstrations, self.task_world, self.causal, o.max_tokens, o.max_turns)
            demonstrations.refuse_other(o.demonstrations, found.sha256, self._imitated_hash)
            self._imitated_hash = found.sha256
            self._demonstrations = found
        return self._demonstrations

    def _solved_tasks(self) -> list[Task]:
        """The tasks whose solutions by the world the next update imitates, equally many of each setting."""
        o = self.options
        if not o.imitation_settings:
            original = self.task_world.setting(self.task_world.unaltered().setting)
            return self.task_world.draw(original, o.imitation_tasks, derive(self.seed, "warm", self.imitated))
        tasks: list[Task] = []
        settings = o.imitation_settings
        for number, values in enumerate(settings):
            share = o.imitation_tasks // len(settings) + (number < o.imitation_tasks % len(settings))
            seed = derive(self.seed, "warm", self.imitated, number)
            tasks += self.task_world.draw(self.task_world.setting(values), share, seed)
        return tasks

    def _keep(self, group: Sequence[Attempt], designs: Sequence[Design]) -> None:
        """Put a task into the pool if one of its attempts is valid: it ended, was judged, and kept to its form."""
        valid = [one for one in group if not one.fault and one.verdict.valid]
        if not valid or not self.options.pool_size:
            return
        best = max(valid, key=lambda one: one.verdict.reward)
        task = group[0].task
        key = _task_key(task)
        row = self.pool.get(key)
        if row is None:
            by = designs[best.design].by if best.design != NO_DESIGN else ""
            new = {"id": task.id, "attempts": 0, "successes": 0, "reward": -1.0, "by": by}
            row = pools.Row(source=self.world.id, prompt=task.prompt, skill=task.skill, truth=task.gold, info=new)
        info = dict[str, Any](row.info)
        info["attempts"] += len(group)
        info["successes"] += sum(bool(one.shown) for one in group)
        if best.verdict.reward > info["reward"]:
            *before, last = best.transcript  # a valid attempt ends with the agent's own words
            better = {"completion": last.content, "before": tuple(before), "weight": best.verdict.reward}
            row = row.model_copy(update=better)
            info["reward"] = best.verdict.reward
        self.pool[key] = row.model_copy(update={"info": info})
        while len(self.pool) > self.options.pool_size:
            del self.pool[next(iter(self.pool))]

    def _warn_without_signal(self, practice: "_Practice") -> None:
        """Warn where all groups were all right or all wrong, so that every advantage was 0."""
        if not practice.done or practice.rewards_differed or "endless" in self._warned:
            return
        advice = "make the original easier, raise group_size, or "
        if 2 * practice.endless > practice.done:
            limit = f"max_tokens = {self.options.max_tokens}"
            advice = f"{practice.endless} of {practice.done} answers ran into {limit}: raise it, or "
        tasks = practice.done // self.options.group_size
        self._warn_once(
            "no signal",
            f"in none of {tasks} tasks did the rewards of attempts differ, so nothing was learnt from them; {advice}"
            "let it imitate first (imitation_updates)",
        )

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            LOG.warning("%s: %s", self.id, message)
            self._warned.add(kind)

    # -- tests ---------------------------------------------------------------------------------------------------------

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Attempt tasks without learning; sampled tests go design by design, so that a seed alone decides them."""
        arguments = {"designs": list(designs), "seeds": list(seeds), "episodes": episodes}
        ranks.call_followers(self.agent_number, "measure", **arguments)
        self._imitate()
        o = self.options
        batches = list[tuple[list[DesignTask], int]]()
        for number, (design, seed) in enumerate(zip(designs, seeds, strict=True)):
            drawn = self.task_world.draw(self.task_world.setting(design.setting), episodes, seed)
            batches.append(([DesignTask(task, number) for task in drawn], seed))
        if not o.test_temperature:
            batches = _shares([one for in_design, _ in batches for one in in_design])
        self.sampler.refresh()

        def sample(prompts: Sequence[list[int]], seed: int) -> list[Reply]:
            return self.sampler.sample(prompts, max_tokens=o.max_tokens, temperature=o.test_temperature, seed=seed)

        own = dict[int, list[Attempt]]()
        for number, (tasks, seed) in enumerate(batches):
            if number % ranks.count() == ranks.number():
                test_seed = derive(seed, "measure")
                own[number] = roll_out(
                    self.task_world, tasks, self.causal, sample, o.max_tokens, o.max_turns, test_seed
                )
        attempts = dict[int, list[Attempt]]()
        for of_rank in ranks.all_gather(own):
            attempts |= of_rank
        counts = Counts(self.task_world, designs)
        for number in sorted(attempts):
            for one in attempts[number]:
                counts.add(one)
                counts.spent[one.design] += 1
        return counts.outcomes()

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write what is trained, its optimiser and the pool."""
        ranks.call_followers(self.agent_number, "save", folder=folder)
        arrays = self.causal.arrays()
        if ranks.number():
            return
        state: dict[str, JsonValue] = {
            "world": self.world.id,
            "model": self.options.model,
            "warmed": self.imitated,
            "turn": [self._designs_key, self._turns_taken],
            **({"demonstrations": self._imitated_hash} if self._imitated_hash else {}),
        }
        checkpoint.write(folder, arrays, state)
        pools.write(folder / pools.TRAIN, list(self.pool.values()))

    def publish(self, folder: Path, merged: bool) -> None:
        """Write the model as Hugging Face's libraries read it."""
        publish(self.causal, folder, merged)

    def load(self, folder: Path) -> None:
        """Read a checkpoint; of several ranks only the leader does, and the others take over what learns."""
        ranks.call_followers(self.agent_number, "load", folder=folder)
        arrays, state = checkpoint.read(folder) if ranks.number() == 0 else ({}, {})
        self.causal.restore(arrays, folder)
        key, turns = state.get("turn", (0, 0))
        self._demonstrations = None  # the file has to be the one that this checkpoint imitated
        counters = (int(state.get("warmed", 0)), str(state.get("demonstrations", "")), int(key), int(turns))
        self.imitated, self._imitated_hash, self._designs_key, self._turns_taken = ranks.broadcast(counters)
        if ranks.number() == 0:
            rows = pools.read(folder / pools.TRAIN)
            # a checkpoint of another world may be begun from; its tasks could not be judged here
            self.pool = {_task_key(row.task): row for row in rows if row.source == self.world.id}


class _Practice:
    """What one call of `practise` has done so far."""

    def __init__(self, agent: GRPO, designs: Sequence[Design], budget: int, report: Report) -> None:
        self.agent = agent
        self.designs = designs
        self.budget = budget
        self.report = report
        self.counts = Counts(agent.task_world, designs)
        self.done = 0  # attempts
        self.turns = 0  # groups that counted for a design
        self.endless = 0  # attempts that ran into the token limit
        self.rewards_differed = False  # inside any group

    def add_update(self, update: int, attempts: Sequence[Attempt], metrics: Mapping[str, float]) -> None:
        """Count the attempts of an update, keep the best, and report; a second update from the same has none."""
        size = self.agent.options.group_size
        groups = [attempts[start : start + size] for start in range(0, len(attempts), size)]
        for group in groups:
            self.agent._keep(group, self.designs)
            if len({one.verdict.reward for one in group}) > 1:
                self.rewards_differed = True
            if group[0].design != NO_DESIGN:
                self.turns += 1
                for one in group:
                    self.counts.add(one)
        endless = sum(one.fault == "endless" for one in attempts)
        self.done += len(attempts)
        self.endless += endless
        if attempts and endless == len(attempts):
            limit = f"max_tokens = {self.agent.options.max_tokens}"
            self.agent._warn_once(
                "endless",
                f"all {len(attempts)} answers of an update ran into {limit}, and such earn nothing; raise it, or let "
                "it imitate first (imitation_updates)",
            )
        practice = {f"practice/{name}": value for name, value in metrics.items()}
        self.report(min(self.done, self.budget), _attempt_metrics(groups) | practice)

    def outcomes(self, first_turn: int) -> list[Outcome]:
        """Return one outcome a design; all designs pay for tasks from the pool."""
        size = self.agent.options.group_size
        for number in range(first_turn, first_turn + self.done // size):
            self.counts.spent[number % len(self.designs)] += size
        return self.counts.outcomes()


@contextmanager
def _garbage_frozen() -> Iterator[None]:
    """Leave what is in memory already out of garbage collection: the trainer's would look at every imported module."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _ignore(done: int, metrics: Mapping[str, float]) -> None:
    """Report of the ranks that do not lead."""


def _shares(tasks: list[DesignTask]) -> list[tuple[list[DesignTask], int]]:
    """Divide tasks over the ranks, each share with a seed; they are answered greedily, so the seed decides nothing."""
    size = max(1, -(-len(tasks) // ranks.count()))
    return [(tasks[start : start + size], 0) for start in range(0, len(tasks), size)]


def _task_key(task: Task) -> str:
    """Return a key that is equal for tasks with the same prompt and answer, in whatever order their fields stand."""
    return json.dumps(task.model_copy(update={"id": ""}).model_dump(mode="json"), sort_keys=True)


def _attempt_metrics(groups: Sequence[Sequence[Attempt]]) -> dict[str, float]:
    """Return metrics of one update's attempts."""
    attempts = [one for group in groups for one in group]
    count = len(attempts)
    if not count:
        return {}
    rates = [sum(bool(one.shown) for one in group) / len(group) for group in groups]
    malformed = sum(not one.fault and not one.verdict.valid for one in attempts)
    metrics = {f"practice/{fault}": sum(one.fault == fault for one in attempts) / count for fault in FAULTS}
    return metrics | {
        "practice/malformed": malformed / count,
        "practice/success": sum(rates) / len(rates),
        "practice/solved": sum(rate == 1 for rate in rates) / len(rates),
        "practice/unsolved": sum(rate == 0 for rate in rates) / len(rates),
        "practice/reward": sum(one.verdict.reward for one in attempts) / count,
        "practice/tokens": sum(one.length for one in attempts) / count,
        "practice/turns": sum(len(one.turns) for one in attempts) / count,
    }
