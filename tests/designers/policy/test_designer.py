"""The designer that learns: what it promises as a whole."""

import numpy as np
import pytest
from helpers.sweep import VAULT, Bench, scored, space_of
from pydantic import ValidationError, model_validator

from curricle.designers.policy import Policy, PolicyOptions
from curricle.designers.policy.designer import diversity
from curricle.errors import RunDamaged
from curricle.records import Cycle, Design, Frozen, Outcome, Skill
from curricle.setting import Setting, knob
from curricle.worlds.crafter import Crafter
from curricle.worlds.text.tools.world import Tools


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


@pytest.mark.parametrize(
    "wrong", [{"repeat_discount": 0.0}, {"strength": 2000.0}, {"shape": "learnability", "alpha": 0.3}]
)
def test_options_that_make_no_sense_are_refused(wrong):
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


@pytest.mark.parametrize(
    "options", [{}, {"search_rounds": 0}, {"explore": 1.0}, {"shape": "learnability"}, {"of": "random"}]
)
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
    assert not fresh.started


def test_what_the_designer_it_starts_from_saves_is_saved(tmp_path):
    world, options = VAULT(), PolicyOptions(of="fixed", of_options={"of": "random"})
    one, two = Policy(world.Setting, options, seed=3), Policy(world.Setting, options, seed=4)
    first = one.propose(world.brief(1, 4), 3, Bench(world))
    one.save(tmp_path)
    two.load(tmp_path)
    assert [design.setting for design in two.inner.designs] == [design.setting for design in first]  # type: ignore[attr-defined]


def test_a_checkpoint_of_another_world_is_named(tmp_path):
    world = VAULT()
    designer = Policy(world.Setting, seed=0)
    designer.propose(world.brief(1, 4), 2, Bench(world))
    designer.forecast.mean = designer.forecast.mean[:, :-1]
    designer.save(tmp_path)
    with pytest.raises(RunDamaged, match=r"mean has the shape \(3, \d+\), this world needs"):
        Policy(world.Setting).load(tmp_path)


def test_cycles_without_an_attempt_and_texts_it_cannot_place_teach_nothing():
    world = VAULT()
    designer = Policy(world.Setting, seed=0)
    designs = designer.propose(world.brief(1, 4), 3, Bench(world))
    before = designer.choices.tables
    designer.learn([Outcome(design=d, attempts=0, successes=0) for d in designs], scored(world), Bench(world))
    assert designer.choices.tables is before

    tasks = Tools()
    writer = Policy(tasks.Setting, PolicyOptions(of="random"), seed=0)
    assert writer.propose(tasks.brief(1, 4), 2, Bench(tasks))
    text = next(k.name for k in tasks.Setting.knobs() if k.kind == "text")
    odd = Design(setting=Frozen({**tasks.original.values, text: "a task of its own"}), aim=tasks.skills[0].name)
    writer.learn([Outcome(design=odd, attempts=9, successes=4)], scored(tasks), Bench(tasks))
    assert not writer.archive.entries, "it knows a grid of settings, and this is none of them"


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
    assert not designer.started and not designer.archive.entries
