"""Plots read a run folder and write PNG files; a run without designs, or still running, is drawn as far as it goes."""

import struct
import sys

import pytest
from helpers import paths
from typer.testing import CliRunner

from curricle import config
from curricle.cli import app
from curricle.errors import RunError, UsageError
from curricle.records import Design, Outcome, Scores
from curricle.run import read_records
from curricle.views import plots as view

Figure = pytest.importorskip("matplotlib.figure").Figure


def run(folder, designer, **schedule):
    small = {"cycles": 3, "designs": 3, "per_cycle": 90, "final": 30, "save_every": 20, "test_seeds": 2, **schedule}
    plain = {"world": {"id": paths.LADDER}, "designer": {"id": designer}, "schedule": small}
    config.start(config.resolve(plain | {"log": {"tensorboard": False}}), folder)
    return folder


def size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def test_the_command_draws_three_plots(tmp_path):
    folder = run(tmp_path / "run", "policy")
    done = CliRunner().invoke(app, ["plot", str(folder), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    for name in ("skills", "designs", "knobs"):
        path = tmp_path / "out" / f"{name}.png"
        assert str(path) in done.output and min(size(path)) > 100


def test_designs_are_counted_once_over_all_parts_of_a_practice(tmp_path):
    folder = run(tmp_path / "run", "random")
    found = view.designs(folder)
    proposed = read_records(folder, Design)
    assert [(cycle, outcome.design) for cycle, outcome in found] == [(step.cycle, d) for step, d in proposed]
    spent = [sum(o.spent for at, o in found if at == cycle) for cycle in (1, 2, 3)]
    assert spent == [45, 45, 45], "parts of 20 steps are put together"


def test_a_run_without_designs_has_skills_to_show(tmp_path):
    assert [path.name for path in view.plots(run(tmp_path / "run", "none"), tmp_path / "out")] == ["skills.png"]


def test_nothing_tested_yet_is_said(tmp_path):
    folder = run(tmp_path / "run", "random")
    (folder / "scores.jsonl").unlink()
    with pytest.raises(RunError, match="nothing to plot yet"):
        view.plots(folder, tmp_path / "out")


def test_a_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    folder = run(tmp_path / "run", "random")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"curricle\[plots\]"):
        view.plots(folder, tmp_path / "out")


def test_every_design_is_a_dot_beside_the_band(tmp_path):
    folder = run(tmp_path / "run", "policy")
    designed = view.designs(folder)
    figure = view._designs(designed, {"alpha": 0.3, "k_min": 0.05}, ["sums", "words"], "run")
    band, *dots = (figure.axes[0].patches, *figure.axes[0].collections)
    assert band[0].get_bbox().y0 == pytest.approx(0.25) and band[0].get_bbox().y1 == pytest.approx(0.35)  # type: ignore[attr-defined]
    drawn = sorted((x, y) for part in dots for x, y in part.get_offsets().tolist())
    assert sorted((round(x), y) for x, y in drawn) == sorted((cycle, outcome.rate) for cycle, outcome in designed)


def outcome(aim, rate=0.5):
    return Outcome(design=Design(setting={}, aim=aim), attempts=100, successes=round(100 * rate))


def test_designs_of_one_height_stand_side_by_side():
    made = [(1, outcome(aim)) for aim in ("b", "a", "b", "a")] + [(1, outcome("a", 0.9)), (2, outcome("a"))]
    axis = view._designs(made, {}, ["a", "b"], "run").axes[0]
    dots = [(x, y) for part in axis.collections for x, y in part.get_offsets().tolist()]
    level = sorted(x for x, y in dots if y == 0.5 and x < 1.5)
    assert len(set(level)) == 4 and sum(level) / 4 == pytest.approx(1) and max(level) < 1.4
    assert (1, 0.9) in dots and (2, 0.5) in dots, "nothing is in their way"
    assert all(abs(aside) <= 0.4 for aside in view._asides([0.0] * 64, 1.0)), "within the cycle"


@pytest.mark.parametrize("skills", [["z", "a", "m"], [f"skill {n}" for n in range(22)] + ["z", "a", "m"]])
def test_a_skill_has_one_colour_in_all_runs_of_its_world(skills):
    few = view._designs([(1, outcome("a")), (1, outcome(None))], {}, skills, "few")
    many = view._designs([(1, outcome(aim)) for aim in (None, "a", "m", "z")], {}, skills, "many")
    shown = [{h.get_label(): h[0].get_facecolor() for h in figure.axes[1].containers} for figure in (few, many)]
    assert shown[0].items() <= shown[1].items() and len(set(shown[1].values())) == 4
    legend = [text.get_text() for text in many.axes[1].get_legend().get_texts()]
    assert legend == ["z", "a", "m", "everything"], "as the scores list them"


def test_plots_say_whose_they_are_and_what_they_show(tmp_path, monkeypatch):
    figures, folder = {}, run(tmp_path / "mine", "policy")
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.update({path.stem: figure}))
    view.plots(folder, tmp_path / "out")
    assert figures["designs"].axes[0].get_title() == "mine: designs by policy-v1"
    legend = [text.get_text() for text in figures["designs"].axes[1].get_legend().get_texts()]
    assert legend == [name for name in ("sums", "words") if name in legend] and legend
    assert all(axis.get_xlabel() == "cycle" for axis in figures["knobs"].axes if axis.get_visible())
    title = figures["knobs"].get_suptitle()
    assert "dashed: the original" in title and "larger where several designs share one" in title


def test_many_cycles_stay_legible(tmp_path):
    folder = run(tmp_path / "run", "policy", cycles=30, per_cycle=12, final=4, save_every=100)
    paths = {path.stem: path for path in view.plots(folder, tmp_path / "out")}
    assert all(size(path)[0] < 2000 for path in paths.values())
    scores = [(step.cycle, score) for step, score in read_records(folder, Scores)]
    axis = view._skills(scores, 30).axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["5", "10", "15", "20", "25", "30", "final"]
    assert not axis.texts, "shades alone"
    assert len(view._designs(view.designs(folder), {}, ["sums", "words"], "run").axes[1].get_xticks()) < 20


def test_knobs_that_are_moved_most_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "MOST_KNOBS", 1)
    home = {"rare": 0, "often": 1, "never": 2}
    moves = [{"often": 5}, {"often": 6, "rare": 1}, {"often": 7}, {}]
    made = [Outcome(design=Design(setting={**home, **move}), attempts=1, successes=0, spent=1) for move in moves]
    figure = view._knobs([(cycle, outcome) for cycle, outcome in enumerate(made)], home)
    assert figure.axes[0].get_title() == "often (75%)" and "less often moved: 1 more" in figure.get_suptitle()
    assert not any(axis.get_visible() for axis in figure.axes[1:])


def test_a_knob_of_many_texts_is_counted_not_listed():
    made = [Outcome(design=Design(setting={"text": f"no. {n}"}), attempts=1, successes=0, spent=1) for n in range(40)]
    axis = view._knobs(list(enumerate(made)), {"text": ""}).axes[0]
    assert axis.get_ylabel() == "41 values" and not len(axis.get_yticks())
