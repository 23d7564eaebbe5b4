"""The chain of a run: links in order, rungs and gaps."""

import pytest
from helpers.command_line import curricle

from curricle import config
from curricle.errors import UsageError
from curricle.records import Design, Frozen, Outcome, Skill
from curricle.views.chain import in_order, links, make_links
from curricle.worlds.crafter import Crafter


def outcome(setting, **rates):
    """Ten attempts in a setting, with so many that showed each skill."""
    design = Design(setting=Frozen(setting), aim=None)
    return Outcome(design=design, attempts=10, successes=0, skills=Frozen(rates))


def test_links_stand_after_what_they_need():
    ordered = [skill.name for skill in in_order(Crafter.skills)]
    assert sorted(ordered) == sorted(skill.name for skill in Crafter.skills)
    for skill in Crafter.skills:
        assert all(ordered.index(need) < ordered.index(skill.name) for need in skill.needs)


def test_each_state_of_a_link():
    skills = [Skill(name=name) for name in ("easy", "half", "rung", "never", "cliff", "untried")]
    rates = {"easy": 0.9, "half": 0.5, "rung": 0.0, "never": 0.0, "cliff": 0.1, "untried": 0.0}
    near = outcome({"near": 1}, rung=9, cliff=10)
    nearer = outcome({"near": 2}, rung=4, cliff=10)
    found = {link.skill.name: link for link in make_links(skills[:-1], rates, [near, nearer, near])}
    assert {name: link.state for name, link in found.items()} == {
        "easy": "mastered",
        "half": "learning in the original",
        "rung": "has a rung",
        "never": "gap: not shown in any setting",
        "cliff": "gap: nothing between this setting and the original",
    }
    assert found["rung"].best == (0.9, 20, Frozen({"near": 1})), "equal settings count together"
    assert found["rung"].rung == (0.4, 10, Frozen({"near": 2}))
    (untried,) = make_links(skills[-1:], rates, [])
    assert untried.state == "gap: no setting was tried" and untried.is_gap


def test_few_attempts_say_nothing():
    one = Outcome(design=Design(setting=Frozen({"near": 1}), aim=None), attempts=7, successes=0, skills=Frozen(a=7))
    (link,) = make_links([Skill(name="a")], {"a": 0.0}, [one])
    assert link.best is None


def test_the_command_shows_a_run_and_refuses_another_world(at_root, tmp_path):
    plain = {
        "world": {"id": "examples/vault.py:Vault"},
        "designer": {"id": "tutor"},
        "agent": {"id": "tabular"},
        "schedule": {"cycles": 2, "designs": 2, "per_cycle": 4000, "final": 0},
    }
    folder = tmp_path / "run"
    config.start(config.resolve(plain), folder)
    done = curricle("chain", "examples/vault.py:Vault", folder)
    assert done.returncode == 0, done.stderr
    assert "best setting known" in done.stdout and "state" in done.stdout
    for name in ("crafter", "chains"):
        refused = curricle("chain", name, folder)
        assert refused.returncode == 2 and "is a run with other skills" in refused.stderr.replace("\n", " ")
    with pytest.raises(UsageError, match="other skills"):
        links(folder, Crafter.skills, 4)
