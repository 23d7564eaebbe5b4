"""The alpha-curriculum's reward against values worked out by hand, and the traps of small counts."""

import math

import numpy as np
import pytest

from curricle.designers import reward as r


def test_the_bell_by_hand():
    p = np.array([0.0, 0.25, 0.5, 1.0])
    assert r.alpha_reward(0.5, 2.0)(p) == pytest.approx([math.exp(-0.5), math.exp(-0.125), 1.0, math.exp(-0.5)])
    assert r.alpha_reward(0.3, 4.0)(np.array([0.8])) == pytest.approx([math.exp(-1.0)])


def test_learnability_by_hand():
    assert r.learnability(np.array([0.0, 0.1, 0.5, 1.0])) == pytest.approx([0.0, 0.36, 1.0, 0.0])


def test_the_published_filter_passes_one_count_of_four_and_needs_attempts():
    assert [k for k in range(5) if r.passes(k, 4, 0.5, 0.1)] == [2]
    assert [k for k in range(9) if r.passes(k, 8, 0.5, 0.1)] == [4]
    assert [k for k in range(6) if r.passes(k, 5, 0.5, 0.1)] == [2, 3], "the edge of the band is inside it"
    assert not r.passes(0, 0, 0.5, 0.1)


def test_posteriors_are_beta_distributions():
    weight = r.posterior([(0, 0), (3, 4), (70, 100)])
    assert weight.sum(1) == pytest.approx([1.0] * 3)
    assert weight @ r.GRID == pytest.approx([1 / 2, 4 / 6, 71 / 102], abs=1e-6), "mean of Beta(k + 1, n - k + 1)"
    assert (weight @ r.GRID**2 - (weight @ r.GRID) ** 2)[1] == pytest.approx(4 * 2 / (6**2 * 7), abs=1e-6)
    assert r.posterior([(10**6, 10**6)])[0].sum() == pytest.approx(1.0), "many attempts do not break the grid"


def test_expected_rewards_by_hand():
    """Of 4p(1 - p) under Beta(a, b): 4 ab / ((a + b)(a + b + 1))."""
    found = r.expected(r.learnability, [(0, 0), (2, 4), (0, 4)])
    assert found == pytest.approx([4 / 6, 4 * 9 / 42, 4 * 5 / 42], abs=1e-5)
    assert r.expected(r.alpha_reward(0.5, 2.0), [(1000, 2000)]) == pytest.approx([1.0], abs=1e-3)


def test_chance_of_the_band_by_hand():
    assert r.in_band([(0, 0)], 0.5, 0.1) == pytest.approx([0.2], abs=2e-3), "nothing tried: the width of the band"
    assert r.in_band([(1, 1)], 0.5, 0.1) == pytest.approx([0.6**2 - 0.4**2], abs=2e-3), "Beta(2, 1) has F(p) = p^2"
    few, many = r.in_band([(2, 4), (50, 100)], 0.5, 0.1)
    assert few < 0.4 and many > 0.9


def test_confidence_grows_from_nothing():
    none, one, four, many = r.confidence([(0, 0), (1, 1), (2, 4), (500, 1000)])
    assert none == pytest.approx(0.0, abs=1e-5)
    assert one == pytest.approx(1 - (1 / 18) / (1 / 12), abs=1e-4) and none < one < four < many < 1


def test_the_filter_counts_what_may_be_inside_the_band():
    chance = r.admitted([(2, 4), (1, 4), (0, 0), (40, 40)], 0.5, 0.1)
    assert chance[0] > chance[1] > 0 == chance[2], "three of four counts of n = 4 are not thrown away"
    assert chance[3] < 1e-6


@pytest.mark.parametrize("k_min", [0.1, 1e-4])
@pytest.mark.parametrize("counts", [[(0, 40), (6, 40), (0, 40)], [(40, 40), (34, 40), (40, 40)]])
def test_a_cold_start_cannot_block_every_update(counts, k_min):
    assert not any(r.passes(k, n, 0.5, k_min) for k, n in counts)
    weight = r.weights(counts, r.alpha_reward(0.5, 2.0), 0.5, k_min, strength=1.0)
    assert weight[1] > 0.0005 and weight[1] > 3 * max(weight[0], weight[2]), "towards the one nearest to the band"


def test_no_update_on_chance():
    bell = r.alpha_reward(0.5, 8.0)

    def weigh(counts):
        return r.weights(counts, bell, 0.5, 0.1, strength=1.0)

    assert weigh([]).shape == (0,)
    assert not weigh([(0, 0), (0, 0)]).any(), "nobody tried"
    assert not weigh([(0, 30)] * 4).any(), "all fail alike"
    assert not weigh([(0, 40), (0, 4), (0, 40)]).any(), "the one that was tried least is not the best"
    assert not weigh([(0, 40), (2, 40), (0, 40)]).any(), "two of forty happen"
    few, many, none = weigh([(1, 2), (50, 100), (0, 100)])
    assert 0 < few < many / 5 and none == 0.0, "two attempts are little to go by"
    assert weigh([(50, 100), (0, 0), (0, 100)])[1] == 0.0


def test_weights_follow_exp_of_the_reward():
    """With many attempts the posterior is a point: the weight is exp(l (R - baseline)) - 1."""
    bell, counts = r.alpha_reward(0.5, 2.0), [(1000, 2000), (0, 2000), (2000, 2000)]
    rewards = r.expected(bell, counts)
    baseline = rewards.mean()
    found = r.weights(counts, bell, 0.5, 0.1, strength=3.0)
    assert found[0] == pytest.approx(math.expm1(3.0 * (rewards[0] - baseline)), rel=0.01)
    assert found[1:] == pytest.approx([0.0, 0.0])


def test_with_the_papers_beta_weights_inside_the_band_hardly_differ():
    inside = r.alpha_reward(0.5, 2.0)(np.array([0.4, 0.5]))
    assert np.exp(inside[1]) / np.exp(inside[0]) < 1.02


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("beta", [2.0, 8.0])
def test_nothing_is_learnt_at_either_end(alpha, beta):
    gain = r.gain(r.alpha_reward(alpha, beta))
    assert gain(np.array([0.0, 1.0])) == pytest.approx([0.0, 0.0])
    assert gain(np.array([alpha])) == pytest.approx([1.0])
    assert r.GRID[gain(r.GRID).argmax()] == pytest.approx(alpha, abs=1e-3)


def test_the_ranking_bound_by_hand():
    assert r.ranking_error(0.0, 0.5, 128) == pytest.approx(4 * math.exp(-2 / 9 * 0.25 * 128))
    assert r.ranking_error(0.0, 0.1, 4) == 1.0, "a probability at most"


def test_rates_that_differ_only_by_chance_alone_are_alike():
    assert (
        r.differ_only_by_chance([])
        and r.differ_only_by_chance([(3, 9)])
        and r.differ_only_by_chance([(0, 9), (0, 2)])
        and r.differ_only_by_chance([(9, 9), (2, 2)])
    )
    assert r.differ_only_by_chance([(5, 10), (6, 10)])
    chi = 2 * 5**2 / (10 * 0.25)  # (k - np)^2 / np(1 - p), twice, with p = 1/2
    assert chi == 20 > 1 + 3 * np.sqrt(2) and not r.differ_only_by_chance([(0, 10), (10, 10)])
    rng, drawn = np.random.default_rng(0), 400
    told = [r.differ_only_by_chance([(int(k), 40) for k in rng.binomial(40, 0.8, 16)]) for _ in range(drawn)]
    assert sum(told) / drawn > 0.97
    assert not r.differ_only_by_chance([(int(k), 40) for k in rng.binomial(40, [0.8] * 14 + [0.4] * 2)])
