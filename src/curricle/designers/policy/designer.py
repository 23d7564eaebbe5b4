"""The policy: a designer that learns which settings are just hard enough (GenEnv's alpha-curriculum for any world).

It needs no language model. To propose, it draws settings from its distribution (`choices.py`) and from the archive,
breeds them under a forecast of success (`forecast.py`, `search.py`), and takes those that bring the most skills with
room to grow nearest to alpha. To learn, it updates all three by what the agent showed in the designs: the forecast for
every skill and not only for a design's aim, the archive, and the distribution by reward-weighted regression.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from curricle.designer import Context, OfOptions
from curricle.designers import reward as rewards
from curricle.designers.baselines import DesignerWrapper
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

STRAY = 0.1
"""Probability at first that a knob which does not ease the aim differs from the original."""
MIN_SKILL_WEIGHT = 0.02


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
    search_rounds: int = Field(
        8, ge=0, le=10_000, description="Rounds of search under the forecast; 0: draw from the policy."
    )
    other_skills_weight: float = Field(
        0.7, ge=0, le=1, description="Weight of the skills that a design is not aimed at, in the value of a setting."
    )
    change_discount: float = Field(
        0.95, gt=0, le=1, description="Factor on a setting's value for each knob that differs from the original."
    )
    posterior_noise: float = Field(
        0.5, ge=0, lt=1, description="Scale of the noise with which each design draws its own forecast; 0: no noise."
    )
    imagined_samples: int = Field(
        64, ge=1, le=100_000, description="Imagined settings for each aim in an update of the policy."
    )
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
    capacity: int = Field(512, ge=1, le=1_000_000, description="Outcomes that the archive holds.")

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if self.shape == "learnability" and self.alpha != 0.5:
            raise ValueError(
                f"alpha = {self.alpha} with shape = learnability, which is largest at 0.5: set shape = bell"
            )
        return self


class Archive:
    """Every outcome with its cycle, in order.

    A design that was too hard may be at the edge later, and one that was mastered may be forgotten. So the designs of
    the archive are candidates again in each cycle. Its counts, older ones less, are what the policy is fitted to.
    """

    def __init__(self, capacity: int, decay: float) -> None:
        self.capacity = capacity
        self.decay = decay
        self.entries: list[tuple[int, Outcome]] = []

    def add(self, cycle: int, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of a cycle; the oldest ones leave when there is no more room."""
        self.entries = [*self.entries, *((cycle, outcome) for outcome in outcomes)][-self.capacity :]

    @property
    def outcomes(self) -> list[Outcome]:
        """All outcomes."""
        return [outcome for _, outcome in self.entries]

    def age_weights(self) -> Floats:
        """What each outcome still counts: 1 in the newest cycle, less by `decay` with each cycle since."""
        newest = max((cycle for cycle, _ in self.entries), default=0)
        return np.array([self.decay ** (newest - cycle) for cycle, _ in self.entries])

    def settings(self) -> list[Values]:
        """Each setting once, the newest first."""
        return list(dict.fromkeys(outcome.design.setting for outcome in reversed(self.outcomes)))

    def to_json(self) -> list[list[int | str]]:
        """Plain data for a checkpoint."""
        return [[cycle, outcome.to_json()] for cycle, outcome in self.entries]

    def load(self, plain: Sequence[tuple[int, str]]) -> None:
        """Read what `to_json` returned."""
        self.entries = [(int(cycle), Outcome.from_json(text)) for cycle, text in plain]


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
        self.reward = rewards.alpha_reward(o.alpha, o.beta) if o.shape == "bell" else rewards.learnability
        self.gain = rewards.gain(self.reward)
        self.started = False  # whether `_start` was called: the skills are known from the first brief on

    # -- candidates, forecast, choice ----------------------------------------------------------------------------------

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Make n designs that should be just hard enough for the agent as it is now."""
        if not self.started:
            self._start(brief.skills, brief.original)
            first_designs = self.inner.propose(brief, n, context)
            if first_designs:
                return [design.model_copy(update={"by": design.by or self.inner.id}) for design in first_designs]
        o = self.options
        rng = generator(self.seed, "policy", brief.cycle)
        skill_weights = self._skill_weights()
        known = [self.space.encode(setting) for setting in self.archive.settings()]
        designs = list[Design]()
        rows = list[Rows]()
        for _ in range(n):
            search = self._search(self.forecast.sample(rng, o.posterior_noise))
            if rng.random() < o.explore or not o.search_rounds:
                row, aim = search.draw(rng, skill_weights, taken=rows)
            else:
                row, aim = search.best(rng, skill_weights, known, taken=rows)
            rows.append(row)
            designs.append(self._design(row, aim, brief))
            skill_weights = skill_weights * o.repeat_discount ** self.forecast.expected(row[None], self.gain)[0]
        known_rows = {row.tobytes() for row in known}
        replayed = sum(row.tobytes() in known_rows for row in rows)
        context.report(
            {
                "designer/diversity": diversity(rows),
                "designer/spread": self.choices.effective_levels(),
                "designer/replayed": replayed / max(1, len(rows)),
            }
        )
        return designs

    def _start(self, skills: Sequence[Skill], original: Values) -> None:
        """Build everything that depends on the world's declaration."""
        self.space = Space(self.setting, original, skills)
        self.choices = Choices(self.space, self.options.uniform_share, STRAY)
        self.forecast = Forecast(self.space)
        self.started = True

    def _skill_weights(self) -> Floats:
        """The weight of each skill: its room for improvement in the original, less if the original teaches it already.

        A skill that is near alpha in the original is practised there anyway. A skill weighs less while what it needs is
        missing.
        """
        original = self.space.original_row[None]
        blocked = self.options.blocked_skill_weight
        rates = self.forecast.rates(original)[0]
        taught = self.forecast.expected(original, self.gain)[0]
        rate_of = {skill.name: rate for skill, rate in zip(self.space.skills, rates, strict=True)}
        needed = [min((rate_of[need] for need in skill.needs), default=1.0) for skill in self.space.skills]
        room = MIN_SKILL_WEIGHT + (1 - rates) * (1 - taught)
        return np.asarray(room * (blocked + (1 - blocked) * np.sqrt(needed)))

    def _search(self, forecast: Forecast) -> Search:
        """A search under one forecast."""
        o = self.options

        def allowed(row: Rows) -> bool:
            return self.space.allowed(self.space.decode(row))

        return Search(
            self.choices, forecast, self.gain, allowed, o.search_rounds, o.other_skills_weight, o.change_discount
        )

    def _design(self, row: Rows, aim: int, brief: Brief) -> Design:
        """A row as a design, with what is expected of it."""
        alpha = self.options.alpha
        rates = self.forecast.rates(row[None])[0]
        nearest = [int(s) for s in np.argsort(np.abs(rates - alpha)) if s != aim][:3]
        others = ", ".join(f"{brief.skills[s].name} {rates[s]:.0%}" for s in nearest)
        name = brief.skills[aim].name
        why = f"success at {name} should be {rates[aim]:.0%}, the goal {alpha:.0%}; {others}"
        return Design(setting=self.setting.of(self.space.decode(row)).values, aim=name, why=why)

    # -- learn ---------------------------------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Update forecast, archive and choices by what the agent showed; an outcome says something of every skill."""
        if not self.started:
            return
        outcomes = [outcome for outcome in outcomes if self.space.covers(outcome.design.setting)]
        if not outcomes:
            return
        self._update_forecast(outcomes, scores)
        self.archive.add(context.cycle, outcomes)
        rates = [outcome.rate for outcome in outcomes if outcome.rate is not None]
        if not rates:  # nobody tried anything, so there is nothing to learn
            return
        o = self.options
        moved = self._update_choices(context.cycle)
        in_band = float(np.mean([abs(rate - o.alpha) <= o.k_min + 1e-9 for rate in rates]))
        context.report(
            {
                "designer/in_band": in_band,
                "designer/success": float(np.mean(rates)),
                "designer/kl": moved,
                "designer/kl_start": self.choices.kl_from_initial(),
            }
        )

    def _update_forecast(self, outcomes: Sequence[Outcome], scores: Scores) -> None:
        """Update the forecast by the outcomes in the designs and in the original."""
        names = [skill.name for skill in self.space.skills]
        shown, tried = counts(outcomes, names)
        original_shown, original_tried = original_counts(scores, names)
        rows = [self.space.encode(outcome.design.setting) for outcome in outcomes]
        self.forecast.learn(
            np.stack([*rows, self.space.original_row]),
            np.concatenate([shown, original_shown]),
            np.concatenate([tried, original_tried]),
        )

    def _update_choices(self, cycle: int) -> float:
        """Fit the choices to the archive and to imagined settings; returns the KL divergence of the update."""
        archive_rows, archive_weights = self._archive_weights()
        imagined_rows, imagined_weights = self._imagined_weights(cycle)
        return self.choices.learn(
            np.concatenate([archive_rows, imagined_rows]),
            np.concatenate([archive_weights, imagined_weights]),
            archive_weights.sum(0),
            self.options.kl_coef,
            self.options.max_kl,
        )

    def _archive_weights(self) -> tuple[Rows, Floats]:
        """The archive as rows, and how much each counts for each aim: (outcomes, aims).

        An outcome counts for every skill it had attempts at, whatever its aim was.
        """
        o = self.options
        outcomes = self.archive.outcomes
        rows = np.stack([self.space.encode(outcome.design.setting) for outcome in outcomes])
        columns = []
        for skill in self.space.skills:
            tally = [(outcome.skills.get(skill.name, 0), outcome.chances(skill.name)) for outcome in outcomes]
            columns.append(rewards.weights(tally, self.reward, o.alpha, o.k_min, o.strength))
        return rows, np.stack(columns, axis=1) * self.archive.age_weights()[:, None]

    def _imagined_weights(self, cycle: int) -> tuple[Rows, Floats]:
        """Settings drawn from the choices for each aim, weighted by what the forecast expects of them now.

        So the choices follow the agent: what was at the edge in the last cycle need not be there any more.
        """
        o = self.options
        count = o.imagined_samples
        skills = len(self.space.skills)
        rng = generator(self.seed, "dreams", cycle)
        aims = np.repeat(np.arange(skills), count)
        rows = self.choices.sample(rng, aims)
        each = np.arange(len(aims))
        gain = self.forecast.expected(rows, self.gain)[each, aims].reshape(skills, count)
        excess = np.maximum(0.0, np.expm1(o.strength * (gain - gain.mean(1, keepdims=True))))
        weights = np.zeros((len(aims), skills))
        weights[each, aims] = excess.ravel() * o.imagined_weight / count
        return rows, weights

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the declaration it started from, the archive, the forecast and the choices."""
        super().save(folder)
        if not self.started:
            checkpoint.write(folder, {}, {})
            return
        aims, knobs = self.choices.tables
        arrays = {"mean": self.forecast.mean, "cov": self.forecast.cov, "aims": aims}
        arrays |= {f"knobs/{i}": table for i, table in enumerate(knobs)}
        state: dict[str, Any] = {
            "skills": [skill.model_dump(mode="json") for skill in self.space.skills],
            "original": dict(self.space.original),
            "archive": self.archive.to_json(),
        }
        checkpoint.write(folder, arrays, state)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        super().load(folder)
        arrays, state = checkpoint.read(folder)
        if not state:
            return
        try:
            self._start([Skill.model_validate(skill) for skill in state["skills"]], Frozen(state["original"]))
            self.archive.load(state["archive"])
            aims, knobs = self.choices.tables
            self.forecast.mean = _shaped(arrays, "mean", self.forecast.mean)
            self.forecast.cov = _shaped(arrays, "cov", self.forecast.cov)
            loaded_knobs = [_shaped(arrays, f"knobs/{i}", table) for i, table in enumerate(knobs)]
            self.choices.tables = _shaped(arrays, "aims", aims), loaded_knobs
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error


def _shaped(arrays: Mapping[str, Floats], name: str, like: Floats) -> Floats:
    """An array of a checkpoint, which has to fit the world as it is declared now."""
    if arrays[name].shape != like.shape:
        raise ValueError(f"{name} has the shape {arrays[name].shape}, this world needs {like.shape}")
    return arrays[name]


def diversity(rows: Sequence[Rows]) -> float:
    """Share of knobs in which two designs differ, the mean over pairs: 0 where all are the same."""
    pairs = [np.mean(a != b) for i, a in enumerate(rows) for b in rows[:i]]
    return float(np.mean(pairs)) if pairs else 0.0
