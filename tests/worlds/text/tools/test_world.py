"""The world of tool calls: simulators, the pool, and how attempts are judged."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from helpers.paths import ROOT

from curricle.errors import UsageError
from curricle.records import Message
from curricle.seeds import for_test, generator
from curricle.text.similarity import f1, words
from curricle.world import TaskWorld
from curricle.worlds.text.answers import final_answer, likeness
from curricle.worlds.text.tools.calls import Call, write_calls
from curricle.worlds.text.tools.catalogue import ENTRIES, TOOLS
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.pool import SKILLS, draw_item
from curricle.worlds.text.tools.simulators import SIMULATORS
from curricle.worlds.text.tools.simulators.calendar import DAYS
from curricle.worlds.text.tools.verify import FLOOR, score_attempt, task_fault
from curricle.worlds.text.tools.world import Tools, ToolsOptions, sound
from curricle.worlds.text.tools.writing import written

PAGE = (ROOT / "docs" / "text.md").read_text()


def say(*texts):
    return [Message(role="assistant", content=text) for text in texts]


def play(world, task, answers):
    """An attempt: the agent's answers with the world's replies between."""
    transcript = []
    for text in answers:
        transcript += say(text)
        reply = world.reply(task, transcript)
        if reply is None:
            break
        transcript.append(reply)
    return transcript


def test_examples_are_sound_new_each_cycle_and_of_the_training_side():
    world = Tools()
    first, second = world.examples(1), world.examples(2)
    assert first == Tools().examples(1) and not {v["task"] for v in first} & {v["task"] for v in second}
    assert len(first) == 4
    for values in first:
        assert world.setting(values).values == values
        assert not any(place in values["task"] for place in held_out_names())


def test_requests_of_the_two_sides_share_no_name():
    world, said = Tools(), {}
    for side, seeds in ((False, range(8)), (True, map(for_test, range(8)))):
        said[side] = {
            (key, value)
            for seed in seeds
            for task in world.tasks(world.original, 35, seed)
            for call in Item.of(task).calls
            for key, value in call.arguments.items()
            if isinstance(value, str) and key not in ("unit", "tone", "day", "text")
        }
    assert len(said[True]) > 60 and len(said[False]) > 100 and not said[True] & said[False]
    places = {value for side in said.values() for key, value in side if key in ("origin", "destination")}
    assert places >= {"Quito", "Oslo"}


def held_out_names():
    """Names of the catalogue that only tests show."""
    return {v for e in ENTRIES for k, vs in e.values.items() if k in ("city", "artist") for v in vs[3::4]}


def test_tasks_are_the_same_in_every_process():
    code = (
        "from curricle.worlds.text.tools.world import Tools; w = Tools();"
        "print(w.tasks(w.original, 70, 1), w.examples(3))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout and runs[0].stdout


def test_practice_may_have_so_many_tasks_and_no_more():
    """What data a user has is finite: then only designs bring new tasks; tests are as they were."""
    world, free = Tools(Tools.Options(base=21, examples=32, named=True)), Tools()
    found = [task.id for seed in range(4) for task in world.tasks(world.original, 30, seed)]
    assert len(set(found)) == 21 and found[:30] != found[30:60]
    skills = Counter(task.skill for task in world.tasks(world.original, 21, 0))
    assert skills == dict.fromkeys(SKILLS, 3)
    assert world.tasks(world.original, 7, for_test(0)) == free.tasks(free.original, 7, for_test(0))
    seeds = {world.tasks(world.setting(values), 1, 0)[0].id for values in world.examples(1)}
    assert 10 < len(seeds) == len(world.examples(1)) and seeds <= set(found), "seed tasks are among them, none twice"
    other = world.setting({"distractors": 1})
    assert not {task.id for task in world.tasks(other, 21, 0)} & set(found), "a design of other knobs is something new"
    with pytest.raises(UsageError, match="base = 5 is for the world's own pool, not for questions"):
        Tools(Tools.Options(base=5, source="questions", data="somewhere"))


def test_the_examples_of_the_guide_are_sound():
    found = [part for part in Tools.guide.split("\n\n") if part.startswith(("tools:", "simulator:"))]
    assert len(found) == 3 and all(sound(text) for text in found)
    assert f"{len(ENTRIES)} tools in {len({entry.domain for entry in ENTRIES})} domains" in PAGE
    for name in [*TOOLS, *(tool["name"] for one in SIMULATORS.values() for tool in one.tools)]:
        assert f"{name}(" in Tools.guide


@pytest.mark.parametrize("skill", SKILLS)
def test_knobs_of_the_pool_do_what_they_say(skill):
    world = Tools()

    def items(**knobs):
        return [Item.of(task) for task in world.tasks(world.setting({"about": skill, **knobs}), 8, seed=4)]

    assert {item.skill for item in items()} == {skill}
    shown = {"one_call": {1}, "no_call_needed": {1, 7}, "several_steps": {0}, "answer_in_words": {0}}
    assert {len(item.tools) for item in items(distractors=6)} == shown.get(skill, {7})
    if skill == "parallel_calls":
        assert {len(item.calls) for item in items(parallel=4)} == {4}
        assert all(len(item.tools) <= 4 for item in items(parallel=4, distractors=0))
    if skill == "several_steps":
        assert all(len(item.calls) >= 4 for item in items(steps=4))
        assert sum(len(item.calls) for item in items(steps=1)) < sum(len(item.calls) for item in items(steps=4))


@pytest.mark.parametrize("distractors", [0, 1, 3, 8])
def test_the_number_of_tools_does_not_tell_what_to_do(distractors):
    """An agent learnt to count them once: of its 100 % of tasks without a call nothing was left in other designs."""
    tasks = (world := Tools()).tasks(world.setting({"distractors": distractors}), 140, seed=4)
    items = [item for item in map(Item.of, tasks) if item.tools]
    counts = {skill: {len(item.tools) for item in items if item.skill == skill} for skill in SKILLS}
    assert counts["no_call_needed"] == counts["one_call"] | counts["right_tool"]
    assert counts["right_tool"] == counts["optional_arguments"] == counts["parallel_calls"]


@pytest.mark.parametrize("simulator", SIMULATORS.values(), ids=lambda s: s.name)
def test_simulators_are_deterministic_and_answer_errors(simulator):
    state = simulator.begin(5)
    before = json.dumps(state)
    assert before == json.dumps(simulator.begin(5)) != json.dumps(simulator.begin(6))
    hostile = ("__class__", "../../etc/passwd", "'; DROP TABLE", "\x00", "", "x" * 5000)
    kinds = {"string": hostile, "integer": (-1, 0, 10**30), "boolean": (True,)}
    for tool in simulator.tools:
        fields = tool["parameters"]["properties"]
        for i in range(6):
            arguments = {name: kinds[f["type"]][i % len(kinds[f["type"]])] for name, f in fields.items()}
            after, result = simulator.run(state, Call(tool["name"], arguments))
            assert set(result) <= {"result", "error"} and json.loads(json.dumps(after)) == after
            assert "result" in result or after == state
        assert "error" in simulator.run(state, Call(tool["name"], {"self": 1}))[1]
    for name in ("__init__", "start", "run", "methods", ""):
        assert simulator.run(state, Call(name, {})) == (state, {"error": f"there is no tool {name!r}"})
    assert json.dumps(state) == before, "a call never changes the state it is given"


def test_several_steps_compare_the_end_and_not_the_way():
    world = Tools()
    bank = SIMULATORS["bank"]
    state = bank.begin(7)
    one, two = state["accounts"]
    calls = [{"name": "transfer", "arguments": {"from_account": one, "to_account": two, "amount": 30}}]
    written = {"simulator": "bank", "start": 7, "request": f"Move 30 from {one} to {two}.", "calls": calls}
    (task,) = world.tasks(world.setting({"task": json.dumps(written)}), 1, 0)

    def move(amount, source=one, target=two):
        return write_calls([Call("transfer", {"from_account": source, "to_account": target, "amount": amount})])

    look = write_calls([Call("list_accounts", {})])
    for way in ([move(30), "Done."], [look, move(10), move(20), "Done."], [move(40), move(10, two, one), "Done."]):
        transcript = play(world, task, way)
        assert world.score(task, transcript).reward == 1, way
    assert json.dumps(state["accounts"]) in play(world, task, [look])[1].content
    for way in ([move(29), "Done."], ["Done."], [move(30), move(1)], [move(-30, two, one), "Done."], [move(10**9)]):
        assert world.score(task, play(world, task, way)).reward == 0, way
    broken = play(world, task, ["<tool_call>{", move(30), "Done."])
    assert "not closed" in broken[1].content and world.score(task, broken).reward == 1


def test_the_end_is_gold_s_word_by_word():
    """Arguments of calls may be written loosely; what a tool wrote down may not."""
    world, folder = Tools(), next(iter(SIMULATORS["files"].begin(7)["folders"]))

    def writing(text):
        return Call("write_file", {"folder": folder, "file": "note.txt", "text": text})

    gold = {"name": "write_file", "arguments": writing("Pay 1.5 to Ann-Marie").arguments}
    asked = {"simulator": "files", "start": 7, "request": f"Leave a note in {folder}.", "calls": [gold]}
    (task,) = world.tasks(world.setting({"task": json.dumps(asked)}), 1, 0)
    earned = {
        text: world.score(task, play(world, task, [write_calls([writing(text)]), "Done."])).reward
        for text in ("Pay 1.5 to Ann-Marie", "pay 1.5  to ann-marie", "pay15toannmarie", "Pay 15 to Ann-Marie")
    }
    assert list(earned.values()) == [1, 1, 0, 0]


def test_the_state_of_an_attempt_is_what_was_done_and_seen():
    """The last words of the world are the same in all of these but one: GiGPO compares turns of equal states."""
    bank, world = SIMULATORS["bank"].begin(7), Tools()
    one, two = bank["accounts"]
    task = written(
        f'simulator: bank 7\nrequest: Freeze it.\ncall: set_frozen(card="{next(iter(bank["cards"]))}", frozen=true)'
    ).task()
    looks = [write_calls([Call(name, {})]) for name in ("list_accounts", "list_bills")]
    ten, five = (
        write_calls([Call("transfer", {"from_account": one, "to_account": two, "amount": n})]) for n in (10, 5)
    )

    def state(*ways):
        return world.state(task, play(world, task, ways))

    assert play(world, task, [ten])[-1] == play(world, task, [five])[-1] and state(ten) != state(five)
    assert state(five, five) == state(f"First this. {ten}") != state(*looks, ten)
    assert state(*looks, ten) == state(*looks[::-1], ten) != state(looks[0], ten)
    assert state() == world.state(task, []) != state(looks[0])
    assert TaskWorld.state(world, task, play(world, task, [ten])) == play(world, task, [ten])[-1].content
    assert TaskWorld.state(world, task, say("?")) == task.prompt[-1].content


def test_what_keeps_to_the_form_is_valid_right_or_wrong():
    world = Tools()
    text = 'tools: get_forecast, set_timer\nrequest: Weather in Oslo?\ncall: get_forecast(city="Oslo")'
    call, words = (
        written(text).task(),
        written("simulator: files 7\nrequest: Who wrote Emma?\nanswer: Jane Austen").task(),
    )
    said = {
        '{"name": "get_forecast", "arguments": {"city": "Oslo"}}': (1, True),
        '{"name": "get_forecast", "arguments": {"city": "Rome"}}': (0, True),
        "[]": (0, True),
        "It rains in Oslo.": (0, False),
        '{"name": "get_forecast"': (0, False),
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}': (0, False),
        '{"name": "get_forecast", "arguments": {"town": "Oslo"}}': (0, False),
    }
    assert {t: ((v := world.score(call, say(t))).reward, v.valid) for t in said} == said
    spoken = {"<answer>Jane Austen</answer>": True, "<answer>Fritz</answer>": True, "Jane Austen": False, "": False}
    assert {text: world.score(words, say(text)).valid for text in spoken} == spoken
    assert not world.score(call, []).valid
    files = written('simulator: files 7\nrequest: Make a folder x.\ncall: make_folder(folder="x")').task()
    for folder, ran in (("photos", True), ("nope", False)):
        listed = write_calls([Call("list_files", {"folder": folder})])
        verdict = world.score(files, play(world, files, [listed, "Done."]))
        assert verdict.reward == 0 and verdict.valid is ran, "calls have to run"


def test_the_longest_tasks_can_be_done_call_by_call():
    world = Tools()
    for task in world.tasks(world.setting({"about": "several_steps", "steps": 4}), 12, seed=5):
        assert world.score(task, play(world, task, world.solution(task))).reward == 1


def test_turns_run_out():
    world = Tools(ToolsOptions(turns=3))
    (task,) = world.tasks(world.setting({"about": "several_steps"}), 1, 0)
    looking = write_calls([Call(SIMULATORS[Item.of(task).simulator].tools[0]["name"], {})])
    assert len(play(world, task, [looking] * 10)) == 5


def test_answers_in_words_are_soft():
    world = Tools(ToolsOptions(threshold=0.6))
    written = {"tools": [], "request": "Who wrote Emma?", "answer": "Jane Austen"}
    (task,) = world.tasks(world.setting({"task": json.dumps(written)}), 1, 0)
    rewards = {}
    for text in ("Jane Austen", "Austen", "It was Jane Austen", "Emily Bronte", "Jane or Emily or Charlotte or Anne"):
        verdict = world.score(task, say(f"Let me think. <answer>{text}</answer>"))
        rewards[text] = (round(verdict.reward, 2), bool(verdict.skills))
    assert rewards == {
        "Jane Austen": (1.0, True),
        "Austen": (0.67, True),
        "It was Jane Austen": (0.67, True),
        "Emily Bronte": (0.0, False),
        "Jane or Emily or Charlotte or Anne": (0.0, False),  # below the floor
    }
    assert f1("Jane Bronte", "Jane Austen") == FLOOR
    assert world.score(task, say("<answer>Jane Bronte</answer>")).reward == 0, "half is no more than the floor"
    sure = Tools(ToolsOptions(floor=1))
    assert sure.score(task, say("<answer>Jane Austen</answer>")).reward == 1
    assert world.score(task, say("Jane Austen")).reward == 0, "an answer is what stands between the marks"
    assert final_answer("<answer>a</answer> <answer> b </answer>") == "b" and final_answer("</answer>") == ""


def test_the_state_must_be_right_for_an_answer_to_count():
    world = Tools()
    drawn = (draw_item("answer_in_words", generator(i, "bank"), held_out=False) for i in range(99))
    item = next(item for item in drawn if item.simulator == "bank")
    task = item.task()
    card = next(iter(SIMULATORS["bank"].begin(item.start)["cards"]))
    meddled = write_calls([Call("set_frozen", {"card": card, "frozen": True})])
    look, answer = world.solution(task)
    assert world.score(task, play(world, task, [look, answer])).reward == 1
    assert world.score(task, play(world, task, [look, meddled, answer])).reward == 0


def test_an_answer_that_nobody_looked_up_is_a_guess():
    world = Tools(ToolsOptions(turns=2))
    for task in world.tasks(world.setting({"about": "answer_in_words"}), 8, seed=2):
        *looks, answer = world.solution(task)
        refused = write_calls([Call("list_folders", {"to": 1}), Call("no_such", {})])
        for way in (
            [answer],
            [refused, answer],
            [looks[0] + answer],
            ["Let me see.", answer],
            ["<tool_call>{", answer],
        ):
            verdict = world.score(task, say(*way))
            assert verdict.reward == 0 and "guess" in verdict.why, way
        assert world.score(task, say(looks[0], answer)).reward == 1
    known = written("simulator: files 7\nrequest: Who wrote Emma?\nanswer: Jane Austen")
    assert not task_fault(known) and score_attempt(known, say("<answer>Jane Austen</answer>"))[0] == 1, (
        "gold calls nothing either"
    )


def test_to_list_all_that_it_could_be_is_no_answer():
    world = Tools()
    look, days = write_calls([Call("list_events", {})]), " ".join(DAYS)
    asked = [t for t in world.tasks(world.setting({"about": "answer_in_words"}), 200, 1) if Item.of(t).answer in DAYS]
    assert len(asked) > 5
    for task in asked:
        assert world.score(task, say(look, f"<answer>{days}</answer>")).reward == 0
        assert world.score(task, say(look, f"<answer>{Item.of(task).answer.lower()}.</answer>")).reward == 1


@pytest.mark.parametrize("seed", [1, for_test(1)])
def test_no_answer_pays_for_all_tasks(seed):
    """Any call that runs and then always the same words: the words that gold holds most often, and the days."""
    tasks = (world := Tools()).tasks(world.setting({"about": "answer_in_words"}), 200, seed)
    golds = [Item.of(task).answer for task in tasks]
    often = [word for word, _ in Counter(word for gold in golds for word in words(gold)).most_common(40)]
    guesses = {*golds, *often, *(" ".join(often[:n]) for n in range(2, 7)), " ".join(DAYS), "All about apples."}
    best = max(guesses, key=lambda guess: sum(soft(guess, gold) for gold in golds))
    for way in ((f"<answer>{best}</answer>",), (write_calls([look]) for look in LOOKS)):
        said = say(*way, f"<answer>{best}</answer>")
        assert sum(world.score(task, said).reward for task in tasks) / len(tasks) < 0.05, best
    assert "earns less than 0.05 a task" in PAGE


LOOKS = [Call("list_folders", {}), Call("list_events", {}), Call("list_bills", {}), Call("view_cart", {})]


def soft(guess, gold):
    """What a guess earns after a look."""
    return likeness if (likeness := f1(guess, gold)) > FLOOR else 0.0


def test_likeness_by_a_sentence_model_from_a_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]))
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=21, **small)).save_pretrained(tmp_path)
    like = likeness("embedding", str(tmp_path))
    assert like("-5", "5") == 0 and like("5.0", "5") == 1, "numbers are compared as numbers"
    exact = {"3:30": "3:31", "1/2": "2/1", "2024-01-12": "2024-01-13", "5 km": "17 km", "at 3 pm": "at 4 pm", "a": "b"}
    assert not any(like(said, gold) for gold, said in exact.items()) and like("5km", "5 km") == 1
    assert like("a b", "a b") == pytest.approx(1) and 0 <= like("p", "a b") < 1 and like(" ", "a b") == 0
    world = Tools(ToolsOptions(likeness="embedding", sentence_model=str(tmp_path)))
    (task,) = world.tasks(world.setting({"task": '{"tools": [], "request": "?", "answer": "a b"}'}), 1, 0)
    assert world.score(task, say("<answer>a b</answer>")).reward == 1


def test_what_an_echo_gets_from_a_sentence_model_is_none(monkeypatch):
    """To such a model a question is like its answer; a stand-in that says by how much."""
    world, like = Tools(), {"a painter": 0.7, "Who painted it?": 0.55, "Leonardo": 1.0}
    (task,) = world.tasks(
        world.setting({"task": '{"tools": [], "request": "Who painted it?", "answer": "Leonardo"}'}), 1, 0
    )
    monkeypatch.setattr(world, "_likeness", lambda answer, gold: like.get(answer, 0.5))
    monkeypatch.setattr(
        world, "options", ToolsOptions.model_construct(**{**dict(world.options), "likeness": "embedding"})
    )
    earned = [
        world.score(task, say(f"<answer>{answer}</answer>")).reward
        for answer in ("Leonardo", "a painter", "Who painted it?", "junk", task.prompt[-1].content)
    ]
    assert earned == [1.0, 0.7, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"likeness": "embedding"}, UsageError, "needs sentence_model"),
        ({"source": "bfcl"}, UsageError, "needs data"),
        ({"source": "bfcl", "data": "/no/such"}, UsageError, "cannot be read"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        Tools(ToolsOptions(**options))
