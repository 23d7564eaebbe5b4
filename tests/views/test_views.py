"""Views over run folders: runs beside each other, runs that are not finished, worlds that changed."""

import json

import pytest
import tomli_w
from helpers import paths
from helpers.paths import ROOT
from rich.console import Console
from typer.testing import CliRunner

from curricle import config
from curricle.cli import app
from curricle.errors import RunError
from curricle.records import Design, Outcome, Score, Scores
from curricle.run import read_records
from curricle.views.table import scores_table

SOURCE = (ROOT / "examples" / "vault.py").read_text()
SMALL = {"cycles": 2, "designs": 2, "per_cycle": 400, "final": 200, "save_every": 200, "test_seeds": 3}


@pytest.fixture
def world(tmp_path):
    """The vault in a file that can be changed."""
    (tmp_path / "mine.py").write_text(SOURCE)
    return f"{tmp_path}/mine.py:Vault"


def make(world, folder, designer="tutor", seed=0, agent=None, **schedule):
    plain = {"world": {"id": world}, "designer": {"id": designer}, "seed": seed, "schedule": SMALL | schedule}
    plain |= {"agent": agent} if agent else {}
    config.start(config.resolve(plain), folder)
    return folder


def said(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def cut(folder, tests):
    """Leave only the first tests of a run, as if it had been stopped after them."""
    lines = (folder / "scores.jsonl").read_text().splitlines(keepends=True)
    (folder / "scores.jsonl").write_text("".join(lines[:tests]))


def test_runs_beside_each_other(world, tmp_path):
    runs = [make(world, tmp_path / f"{name}{seed}", name, seed) for name in ("tutor", "random") for seed in (0, 1)]
    other = make(world, tmp_path / "longer", "tutor", final=400)
    text = said("compare", *runs, other)
    rows = [line for line in text.splitlines() if "vault" in line.lower()]
    assert len(rows) == 3, text
    scores = [read_records(run, Scores)[-1][1] for run in runs[:2]]
    mean = sum(one.headline for one in scores) / 2
    assert "tutor" in rows[0] and "2 (2)" in rows[0] and f"{mean:.1f} ±" in rows[0]
    assert "random" in rows[1] and "2 (2)" in rows[1]
    assert "schedule.final=400" in rows[2] and "1 (1)" in rows[2]
    assert all("schedule.final=200" in row for row in rows[:2]) and text.count("schedule.") == 3


def test_a_seed_counts_once_in_a_comparison(world, tmp_path):
    runs = [make(world, tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    for run, day in zip(runs, (2, 1, 3), strict=True):  # the second one is the older
        (run / "environment.jsonl").write_text(f'{{"started": "2026-01-0{day}T00:00:00Z"}}\n')
    cut(runs[1], 1)
    text = said("compare", *runs)
    assert "2 (2)" in text and "3 (" not in text
    assert f"left out, a later run has the same config and seed: {runs[1]}" in text.replace("\n", "")
    cut(runs[0], 0)
    assert "2 (1)" in said("compare", *runs), "a run without scores takes nobody's place"
    twice = said("compare", runs[2], runs[2])
    assert "1 (1)" in twice and "left out" not in twice


def names(text):
    """The first column of a comparison, a text a row."""
    rows = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    starts = [i for i, row in enumerate(rows) if row[2].strip()]
    spans = zip(starts, [*starts[1:], len(rows)], strict=True)
    return [" ".join(" ".join(row[1] for row in rows[a:b]).split()) for a, b in spans]


def test_options_of_another_part_are_no_differences(world, tmp_path):
    (tmp_path / "other.py").write_text(SOURCE.replace("alarm", "siren"))
    agents = [{"id": "tabular"}, {"id": "random"}, {"id": "tabular", "learning_rate": 0.3}]
    runs = [make(world, tmp_path / f"run{i}", agent=agent) for i, agent in enumerate(agents)]
    shown = names(said("compare", *runs))
    assert shown == [
        f"mine.py:Vault, tutor-v1, {agent}"
        for agent in ("tabular-v1, agent.learning_rate=0.2", "random-v1", "tabular-v1, agent.learning_rate=0.3")
    ]
    assert names(said("compare", *runs[::-1])) == shown[::-1], "no run is the plain one"
    elsewhere = make(f"{tmp_path}/other.py:Vault", tmp_path / "elsewhere")
    assert names(said("compare", runs[0], elsewhere))[1] == "other.py:Vault, tutor-v1, tabular-v1"


def test_options_of_another_named_designer_are_no_differences(world, tmp_path):
    designers = [("tutor", {"pace": 1}), ("random", {}), ("tutor", {"pace": 2})]
    runs = [make(world, tmp_path / name) for name in ("a", "b", "c")]
    for run, (of, options) in zip(runs, designers, strict=True):
        plain = config.load(str(run / "config.toml"))
        plain["designer"] = {"id": "policy-v1", "of": of, "of_options": options}
        plain["agent"] |= {"extra": 1} if run == runs[0] else {}  # the others leave it out
        (run / "config.toml").write_text(tomli_w.dumps(plain))
    shown = [name.partition("tabular-v1, ")[2] for name in names(said("compare", *runs))]
    assert shown == [
        "designer.of=tutor, designer.of_options.pace=1, agent.extra=1",
        "designer.of=random, agent.extra=unset",
        "designer.of=tutor, designer.of_options.pace=2, agent.extra=unset",
    ]


def test_designs_are_listed_with_what_came_of_them(world, tmp_path):
    folder = make(world, tmp_path / "run", "policy", per_cycle=4000)
    text = said("designs", folder)
    rows = [line for line in text.splitlines() if line.startswith("│")]
    assert "run: designs by policy-v1" in text and len(rows) == 4
    _, design = read_records(folder, Design)[0]
    outcome = next(o for _, o in read_records(folder, Outcome))
    home = {"dials": 5, "open_doors": 0, "alarm": 1.0}
    moved = ", ".join(f"{name}={value:.3g}" for name, value in design.setting.items() if value != home[name])
    assert f"│     1 │ {design.aim} │ {moved} " in rows[0] and moved
    tried = [o for step, o in read_records(folder, Outcome) if step.cycle == 1 and o.design == outcome.design]
    successes, attempts = sum(o.successes for o in tried), sum(o.attempts for o in tried)
    assert f"{successes}/{attempts} ({successes / attempts:.0%})" in rows[0] and design.why in rows[0]
    second = [line for line in said("designs", folder, "--cycle", 2).splitlines() if line.startswith("│")]
    assert len(second) == 2 and all(line.startswith("│     2 │") for line in second)
    done = CliRunner().invoke(app, ["designs", str(folder), "--cycle", "9"])
    assert "has no designs of cycle 9; it has those of 1, 2" in str(done.exception)


def rewrite(folder, outcomes):
    """Give a run other designs and outcomes, all of cycle 1."""
    for name, records in (("designs", [o.design for o in outcomes]), ("outcomes", outcomes)):
        phase = "propose" if name == "designs" else "designed"
        lines = [{"cycle": 1, "phase": phase, "part": 0, **json.loads(record.to_json())} for record in records]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_designs_that_are_equal_long_or_by_another(world, tmp_path):
    folder, home = make(world, tmp_path / "run", "random"), {"dials": 5, "open_doors": 0, "alarm": 1.0}
    own = Design(setting=home, by="random-v1", why="as it is\n" * 40)
    long = Design(setting={**home, "alarm": 1 / 3, "note": "[red]" + "x" * 90}, aim="open_1", by="tutor-v1")
    replaced = long.model_copy(update={"changed": ("nobody answered",)})
    rewrite(folder, [Outcome(design=d, attempts=8, successes=1) for d in (own, own, long)])
    text = said("designs", folder)
    assert "everything (2 times) │ as the original" in text and "2/16 (12%)" in text and "│ as it is as it is" in text
    assert "alarm=0.333, " in text and f"note=[red]{'x' * 34}…" in text and text.count("as it is") < 12
    assert "tutor-v1" not in text, "no fallback, only another name"
    rewrite(folder, [Outcome(design=d, attempts=8, successes=1) for d in (own, replaced)])
    assert "┃ by" in said("designs", folder) and "tutor-v1" in said("designs", folder)
    (folder / "outcomes.jsonl").write_text("")
    assert said("designs", folder).count(" - │") == 2, "designed, and not practised so far"
    (folder / "designs.jsonl").write_text("")
    done = CliRunner().invoke(app, ["designs", str(folder)])
    assert "has no designs to show: random-v1 has made none so far" in str(done.exception)


def test_a_part_of_a_cycle_by_the_fallback_is_said(world, tmp_path):
    make(world, tmp_path / "run", cycles=1, designs=3, final=0)
    file = tmp_path / "run" / "designs.jsonl"
    first, *others = file.read_text().splitlines()
    first = first.replace('"by": "tutor-v1", "changed": []', '"by": "x", "changed": ["y"]')
    file.write_text("\n".join([first, *others, ""]))
    assert "1 of 3 designs of cycle 1 are by x instead of tutor-v1" in said("show", tmp_path / "run")


def test_a_run_without_scores_is_left_out_of_a_comparison(world, tmp_path):
    empty, whole = make(world, tmp_path / "empty"), make(world, tmp_path / "whole")
    cut(empty, 0)
    done = CliRunner().invoke(app, ["compare", str(empty)])
    assert f"no scores yet: {empty}" in str(done.exception)
    text = " ".join(said("compare", empty, whole).split())
    assert "1 (1)" in text and "left out, no scores yet:" in text


def test_a_run_that_is_not_finished_says_so(world, tmp_path):
    folder = make(world, tmp_path / "run")
    assert "not finished" not in said("show", folder)
    cut(folder, 1)
    assert "not finished: cycle 1 of 2 is tested" in said("show", folder)
    cut(folder, 0)
    assert "not finished: nothing is tested yet" in said("show", folder)


def test_a_run_without_a_final_stretch_is_finished_after_its_last_cycle(world, tmp_path):
    folder = make(world, tmp_path / "run", final=0)
    assert "not finished" not in said("show", folder) and "1 (1)" in said("compare", folder)
    cut(folder, 1)
    assert "not finished: cycle 1 of 2 is tested" in said("show", folder) and "1 (0)" in said("compare", folder)


def test_a_world_whose_skills_changed_is_named_when_a_run_goes_on(world, tmp_path):
    folder = make(world, tmp_path / "run")
    config_of = (folder / "config.toml").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(SOURCE.replace('"open_3"', '"open_last"'))
    (folder / "config.toml").write_text(config_of.replace(f"{tmp_path}/mine.py", f"{tmp_path}/other/mine.py"))
    with pytest.raises(RunError, match=r"had other skills \(open_3, open_last\); begin a new run"):
        config.resume(folder, trusted=True)


def test_a_test_is_the_runs_own_unless_told_otherwise(world, tmp_path):
    folder = make(world, tmp_path / "run")
    headline = f"{read_records(folder, Scores)[-1][1].headline:.1f}"
    assert headline in said("eval", folder)
    easy = said("eval", folder, "--setting", "open_doors=2", "--setting", "dials=1")
    assert "open_doors=2, dials=1" in easy


def test_what_a_schedule_can_be_given_and_one_world_whole():
    text = said("schedule")
    assert "schedule.test_seeds = 12" in text and "log.wandb" in text
    whole = said("worlds", paths.VAULT)
    assert "skill open_3: needs open_2; eased by alarm=0.1, open_doors=2" in whole and "guide: Three doors" in whole
    assert "suggests agent.id = 'tabular'" in whole


def test_a_config_finds_the_file_beside_it(world, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "mine.toml").write_text('[world]\nid = "mine.py:Vault"\n')
    monkeypatch.chdir(tmp_path / "here")
    assert config.resolve(config.load("../mine.toml")).world.id == "vault-v1"


def test_a_world_is_checked_before_anything_is_trained_in_it(world, tmp_path):
    text = said("check", world, "--random", 2, "--steps", 60)
    assert "the original: " in text and "eased for open_3: " in text and "6 settings tried" in text
    (tmp_path / "lucky.py").write_text(
        SOURCE.replace("self.np_random.random()", "np.random.random()").replace("vault-v1", "lucky-v1")
    )
    done = CliRunner().invoke(app, ["check", f"{tmp_path}/lucky.py:Vault"])
    assert "lucky-v1 played twice from the same seed gave different " in str(done.exception)
    (tmp_path / "bare.py").write_text(SOURCE.replace('eased_by={"alarm": 0.1}', "needs=()").replace("-v1", "-v2"))
    assert "note: no eased_by: open_1" in said("check", f"{tmp_path}/bare.py:Vault", "--random", 0)


SUMS = (ROOT / "examples" / "sums.py").read_text()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("return tasks\n", "return tasks[1:]\n", "tasks(setting, n=8, seed=1) gave 7 tasks in SumsSetting"),
        ("return tasks\n", "return None\n", "gave None in SumsSetting"),
        ('generator(seed, "sums")', "generator(id(object()), str(id([])))", "different tasks for the same seed"),
        ("== task.gold", "!= task.gold", "its own solution"),
        ("% 10 == 0", "% 10 == 10", "found 0 of 20 test tasks in SumsSetting(terms=3"),
        ("% 10 == 0", "% 10 < 10", "found 0 of 8 practice tasks in SumsSetting(terms=3"),
        ("found = re", "found = 1 / 0; re", "broke down on the words"),
        ("return tasks\n", "return tasks[99]\n", "tasks(setting, n=8, seed=1) broke down in SumsSetting"),
        ("return Verdict(", "return right or Verdict(", "gave True; it must return a Verdict"),
        ("len(found) == 1 and int(found[0]) == task.gold", "True", "score() pays for all junk, even '' and "),
        ('"minus" if "-" in signs', '"less" if "-" in signs', "a task is about 'less', which is not one of its skills"),
    ],
)
def test_faults_of_a_world_of_tasks_are_named(before, after, words, tmp_path):
    assert before in SUMS
    (tmp_path / "wrong.py").write_text(SUMS.replace(before, after))
    done = CliRunner().invoke(app, ["check", f"{tmp_path}/wrong.py:Sums"])
    assert words in str(done.exception) and "sums-v1" in str(done.exception)


def test_a_world_of_tasks_is_neither_played_nor_drawn():
    for command in ("play", "look"):
        done = CliRunner().invoke(app, [command, f"{ROOT}/examples/sums.py:Sums"])
        assert "sums-v1 is a world of text tasks: there is nothing to play or draw" in str(done.exception)


def test_a_skill_that_was_never_tested_has_no_success():
    kept = Scores(
        skills={"a": Score(mean=0.5, std=0.1, n=2), "b": Score.over([])}, reward=Score.over([1.0]), headline=25.0
    )
    shown = Console(width=80).render_lines(scores_table(kept, "x"))
    lines = ["".join(part.text for part in line) for line in shown]
    assert any("b" in line and " - " in line for line in lines) and any("50 ± 10" in line for line in lines)


def test_a_world_of_tasks_is_checked_before_anything_is_trained_in_it(tmp_path):
    text = said("check", ROOT / "examples" / "sums.py:Sums", "--random", 2)
    assert text.count("8 tasks, 8 solved by their solutions; junk earns nothing") == 5
    assert "held out" not in text and "5 settings tried" in text
    loose = SUMS.replace("== is_for_test(seed)", "== False").replace("def solution", "def unknown")
    loose = loose.replace("len(found) == 1 and ", "").replace("int(found[0])", "int((found or [-1])[0])")
    (tmp_path / "loose.py").write_text(loose.replace("knob(3,", "knob(2,").replace('knob(2, "Most', 'knob(1, "Most'))
    text = said("check", tmp_path / "loose.py:Sums", "--random", 0)
    assert "junk earns something" in text and text.count("note: score() pays for") == 1
    assert "test tasks come up in practice too" in text and "no solution()" in text
    assert "8 tasks, no solution is known;" in text
    easy = SUMS.replace('"minus" if "-" in signs', '"plus" if "-" in signs').replace("-v1", "-v2")
    (tmp_path / "easy.py").write_text(easy)
    said_of_it = said("check", tmp_path / "easy.py:Sums", "--random", 0)
    assert "note: no test task of 100 is about minus: what is not tested counts as 0" in said_of_it
