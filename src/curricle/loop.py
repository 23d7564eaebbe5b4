"""The loop: an agent learns in environments that a designer makes for it. Read this file first.

    designer.propose(brief)      -> designs      step 1   a few settings, each with an aim and a reason
    agent.practise(designs)      -> outcomes     step 2   train inside them, side by side
    agent.practise(original)     -> outcomes     step 3a  train in the world that counts
    agent.measure(original)      -> scores       step 3b  test there, no updates, per skill
    designer.learn(outcomes, scores)             step 4   the designer adapts

After the cycles comes a final stretch in the original. EnvGen (arXiv 2403.12014) and GenEnv (arXiv 2512.19682) are this
loop with different components; it knows no world, designer or agent by name. Every step goes through `run.step`, which
does it and marks it done, or returns what it gave before the run was interrupted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from curricle.agent import Agent
from curricle.designer import Designer
from curricle.errors import AgentError, DesignerError, ValueRefused
from curricle.records import Cycle, Design, Exchange, Frozen, Options, Outcome, Scores, Trained
from curricle.run import Run, Step
from curricle.seeds import TESTS, derive, for_test
from curricle.tracking.watcher import Watcher
from curricle.world import World


def _at_most(limit: int, why: str) -> AfterValidator:
    """A bound with its reason, for sizes that could never run."""

    def check(value: int) -> int:
        if value > limit:
            raise ValueError(f"at most {limit:,}: {why}")
        return value

    return AfterValidator(check)


Budget = Annotated[int, _at_most(10**12, "at a million a second it would take eleven days")]


class Schedule(Options):
    """How much of what; budgets are in the agent's unit (steps, or rollouts of tasks). Defaults: EnvGen in Crafter."""

    cycles: Annotated[int, _at_most(1_000_000, "each takes a second at least")] = Field(
        4, ge=0, description="How often designs are made and adapted."
    )
    designs: Annotated[int, _at_most(10_000, "each is practised in an environment of its own")] = Field(
        4, ge=1, description="Designs a cycle."
    )
    per_cycle: Budget = Field(240_000, ge=0, description="Practice a cycle, designed and original together.")
    ratio: str = Field("1:1", description="Practice in the designs to practice in the original, as in '5:1'.")
    final: Budget = Field(1_000_000, ge=0, description="Practice in the original after the last cycle.")
    test_seeds: int = Field(
        12, ge=1, le=TESTS, description="Seeds the agent is tested on; the same in every cycle and every run."
    )
    test_episodes: Annotated[int, _at_most(1_000_000, "all are played at every test")] = Field(
        1, ge=1, description="Test episodes (or tasks) a seed."
    )
    save_every: Budget = Field(
        120_000,
        ge=1,
        description="Practice between two checkpoints; open episodes are cut there if the world cannot be saved.",
    )

    @field_validator("ratio", mode="before")
    @classmethod
    def _two_numbers(cls, ratio: object) -> str:
        sides = ratio.split(":") if isinstance(ratio, str) else []
        numbers = [side.strip() for side in sides if re.fullmatch("[0-9]{1,9}", side.strip())]
        if len(sides) != 2 or len(numbers) != 2 or not any(int(number) for number in numbers):
            raise ValueError("write two whole numbers with a colon between, like '1:1' or '5:1'")
        return str(ratio)

    @property
    def designed(self) -> int:
        """Practice in the designs, a cycle."""
        designed, original = (int(number) for number in self.ratio.split(":"))
        return self.per_cycle * designed // (designed + original)

    @property
    def original(self) -> int:
        """Practice in the original, a cycle."""
        return self.per_cycle - self.designed


class Loop:
    """One run of the loop; designers that rank designs by an untrained agent get it from `make_untrained_agent`."""

    def __init__(
        self,
        world: World,
        designer: Designer,
        agent: Agent,
        schedule: Schedule,
        run: Run,
        seed: int,
        make_untrained_agent: Callable[[], Agent],
        watcher: Watcher | None = None,
    ) -> None:
        self.world = world
        self.designer = designer
        self.agent = agent
        self.schedule = schedule
        self.run = run
        self.seed = seed
        self.make_untrained_agent = make_untrained_agent
        self.watcher = watcher or Watcher()
        self.spent = 0  # budget since the run began, by the schedule

    def train(self) -> Scores:
        """Go through all cycles and the final stretch; steps that the run folder already holds are not repeated."""
        self.run.restore({"agent": self.agent, "designer": self.designer})
        schedule = self.schedule
        past: list[Cycle] = []
        for cycle in range(1, schedule.cycles + 1):
            designs = self.propose(cycle, past)
            designed = self.practise(cycle, "designed", designs or [self.world.unaltered()], schedule.designed)
            original_outcomes = self.practise(cycle, "original", [self.world.unaltered()], schedule.original)
            scores = self.measure(cycle, original_outcomes)
            designed = designed if designs else []
            self.learn(cycle, designed, scores)
            past.append(Cycle(number=cycle, designed=tuple(designed), scores=scores))
        if past and not schedule.final:
            return past[-1].scores
        last = schedule.cycles + 1
        original_outcomes = self.practise(last, "original", [self.world.unaltered()], schedule.final)
        return self.measure(last, original_outcomes)

    def propose(self, cycle: int, past: Sequence[Cycle]) -> list[Design]:
        """Step 1: ask the designer, and hold it to what the world accepts."""
        brief = self.world.brief(cycle, self.schedule.cycles, past)
        step = Step(cycle=cycle, phase="propose")

        def work() -> list[Design]:
            self.watcher.begin(f"cycle {cycle}: {self.designer.id} designs", 0, "")
            designs = self.designer.propose(brief, self.schedule.designs, _Context(self, step))
            if not isinstance(designs, list) or len(designs) > self.schedule.designs:
                raise DesignerError(
                    f"{self.designer.id} was asked for up to {self.schedule.designs} designs: {designs!r}"
                )
            return [self._accept(design) for design in designs]

        designs = self.run.step(step, Design, work, designer=self.designer)
        return [self.world.updated(design) for design in designs]

    def practise(self, cycle: int, phase: str, designs: Sequence[Design], budget: int) -> list[Outcome]:
        """Steps 2 and 3a: train, with a checkpoint after every part."""
        parts = []
        for part, offset in enumerate(range(0, budget, self.schedule.save_every)):
            step = Step(cycle=cycle, phase=phase, part=part)
            part_budget = min(self.schedule.save_every, budget - offset)
            parts.append(self._practise_part(step, designs, part_budget, offset, budget))
            self.spent += part_budget
        return [Outcome.merge(outcomes_of_design) for outcomes_of_design in zip(*parts, strict=True)]

    def measure(self, cycle: int, original_outcomes: Sequence[Outcome]) -> Scores:
        """Step 3b: test in the original on fixed seeds; beside it stands how the practice before it went."""

        def work() -> list[Scores]:
            self.watcher.begin(f"cycle {cycle}: {self.agent.id} is tested", 0, "")
            scores = evaluate_agent(self.agent, self.schedule.test_seeds, self.schedule.test_episodes)
            metrics = {"test/headline": scores.headline, "test/reward": scores.reward.mean}
            for name, score in scores.skills.items():
                metrics[f"test/{name}"] = score.mean
            self._report(step, 0, 0, metrics)
            return [scores.model_copy(update={"trained": self._trained(original_outcomes)})]

        step = Step(cycle=cycle, phase="measure")
        unsaved = {} if "agent" in self.run.saved else {"agent": self.agent}  # one that never practised is saved, too
        (scores,) = self.run.step(step, Scores, work, **unsaved)
        return scores

    def learn(self, cycle: int, outcomes: Sequence[Outcome], scores: Scores) -> None:
        """Step 4: the designer adapts."""

        def work() -> list[Design]:  # what it learns shows in its next proposal; there is no record of its own
            self.watcher.begin(f"cycle {cycle}: {self.designer.id} learns", 0, "")
            self.designer.learn(outcomes, scores, _Context(self, step))
            return []

        step = Step(cycle=cycle, phase="learn")
        self.run.step(step, Design, work, designer=self.designer)

    def _practise_part(
        self, step: Step, designs: Sequence[Design], part_budget: int, offset: int, budget: int
    ) -> list[Outcome]:
        def report(done: int, metrics: Mapping[str, float]) -> None:
            self._report(step, done, offset + done, metrics)

        def work() -> list[Outcome]:
            self.watcher.begin(f"cycle {step.cycle}: practice, {step.phase}", budget, self.agent.unit)
            seed = derive(self.seed, "practise", step.cycle, step.phase, step.part)
            outcomes = self.agent.practise(designs, part_budget, seed=seed, report=report)
            return check_outcomes(outcomes, designs, f"{self.agent.id}: practise()")

        outcomes = self.run.step(step, Outcome, work, agent=self.agent)
        return [outcome.model_copy(update={"design": self.world.updated(outcome.design)}) for outcome in outcomes]

    def _report(self, step: Step, in_part: int, in_step: int, metrics: Mapping[str, float]) -> None:
        """Pass metrics to the run folder and the watcher, with the budget spent in this part and in the whole step."""
        if metrics:
            self.run.metrics(step, self.spent + in_part, metrics)
        self.watcher.report(self.spent + in_part, in_step, metrics)

    def _trained(self, original_outcomes: Sequence[Outcome]) -> Trained | None:
        """The papers' protocol: success over training attempts."""
        if not original_outcomes or not original_outcomes[0].attempts:
            return None
        (whole,) = original_outcomes
        rates = Frozen({skill.name: whole.share(skill.name) for skill in self.world.skills})
        reward = whole.reward / whole.attempts
        return Trained(skills=rates, headline=self.world.headline(rates), reward=reward, attempts=whole.attempts)

    def _accept(self, design: Design) -> Design:
        """Fill in the knobs that a design leaves out; refuse what the world does not know."""
        if not isinstance(design, Design):
            raise DesignerError(f"{self.designer.id} proposed {design!r}, which is not a Design")
        try:
            values = self.world.setting(design.setting).values
        except ValueRefused as error:
            raise DesignerError(f"{self.designer.id} proposed a bad design: {error}") from error
        if design.aim is not None and design.aim not in {skill.name for skill in self.world.skills}:
            raise DesignerError(f"{self.designer.id} aims at {design.aim!r}, which is not a skill of {self.world.id}")
        return design.model_copy(update={"setting": values, "by": design.by or self.designer.id})


def check_outcomes(outcomes: list[Outcome], designs: Sequence[Design], source: str) -> list[Outcome]:
    """Return what an agent returned, if it is an outcome for each design; refuse it otherwise."""
    fits = isinstance(outcomes, list) and len(outcomes) == len(designs)
    if not fits or not all(isinstance(one, Outcome) for one in outcomes):
        raise AgentError(
            f"{source} returned {outcomes!r:.100}, not a list with an Outcome for each of {len(designs)} designs"
        )
    return outcomes


def evaluate_agent(agent: Agent, seeds: int, episodes: int) -> Scores:
    """Test an agent in its original world, on seeds that are the same for every run."""
    world = agent.world
    original = [agent.world.unaltered()] * seeds
    outcomes = agent.measure(original, [for_test(i) for i in range(seeds)], episodes)
    check_outcomes(outcomes, original, f"{agent.id}: measure()")
    scores = Scores.over(outcomes, [skill.name for skill in world.skills])
    headline = world.headline({name: score.mean for name, score in scores.skills.items()})
    return scores.model_copy(update={"headline": headline})


class _Context:
    """The designer's way to the agent and to the run folder; see `designer.Context`."""

    def __init__(self, loop: Loop, step: Step) -> None:
        self.loop = loop
        self.step = step
        self.cycle = step.cycle
        self.folder = loop.run.by_hand

    def trial(self, designs: Sequence[Design], *, episodes: int = 12, practised: int | None = None) -> list[Outcome]:
        if not designs:
            return []
        agent = self.loop.agent
        spent = 0
        if practised is not None:
            agent = self.loop.make_untrained_agent()
            seed = derive(self.loop.seed, "newcomer", self.cycle)
            agent.practise([self.loop.world.unaltered()], practised, seed=seed, report=lambda done, metrics: None)
            spent = practised
        seeds = [derive(self.loop.seed, "trial", self.cycle, i) for i in range(len(designs))]
        accepted = [self.loop._accept(design) for design in designs]
        outcomes = agent.measure(accepted, seeds, episodes)
        check_outcomes(outcomes, accepted, f"{agent.id}: measure()")
        self.report({"trial/spent": spent + sum(outcome.spent for outcome in outcomes)})
        return outcomes

    def report(self, metrics: Mapping[str, float]) -> None:
        self.loop._report(self.step, 0, 0, metrics)

    def keep(self, exchange: Exchange) -> None:
        self.loop.run.keep(self.step, exchange)

    def kept(self) -> Sequence[Exchange]:
        return self.loop.run.kept(self.step)

    def spent(self) -> Mapping[str, float]:
        return self.loop.run.spent()
