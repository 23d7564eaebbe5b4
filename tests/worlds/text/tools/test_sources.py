"""Benchmarks read as tasks: their gold scores 1 where the data is at hand, and bad data is named."""

import json
import tarfile
from collections import Counter

import pytest
from helpers.paths import ROOT
from helpers.skips import skip_without

from curricle.errors import ModelError, UsageError
from curricle.records import Message
from curricle.worlds.text.answers import likeness
from curricle.worlds.text.tools.sources import data as sources
from curricle.worlds.text.tools.sources.bfcl import DOCS, NONE, SINGLE
from curricle.worlds.text.tools.verify import task_fault
from curricle.worlds.text.tools.world import Tools, ToolsOptions

DATA = ROOT.parent / "shared" / "data"
PAGE = (ROOT / "docs" / "text.md").read_text()
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="benchmark data is not at hand (../shared/data)")


def gold(world, task):
    return world.score(task, [Message(role="assistant", content=text) for text in world.solution(task)]).reward


def test_bad_folders_are_named(tmp_path):
    skip_without("text")
    with pytest.raises(UsageError, match="is not a folder"):
        likeness("embedding", str(tmp_path / "none"))("a b", "b c")
    with pytest.raises(ModelError, match="cannot be loaded"):
        likeness("embedding", str(tmp_path))("a b", "b c")
    with pytest.raises(UsageError, match="has no file"):
        Tools(ToolsOptions(source="bfcl", data=str(tmp_path)))
    (tmp_path / "questions.jsonl").write_text('{"question": "a"}\n')
    with pytest.raises(UsageError, match="not as questions lays it out"):
        Tools(ToolsOptions(source="questions", data=str(tmp_path)))


@needs_data
def test_bfcl_gold_scores_and_dialogues_stay_together():
    items = sources.read("bfcl", str(DATA / "bfcl"))
    good = Counter(dialogue.rpartition("_")[0] for dialogue, item in items if not task_fault(item))
    single = [dialogue for dialogue, _ in items if not dialogue.startswith(("multi_turn", "irrelevance", "live_irr"))]
    assert len(single) == 2351
    right = sum(good[name] for name in {dialogue.rpartition("_")[0] for dialogue in single})
    assert right >= 2343 and f"{right} of 2351 single-turn, {good['multi_turn_base']} of 731 turns" in PAGE
    turns = [dialogue for dialogue, _ in items if dialogue.startswith("multi_turn")]
    assert len(turns) == 731 == good["multi_turn_base"] and len(set(turns)) == 200
    world = Tools(ToolsOptions(source="bfcl", data=str(DATA / "bfcl")))
    train, test = (
        {i.before[0].content for i in side if i.before} for side in (world._items[False], world._items[True])
    )
    assert train and test and not train & test, "the turns of one dialogue are on one side"
    trained = {(i.before, i.request) for i in world._items[False]}
    tested = {(i.before, i.request) for i in world._items[True]}
    assert len(tested) > 500 and len(trained) > 2000 and not trained & tested, "no request is on both sides"
    assert all(len(world.examples(cycle)) == 4 for cycle in range(1, 20))
    for task in world.tasks(world.original, 40, seed=1):
        assert gold(world, task) == 1


@needs_data
def test_api_bank_gold_scores():
    counts, good = Counter(), Counter()
    for dialogue, item in sources.read("api-bank", str(DATA / "api-bank")):
        level = 3 if dialogue.startswith("level-3") else 2 if "level-3" in dialogue else 1
        counts[level] += 1
        good[level] += not task_fault(item)
    assert counts == {1: 399, 2: 135, 3: 245}
    assert good[1] / 399 >= 328 / 389 and good[2] / 135 >= 64 / 74 and good[3] == 245
    assert f"{good[1]} of 399, {good[2]} of 135, {good[3]} of 245" in PAGE
    assert Tools(ToolsOptions(source="api-bank", data=str(DATA / "api-bank"))).examples(1)


@needs_data
def test_questions_are_read():
    world = Tools(ToolsOptions(source="questions", data=str(DATA / "bamboogle")))
    task, *_ = world.tasks(world.original, 3, seed=1)
    assert task.skill == "answer_in_words" and gold(world, task) == 1
    assert world.headline({"answer_in_words": 1.0}) == 100


def bfcl_like(folder):
    """A folder laid out as BFCL's, with a few rows in each of its files."""
    fields = {"city": {"type": "string"}, "days": {"type": "integer", "format": "x"}}
    parameters = {"type": "dict", "properties": fields, "required": ["city", "nothing"]}
    weather = {"name": "get_weather", "description": "", "parameters": parameters}
    truth = [{"get_weather": {"city": ["Rome", ""], "days": [3, ""]}}]  # what is required cannot be left out
    for category in (*SINGLE, *NONE, "multi_turn_base"):
        rows, answers = [], []
        for i in range(12):
            say = [[{"role": "user", "content": f"Weather in Rome, on day {i}?"}]]
            rows.append({"id": f"{category}_{i}", "question": say, "function": [weather]})
            answers.append({"id": f"{category}_{i}", "ground_truth": truth})
            if category == "multi_turn_base":
                rows[-1] |= {"question": [say[0], say[0]], "involved_classes": ["MathAPI"], "excluded_function": ["no"]}
                answers[-1]["ground_truth"] = [["get_weather('Rome')"], ["get_weather(city='Rome', days=2)"]]
        write(folder / f"BFCL_v4_{category}.json", rows)
        write(folder / "possible_answer" / f"BFCL_v4_{category}.json", answers)
    for file in DOCS.values():
        write(folder / "multi_turn_func_doc" / f"{file}.json", [weather, {**weather, "name": "no"}])
    return folder


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows))


def test_the_layout_of_bfcl_is_read_without_its_data(tmp_path):
    items = dict(sources.read("bfcl", str(bfcl_like(tmp_path))))
    simple, none, turn = (items[f"{name}_0"] for name in ("simple_python", "irrelevance", "multi_turn_base"))
    assert simple.calls[0].arguments == {"city": "Rome", "days": 3} and simple.calls[0].optional == ("days",)
    assert simple.calls[0].accepted == {} and not task_fault(simple)
    assert simple.skill == "one_call" and none.skill == "no_call_needed" and turn.ordered
    assert [message.role for message in turn.before] == ["user", "assistant"] and len(turn.known) == 1
    assert turn.calls[0].arguments == {"city": "Rome", "days": 2}
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        for path in sorted(tmp_path.rglob("*.json")):
            archive.add(path, f"data/{path.relative_to(tmp_path)}")
    assert dict(sources.read("bfcl", str(tmp_path / "all.tar.xz"))) == items
    world = Tools(ToolsOptions(source="bfcl", data=str(tmp_path)))
    assert all(gold(world, task) == 1 for task in world.tasks(world.original, 60, seed=1))
