"""The loop does what its page says: order, budgets, equal totals, and what it refuses."""

import pytest
from helpers.paths import ROOT
from helpers.sweep import LADDER, VAULT

from curricle import config
from curricle.agents.tabular import Tabular
from curricle.designer import Designer
from curricle.errors import AgentError, DesignerError
from curricle.loop import Loop, Schedule
from curricle.records import Design, Outcome, Scores
from curricle.run import Run, read_metrics, read_records, read_steps
from curricle.tracking.watcher import Watcher

TOYS = f"{ROOT}/tests/helpers/toys.py"
SMALL = {
    "cycles": 3,
    "designs": 2,
    "per_cycle": 300,
    "final": 100,
    "save_every": 100,
    "test_seeds": 3,
    "test_episodes": 20,
}


def start(folder, world=f"{TOYS}:Ladder", **sections):
    sections.setdefault("log", {"tensorboard": False})
    sections["schedule"] = {**SMALL, **sections.get("schedule", {})}
    return config.start(config.resolve({"world": {"id": world}, **sections}), folder)


@pytest.mark.parametrize(
    ("ratio", "designed", "original"),
    [
        ("1:1", 120_000, 120_000),
        ("5:1", 200_000, 40_000),
        ("2:1", 160_000, 80_000),
        ("1:0", 240_000, 0),
        ("0:1", 0, 240_000),
    ],
)
def test_ratio(ratio, designed, original):
    schedule = Schedule(ratio=ratio)
    assert (schedule.designed, schedule.original) == (designed, original)


def test_the_default_is_envgens_crafter_run():
    s = Schedule()
    assert (s.cycles, s.designs, s.designed, s.original, s.final, s.test_seeds) == (
        4,
        4,
        120_000,
        120_000,
        1_000_000,
        12,
    )
    assert s.cycles * (s.designed + s.original) + s.final == 1_960_000


@pytest.mark.slow
@pytest.mark.parametrize("designer", ["none", "random", "tutor"])
@pytest.mark.parametrize("ratio", ["1:1", "2:1", "1:0", "0:1"])
def test_every_designer_gets_the_same_total(designer, ratio, tmp_path):
    start(tmp_path / "run", designer={"id": designer}, schedule={"ratio": ratio})
    outcomes = read_records(tmp_path / "run", Outcome)
    assert sum(o.spent for _, o in outcomes) == 3 * 300 + 100
    split = {
        phase: sum(o.spent for s, o in outcomes if s.phase == phase and s.cycle <= 3)
        for phase in ("designed", "original")
    }
    assert split["designed"] == 3 * Schedule(**SMALL | {"ratio": ratio}).designed


def test_without_designs_the_agent_practises_in_the_original(tmp_path):
    start(tmp_path / "run", designer={"id": "none"})
    assert read_records(tmp_path / "run", Design) == []
    assert {o.design.by for _, o in read_records(tmp_path / "run", Outcome)} == {"original"}


def test_scores_hold_mean_std_and_n_over_test_seeds(tmp_path):
    start(tmp_path / "run", designer={"id": "none"}, agent={"rate": 0.008}, schedule={"per_cycle": 600, "cycles": 8})
    for _, scores in read_records(tmp_path / "run", Scores):
        assert set(scores.skills) == {"sums", "words"}
        assert all(score.n == 3 for score in scores.skills.values())
    assert any(score.std > 0 for _, s in read_records(tmp_path / "run", Scores) for score in s.skills.values())


def test_the_student_learns_more_with_a_tutor_than_without(tmp_path):
    """With closed-form learning: tasks far above the student teach it almost nothing."""
    budget = {"per_cycle": 600, "cycles": 8, "final": 100}
    slow = {"rate": 0.004}
    alone = start(tmp_path / "none", designer={"id": "none"}, agent=slow, schedule=budget)
    taught = start(tmp_path / "tutor", designer={"id": "tutor"}, agent=slow, schedule=budget)
    assert alone.skills["sums"].mean < 0.1 < 0.9 < taught.skills["sums"].mean


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        start(tmp_path / name, seed=seed, designer={"id": "random"})
    read = {name: (tmp_path / name / "outcomes.jsonl").read_bytes() for name in "abc"}
    assert read["a"] == read["b"] != read["c"]


def test_a_test_says_what_it_says_in_the_metrics_too(tmp_path):
    start(tmp_path / "run", designer={"id": "easy_to_hard", "validation_practice": 50})
    lines = read_metrics(tmp_path / "run")
    scores = [s for _, s in read_records(tmp_path / "run", Scores)]
    assert [m["test/headline"] for m in lines if "test/headline" in m] == [s.headline for s in scores]
    assert [m["trial/spent"] for m in lines if "trial/spent" in m] == [50 + 16 * 12], "trials are counted apart"


def test_both_protocols_stand_side_by_side(tmp_path):
    start(tmp_path / "run", agent={"rate": 0.05})
    (*_, (_, last)) = read_records(tmp_path / "run", Scores)
    parts = [o for step, o in read_records(tmp_path / "run", Outcome) if step.cycle == 4]
    assert last.trained.attempts == sum(o.attempts for o in parts) == 100
    assert last.trained.skills["sums"] == Outcome.merge(parts).share("sums")
    assert last.headline != last.trained.headline


def test_without_a_final_stretch_the_last_test_counts(tmp_path):
    scores = start(tmp_path / "run", schedule={"final": 0})
    assert [step.cycle for step, _ in read_records(tmp_path / "run", Scores)] == [1, 2, 3]
    assert scores == read_records(tmp_path / "run", Scores)[-1][1]
    assert start(tmp_path / "test only", schedule={"final": 0, "cycles": 0}).reward.n == 3


class Wrong(Designer):
    id = "wrong-v1"
    design = Design(setting={})

    def propose(self, brief, n, context):
        return self.design if self.design is None or isinstance(self.design, list) else [self.design]


@pytest.mark.parametrize(
    ("design", "message"),
    [
        (
            Design(setting={"dials": 99}),
            "wrong-v1 proposed a bad design: setting of vault-v1: dials = 99 is not allowed",
        ),
        (Design(setting={"doors": 1}), "unknown knob 'doors'"),
        (None, "wrong-v1 was asked for up to 4 designs: None"),
        ([Design(setting={})] * 5, "wrong-v1 was asked for up to 4 designs: "),
        ({"dials": 3}, "wrong-v1 proposed {'dials': 3}, which is not a Design"),
        (Design(setting={}, aim="fly"), "wrong-v1 aims at 'fly', which is not a skill of vault-v1"),
    ],
)
def test_a_bad_design_is_refused_before_practice(design, message, tmp_path):
    world, schedule = VAULT(), Schedule(cycles=1, per_cycle=80, final=0, save_every=80)
    designer = Wrong(world.Setting)
    designer.design = design
    with Run.create(tmp_path / "run", {}) as run, pytest.raises(DesignerError, match=message):
        Loop(world, designer, Tabular(world), schedule, run, 0, lambda: Tabular(world)).train()
    assert read_steps(tmp_path / "run") == []


@pytest.mark.parametrize("made", [[], None, [None]])
@pytest.mark.parametrize("method", ["practise", "measure"])
def test_an_agent_that_returns_no_outcome_for_a_design_is_named(method, made, tmp_path, monkeypatch):
    world, schedule = VAULT(), Schedule(cycles=0, final=80, save_every=80, test_seeds=1)
    monkeypatch.setattr(Tabular, method, lambda *given, **named: made)
    with (
        Run.create(tmp_path / "run", {}) as run,
        pytest.raises(AgentError, match=rf"tabular-v1: {method}\(\) returned"),
    ):
        Loop(world, Wrong(world.Setting), Tabular(world), schedule, run, 0, lambda: Tabular(world)).train()


def test_knobs_that_a_design_leaves_out_are_the_originals(tmp_path):
    world = VAULT(original=VAULT.Setting(dials=2))
    designer = Wrong(world.Setting)
    designer.design = Design(setting={"alarm": 0.5}, aim="open_1")
    with Run.create(tmp_path / "run", {}) as run:
        schedule = Schedule(cycles=1, per_cycle=160, final=0, save_every=80, test_seeds=1)
        Loop(world, designer, Tabular(world), schedule, run, 0, lambda: Tabular(world)).train()
    ((_, design),) = read_records(tmp_path / "run", Design)
    assert design.setting == {"dials": 2, "open_doors": 0, "alarm": 0.5} and design.by == "wrong-v1"


def test_an_original_of_ones_own(tmp_path):
    start(tmp_path / "run", original={"difficulty": 0.0, "topic": "sums"}, designer={"id": "none"})
    assert all(o.design.setting["difficulty"] == 0.0 for _, o in read_records(tmp_path / "run", Outcome))
    assert read_records(tmp_path / "run", Scores)[0][1].skills["sums"].mean > 0.8
    assert LADDER.Setting().difficulty == 0.8


class StopsInCycle2(Watcher):
    def begin(self, title, total, unit):
        if title.startswith("cycle 2: practice, original"):
            raise KeyboardInterrupt


@pytest.mark.parametrize("designer", [{"id": "tutor"}, {"id": "policy"}, {"id": "random", "leave": ["alarm"]}])
def test_a_run_with_the_old_name_of_a_knob_goes_on_as_if_it_had_the_new_one(designer, tmp_path, caplog):
    text = (ROOT / "examples" / "vault.py").read_text()
    before, now = tmp_path / "before.py", tmp_path / "now.py"
    before.write_text(text)
    knob = 'harder="up")\n\n\nclass Vault('
    assert text.count(knob) == 1
    renamed = knob.replace("\n\n\n", '\n    renamed = {"alarm": "siren"}\n\n\n')
    now.write_text(text.replace("alarm", "siren").replace(knob, renamed))
    sections = {"designer": designer, "agent": {"id": "tabular"}, "schedule": SMALL, "log": {"tensorboard": False}}
    whole = config.start(config.resolve({"world": {"id": f"{now}:Vault"}, **sections}), tmp_path / "whole")
    interrupted = tmp_path / "interrupted"
    with pytest.raises(KeyboardInterrupt):
        old = config.resolve({"world": {"id": f"{before}:Vault"}, **sections})
        config.start(old, interrupted, StopsInCycle2())
    path = interrupted / "config.toml"
    path.write_text(path.read_text().replace(str(before), str(now)))
    assert "alarm = 1.0" in path.read_text()
    assert config.resume(interrupted, trusted=True) == whole
    assert "[original]: the knob alarm is called siren now" in caplog.messages
    assert (interrupted / "scores.jsonl").read_text() == (tmp_path / "whole" / "scores.jsonl").read_text()
    settings = [design.setting for _, design in read_records(interrupted, Design)]
    assert [name for setting in settings for name in ("alarm", "siren") if name in setting] == ["alarm"] * 4 + [
        "siren"
    ] * 2
