"""The designer that learns: its space, forecast, choices, archive and search, and what it promises as a whole."""

import json

import numpy as np
import pytest
from parts import LADDER, VAULT, Bench
from pydantic import ValidationError, model_validator

from curricle.designers import reward as r
from curricle.designers.policy import Policy, PolicyOptions
from curricle.designers.policy.archive import Archive
from curricle.designers.policy.choices import Choices
from curricle.designers.policy.designer import diversity
from curricle.designers.policy.forecast import Forecast, counts, original_counts
from curricle.designers.policy.search import Search
from curricle.designers.policy.space import CONTRADICTED, Space
from curricle.errors import RunDamaged
from curricle.records import Cycle, Design, Outcome, Score, Scores, Skill, Trained
from curricle.setting import Setting, knob
from curricle.worlds.crafter import Crafter


def space_of(world):
    return Space(world.Setting, world.original.values, world.skills)


def scored(world, trained=None, **rates):
    found = {skill.name: Score(mean=rates.get(skill.name, 0.0), std=0.0, n=12) for skill in world.skills}
    return Scores(skills=found, reward=Score(mean=0.0, std=0.0, n=12), trained=trained)


def index(world, name):
    return [skill.name for skill in world.skills].index(name)


# -- space -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VAULT, LADDER, Crafter], ids=lambda kind: kind.id)
def test_settings_survive_the_grid(kind):
    world, space = kind(), space_of(kind())
    assert space.decode(space.home) == world.original.values, "the original is on the grid, whatever its numbers"
    rng = np.random.default_rng(0)
    for _ in range(20):
        row = np.array([rng.integers(len(levels)) for levels in space.levels])
        assert (space.encode(space.decode(row)) == row).all()
    for skill in world.skills:
        eased = {**world.original.values, **skill.eased_by}
        assert space.decode(space.encode(eased)) == eased, "and so is all that eases a skill"


def test_features_are_zero_at_home_and_positive_where_it_is_easier():
    space = space_of(VAULT())
    assert space.features(space.home[None]).tolist()[0] == [1.0, *[0.0] * (space.spans[-1] - 1 + 3)]
    for i, one in enumerate(space.knobs):
        rows = [np.where(np.arange(len(space.home)) == i, end, space.home) for end in (0, len(space.levels[i]) - 1)]
        ends = space.features(np.stack(rows))[:, 1 : space.spans[-1]].sum(1)
        assert (ends[0] > ends[1]) == (one.harder == "up")


def test_the_declaration_promises_more_success_where_more_is_handed_out():
    world, space = Crafter(), space_of(Crafter())
    forecast = Forecast(space)
    for skill in world.skills:
        eased = space.encode({**world.original.values, **skill.eased_by})
        before, after = forecast.rates(np.stack([space.home, eased]))[:, index(world, skill.name)]
        assert after > before + 0.05, skill.name


def test_rules_across_knobs_are_read_as_hints():
    """Many skeletons are refused where it is peaceful: so peace must be bad for meeting skeletons."""
    world, space = Crafter(), space_of(Crafter())
    mean, _ = space.expectation()
    knob = [k.name for k in space.knobs].index("peaceful")
    column = mean[:, int(space.spans[knob])]
    assert column[index(world, "defeat_skeleton")] == CONTRADICTED
    assert column[index(world, "collect_wood")] > 0


# -- forecast ----------------------------------------------------------------------------------------------------------


def test_the_forecast_learns_every_skill_and_gets_surer():
    world, space = VAULT(), space_of(VAULT())
    forecast = Forecast(space)
    easy = space.encode({**world.original.values, "alarm": 0.0})
    rows = np.stack([space.home, easy])
    _, before = forecast.log_odds(rows)
    shown, tried = np.array([[30, 6, 0], [57, 30, 3]], float), np.full((2, 3), 60.0)
    forecast.learn(rows, shown, tried)
    _, after = forecast.log_odds(rows)
    assert np.abs(forecast.rates(rows) - shown / tried).max() < 0.1 and (after < before).all()


def test_the_forecast_follows_an_agent_that_forgets():
    world, space = VAULT(), space_of(VAULT())
    forecast, row, tried = Forecast(space), space.home[None], np.full((1, 3), 40.0)
    for _ in range(5):
        forecast.learn(row, tried * 0.9, tried)
    assert (forecast.rates(row) > 0.8).all()
    for _ in range(3):
        forecast.learn(row, tried * 0.1, tried)
    assert (forecast.rates(row) < 0.25).all()
    assert len(world.skills) == 3


def test_the_expected_reward_allows_for_doubt():
    space = space_of(VAULT())
    forecast = Forecast(space)
    forecast.mean[:] = 0.0
    doubtful = forecast.expected(space.home[None], r.learnability)
    forecast.cov *= 1e-6
    sure = forecast.expected(space.home[None], r.learnability)
    assert sure == pytest.approx(np.ones((1, 3)), abs=1e-4) and (doubtful < 0.8).all()


def test_counts_of_outcomes_and_of_the_original():
    world = LADDER()
    design = Design(setting=world.original.values, aim="sums")
    seen = Outcome(design=design, attempts=10, successes=4, skills={"sums": 4}, tried={"sums": 10})
    shown, tried = counts([seen], ["sums", "words"])
    assert shown.tolist() == [[4, 0]] and tried.tolist() == [[10, 10]], "a skill that is never asked for is not taught"
    scores = scored(world, Trained(skills={"sums": 0.5, "words": 0.0}, headline=0, reward=0, attempts=80), sums=0.25)
    shown, tried = original_counts(scores, ["sums", "words"])
    assert shown.tolist() == [[3, 0], [40, 0]] and tried.tolist() == [[12, 12], [80, 80]]


# -- choices -----------------------------------------------------------------------------------------------------------


def test_choices_begin_with_the_original_and_what_eases_the_aim():
    world, space = Crafter(), space_of(Crafter())
    choices = Choices(space, floor=0.0, stray=0.1)
    rows = choices.sample(np.random.default_rng(0), np.full(2000, index(world, "place_table")))
    named = [k.name for k in space.knobs]
    assert (rows[:, named.index("start_wood")] > 0).mean() > 0.8
    assert (rows[:, named.index("start_iron")] == 0).mean() == pytest.approx(0.9, abs=0.03)


def test_reward_weighted_regression_by_hand():
    """One knob of three levels: the policy is (weighted counts + hold * beginning) / (weights + hold)."""
    space = space_of(LADDER())
    choices = Choices(space, floor=0.0, stray=0.1)
    topic, start = 1, choices.start[1][0].copy()
    words = space.levels[topic].index("words")
    rows = np.stack([np.array([0, words]), np.array([0, 0])])
    kl = choices.learn(rows, np.array([[3.0, 0.0], [1.0, 0.0]]), hold=2.0, cap=1e9)
    used = np.array([1.0, 0.0, 0.0]) + 3.0 * np.eye(3)[words]
    assert choices.knobs[topic][0] == pytest.approx((used + 2.0 * start) / 6.0)
    assert choices.knobs[topic][1] == pytest.approx(choices.start[topic][1]), "the other aim had no weight"
    assert kl == pytest.approx(choices.away()) and kl > 0


def test_an_update_is_capped_and_nothing_becomes_impossible():
    space = space_of(LADDER())
    choices = Choices(space, floor=0.05, stray=0.1)
    row = np.array([[0, 2]])
    for _ in range(50):
        assert choices.learn(row, np.array([[1e6, 1e6]]), hold=1.0, cap=0.01) <= 0.0101
    drawn = choices.sample(np.random.default_rng(0), np.zeros(20_000, np.int64))
    assert np.bincount(drawn[:, 1], minlength=3).min() > 20_000 * 0.05 / 3 / 2
    assert choices.spread() > 1.05


def test_without_weight_nothing_is_learnt():
    choices = Choices(space_of(LADDER()), floor=0.0, stray=0.1)
    before = [table.copy() for table in choices.knobs]
    assert choices.learn(np.array([[0, 1]]), np.zeros((1, 2)), hold=1.0, cap=1.0) == 0.0
    assert all((a == b).all() for a, b in zip(before, choices.knobs, strict=True))


def test_log_probabilities_are_those_of_the_samples():
    space = space_of(LADDER())
    choices = Choices(space, floor=0.1, stray=0.2)
    rows = np.array([[i, j] for i in range(len(space.levels[0])) for j in range(3)])
    assert np.exp(choices.log(rows, np.zeros(len(rows), np.int64))).sum() == pytest.approx(1.0)


# -- archive and search ------------------------------------------------------------------------------------------------


def test_the_archive_keeps_success_over_time():
    one, two = (Design(setting={"x": x}, aim="a") for x in (1, 2))
    archive = Archive(capacity=3, fade=0.5)
    for cycle, k in ((1, 0), (2, 5), (4, 9)):
        archive.add(cycle, [Outcome(design=one, attempts=10, successes=k, skills={"a": k})])
    assert archive.history(one.setting, "a") == [(1, 0.0), (2, 0.5), (4, 0.9)]
    assert archive.freshness().tolist() == [0.125, 0.25, 1.0]
    archive.add(5, [Outcome(design=two, attempts=0, successes=0)])
    assert archive.settings() == [two.setting, one.setting] and len(archive.entries) == 3, "the oldest left"
    other = Archive(capacity=3, fade=0.5)
    other.load(json.loads(json.dumps(archive.to_json())))
    assert other.entries == archive.entries


def test_the_search_finds_the_edge_and_brings_back_what_is_there_again():
    """A forecast that knows the answer: success falls with the alarm; the best setting is where it is alpha."""
    space = space_of(VAULT())
    forecast = Forecast(space)
    forecast.mean[:], forecast.cov[:] = 0.0, np.eye(forecast.mean.shape[1]) * 1e-6
    knob = [k.name for k in space.knobs].index("alarm")
    forecast.mean[:, 0], forecast.mean[:, int(space.spans[knob])] = -2.0, 4.0
    search = Search(Choices(space, 0.02, 0.1), forecast, r.edge(r.bell(0.5, 8.0)), lambda row: True, 6, 0.5, 1.0)
    row, _ = search.best(np.random.default_rng(0), np.ones(3), [], [])
    assert abs(forecast.rates(row[None])[0, 0] - 0.5) < 0.1
    again, _ = search.best(np.random.default_rng(0), np.ones(3), [], [row])
    assert (again != row).any(), "what this cycle has already is not taken twice"
    lazy = Search(
        Choices(space, 0.02, 0.1), forecast, r.edge(r.bell(0.5, 8.0)), lambda x: (x == row).all(), 1, 0.5, 1.0
    )
    found, _ = lazy.best(np.random.default_rng(1), np.ones(3), [row], [])
    assert (found == row).all(), "an old design is proposed again when it is at the edge"


# -- the designer ------------------------------------------------------------------------------------------------------


def play(designer, world, chances, cycles=4, n=4, start=1, past=()):
    """Let a designer work with an agent whose chance at each skill is a function of the setting."""
    past, proposals = list(past), []
    for cycle in range(start, start + cycles):
        bench = Bench(world)
        bench.cycle = cycle
        designs = designer.propose(world.brief(cycle, 99, past), n, bench)
        outcomes = []
        for design in designs:
            shown = {name: round(40 * p) for name, p in chances(design.setting).items()}
            made = Outcome(design=design, attempts=40, successes=shown[design.aim], skills=shown)
            outcomes.append(made)
        scores = scored(world, **chances(world.original.values))
        designer.learn(outcomes, scores, bench)
        past.append(Cycle(number=cycle, designed=tuple(outcomes), scores=scores))
        proposals.append(designs)
    return proposals, past


def lock(setting):
    """Success in the vault: falls with the alarm and the dials, each door is harder than the one before."""
    ease = 4 - 5 * setting["alarm"] - 0.5 * setting["dials"] + 0.5 * setting["open_doors"]
    return {f"open_{i}": float(1 / (1 + np.exp(1.5 * i - 1.5 - ease))) for i in (1, 2, 3)}


def test_designs_come_near_alpha():
    world = VAULT()
    for alpha in (0.3, 0.7):
        designer = Policy(world.Setting, PolicyOptions(alpha=alpha, explore=0.0), seed=1)
        proposals, _ = play(designer, world, lock, cycles=10)
        rates = [lock(d.setting)[d.aim] for designs in proposals[5:] for d in designs]
        assert abs(np.mean(rates) - alpha) < 0.1 and np.mean(np.abs(np.array(rates) - alpha) < 0.15) > 0.6


class Gated(Setting):
    """Three settings in all, for one of four is refused."""

    gate: bool = knob(False, "Whether the gate is shut.", harder="up")
    key: bool = knob(False, "Whether a key lies there.", harder="down")

    @model_validator(mode="after")
    def _no_key_without_a_gate(self):
        if self.key and not self.gate:
            raise ValueError("there is no key without a gate")
        return self


@pytest.mark.parametrize("n", [3, 4, 5])
def test_more_designs_than_settings_are_some_of_them_twice(n):
    class World(VAULT):
        id, skills, Setting = "gated-v1", (Skill(name="out"),), Gated

    world, designer = World(), Policy(Gated, PolicyOptions(explore=0.0))
    proposals, _ = play(designer, world, lambda s: {"out": 0.05 - 0.03 * s["gate"] + 0.3 * s["key"]}, cycles=6, n=n)
    assert all(len(designs) == n and all(Gated.of(d.setting) for d in designs) for designs in proposals)


@pytest.mark.parametrize("wrong", [{"again": 0.0}, {"strength": 2000.0}])
def test_options_that_would_divide_by_nothing_are_refused(wrong):
    with pytest.raises(ValidationError):
        PolicyOptions(**wrong)


def test_designs_differ_and_name_what_they_expect():
    world = Crafter()
    (designs,), _ = play(Policy(world.Setting, seed=0), world, lambda s: {k.name: 0.1 for k in world.skills}, cycles=1)
    rows = [space_of(world).encode(design.setting) for design in designs]
    assert diversity(rows) > 0.05 and len({design.setting for design in designs}) == 4
    assert all("should be" in design.why for design in designs)


def test_mastered_skills_are_left_alone_and_weak_ones_in_reach_are_aimed_at():
    world = VAULT()
    designer = Policy(world.Setting, PolicyOptions(explore=0.0), seed=0)

    def chances(setting):
        ease = 2 * (1 - setting["alarm"])
        return {"open_1": 1.0, "open_2": 1.0, "open_3": float(1 / (1 + np.exp(3 - 2 * ease)))}

    proposals, _ = play(designer, world, chances, cycles=5)
    assert {design.aim for designs in proposals[2:] for design in designs} == {"open_3"}


def test_it_can_start_from_another_designer():
    world = VAULT()
    designer = Policy(world.Setting, PolicyOptions(of="tutor"), seed=0)
    first = designer.propose(world.brief(1, 4), 3, Bench(world))
    assert [d.aim for d in first] == ["open_1"] * 3 and "handed out" in first[0].why
    assert {design.by for design in first} == {"tutor-v1"}
    _, past = play(Policy(world.Setting, PolicyOptions(of="tutor"), seed=0), world, lock, cycles=1, n=3)
    designer.learn(past[0].designed, past[0].scores, Bench(world))
    second = designer.propose(world.brief(2, 4, past), 3, Bench(world))
    assert all("should be" in design.why for design in second)


@pytest.mark.parametrize("options", [{}, {"search": 0}, {"explore": 1.0}, {"shape": "learnability"}, {"of": "random"}])
def test_its_state_is_whole(options, tmp_path):
    """Saved and loaded after two cycles, it goes on as if nothing had happened."""
    world = Crafter() if not options else VAULT()
    chances = lock if options else lambda s: {skill.name: 0.2 for skill in world.skills}
    one = Policy(world.Setting, PolicyOptions(**options), seed=5)
    _, past = play(one, world, chances, cycles=2)
    one.save(tmp_path)
    two = Policy(world.Setting, PolicyOptions(**options), seed=5)
    two.load(tmp_path)
    rest = [play(designer, world, chances, cycles=2, start=3, past=past) for designer in (one, two)]
    assert rest[0] == rest[1]


def test_a_newborn_can_be_saved(tmp_path):
    Policy(VAULT.Setting).save(tmp_path)
    fresh = Policy(VAULT.Setting)
    fresh.load(tmp_path)
    assert not fresh.met


@pytest.mark.parametrize("content", ["{}junk", "[3]", '{"skills": 3}'])
def test_damaged_state_of_the_policy_is_named(content, tmp_path):
    world = VAULT()
    designer = Policy(world.Setting, seed=0)
    designer.propose(world.brief(1, 4), 2, Bench(world))
    designer.save(tmp_path)
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(RunDamaged, match=str(tmp_path)):
        Policy(world.Setting).load(tmp_path)


def test_without_designs_nothing_is_learnt():
    world = VAULT()
    designer = Policy(world.Setting, seed=0)
    designer.learn([], scored(world), Bench(world))
    assert not designer.met and not designer.archive.entries
