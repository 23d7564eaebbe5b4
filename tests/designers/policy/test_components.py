"""What the designer that learns is made of: its space, forecast, choices, archive and search."""

import json

import numpy as np
import pytest
from helpers.sweep import LADDER, VAULT, scored, space_of

from curricle.designers import reward as r
from curricle.designers.policy.choices import Choices
from curricle.designers.policy.designer import Archive
from curricle.designers.policy.forecast import Forecast, counts, original_counts
from curricle.designers.policy.search import Search
from curricle.designers.policy.space import CONTRADICTED
from curricle.records import Design, Outcome, Trained
from curricle.worlds.crafter import Crafter


def index(world, name):
    return [skill.name for skill in world.skills].index(name)


# -- space -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VAULT, LADDER, Crafter], ids=lambda kind: kind.id)
def test_settings_survive_the_grid(kind):
    world, space = kind(), space_of(kind())
    assert space.decode(space.original_row) == world.original.values, (
        "the original is on the grid, whatever its numbers"
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        row = np.array([rng.integers(len(levels)) for levels in space.levels])
        assert (space.encode(space.decode(row)) == row).all()
    for skill in world.skills:
        eased = {**world.original.values, **skill.eased_by}
        assert space.decode(space.encode(eased)) == eased, "and so is all that eases a skill"


def test_features_are_zero_at_home_and_positive_where_it_is_easier():
    space = space_of(VAULT())
    assert space.features(space.original_row[None]).tolist()[0] == [1.0, *[0.0] * (space.offsets[-1] - 1 + 3)]
    for i, one in enumerate(space.knobs):
        rows = [
            np.where(np.arange(len(space.original_row)) == i, end, space.original_row)
            for end in (0, len(space.levels[i]) - 1)
        ]
        ends = space.features(np.stack(rows))[:, 1 : space.offsets[-1]].sum(1)
        assert (ends[0] > ends[1]) == (one.harder == "up")


def test_the_declaration_promises_more_success_where_more_is_handed_out():
    world, space = Crafter(), space_of(Crafter())
    forecast = Forecast(space)
    for skill in world.skills:
        eased = space.encode({**world.original.values, **skill.eased_by})
        before, after = forecast.rates(np.stack([space.original_row, eased]))[:, index(world, skill.name)]
        assert after > before + 0.05, skill.name


def test_rules_across_knobs_are_read_as_hints():
    """Many skeletons are refused where it is peaceful: so peace must be bad for meeting skeletons."""
    world, space = Crafter(), space_of(Crafter())
    mean, _ = space.prior()
    knob = [k.name for k in space.knobs].index("peaceful")
    column = mean[:, int(space.offsets[knob])]
    assert column[index(world, "defeat_skeleton")] == CONTRADICTED
    assert column[index(world, "collect_wood")] > 0


# -- forecast ----------------------------------------------------------------------------------------------------------


def test_the_forecast_learns_every_skill_and_gets_surer():
    world, space = VAULT(), space_of(VAULT())
    forecast = Forecast(space)
    easy = space.encode({**world.original.values, "alarm": 0.0})
    rows = np.stack([space.original_row, easy])
    _, before = forecast.log_odds(rows)
    shown, tried = np.array([[30, 6, 0], [57, 30, 3]], float), np.full((2, 3), 60.0)
    forecast.learn(rows, shown, tried)
    _, after = forecast.log_odds(rows)
    assert np.abs(forecast.rates(rows) - shown / tried).max() < 0.1 and (after < before).all()


def test_the_forecast_follows_an_agent_that_forgets():
    world, space = VAULT(), space_of(VAULT())
    forecast, row, tried = Forecast(space), space.original_row[None], np.full((1, 3), 40.0)
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
    doubtful = forecast.expected(space.original_row[None], r.learnability)
    forecast.cov *= 1e-6
    sure = forecast.expected(space.original_row[None], r.learnability)
    assert sure == pytest.approx(np.ones((1, 3)), abs=1e-4) and (doubtful < 0.8).all()


def test_counts_of_outcomes_and_of_the_original():
    world = LADDER()
    design = Design(setting=world.original.values, aim="sums")
    seen = Outcome(design=design, attempts=10, successes=4, skills={"sums": 4}, tried={"sums": 10})
    shown, tried = counts([seen], ["sums", "words"])
    assert shown.tolist() == [[4, 0]] and tried.tolist() == [[10, 10]], "a skill that is never asked for is not taught"
    scores = scored(world, Trained(skills={"sums": 0.5, "words": 0.0}, headline=0, reward=0, attempts=80), sums=0.25)
    shown, tried = original_counts(scores, ["sums", "words"])
    assert shown.tolist() == [[40, 0]] and tried.tolist() == [[80, 80]], "practice, which is free"
    shown, tried = original_counts(scored(world, sums=0.25), ["sums", "words"])
    assert shown.tolist() == [[3, 0]] and tried.tolist() == [[12, 12]], "the test, where nobody practised"


# -- choices -----------------------------------------------------------------------------------------------------------


def test_choices_begin_with_the_original_and_what_eases_the_aim():
    world, space = Crafter(), space_of(Crafter())
    choices = Choices(space, uniform_share=0.0, stray=0.1)
    rows = choices.sample(np.random.default_rng(0), np.full(2000, index(world, "place_table")))
    named = [k.name for k in space.knobs]
    assert (rows[:, named.index("start_wood")] > 0).mean() > 0.8
    assert (rows[:, named.index("start_iron")] == 0).mean() == pytest.approx(0.9, abs=0.03)


def test_reward_weighted_regression_by_hand():
    """One knob of three levels: the policy is (weighted counts + kl_coef * initial) / (weights + kl_coef)."""
    space = space_of(LADDER())
    choices = Choices(space, uniform_share=0.0, stray=0.1)
    topic, start = 1, choices.initial[1][1][0].copy()
    words = space.levels[topic].index("words")
    rows = np.stack([np.array([0, words]), np.array([0, 0])])
    kl = choices.learn(rows, np.array([[3.0, 0.0], [1.0, 0.0]]), np.array([3.0, 1.0]), kl_coef=2.0, max_kl=1e9)
    used = np.array([1.0, 0.0, 0.0]) + 3.0 * np.eye(3)[words]
    knobs = choices.tables[1]
    assert knobs[topic][0] == pytest.approx((used + 2.0 * start) / 6.0)
    assert knobs[topic][1] == pytest.approx(choices.initial[1][topic][1]), "the other aim had no weight"
    assert choices.aim_probabilities == pytest.approx([(3 + 1) / 6, (1 + 1) / 6])
    assert kl == pytest.approx(choices.kl_from_initial()) and kl > 0


def test_kl_is_that_of_aim_and_knobs_together():
    """Over all (aim, setting): sum of q log(q / p), divided by the number of choices, one aim and two knobs."""
    space = space_of(LADDER())
    choices = Choices(space, uniform_share=0.1, stray=0.2)
    rows = np.array([[i, j] for i in range(len(space.levels[0])) for j in range(3)])

    def log_probs():
        aims = np.log(choices.aim_probabilities)
        return np.stack([aims[a] + choices.log_prob(rows, np.full(len(rows), a)) for a in (0, 1)])

    before = log_probs()
    kl = choices.learn(rows[:2], np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([5.0, 0.0]), kl_coef=1.0, max_kl=1e9)
    assert kl == pytest.approx((np.exp(log_probs()) * (log_probs() - before)).sum() / 3)


def test_an_update_is_capped_and_nothing_becomes_impossible():
    space = space_of(LADDER())
    choices = Choices(space, uniform_share=0.05, stray=0.1)
    row = np.array([[0, 2]])
    for _ in range(50):
        assert choices.learn(row, np.array([[1e6, 1e6]]), np.array([1e6, 0.0]), kl_coef=1.0, max_kl=0.01) <= 0.0101
    assert choices.aim_probabilities[1] > 0.02, "not even the aim that was never worth anything"
    drawn = choices.sample(np.random.default_rng(0), np.zeros(20_000, np.int64))
    assert np.bincount(drawn[:, 1], minlength=3).min() > 20_000 * 0.05 / 3 / 2
    assert choices.effective_levels() > 1.05


def test_without_weight_nothing_is_learnt():
    choices = Choices(space_of(LADDER()), uniform_share=0.0, stray=0.1)
    before = choices.tables
    assert choices.learn(np.array([[0, 1]]), np.zeros((1, 2)), np.zeros(2), kl_coef=1.0, max_kl=1.0) == 0.0
    assert choices.tables is before


def test_log_probabilities_are_those_of_the_samples():
    space = space_of(LADDER())
    choices = Choices(space, uniform_share=0.1, stray=0.2)
    rows = np.array([[i, j] for i in range(len(space.levels[0])) for j in range(3)])
    assert np.exp(choices.log_prob(rows, np.zeros(len(rows), np.int64))).sum() == pytest.approx(1.0)


# -- archive and search ------------------------------------------------------------------------------------------------


def test_the_archive_keeps_what_was_shown_each_time():
    one, two = (Design(setting={"x": x}, aim="a") for x in (1, 2))
    archive = Archive(capacity=3, decay=0.5)
    for cycle, k in ((1, 0), (2, 5), (4, 9)):
        archive.add(cycle, [Outcome(design=one, attempts=10, successes=k, skills={"a": k})])
    assert [(cycle, outcome.share("a")) for cycle, outcome in archive.entries] == [(1, 0.0), (2, 0.5), (4, 0.9)]
    assert archive.age_weights().tolist() == [0.125, 0.25, 1.0]
    archive.add(5, [Outcome(design=two, attempts=0, successes=0)])
    assert archive.settings() == [two.setting, one.setting] and len(archive.entries) == 3, "the oldest left"
    other = Archive(capacity=3, decay=0.5)
    other.load(json.loads(json.dumps(archive.to_json())))
    assert other.entries == archive.entries


def test_the_search_finds_the_edge():
    """A forecast that knows the answer: success falls with the alarm; the best setting is where it is alpha."""
    space = space_of(VAULT())
    forecast = Forecast(space)
    forecast.mean[:], forecast.cov[:] = 0.0, np.eye(forecast.mean.shape[1]) * 1e-6
    knob = [k.name for k in space.knobs].index("alarm")
    forecast.mean[:, 0], forecast.mean[:, int(space.offsets[knob])] = -2.0, 4.0
    search = Search(
        Choices(space, 0.02, 0.1), forecast, r.gain(r.alpha_reward(0.5, 8.0)), lambda row: True, 6, 0.5, 1.0
    )
    row, _ = search.best(np.random.default_rng(0), np.ones(3), [], [])
    assert abs(forecast.rates(row[None])[0, 0] - 0.5) < 0.1
    again, _ = search.best(np.random.default_rng(0), np.ones(3), [], [row])
    assert (again != row).any(), "what this cycle has already is not taken twice"


def test_an_old_design_comes_again_when_it_is_at_the_edge_again():
    """In a world so large that no draw finds it: one odd mixture of twelve knobs is at alpha."""
    space = space_of(Crafter())
    forecast, edge = Forecast(space), r.gain(r.alpha_reward(0.5, 8.0))
    forecast.mean[:], forecast.cov[:] = 0.0, np.eye(forecast.mean.shape[1]) * 1e-6
    old = space.original_row.copy()
    for i, home in enumerate(space.original_row[:12]):
        old[i] = len(space.levels[i]) - 1 if home == 0 else 0
    moved = space.features(old[None])[0, 1 : int(space.offsets[-1])]
    forecast.mean[:, 1 : int(space.offsets[-1])] = np.sign(moved)  # each of them helps by its feature
    search = Search(Choices(space, 0.0, 1e-3), forecast, edge, lambda row: True, 1, 0.5, 1.0)

    def best(level, known):
        forecast.mean[:, 0] = level
        return search.best(np.random.default_rng(0), np.ones(len(space.skills)), known, [])[0]

    edge_of_old = -float(np.abs(moved).sum())
    assert (best(edge_of_old, [old]) == old).all(), "it is at alpha there, and nothing else is"
    assert (best(edge_of_old, []) != old).any(), "without the archive nobody would think of it"
    assert (best(0.0, [old]) != old).any(), "an agent that has become able enough for the original needs no old help"
