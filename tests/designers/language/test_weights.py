"""What the environment policy learns from: weights, counts, and signs of trouble, by hand."""

import math

import numpy as np
import pytest
from helpers.language_policies import Told, script
from helpers.language_policies import policy as picking
from helpers.sweep import scores
from helpers.tiny_model import Pick, tiny
from helpers.toys import LadderSetting

from curricle.designers import reward as watch
from curricle.designers.language import Language, LanguageOptions
from curricle.designers.language import designer as language
from curricle.designers.language.designer import pooled
from curricle.records import Design, Outcome


def policy(**options):
    return Language(LadderSetting, LanguageOptions(model=tiny(), device="cpu", **options))


def test_weights_of_the_regression():
    """R_env = exp(-2 (p - .5)^2), weight exp(R_env), inside |p - .5| <= .1 only."""
    counts = [(0, 10), (4, 10), (5, 10), (10, 10), (2, 3)]
    rewards = np.array([math.exp(-2 * (k / n - 0.5) ** 2) for k, n in counts])
    strict = policy()._weights(counts, rewards, range(5))
    assert strict.tolist() == pytest.approx([0, math.exp(math.exp(-0.02)), math.e, 0, 0])
    free = policy(band="off", strength=2.0)._weights(counts, rewards, range(5))
    assert free.tolist() == pytest.approx([math.exp(2 * r) for r in rewards[:4]] + [0]), "three attempts are too few"


def test_a_cold_start_has_a_way_out():
    counts, rewards = [(0, 32), (8, 32), (0, 32)], np.ones(3)
    assert policy(cold_start=False)._weights(counts, rewards, range(3)).tolist() == [0, 0, 0]
    out = policy()._weights(counts, rewards, range(3))
    assert out[1] > 0 and out[1] == out.max(), "the design nearest to the band leads"
    for counts in ([(0, 8), (1, 8), (0, 8)], [(27, 32), (28, 32), (25, 32)], [(0, 8)] * 3):
        assert policy()._weights(counts, rewards, range(3)).tolist() == [0, 0, 0], (
            "what is alike but for chance teaches nothing"
        )
    for counts in ([(2, 10)] * 8 + [(7, 10)] * 8, [(0, 10)] * 10 + [(9, 10)], [(0, 64)] * 10 + [(3, 64)] * 3):
        out = policy()._weights(counts, np.ones(len(counts)), range(len(counts)))
        assert out[-1] > 2 * out[0], "few attempts leave much open, and yet some are nearer"
    sure = [(0, 56), (56, 56), (0, 48), (63, 64)]
    assert not policy()._weights(sure, np.ones(4), range(4)).any(), "all are as far from alpha"
    out = policy()._weights([*sure, (41, 48)], np.ones(5), range(5))
    assert out[4] > 0.5 and out[:4].max() < 0.02, "and the one that is nearer leads"
    assert policy(alpha=0.8)._weights(sure, np.ones(4), range(4)).round().tolist() == [0, 3, 0, 3], "1 is nearer than 0"


def test_designs_that_are_counted_together_are_one_when_they_are_compared():
    """Four groups that differ by chance (chi-square 8.7 with 3 degrees) stay so, however many designs each has."""
    groups, rewards = [(20, 128), (11, 128), (26, 128), (14, 128)], np.ones(64)
    assert not policy()._weights(groups * 16, rewards, list("abcd") * 16).any()
    assert policy()._weights(groups * 16, rewards, range(64)).any(), "64 designs with such counts do differ"


def test_one_p_for_the_batch_is_learnt_if_it_is_in_the_band():
    one, rewards = policy(p_over="batch"), np.full(4, 0.9)
    assert one._weights([(22, 40)] * 4, rewards, [None] * 4).tolist() == pytest.approx([math.exp(0.9)] * 4)
    assert one._weights([(6, 40)] * 4, rewards, [None] * 4).tolist() == [0] * 4


@pytest.mark.parametrize(("over", "counted"), [("task", [0.2, 0.8]), ("group", [0.5, 0.5]), ("batch", [0.5, 0.5])])
def test_learning_goes_by_what_success_is_counted_over(over, counted):
    world, designer = Pick(), picking(p_over=over, text="off", aim="task", oversample=1.0, max_rounds=1)
    script(designer, {"letter": "a"}, {"letter": "b"})
    designs = designer.propose(world.brief(1, 2), 2, Told(world))
    outcomes = [Outcome(design=d, attempts=10, successes=k) for d, k in zip(designs, (2, 8), strict=True)]
    designer.learn(outcomes, scores(world), Told(world))
    assert [row.info["p"] for row in designer.rows] == counted
    assert [row.weight > 0 for row in designer.rows] == [over != "task"] * 2, "0.2 and 0.8 are not in the band"


def cycles(designer, *tried):
    """Let it write `letters` in each cycle, of which so many are solved of 10 tries each; what it told last."""
    world, told = Pick(), Told(Pick())
    for cycle, (letters, *solved) in enumerate(tried, len(designer.history) + 1):
        script(designer, *({"letter": letter} for letter in letters))
        designs = designer.propose(world.brief(cycle, 9), len(letters), told)
        counts = [k if isinstance(k, tuple) else (k, 10) for k in solved]
        outcomes = [Outcome(design=d, successes=k, attempts=n) for d, (k, n) in zip(designs, counts, strict=True)]
        designer.learn(outcomes, scores(world), told)
    return told.figures


def choosing(**options):
    return picking(text="off", aim="task", oversample=1.0, max_rounds=1, **options)


def test_what_is_tried_again_counts_as_it_does_now():
    """The agent has outgrown the letter a: no old record teaches it any more, and it is looked for something else."""
    designer, kept = choosing(replay_ratio=1.0), []
    for tried in (("ab", 5, 5), ("ac", 10, 0), ("ac", 10, 5)):
        cycles(designer, tried)
        kept.append([(row.info["cycle"], row.truth["letter"]) for row in designer.rows if row.weight > 0])
    assert kept == [[(1, "a"), (1, "b")], [(1, "b")], [(1, "b"), (2, "c"), (3, "c")]]
    assert [row.info["p"] for row in designer.rows] == [0.5, 0.5, 1.0, 0.0, 1.0, 0.5], "what was seen stays"


def test_a_few_tries_more_take_nothing_back():
    designer = choosing(n=5)
    cycles(designer, ("ab", 5, 0))
    figures = cycles(designer, ("ab", (1, 2), (0, 0)))
    assert [row.weight > 0 for row in designer.rows] == [True, False, False, False]
    assert designer.rows[3].info["p"] is None and designer.rows[3].info["reward"] is None, "nobody tried it"
    assert figures["design/reward"] == pytest.approx(designer.rows[2].info["reward"]) == pytest.approx(1.0)


def test_what_is_not_the_policys_own_does_not_end_the_search():
    """The second of two is not the policy's where it is stuck; 3 of 10 is nearer than 10 of 10, and not in the band."""
    designer = choosing(n=10)
    courses = (((10, 0), 1), ((10, 5), 1), ((10, 3), 1), ((10, 0), 2), ((5, 0), 0))
    for cycle, (solved, stuck) in enumerate(courses, 1):
        figures = cycles(designer, ("ab", *solved))
        assert designer.stuck == figures["design/stuck"] == stuck, cycle


def test_what_hardly_counts_is_not_learnt_and_batches_count_by_their_weight(monkeypatch):
    """One design of five is solved now and then; four never, and a batch with them alone would teach one of those."""
    seen = []

    def update(causal, examples, kl, cap, micro, total):
        seen.append([example.weight / total for example in examples])
        return {"loss": 0.0}

    monkeypatch.setattr(language, "update", update)
    figures = cycles(choosing(n=10, batch_size=4), ("abcab", (0, 40), (0, 40), (10, 40), (0, 40), (0, 40)))
    assert figures["design/kept"] == 1.0 and seen == [[1.0]]
    seen.clear()
    cycles(choosing(n=10, batch_size=2), ("abc", 5, 4, 6))
    pair, (alone,) = sorted(seen, key=len, reverse=True)
    assert alone != 1 and 2 * sum(pair) + alone == pytest.approx(3), "of all, not of its own batch"


def test_what_success_is_counted_over():
    """Equal designs are one design, and only that."""
    designs = [Design(setting={"most": most}) for most in (1, 2, 3, 1)]
    outcomes = [Outcome(design=d, attempts=10, successes=k) for d, k in zip(designs, (2, 4, 9, 7), strict=True)]
    mine = list(enumerate(outcomes))
    rows = [type("Row", (), {"info": {"group": g}})() for g in ("1/a", "1/a", "1/b", "1/b")]
    for over, counts in (
        ("task", [(9, 20), (4, 10), (9, 10), (9, 20)]),
        ("group", [(6, 20), (6, 20), (16, 20), (16, 20)]),
        ("batch", [(22, 40)] * 4),
    ):
        designer = policy(p_over=over)
        designer.rows = rows
        assert pooled(designer._keys(mine), outcomes) == counts


def test_signs_of_a_co_evolution():
    assert watch.band([0.0, 0.45, 0.6, 1.0], 0.5, 0.1) == {
        "success": 0.5125,
        "in_band": 0.5,
        "solved": 0.25,
        "unsolved": 0.25,
    }
    steady, round_and_round = [(0.1, 1.0), (0.3, 2.0), (0.5, 3.0)], [(0.1, 1.0), (0.5, 1.0), (0.1, 1.0)]
    assert watch.oscillation(steady) == pytest.approx(0) and watch.oscillation(round_and_round) == pytest.approx(1)


def test_the_alarm_needs_a_real_rise_and_a_real_fall(caplog):
    """Means of three and three: by hand 0.2 -> 0.5 with errors of 0.08, 30 -> 20 points with errors of 0.8."""
    success, score = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [31.0, 30, 29, 21, 20, 19]
    wrong = list(zip(success, score, strict=True))
    assert watch.alarm(wrong) and not watch.alarm(wrong[1:]), "six cycles at least"
    assert watch._change(score) == pytest.approx((-10, math.sqrt((1 + 1) / 3)))
    for other in (
        list(zip(success, score[::-1], strict=True)),  # the score rises too
        list(zip(success[::-1], score, strict=True)),  # success falls too
        list(zip(success, [30, 36, 24, 30, 18, 36], strict=True)),  # a fall, but less than the scores vary
        list(zip([0.2, 0.4, 0.0, 0.3, 0.5, 0.1], score, strict=True)),  # a rise, but less than success varies
        list(zip(success, [30.2, 30.2, 30.2, 30, 30, 30], strict=True)),  # a fall that nobody would mind
    ):
        assert not watch.alarm(other), other
    rng = np.random.default_rng(0)
    noise = [list(zip(rng.normal(0.4, 0.05, 10), rng.normal(30, 2, 10), strict=True)) for _ in range(200)]
    assert sum(any(watch.alarm(run[:n]) for n in range(11)) for run in noise) < 10, "luck seldom sounds it in a run"
    for cycle in range(1, 7):
        watch.warn(wrong[:cycle], cycle)
    watch.warn([*wrong, (0.7, 15.0)], 7)
    assert [r.message.partition(":")[0] for r in caplog.records] == ["cycle 6"], "said once"


def test_alpha_and_beta_and_the_bounds_on_kl_reach_what_is_trained(monkeypatch):
    """R_env = exp(-5 (p - .3)^2), weight exp(2 R_env), by hand."""
    given, world, told = [], Pick(), Told(Pick())

    def update(causal, examples, kl, cap, micro, total):
        given.append((kl, cap, micro, sorted(example.weight for example in examples)))
        return {"loss": 0.0}

    monkeypatch.setattr(language, "update", update)
    one = picking(
        alpha=0.3, beta=5.0, k_min=0.2, strength=2.0, kl_coef=0.07, max_kl=0.5, microbatch_size=3, n=10, text="off"
    )
    designs = one.propose(world.brief(1, 2), 3, told)
    outcomes = [Outcome(design=d, attempts=10, successes=k) for d, k in zip(designs, (3, 4, 9), strict=True)]
    assert len({design.setting for design in designs}) == 3
    one.learn(outcomes, scores(world), told)
    weights = [math.exp(2 * math.exp(-5 * 0.1**2)), math.exp(2)]
    assert given == [(0.07, 0.5, 3, pytest.approx(weights))], "the third, of p = .9, is out of the band"  # type: ignore[comparison-overlap]
