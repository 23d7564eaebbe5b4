"""Contract of every registered designer, and what each baseline and the tutor promise."""

import pytest
from helpers.sweep import DESIGNERS, LADDER, VAULT, WORLDS, Bench, scores

from curricle.designer import LeaveOptions
from curricle.designers.baselines import (
    Adversarial,
    EasyToHard,
    Fixed,
    FixedOptions,
    NoDesigns,
    Random,
    _easiest_first,
    declared_difficulty,
)
from curricle.designers.tutor import Tutor, TutorOptions
from curricle.errors import RunDamaged, UsageError
from curricle.records import Cycle, Design, Outcome, Skill
from curricle.worlds.crafter import Crafter


def played(designs, rate):
    return [Outcome(design=d, attempts=10, successes=round(10 * rate), skills={}) for d in designs]


def run_cycles(designer, world, cycles=3, n=4, bench=None):
    """What a designer proposes over some cycles in which little is learnt."""
    past, proposals = [], []
    for cycle in range(1, cycles + 1):
        designs = designer.propose(world.brief(cycle, cycles, past), n, bench or Bench(world))
        outcomes = played(designs, 0.2)
        designer.learn(outcomes, scores(world), Bench(world))
        past.append(Cycle(number=cycle, designed=tuple(outcomes), scores=scores(world)))
        proposals.append(designs)
    return proposals


@pytest.mark.parametrize("kind", WORLDS, ids=lambda cls: cls.id)
@pytest.mark.parametrize("cls", DESIGNERS, ids=lambda cls: cls.id)
def test_proposals_fit_every_world(cls, kind):
    if cls.id == "chatty-v1" and kind is not LADDER:
        pytest.skip("the toy's model knows the toy world only")
    world = kind()
    for designs in run_cycles(cls(world.Setting, seed=3), world):
        assert len(designs) == (0 if cls is NoDesigns else 4)
        for design in designs:
            world.setting(design.setting)
            assert design.aim in {skill.name for skill in world.skills}


@pytest.mark.parametrize("cls", DESIGNERS, ids=lambda cls: cls.id)
def test_proposals_are_deterministic_and_survive_a_checkpoint(cls, tmp_path):
    world = LADDER()
    first, bench = cls(world.Setting, seed=3), Bench(world)
    whole = run_cycles(cls(world.Setting, seed=3), world, 2)
    designs = first.propose(world.brief(1, 2), 4, bench)
    outcomes = played(designs, 0.2)
    first.learn(outcomes, scores(world), bench)
    first.save(tmp_path)
    second = cls(world.Setting, seed=3)
    second.load(tmp_path)
    past = [Cycle(number=1, designed=tuple(outcomes), scores=scores(world))]
    assert [designs, second.propose(world.brief(2, 2, past), 4, Bench(world))] == whole


def test_random_changes_with_the_cycle_and_the_seed():
    world = LADDER()
    one, two = (run_cycles(Random(world.Setting, seed=s), world) for s in (1, 2))
    assert one[0] != one[1] and one[0] != two[0]


def test_fixed_repeats_its_first_proposal():
    world = LADDER()
    first, second, third = run_cycles(Fixed(world.Setting, seed=1), world)
    assert first == second == third == run_cycles(Random(world.Setting, seed=1), world)[0]


def test_fixed_makes_so_many_variations_of_each_seed_and_takes_them_in_turn(tmp_path):
    class Seeded(LADDER):
        def examples(self, cycle):
            return [{"difficulty": 0.1 * cycle}, {"difficulty": 0.2}]

    world, fixed = Seeded(), Fixed(LADDER.Setting, FixedOptions(variations=5), seed=1)
    cycles = [fixed.propose(world.brief(cycle, 4), 4, Bench(world)) for cycle in range(1, 5)]
    made = Random(LADDER.Setting, seed=1).propose(world.brief(1, 4), 10, Bench(world))
    assert [made.index(d) for cycle in cycles for d in cycle] == [*range(10), *range(6)]


def test_without_seeds_fixed_makes_so_many_for_each_design_of_a_cycle():
    world, fixed = LADDER(), Fixed(LADDER.Setting, FixedOptions(variations=3), seed=1)
    cycles = [fixed.propose(world.brief(cycle, 4), 2, Bench(world)) for cycle in range(1, 5)]
    made = Random(LADDER.Setting, seed=1).propose(world.brief(1, 4), 6, Bench(world))
    assert [made.index(d) for cycle in cycles for d in cycle] == [*range(6), 0, 1]


@pytest.mark.parametrize(("variations", "count"), [(3.3, 7), (1.1, 3), (0.4, 1)])
def test_a_fraction_of_variations_is_rounded_up(variations, count):
    world = LADDER()
    fixed = Fixed(LADDER.Setting, FixedOptions(variations=variations), seed=1)
    fixed.propose(world.brief(1, 4), 2, Bench(world))
    assert len(fixed.designs) == count


def test_what_is_equally_easy_is_ranked_by_what_knobs_declare():
    crafter = Crafter()
    easy = crafter.setting({"iron": "very common", "area": 24}).values
    hard = crafter.setting({"iron": "rare", "zombie": "many"}).values
    original = crafter.original.values
    order = [declared_difficulty(Crafter.Setting, values) for values in (easy, original, hard)]
    assert order == sorted(order) and len(set(order)) == 3
    outcomes = [Outcome(design=Design(setting=values), attempts=1, successes=0) for values in (hard, easy, original)]
    assert [d.setting for d in _easiest_first(outcomes, Crafter.Setting)] == [easy, original, hard]


class Noting(Random):
    """Has a state of its own."""

    id = "noting-v1"
    notes = ""

    def save(self, folder):
        (folder / "notes.txt").write_text(self.notes)

    def load(self, folder):
        self.notes = (folder / "notes.txt").read_text()


@pytest.mark.parametrize("cls", [Fixed, EasyToHard, Adversarial])
def test_what_the_maker_saves_is_kept(cls, tmp_path):
    one, other = (cls(LADDER.Setting, cls.Options(of=f"{__file__}:Noting")) for _ in range(2))
    one.inner.notes = "what was dropped and why"
    one.save(tmp_path)
    other.load(tmp_path)
    assert other.inner.notes == "what was dropped and why"


def test_random_leaves_knobs_alone_that_it_is_told_to():
    world = Crafter()
    free, left = (
        [
            d.setting
            for d in Random(Crafter.Setting, LeaveOptions(leave=leave)).propose(world.brief(1, 1), 9, Bench(world))
        ]
        for leave in ((), ("energy",))
    )
    assert {setting["energy"] for setting in left} == {9} != {setting["energy"] for setting in free}
    assert [{**setting, "energy": 0} for setting in left] == [{**setting, "energy": 0} for setting in free]
    with pytest.raises(UsageError, match="leave = 'energi': there is no such knob: did you mean 'energy'"):
        Random(Crafter.Setting, LeaveOptions(leave=("energi",)))


def test_easy_to_hard_walks_down_one_ranking():
    world, bench = LADDER(), Bench(LADDER())
    designer = EasyToHard(world.Setting, seed=1)
    proposals = run_cycles(designer, world, cycles=5, bench=bench)
    assert bench.trials == [(16, 10_000)], "ranked once, by a validation agent that practised"
    ease = {o.design: o.skills["sums"] for o in bench.trial(designer.designs)}
    walked = [ease[design] for designs in proposals[:4] for design in designs]
    assert walked == sorted(walked, reverse=True) and len({d for p in proposals[:4] for d in p}) == 16
    assert proposals[4] == proposals[3], "at the end the hardest stay"


def test_adversarial_takes_the_hardest_and_ranks_anew():
    world, bench = LADDER(), Bench(LADDER())
    designer = Adversarial(world.Setting, seed=1)
    proposals = run_cycles(designer, world, bench=bench)
    assert bench.trials == [(16, None)] * 3, "ranked each cycle by the current agent"
    ease = sorted(o.skills["sums"] for o in bench.trial(designer.designs))
    assert sorted(o.skills["sums"] for o in bench.trial(proposals[0])) == ease[:4]


def tutor(world, **options):
    return Tutor(world.Setting, TutorOptions(**options))


def aims(designer, world, n, **rates):
    past = [Cycle(number=1, designed=(), scores=scores(world, **rates))]
    return [d.aim for d in designer.propose(world.brief(2, 4, past), n, Bench(world))]


def test_the_tutor_aims_at_the_weakest_skill_in_reach():
    world = VAULT()
    assert aims(tutor(world), world, 3) == ["open_1"] * 3, "nothing else is in reach"
    assert aims(tutor(world), world, 1, open_1=0.95) == ["open_2"]
    assert aims(tutor(world), world, 2, open_1=0.6, open_2=0.3) == ["open_3", "open_2"], "all in reach: weakest first"
    assert aims(tutor(world), world, 2, open_1=0.95, open_2=0.95) == ["open_3", "open_3"]
    assert set(aims(tutor(world), world, 3, open_1=1.0, open_2=1.0, open_3=1.0)) == {"open_1", "open_2", "open_3"}


def test_the_tutor_repeats_a_skill_with_less_handed_out():
    designs = tutor(VAULT()).propose(VAULT().brief(1, 4), 3, Bench(VAULT()))
    alarms = [design.setting["alarm"] for design in designs]
    assert alarms == sorted(alarms) and len(set(alarms)) == 3


def test_the_tutor_hands_out_less_as_the_agent_gets_better():
    world, designer = VAULT(), tutor(VAULT())
    alarms, past = [], []
    for cycle in range(1, 7):
        (design,) = designer.propose(world.brief(cycle, 9, past), 1, Bench(world))
        alarms.append(design.setting["alarm"])
        designer.learn(played([design], 0.9 if cycle < 6 else 0.1), scores(world), Bench(world))
    assert alarms == sorted(alarms) and alarms[0] == pytest.approx(0.1) and alarms[4] == pytest.approx(1.0)
    (easier,) = designer.propose(world.brief(7, 9, past), 1, Bench(world))
    assert easier.setting["alarm"] < alarms[5], "and more again when it fails"


def test_the_tutor_eases_every_knob_when_a_skill_says_nothing():
    class Plain(VAULT):
        id = "plain-v1"
        skills = (Skill(name="open_1"),)

    (design,) = tutor(Plain()).propose(Plain().brief(1, 4), 1, Bench(Plain()))
    assert design.setting == {"dials": 1, "open_doors": 0, "alarm": 0.0}, "of open doors nothing is said"


@pytest.mark.parametrize("cls", [Fixed, Tutor])
def test_damaged_state_is_named(cls, tmp_path):
    designer = cls(VAULT.Setting)
    designer.save(tmp_path)
    (path,) = tmp_path.iterdir()
    for content in (b"junk", b"[3]", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(RunDamaged, match=str(tmp_path)):
            designer.load(tmp_path)
