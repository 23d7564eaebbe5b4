"""GRPO: a language model that learns text tasks from its own tries (Shao et al. 2024), as in GenEnv.

Any Hugging Face causal model, all weights or a LoRA adapter. Each task is tried `group_size` times; a try is as good as
its reward is above the group's. The update is TRL's (`trainer.py`), the tries are ours (`rollouts.py`): they are the
very rollouts that train and that the outcomes count. Tasks come from the designs in turn; with chance `replay_share` an
old task of the pool `D_train` comes in between: it is practised and paid for, but counts for no design.
"""

import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from curricle.agent import Agent, Report
from curricle.agents.grpo import sharding as sharing
from curricle.agents.grpo.imitation import imitate
from curricle.agents.grpo.options import LearningOptions, check
from curricle.agents.grpo.rollouts import FAULTS, Attempt, Counts, attempt
from curricle.agents.grpo.trainer import Grpo, Slot, own_seed
from curricle.errors import AgentError
from curricle.llm import pools
from curricle.llm.generate.sampling import Kind, Reply, Sampler
from curricle.llm.models.attention import unmended
from curricle.llm.models.export import publish
from curricle.llm.models.model import CausalModel
from curricle.records import Design, FrozenMap, Outcome, Task
from curricle.scale import ranks
from curricle.seeds import derive, generator
from curricle.setting import Setting
from curricle.tracking import checkpoint
from curricle.world import TaskWorld, World

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
        self.tasks = world
        o = self.options
        sharing.refuse(o, o.imitation_updates)
        check(o.trl, o.sampler == "trl")
        self.number = ranks.enlisted()
        self.causal = CausalModel(o, self.id, seed, shared=True, sharded=sharing.parted(o))
        if o.max_tokens >= self.causal.context:
            raise AgentError(
                f"max_tokens = {o.max_tokens} leaves no room for a task: {o.model!r} looks at {self.causal.context} "
                "tokens in all; lower [agent] max_tokens"
            )
        kind: Kind = "auto" if o.sampler == "trl" else o.sampler
        self.grpo = Grpo(self.causal, o, self._rollout)
        self.sampler = Sampler(self.causal, kind, o.sample_batch)
        self.pool: dict[str, pools.Row] = {}
        self.warmed = 0  # updates by imitation so far
        self.turn = (0, 0)  # which designs were last practised, and how many tasks they were handed since they came
        # of the running practice
        self._seed = 0
        self._batches = 0
        self._remarks = set[str]()

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Try, compare, update; as many whole updates as cover the budget."""
        ranks.ask(self.number, "practise", designs=list(designs), budget=budget, seed=seed, report=_unheard)
        self._warm_up(report)
        counts = Counts(self.tasks, designs)
        width = self.grpo.width
        self._seed = seed
        self._batches = 0
        done = 0
        turns = 0
        cut_off = 0
        uneven = False
        known = derive(0, *(design.to_json() for design in designs))
        first = 0
        if known == self.turn[0]:  # the next part of a practice: the designs go on by turns where they stood
            first = self.turn[1]

        def watch(step: int, fresh: Sequence[Attempt], figures: Mapping[str, float]) -> None:
            nonlocal done, turns, uneven, cut_off
            groups = [fresh[i : i + self.options.group_size] for i in range(0, len(fresh), self.options.group_size)]
            for group in groups:
                self._keep(group, designs)
                uneven |= len({one.verdict.reward for one in group}) > 1
                for one in group:
                    if one.owner >= 0:
                        counts.add(one)
            turns += sum(group[0].owner >= 0 for group in groups)
            done = done + len(fresh)
            cut_off = cut_off + sum(one.fault == "endless" for one in fresh)
            if fresh and all(one.fault == "endless" for one in fresh):  # a second pass over them brings no new ones
                cut = "%s: all %d answers of an update ran into max_tokens = %d, and such earn nothing; raise it, or "
                self._remark(
                    "endless", cut + "let it imitate first (imitation_updates)", len(fresh), self.options.max_tokens
                )
            report(min(done, budget), _figures(groups) | {f"practice/{name}": figures[name] for name in figures})

        if budget % width:
            odd = "%s: %d rollouts are asked for, but an update takes group_size * tasks_per_update = %d: %d are made"
            self._remark("odd", odd, budget, width, math.ceil(budget / width) * width)
        if budget:
            self.grpo.run(self._slots(designs, seed, first), math.ceil(budget / width), derive(seed, "trainer"), watch)
        if done and not uneven and "endless" not in self._remarks:
            alike = "%s: in none of %d tasks did rewards of tries differ, so nothing was learnt from them; "
            if 2 * cut_off > done:
                advice = f"{cut_off} of {done} answers ran into max_tokens = {self.options.max_tokens}: raise it, or "
            else:
                advice = "make the original easier, raise group_size, or "
            self._remark(
                "even", alike + advice + "let it imitate first (imitation_updates)", done // self.options.group_size
            )
        self.turn = (known, first + turns)
        for number in range(first, first + done // self.options.group_size):  # old tasks are paid for by all
            counts.spent[number % len(designs)] += self.options.group_size
        return counts.outcomes()

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Answer without learning; sampled tests are drawn design by design, so that a seed alone decides them."""
        ranks.ask(self.number, "measure", designs=list(designs), seeds=list(seeds), episodes=episodes)
        self._warm_up()
        o = self.options
        drawn = list[list[Slot]]()
        for number, (design, seed) in enumerate(zip(designs, seeds, strict=True)):
            tasks = self.tasks.draw(self.tasks.setting(design.setting), episodes, seed)
            drawn.append([(task, number) for task in tasks])
        counts = Counts(self.tasks, designs)
        self.sampler.refresh()
        batches = list(zip(drawn, seeds, strict=True)) if o.test_temperature else _parts([s for d in drawn for s in d])

        def speak(prompts: Sequence[list[int]], seed: int) -> list[Reply]:
            return self.sampler.sample(prompts, most=o.max_tokens, temperature=o.test_temperature, seed=seed)

        made = {
            number: attempt(self.tasks, slots, self.causal, speak, o.max_tokens, o.max_turns, derive(seed, "measure"))
            for number, (slots, seed) in enumerate(batches)
            if number % ranks.count() == ranks.number()
        }
        every = {number: part for rank in ranks.gathered(made) for number, part in rank.items()}
        for one in (one for number in sorted(every) for one in every[number]):
            counts.add(one)
            counts.spent[one.owner] += 1
        return counts.outcomes()

    def save(self, folder: Path) -> None:
        """Write what is trained, its optimiser and the pool."""
        ranks.ask(self.number, "save", folder=folder)
        about = {"world": self.world.id, "model": self.options.model}
        arrays = self.causal.arrays()
        if ranks.number():
            return
        checkpoint.write(folder, arrays, {**about, "warmed": self.warmed, "turn": list(self.turn)})
        pools.write(folder / pools.TRAIN, list(self.pool.values()))

    def publish(self, folder: Path, merged: bool) -> None:
        """Write the model as Hugging Face's libraries read it."""
        publish(self.causal, folder, merged)

    def load(self, folder: Path) -> None:
        """Read them; of several ranks only the leader does, and the others take over what learns."""
        ranks.ask(self.number, "load", folder=folder)
        arrays, state = checkpoint.read(folder) if ranks.number() == 0 else ({}, {})
        self.causal.restore(arrays, folder)
        known, handed = state.get("turn", (0, 0))
        self.warmed, self.turn = ranks.told((int(state.get("warmed", 0)), (int(known), int(handed))))
        if ranks.number() == 0:
            rows = pools.read(folder / pools.TRAIN)
            self.pool = {_key(row.task): row for row in rows if row.source == self.world.id}  # it may come from another

    def _warm_up(self, report: Report = lambda done, figures: None) -> None:
        """Imitate, the first time anything is asked of it; part of its starting point, so it costs no budget.

        Of several ranks all do the same; as GPUs may differ in the last bits, all take over the leader's in the end.
        """
        o = self.options
        settings = self._imitation_settings()
        if self.warmed >= o.imitation_updates:
            return
        (group,) = self.causal.optimizer.param_groups
        group["lr"] = o.imitation_learning_rate or o.learning_rate
        while self.warmed < o.imitation_updates:
            tasks = self._imitation_tasks(settings)
            loss = imitate(self.tasks, tasks, self.causal, o.max_tokens, o.max_turns, o.microbatch_size)
            self.warmed += 1
            report(0, {"practice/warmed": float(self.warmed), "practice/warm_loss": loss})
        group["lr"] = o.learning_rate
        self.causal.begin()
        if ranks.count() > 1:
            self.causal.restore(self.causal.arrays(), Path())

    def _imitation_settings(self) -> list[Setting]:
        """The settings whose solutions are imitated."""
        if not self.options.imitation_settings:
            return [self.tasks.setting(self.tasks.unaltered().setting)]
        return [self.tasks.setting(values) for values in self.options.imitation_settings]

    def _imitation_tasks(self, settings: Sequence[Setting]) -> list[Task]:
        """The solved tasks of the next update by imitation, equally many of each setting."""
        count = self.options.imitation_tasks
        if len(settings) == 1:
            return self.tasks.draw(settings[0], count, derive(self.seed, "warm", self.warmed))
        tasks = list[Task]()
        for number, setting in enumerate(settings):
            share = count // len(settings) + (number < count % len(settings))
            tasks += self.tasks.draw(setting, share, derive(self.seed, "warm", self.warmed, number))
        return tasks

    def _remark(self, kind: str, words: str, *about: object) -> None:
        """Say something once."""
        if kind not in self._remarks:
            LOG.warning(words, self.id, *about)
            self._remarks.add(kind)

    # -- practice ------------------------------------------------------------------------------------------------------

    def _slots(self, designs: Sequence[Design], seed: int, first: int) -> Iterator[Slot]:
        """Tasks without end: of each design in turn, from turn `first` on, or now and then an old one."""
        settings = [self.tasks.setting(design.setting) for design in designs]
        turn = first
        for number in itertools.count():
            rng = generator(seed, "replay", number)
            owner = turn % len(designs)
            if self.pool and rng.random() < self.options.replay_share:
                known = list(self.pool.values())
                yield known[int(rng.integers(len(known)))].task, -1  # nobody's turn: designs are tried equally often
            else:
                yield self.tasks.draw(settings[owner], 1, derive(seed, "task", number))[0], owner
                turn += 1

    def _rollout(self, slots: Sequence[Slot]) -> list[Attempt]:
        """Try the tasks of one update, all groups at once; of several ranks each tries its share."""
        o = self.options
        seed = own_seed(derive(self._seed, "rollout", self._batches))
        self._batches += 1
        if o.sampler != "trl":
            self.sampler.refresh()
        tries = attempt(self.tasks, slots, self.causal, self._speak, o.max_tokens, o.max_turns, seed)
        while o.sampler == "trl" and self._speak_by_trl([]) is not None:
            pass  # other ranks are still in conversation, and TRL draws for all at once
        return tries

    def _speak(self, prompts: Sequence[list[int]], seed: int) -> list[Reply]:
        o = self.options
        if o.sampler == "trl":
            return self._speak_by_trl(prompts) or []
        return self.sampler.sample(prompts, most=o.max_tokens, temperature=o.temperature, seed=seed)

    def _speak_by_trl(self, prompts: Sequence[list[int]]) -> list[Reply] | None:
        """TRL wants equally many prompts of every rank, so some are drawn for nothing; None: nobody has any."""
        most = max(ranks.gathered(len(prompts)))
        if not most:
            return None
        filler = [[self.causal.ends[0]]] * (most - len(prompts))
        batched = self.options.trl.get("use_transformers_continuous_batching")  # it knows attention by name
        with unmended(self.causal.model) if batched else nullcontext():
            ids, _ = self.grpo.trainer._generate_single_turn([*prompts, *filler], None, {}, 1)
        return [Reply(list(one), bool(one) and one[-1] in self.causal.ends) for one in ids[: len(prompts)]]

    def _keep(self, group: Sequence[Attempt], designs: Sequence[Design]) -> None:
        """Let a task into the pool if one of its traces is valid: it ended, could be judged, and kept to its form."""
        valid = [one for one in group if not one.fault and one.verdict.valid]
        if not valid or not self.options.pool_size:
            return
        best = max(valid, key=lambda one: one.verdict.reward)
        task = group[0].task
        key = _key(task)
        solved = sum(bool(one.shown) for one in group)
        row = self.pool.get(key)
        if row is None:
            by = designs[best.owner].by if best.owner >= 0 else ""
            info = {"id": task.id, "attempts": 0, "successes": 0, "reward": -1.0, "by": by}
            row = pools.Row(source=self.world.id, prompt=task.prompt, skill=task.skill, truth=task.gold, info=info)
        info = {**row.info, "attempts": row.info["attempts"] + len(group), "successes": row.info["successes"] + solved}
        if best.verdict.reward > row.info["reward"]:
            *before, last = best.transcript  # a valid trace ends with the agent's own words
            said = {"completion": last.content, "before": tuple(before), "weight": best.verdict.reward}
            row = row.model_copy(update=said)
            info["reward"] = best.verdict.reward
        self.pool[key] = row.model_copy(update={"info": info})
        while len(self.pool) > self.options.pool_size:
            del self.pool[next(iter(self.pool))]


def _unheard(done: int, metrics: Mapping[str, float]) -> None:
    """A report of a rank that does not lead."""


def _parts(slots: list[Slot]) -> list[tuple[list[Slot], int]]:
    """Tasks shared out over the ranks, each share with a seed: they are answered greedily, so it decides nothing."""
    size = max(1, -(-len(slots) // ranks.count()))
    return [(slots[start : start + size], 0) for start in range(0, len(slots), size)]


def _key(task: Task) -> str:
    """Equal for tasks that ask the same and take the same answer, in whatever order its fields stand."""
    return json.dumps(task.model_copy(update={"id": ""}).model_dump(mode="json"), sort_keys=True)


def _figures(groups: Sequence[Sequence[Attempt]]) -> dict[str, float]:
    """What one update's attempts look like."""
    every = [one for group in groups for one in group]
    if not every:
        return {}
    rates = [sum(bool(one.shown) for one in group) / len(group) for group in groups]
    faults = {f"practice/{fault}": sum(one.fault == fault for one in every) / len(every) for fault in FAULTS}
    strange = sum(not one.fault and not one.verdict.valid for one in every)
    return faults | {
        "practice/malformed": strange / len(every),
        "practice/success": sum(rates) / len(rates),
        "practice/solved": sum(rate == 1 for rate in rates) / len(rates),
        "practice/unsolved": sum(rate == 0 for rate in rates) / len(rates),
        "practice/reward": sum(one.verdict.reward for one in every) / len(every),
        "practice/tokens": sum(one.length for one in every) / len(every),
        "practice/turns": sum(len(one.turns) for one in every) / len(every),
    }
