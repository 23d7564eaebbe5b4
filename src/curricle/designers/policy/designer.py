"""The policy: a designer that learns which settings are just hard enough (GenEnv's alpha-curriculum for any world).

It needs no language model. After each cycle it takes in what the agent showed in its designs, for every skill and not
only for a design's aim, into a forecast of success (`forecast.py`), an archive (`archive.py`) and a policy over aim and
knobs (`choices.py`, trained by reward-weighted regression). To propose, it draws settings from the policy and the
archive, breeds them under the forecast, and takes those that bring the most skills with room to grow nearest to alpha.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from curricle.designer import Context, OfOptions
from curricle.designers import reward as rewards
from curricle.designers.baselines import DesignerWrapper
from curricle.designers.policy.archive import Archive
from curricle.designers.policy.choices import Choices
from curricle.designers.policy.forecast import Forecast, counts, original_counts
from curricle.designers.policy.search import Search
from curricle.designers.policy.space import Rows, Space
from curricle.designers.reward import Floats
from curricle.errors import RunDamaged
from curricle.records import Brief, Design, Frozen, Outcome, Scores, Skill, Values
from curricle.seeds import generator
from curricle.setting import Setting
from curricle.tracking import checkpoint


class PolicyOptions(OfOptions):
    """Options of the policy."""

    renamed: ClassVar[Mapping[str, str]] = {
        "hold": "kl_coef",
        "cap": "max_kl",
        "floor": "uniform_share",
        "search": "search_rounds",
        "others": "other_skills_weight",
        "close": "change_discount",
        "hedge": "posterior_noise",
        "dreams": "imagined_samples",
        "vivid": "imagined_weight",
        "reach": "blocked_skill_weight",
        "again": "repeat_discount",
        "fade": "outcome_decay",
    }

    of: str = Field(
        "none", description="A designer whose first designs it starts from; none: start from the world's declaration."
    )
    alpha: float = Field(0.5, gt=0, lt=1, description="Success rate that designs should have.")
    beta: float = Field(2.0, gt=0, description="How fast the reward falls with the distance from alpha.")
    shape: Literal["bell", "learnability"] = Field(
        "bell", description="Reward: bell, exp(-beta (p - alpha)^2), or learnability, 4p(1 - p)."
    )
    k_min: float = Field(0.1, gt=0, le=1, description="Half the width of the band; designs outside it do not count.")
    strength: float = Field(
        2.0, gt=0, le=100, description="Lambda of the weights exp(lambda * reward): how much better designs count."
    )
    kl_coef: float = Field(2.0, gt=0, description="Weight of the KL penalty to the initial policy.")
    max_kl: float = Field(
        0.05, gt=0, description="Largest KL divergence of one update, divided by the number of choices (aim and knobs)."
    )
    uniform_share: float = Field(
        0.02, ge=0, lt=1, description="Share of each choice's probability that stays spread evenly over its values."
    )
    explore: float = Field(0.05, ge=0, le=1, description="Probability that a design is drawn without a search.")
    search_rounds: int = Field(8, ge=0, description="Rounds of search under the forecast; 0: draw from the policy.")
    other_skills_weight: float = Field(
        0.7, ge=0, le=1, description="Weight of the skills that a design is not aimed at, in the value of a setting."
    )
    change_discount: float = Field(
        0.95, gt=0, le=1, description="Factor on a setting's value for each knob that differs from the original."
    )
    posterior_noise: float = Field(
        0.5, ge=0, lt=1, description="Scale of the noise with which each design draws its own forecast; 0: no noise."
    )
    imagined_samples: int = Field(64, ge=1, description="Imagined settings for each aim in an update of the policy.")
    imagined_weight: float = Field(
        12.0, ge=0, description="How many designs with outcomes the imagined settings of an aim weigh as much as."
    )
    blocked_skill_weight: float = Field(
        0.2, ge=0, le=1, description="Factor on a skill's weight while the agent never shows what the skill needs."
    )
    repeat_discount: float = Field(
        0.5, gt=0, le=1, description="Factor on a skill's weight once another design of the cycle teaches it."
    )
    outcome_decay: float = Field(0.7, gt=0, le=1, description="Factor per cycle on the weight of an old outcome.")
    capacity: int = Field(512, ge=1, description="Outcomes that the archive holds.")

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if self.shape == "learnability" and self.alpha != 0.5:
            raise ValueError(
                f"alpha = {self.alpha} with shape = learnability, which is largest at 0.5: set shape = bell"
            )
        return self


class Policy(DesignerWrapper):
    """Chooses an aim and the knobs so that success at the aim comes near alpha."""

    id = "policy-v1"
    Options = PolicyOptions
    options: PolicyOptions
    space: Space
    choices: Choices
    forecast: Forecast

    def __init__(self, setting: type[Setting], options: PolicyOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        o = self.options
        self.archive = Archive(o.capacity, o.outcome_decay)
        self.reward = rewards.bell(o.alpha, o.beta) if o.shape == "bell" else rewards.learnability
        self.met = False  # whether it was shown its world

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Make n designs that should be just hard enough for the agent as it is now."""
        if not self.met:
            self._meet(brief.skills, brief.original)
            if founders := self.inner.propose(brief, n, context):
                return [design.model_copy(update={"by": design.by or self.inner.id}) for design in founders]
        rng = generator(self.seed, "policy", brief.cycle)
        worth = self._worth()
        edge = rewards.edge(self.reward)
        o = self.options
        known = [self.space.encode(setting) for setting in self.archive.settings()]
        old = {row.tobytes() for row in known}
        designs = list[Design]()
        rows = list[Rows]()
        for _ in range(n):
            guess = self.forecast.guess(rng, o.posterior_noise)
            search = Search(
                self.choices,
                guess,
                edge,
                self._allowed,
                o.search_rounds,
                o.other_skills_weight,
                o.change_discount,
            )
            if rng.random() < o.explore or not o.search_rounds:
                row, aim = search.draw(rng, worth, taken=rows)
            else:
                row, aim = search.best(rng, worth, known, taken=rows)
            rows.append(row)
            designs.append(self._design(row, aim, brief))
            worth = worth * o.repeat_discount ** self.forecast.expected(row[None], edge)[0]
        again = sum(row.tobytes() in old for row in rows) / max(1, len(rows))
        figures = {"designer/diversity": diversity(rows), "designer/spread": self.choices.spread()}
        context.report(figures | {"designer/replayed": again})
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Move forecast, archive and policy by what the agent showed; an outcome tells about every skill."""
        outcomes = [outcome for outcome in outcomes if self.space.covers(outcome.design.setting)] if self.met else []
        if not outcomes:
            return
        names = [skill.name for skill in self.space.skills]
        rows = np.stack([self.space.encode(o.design.setting) for o in outcomes])
        seen = counts(outcomes, names)
        home = original_counts(scores, names)
        everywhere = np.concatenate([rows, np.repeat(self.space.home[None], len(home[0]), axis=0)])
        self.forecast.learn(everywhere, *(np.concatenate(pair) for pair in zip(seen, home, strict=True)))
        self.archive.add(context.cycle, outcomes)
        rates = [outcome.rate for outcome in outcomes if outcome.rate is not None]
        if rates:  # where nobody tried anything there is nothing to be learnt
            o = self.options
            lessons = self._lessons(names)
            dreams = self._dreams(context.cycle)
            rows, weights = (np.concatenate(pair) for pair in zip(lessons, dreams, strict=True))
            moved = self.choices.learn(rows, weights, lessons[1].sum(0), o.kl_coef, o.max_kl)
            near = float(np.mean([abs(rate - o.alpha) <= o.k_min + 1e-9 for rate in rates]))
            figures = {"designer/in_band": near, "designer/success": float(np.mean(rates)), "designer/kl": moved}
            context.report(figures | {"designer/kl_start": self.choices.away()})

    def save(self, folder: Path) -> None:
        """Write what it was told of the world, the archive, the forecast and the policy."""
        super().save(folder)
        if not self.met:
            checkpoint.write(folder, {}, {})
            return
        (aims, knobs) = self.choices.tables
        forecast = self.forecast
        arrays = {"mean": forecast.mean, "cov": forecast.cov, "aims": aims}
        arrays |= {f"knobs/{i}": table for i, table in enumerate(knobs)}
        skills = [skill.model_dump(mode="json") for skill in self.space.skills]
        state: dict[str, Any] = {"skills": skills, "original": dict(self.space.original)}
        checkpoint.write(folder, arrays, state | {"archive": self.archive.to_json()})

    def load(self, folder: Path) -> None:
        """Take it up again."""
        super().load(folder)
        arrays, state = checkpoint.read(folder)
        if not state:
            return
        try:
            self._meet([Skill.model_validate(skill) for skill in state["skills"]], Frozen(state["original"]))
            self.archive.load(state["archive"])
            f = self.forecast
            (aims, knobs) = self.choices.tables
            f.mean = _shaped(arrays, "mean", f.mean)
            f.cov = _shaped(arrays, "cov", f.cov)
            knobs = [_shaped(arrays, f"knobs/{i}", table) for i, table in enumerate(knobs)]
            self.choices.tables = _shaped(arrays, "aims", aims), knobs
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error

    def _meet(self, skills: Sequence[Skill], original: Values) -> None:
        """Take in the world's declaration."""
        self.space = Space(self.setting, original, skills)
        self.choices = Choices(self.space, self.options.uniform_share, stray=0.1)
        self.forecast = Forecast(self.space)
        self.met = True

    def _worth(self) -> Floats:
        """What designs for each skill are worth: the room it has in the original, as far as that does not teach it.

        A skill that is near alpha in the original is practised there anyway. Less while what it needs is missing.
        """
        home = self.space.home[None]
        reach = self.options.blocked_skill_weight
        rates = self.forecast.rates(home)[0]
        taught = self.forecast.expected(home, rewards.edge(self.reward))[0]
        known = {skill.name: rate for skill, rate in zip(self.space.skills, rates, strict=True)}
        near = [min((known[need] for need in skill.needs), default=1.0) for skill in self.space.skills]
        return np.asarray((0.02 + (1 - rates) * (1 - taught)) * (reach + (1 - reach) * np.sqrt(near)))

    def _lessons(self, names: Sequence[str]) -> tuple[Rows, Floats]:
        """The archive as rows, and what each should count for the policy of each aim: hindsight for every skill."""
        o = self.options
        outcomes = self.archive.outcomes
        rows = np.stack([self.space.encode(outcome.design.setting) for outcome in outcomes])
        columns = []
        for name in names:
            tally = [(outcome.skills.get(name, 0), outcome.chances(name)) for outcome in outcomes]
            columns.append(rewards.weights(tally, self.reward, o.alpha, o.k_min, o.strength))
        return rows, np.stack(columns, axis=1) * self.archive.freshness()[:, None]

    def _dreams(self, cycle: int) -> tuple[Rows, Floats]:
        """Settings drawn from the policy for each aim, weighted by what the forecast expects of them now.

        This is how the policy follows the agent's profile: what was at the edge last cycle need not be there any more.
        """
        count = self.options.imagined_samples
        aims = len(self.space.skills)
        rng = generator(self.seed, "dreams", cycle)
        own = np.repeat(np.arange(aims), count)
        rows = self.choices.sample(rng, own)
        gain = self.forecast.expected(rows, rewards.edge(self.reward))[np.arange(len(own)), own].reshape(aims, count)
        excess = np.maximum(0.0, np.expm1(self.options.strength * (gain - gain.mean(1, keepdims=True))))
        weights = np.zeros((len(own), aims))
        weights[np.arange(len(own)), own] = excess.ravel() * self.options.imagined_weight / count
        return rows, weights

    def _allowed(self, row: Rows) -> bool:
        """Whether the world's rules across knobs accept a setting."""
        return self.space.allowed(self.space.decode(row))

    def _design(self, row: Rows, aim: int, brief: Brief) -> Design:
        """A row as a design, with what is expected of it."""
        rates = self.forecast.rates(row[None])[0]
        order = [int(s) for s in np.argsort(np.abs(rates - self.options.alpha)) if s != aim][:3]
        near = ", ".join(f"{brief.skills[s].name} {rates[s]:.0%}" for s in order)
        why = (
            f"success at {brief.skills[aim].name} should be {rates[aim]:.0%}, the goal {self.options.alpha:.0%}; {near}"
        )
        return Design(setting=self.setting.of(self.space.decode(row)).values, aim=brief.skills[aim].name, why=why)


def _shaped(arrays: Mapping[str, Floats], name: str, like: Floats) -> Floats:
    """An array of a checkpoint, which has to fit the world as it is declared now."""
    if arrays[name].shape != like.shape:
        raise ValueError(f"{name} has the shape {arrays[name].shape}, this world needs {like.shape}")
    return arrays[name]


def diversity(rows: Sequence[Rows]) -> float:
    """Share of knobs in which two designs differ, mean over pairs: 0 where all are the same."""
    pairs = [np.mean(a != b) for i, a in enumerate(rows) for b in rows[:i]]
    return float(np.mean(pairs)) if pairs else 0.0
