"""In a world with known success rates the policy steers to alpha, follows, does not swing and stays varied."""

import importlib
import statistics

import pytest
from helpers.paths import ROOT


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "alpha-steering"))
    return importlib.import_module("steering")


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("agent", ["constant", "improves", "forgets"])
def test_success_comes_to_alpha_and_stays(study, agent, alpha):
    seeds = [study.measures(study.steer({"id": "policy", "alpha": alpha}, agent, seed), alpha) for seed in range(3)]
    found = {name: statistics.mean(seed[name] for seed in seeds) for name in seeds[0]}
    assert abs(found["success"] - alpha) < 0.1
    assert found["in_band"] > 0.4, "random designs: at most 0.15"
    assert found["deviation"] < 0.15
    assert found["echo"] > -0.5, "an oscillation would have a negative autocorrelation"
    assert found["diversity"] > 0.2, "not one design over and over"


@pytest.mark.slow
def test_it_is_better_at_it_than_random_and_the_tutor(study):
    runs = {name: study.measures(study.steer(study.DESIGNERS[name], "improves", 0), 0.5) for name in study.DESIGNERS}
    assert runs["policy"]["in_band"] > max(runs[name]["in_band"] for name in ("tutor", "random")) + 0.2
    assert runs["policy"]["distance"] < runs["policy, no search"]["distance"]


def test_the_ranking_bound_holds_in_simulation(study):
    lines = study.ranking(draws=2000)
    assert all(line["wrong"] <= line["bound"] + 0.02 for line in lines)
    assert min(line["bound"] for line in lines) < 0.01 < max(line["wrong"] for line in lines), "and says something"


@pytest.mark.slow
def test_the_data_of_the_study_is_what_the_code_gives(study):
    kept = study.read_lines(study.STEERING)
    (line,) = [x for x in kept if (x["designer"], x["agent"], x["alpha"], x["seed"]) == ("policy", "improves", 0.5, 1)]
    again = study.measures(study.steer({"id": "policy", "alpha": 0.5}, "improves", 1), 0.5)
    assert line == pytest.approx({**line, **again}, abs=0.05)
