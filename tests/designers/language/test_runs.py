"""Whole runs with the environment policy: its ablations, what is shown of them, and both players killed."""

import json
import multiprocessing
import random
import time

import pytest
from helpers import endpoint_server as lo
from helpers import paths, toys
from helpers.killing import contents, work
from helpers.language_runs import run
from helpers.sweep import scores
from helpers.tiny_model import Pick, tiny
from rich.console import Console

from curricle import config
from curricle.llm import pools
from curricle.records import Design, Outcome, Scores
from curricle.run import Run, Step, read_checkpoint, read_exchanges, read_metrics, read_records
from curricle.tracking import checkpoint
from curricle.views.diagnostics import watched
from curricle.views.table import table

LANGUAGE = {"id": "language", "device": "cpu", "learning_rate": 1e-3, "max_text_tokens": 6, "n": 2, "band": "off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "designer",
    [
        {**LANGUAGE, "text": "off", "learn": False},
        {"id": "fixed", "of": "language", "of_options": {k: v for k, v in LANGUAGE.items() if k != "id"}},
        {"id": "none"},
        {**LANGUAGE, "text": "off", "alpha": 0.25, "lora": 2},
    ],
    ids=["random", "static", "agent only", "alpha"],
)
def test_the_ablations_are_settings(designer, tmp_path):
    if designer["id"] == "language":
        designer = {**designer, "model": tiny()}
    if designer["id"] == "fixed":
        designer = {**designer, "of_options": {**designer["of_options"], "model": tiny()}}
    config.start(config.resolve(run(designer)), tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    assert any("practice/kl" in line for line in lines)
    shown = rows(tmp_path / "run")
    assert {"practice/success", "practice/tokens", "practice/kl"} <= shown.keys()
    for figure in ("near_duplicates", "distinct_2", "length"):
        assert (f"design/{figure}" in shown) == (designer["id"] != "none")
    if designer["id"] != "fixed":  # what was written then was of no use, and fallbacks stand in for it
        assert len(shown["design/success"]) == len(shown["design/in_band"]) == len(shown["design/alarm"]) == 2
    if designer["id"] == "language":
        told = [f"{line['design/success']:.3g}" for line in lines if "design/success" in line]
        assert shown["design/success"] == told, "the designer counts as the records do"


def rows(folder):
    """What `show` says is to be watched, by cycle."""
    with (console := Console(width=200)).capture() as said:
        console.print(table(folder))
    cells = [line.replace("│", "|").split("|")[1:-1] for line in said.get().partition("what to watch")[2].splitlines()]
    return {cell[0].strip(): [c.strip() for c in cell[1:]] for cell in cells if cell}


def test_what_to_watch_is_counted_from_the_records(tmp_path):
    """Six cycles in which the designs are solved more and more often while the score falls; a fallback is left out."""
    folder, world = tmp_path / "run", Pick()
    schedule = {"cycles": 7, "designs": 3, "per_cycle": 4, "final": 0}
    designer = {"id": "fixed-v1", "of_options": {"alpha": 0.4, "k_min": 0.1}}
    names = {"world": {"id": "pick-v1"}, "designer": designer, "agent": {"id": "grpo-v1"}, "seed": 1}
    written, stood_in = Design(setting={}, by="fixed-v1"), Design(setting={}, by="language-v1 fallback")
    with Run.create(folder, names | {"schedule": schedule}) as run:
        for cycle in range(1, 8):
            k = [1, 1, 2, 4, 4, 5, 10][cycle - 1]
            for part in (0, 1):  # 2k of 20, all of 20, and of the fallback none
                played = [
                    Outcome(design=written, attempts=10, successes=k),
                    Outcome(design=written, attempts=10, successes=10),
                    Outcome(design=stood_in, attempts=10, successes=0),
                ]
                step = Step(cycle=cycle, phase="designed", part=part)
                run.step(step, Outcome, lambda played=played: played)  # type: ignore[misc]
                run.metrics(step, cycle, {"practice/kl": 0.1 * (part + 1)})
            tested = scores(world).model_copy(update={"headline": [30.0, 30, 31, 20, 20, 19, 20][cycle - 1]})
            run.step(Step(cycle=cycle, phase="measure"), Scores, lambda tested=tested: [tested])  # type: ignore[misc]
    shown = rows(folder)
    assert shown["design/success"] == ["0.55", "0.6", "0.7", "0.7", "0.75", "1"], "the last six"
    assert shown["design/in_band"] == ["0", "0", "0.5", "0.5", "0.5", "0"], "from 0.3 to 0.5"
    assert shown["design/solved"] == ["0.5"] * 5 + ["1"] and shown["design/unsolved"] == ["0"] * 6
    assert shown["design/alarm"] == ["0", "0", "0", "0", "1", "0"] and shown["practice/kl"] == ["0.15"] * 6


def test_agents_without_texts_have_nothing_of_it_to_watch(tmp_path):
    ladder = {"world": {"id": paths.LADDER}, "schedule": {"cycles": 1, "per_cycle": 8, "final": 0}}
    config.start(config.resolve({**ladder, "log": {"tensorboard": False}}), tmp_path / "run")
    assert watched(tmp_path / "run") == []


@pytest.mark.slow
def test_the_static_environment_keeps_what_was_dropped_and_why(tmp_path):
    of = {**LANGUAGE, "model": tiny(), "text": "required"}
    static = {"id": "fixed", "of": "language", "of_options": {k: v for k, v in of.items() if k != "id"}}
    config.start(config.resolve(run(static)), tmp_path / "run")
    rows = pools.read(read_checkpoint(tmp_path / "run", "designer") / "of" / pools.ENV)
    assert {row.info["cycle"] for row in rows} == {1} and any(row.info["why"] for row in rows)
    (figures,) = [line for line in read_metrics(tmp_path / "run") if "design/candidates" in line]
    assert figures["design/candidates"] == len(rows), "written once"


@pytest.mark.slow
def test_an_offline_teacher_writes_tasks_once(tmp_path):
    """`fixed` of `llm` in a world of texts: a seed that is handed back is refused, what is new is practised."""
    form = "tools: set_timer, get_forecast\nrequest: Set a timer of {0} minutes for {1}.\ncall: set_timer({2})"
    tasks = [form.format(n, what, f'minutes={n}, label="{what}"') for n, what in ((9, "tea"), (30, "the oven"))]

    def act(handler, body):
        seed = json.loads(body["messages"][0]["content"].rpartition("- {")[2].join(["{", ""]))
        texts = [seed["task"], tasks[0]] if len(body["messages"]) == 1 else tasks
        handler.say(200, lo.chat(json.dumps({"designs": [{"setting": {"task": text}} for text in texts]})))

    with lo.Loopback([act]) as server:
        of = {"model": "m", "base_url": server.url, "backoff": 0.001}
        chosen = run({"id": "fixed", "of": "llm", "of_options": of}, world={"id": "tools"})
        config.start(config.resolve(chosen), tmp_path / "run")
    assert len(server.requests) == 2 and "its text is a copy of an earlier text" in str(server.requests[1])
    designs = [(step.cycle, d.setting["task"], d.by) for step, d in read_records(tmp_path / "run", Design)]
    assert designs == [(cycle, task, "fixed-v1") for cycle in (1, 2) for task in tasks]
    outcomes = [o for step, o in read_records(tmp_path / "run", Outcome) if step.phase == "designed"]
    assert sum(o.attempts for o in outcomes) == 8 and len(read_exchanges(tmp_path / "run")) == 2


@pytest.mark.slow
def test_both_players_killed_resume_with_pools_and_optimisers(tmp_path):
    context = multiprocessing.get_context("forkserver")
    ours = ["helpers.toys", "helpers.tiny_model", "curricle.cli", "curricle.agents.grpo", "curricle.designers.language"]
    theirs = [
        "trl.trainer.grpo_trainer",
        "transformers.models.llama.modeling_llama",
        "transformers.trainer",
        "datasets",
    ]
    context.set_forkserver_preload([*ours, *theirs])
    plain, rng = run({**LANGUAGE, "model": tiny(), "text": "off"}), random.Random(1)
    plain["agent"]["model"] = tiny(curt=True)
    whole, broken, phase = tmp_path / "whole", tmp_path / "broken", toys.board(context)
    config.start(config.resolve(plain), whole)
    kills = 0
    for wanted in ("designs", "practice, designed", "learns", "practice, original", "tested"):
        phase.value = b""
        child = context.Process(target=work, args=(broken, plain, phase))
        child.start()
        while child.is_alive() and wanted not in phase.value.decode():
            time.sleep(0.001)
        time.sleep(rng.choice([0.0, 0.01, 0.05]))
        child.kill()
        child.join()
        kills += child.exitcode != 0
    work(broken, plain, phase)
    assert kills >= 4
    assert contents(broken) == contents(whole)
    agent, designer = read_checkpoint(whole, "agent"), read_checkpoint(whole, "designer")
    assert len(pools.read(designer / pools.ENV)) >= 4 and len(pools.read(agent / pools.TRAIN)) >= 2
    for folder in (agent, designer):
        assert any("exp_avg" in name for name in checkpoint.read(folder)[0]), "both had learnt when they were killed"
