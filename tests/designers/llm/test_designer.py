"""The llm designer: what it tells a model, what it does with the answer, and what the record says of both."""

import json
import logging
import re
import sys

import pytest
from helpers import endpoint_server as lo
from helpers.sweep import LADDER, VAULT, WORLDS, Bench, scores
from helpers.tiny_model import Pick

from curricle.designers.llm import prompts
from curricle.designers.llm.designer import LLM, LLMOptions
from curricle.designers.llm.disguise import KEPT, Disguise
from curricle.errors import UsageError
from curricle.llm.client import size
from curricle.records import Cycle, Design, Frozen, Outcome, checked
from curricle.seeds import generator


def llm(world, server=None, **options):
    given = {"model": "m", "base_url": server.url, "backoff": 0.001, "timeout": 30.0} if server else {}
    return LLM(world.Setting, checked(LLMOptions, given | options, "options"), seed=3)


def propose(acts, world=None, n=2, cycle=1, past=(), **options):
    world, bench = world or LADDER(), Bench(LADDER())
    with lo.Loopback(acts) as server:
        designs = llm(world, server, **options).propose(world.brief(cycle, 4, past), n, bench)
    return designs, server, bench


def played(world, by="llm-v1", aim="sums", **values):
    design = Design(setting=world.setting(values).values, aim=aim, why="it seemed right", by=by)
    names = [skill.name for skill in world.skills]
    return Outcome(design=design, attempts=10, successes=4, skills=Frozen({names[0]: 4}))


def past(world, cycles, by="llm-v1", **values):
    outcome = played(world, by, **values)
    return [Cycle(number=i, designed=(outcome,), scores=scores(world, sums=0.38)) for i in range(1, cycles + 1)]


def test_a_good_answer_is_taken_as_it_is():
    designs, server, bench = propose([lo.says(lo.ladder(0.1, 0.2))])
    assert [(d.setting["difficulty"], d.aim, d.why, d.by, d.changed) for d in designs] == [
        (0.1, "sums", "x", "", ()),
        (0.2, "sums", "x", "", ()),
    ]
    assert len(server.requests) == 1 and bench.exchanges[0].reply == lo.ladder(0.1, 0.2)
    assert bench.metrics == [
        {"designer/calls": 1, "designer/failed_calls": 0, "designer/repaired": 0, "designer/fallback": 0}
    ]


def test_repairs_stand_in_the_record():
    designs, _, bench = propose([lo.says('{"designs": [{"setting": {"Difficulty": "0.5"}, "aim": "Sums"}]}')], n=1)
    assert designs[0].changed == (
        "'Difficulty' read as difficulty",
        "difficulty = '0.5' read as 0.5",
        "aim 'Sums' read as sums",
    )
    assert bench.metrics[0]["designer/repaired"] == 1


def test_a_bad_answer_is_answered_with_its_error():
    bad = '{"designs": [{"setting": {"difficulty": "hard"}, "aim": "sums"}]}'
    designs, server, _ = propose([lo.says(bad), lo.says(lo.ladder(0.1, 0.2))])
    assert len(designs) == 2
    first, second = (request["messages"] for request in server.requests)
    assert second[: len(first)] == first and second[-2] == {"role": "assistant", "content": bad}
    assert "- design 1: difficulty = 'hard' is not allowed: number from 0 to 1" in second[-1]["content"]
    assert "Answer again with all 2 designs" in second[-1]["content"]


def test_what_can_be_used_of_the_best_answer_is_used():
    two = lo.ladder(0.1, 0.2)
    designs, server, _ = propose([lo.says("no"), lo.says(two), lo.says(lo.ladder(0.3))], n=3)
    assert [d.setting["difficulty"] for d in designs] == [0.1, 0.2] and len(server.requests) == 3
    assert "3 designs are needed, 2 can be used" in designs[0].changed[-1] and designs[0].by == ""


@pytest.mark.parametrize(
    ("acts", "options", "calls", "reason"),
    [
        ([lo.says("I'm sorry, I can't.")], {}, 3, "the answer holds no design in JSON"),
        ([lo.says(None)], {"max_reprompts": 0}, 1, "the answer is empty"),
        ([lo.says('{"designs": [{"setting": {"dif', "length")], {"max_reprompts": 1}, 2, "cut off"),
        ([lo.answers(500, "down")], {"retries": 2}, 3, "500: down"),
        ([lo.answers(401, "who are you?")], {}, 1, "401: who are you?"),
        ([lo.drops], {"retries": 1}, 2, "the connection failed"),
        ([lo.says("no")], {"calls": 2}, 2, "the budget of 2 calls is spent"),
        ([lo.says("no")], {"tokens": 100}, 0, "the budget of 100 tokens has no room"),
    ],
)
def test_the_fallback_designs_and_the_record_says_so(acts, options, calls, reason, caplog):
    with caplog.at_level(logging.WARNING, "curricle"):
        designs, server, bench = propose(acts, **options)
    assert len(designs) == 2 and len(server.requests) == len(bench.exchanges) == calls
    for design in designs:
        assert design.by == "tutor-v1" and design.changed[0].startswith("llm-v1 gave no design: ")
        assert reason in design.changed[0]
    assert bench.metrics[-1]["designer/fallback"] == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("cycle 1: llm-v1 gave no design: ") and line.endswith("tutor-v1 designs instead")


def test_the_fallback_is_ones_choice():
    designs, _, _ = propose([lo.says("no")], fallback="random", max_reprompts=0)
    assert {d.by for d in designs} == {"random-v1"}
    designs, _, _ = propose([lo.says("no")], fallback="fixed", fallback_options={"of": "random"}, max_reprompts=0)
    assert {d.by for d in designs} == {"fixed-v1"}


def test_the_fallback_learns_all_along_and_is_saved(tmp_path):
    world, designer = LADDER(), llm(LADDER())
    failed = played(world, difficulty=0.1)
    designer.learn([failed.model_copy(update={"successes": 10})], scores(world), Bench(world))
    designer.save(tmp_path)
    other = llm(world)
    other.load(tmp_path)
    assert other.fallback.ease == designer.fallback.ease == {"sums": 0.75}


@pytest.mark.parametrize("kind", WORLDS, ids=lambda cls: cls.id)
def test_the_prompt_holds_the_whole_declaration(kind):
    world = kind()
    (message,) = llm(world).prompt(world.brief(1, 4), 4)
    assert world.guide.strip() in message.content and "Design 4 different environments" in message.content
    for knob in world.Setting.knobs():
        assert f"- {knob.line}" in message.content
    for skill in world.skills:
        assert f"- {skill.name}" in message.content
    assert "%" not in message.content.split("## Cycle 1")[1], "nothing is known of the agent yet"


def test_feedback_as_in_the_paper():
    world = VAULT(original=VAULT.Setting(dials=4))
    design = Design(setting=world.setting({"alarm": 0.1}).values, aim="open_1", by="llm-v1")
    told = (
        Outcome(design=design, attempts=10, successes=4, skills=Frozen({"open_1": 4, "open_2": 1})),
        Outcome(design=design.model_copy(update={"aim": None}), attempts=0, successes=0),
    )
    cycles = [Cycle(number=1, designed=told, scores=scores(world, open_1=0.38))]
    first, answer, last = (m.content for m in llm(world).prompt(world.brief(2, 4, cycles), 4))
    assert "original 4): " in first and "## Cycle 1 of 4" in first
    assert '{"setting": {"alarm": 0.1}, "aim": "open_1", "why": ""}' in answer
    for line in (
        "## Cycle 2 of 4",
        "- open_1: 38% +/- 10%",
        "1. aim open_1; alarm = 0.1. 10 attempts, 40% reached the aim. Skills unlocked: open_1 40%, open_2 10%.",
        "2. aim the whole world; alarm = 0.1. No attempt was finished.",
    ):
        assert line in last.splitlines()


def test_the_chat_grows_turn_by_turn():
    world = LADDER()
    two, three = (llm(world).prompt(world.brief(c, 4, past(world, c - 1, difficulty=0.1)), 2) for c in (2, 3))
    assert three[:2] == two[:2] and [m.role for m in three] == ["user", "assistant"] * 2 + ["user"]
    assert three[2] == two[2], "what was said once is said the same way again"


@pytest.mark.parametrize("most", [0, 600, 800, 1000, 1400, 100_000])
def test_the_chat_is_kept_within_its_budget(most):
    world = LADDER()
    brief = world.brief(9, 9, past(world, 8, difficulty=0.1))
    prompt = llm(world, max_prompt_tokens=most).prompt(brief, 2)
    shortest = llm(world, max_prompt_tokens=0).prompt(brief, 2)
    assert len(shortest) == 1 and (size(prompt) <= most or prompt == shortest)
    assert prompt[0].content.startswith(f"# {world.id}\n\n{world.guide}"), "the world always stands first"
    assert prompt[-1].content.endswith("Design 2 different environments for this cycle.")
    assert (len(prompt) == 17) == (most == 100_000)
    assert [m.role for m in prompt] == (["user", "assistant"] * 9)[: len(prompt)]


def test_designs_of_the_fallback_are_reported_but_not_put_into_the_models_mouth():
    world = LADDER()
    (message,) = llm(world).prompt(world.brief(2, 4, past(world, 1, by="tutor-v1", difficulty=0.1)), 2)
    assert "1. aim sums; difficulty = 0.1." in message.content and "it seemed right" not in message.content


def test_examples_of_a_world_are_shown():
    class Wordy(LADDER):
        id = "wordy-v1"

        def examples(self, cycle):
            return [Frozen({"topic": "words", "difficulty": cycle / 10})]

    (message,) = llm(Wordy()).prompt(Wordy().brief(1, 4), 2)
    assert message.content.endswith('Settings to vary:\n\n- {"topic": "words", "difficulty": 0.1}')


def notes(*texts):
    return lo.says(json.dumps({"designs": [{"setting": {"note": text}} for text in texts]}))


def test_copies_of_a_seed_or_of_another_design_are_refused():
    class Seeded(Pick):
        def examples(self, cycle):
            return [self.setting({"note": "say a letter of the first kind"}).values]

    world = Seeded()
    before = past(world, 1, aim=None, note="one of the earlier notes")
    same, near = "Say a letter, of the first kind!", "please say a letter of the first kind"
    acts = [notes(same, "quite a new note", "quite a new note!", "One of the earlier notes", "another new one")]
    designs, server, _ = propose(acts, world, n=3, cycle=2, past=before, max_reprompts=1)
    assert [d.setting["note"] for d in designs] == ["quite a new note", "another new one"]
    told = server.requests[1]["messages"][-1]["content"]
    assert all(f"design {number}: its text is a copy of an earlier text" in told for number in (1, 3, 4))
    (only,), _, _ = propose([notes(near)], world, n=1, near=0.9)
    assert only.setting["note"] == near, "near is one's choice"
    original = world.Setting(note="of the original")
    designs, _, _ = propose(
        [lo.says('{"designs": [{"setting": {"most": 1}}, {"setting": {"most": 2}}]}')], Seeded(original=original)
    )
    assert [d.setting["note"] for d in designs] == [original.note] * 2, "what is left as it is copies nothing"


def test_the_schema_asks_for_n_designs_of_this_world():
    schema = prompts.schema(VAULT().brief(1, 4), 4)["properties"]["designs"]
    assert (schema["minItems"], schema["maxItems"]) == (4, 4)
    fields = schema["items"]["properties"]
    assert fields["setting"] == VAULT.Setting.json_schema()
    assert fields["aim"]["enum"] == ["open_1", "open_2", "open_3", None]


FRAME = {"one", "number", "world"}
"""Words that the prompt has of its own: `one standard deviation`, `whole number from 1 to 5`."""


@pytest.mark.parametrize("kind", WORLDS, ids=lambda cls: cls.id)
def test_a_disguise_hides_every_name(kind):
    world = kind()
    brief = world.brief(2, 4, past(world, 1, aim=world.skills[0].name))
    names = [
        *(s.name for s in world.skills),
        *(k.name for k in brief.knobs),
        *(c for k in brief.knobs for c in k.choices),
    ]
    hidden = Disguise(brief).hide(brief)
    first, *rest = (m.content for m in llm(world, obfuscate=True).prompt(brief, 4))
    told = [first.split("## Your task")[0], *rest, hidden.guide, *(knob.sentence for knob in hidden.knobs)]
    said = set(re.findall(r"[a-z]+", "\n".join(told).lower().replace("harder: up", "")))
    for name in [world.id.rpartition("-v")[0], *names]:
        assert not set(re.findall(r"[a-z]+", name.lower())) & said - KEPT - FRAME, name
    assert len({knob.name for knob in hidden.knobs}) == len(brief.knobs)


def test_a_disguised_answer_is_turned_back():
    words = Disguise(LADDER().brief(1, 4))
    knob, other = words.knobs["difficulty"], words.knobs["topic"]
    setting = f'{{"{knob}": 0.3, "{other}": "{words.choices["words"].upper()}"}}'
    text = f'{{"designs": [{{"setting": {setting}, "aim": "{words.skills["words"]}", "why": "low {knob}"}}]}}'
    (design,), server, _ = propose([lo.says(text)], n=1, obfuscate=True)
    assert design.setting == {"difficulty": 0.3, "topic": "words"} and design.aim == "words"
    assert design.why == "low difficulty" and design.changed[0].startswith("topic = ")
    assert "difficulty" not in str(server.requests) and knob in str(server.requests[0]["response_format"])


def test_a_disguised_mistake_is_named_in_disguise():
    bad = '{"designs": [{"setting": {"difficulty": 0.3, "KNOB": "words"}, "aim": "sums"}]}'
    words = Disguise(LADDER().brief(1, 4))
    bad = bad.replace("KNOB", words.knobs["topic"])
    designs, server, _ = propose([lo.says(bad)], n=1, obfuscate=True, max_reprompts=1)
    complaint = server.requests[1]["messages"][-1]["content"]
    assert f"unknown knob 'difficulty', known: {', '.join(sorted(words.knobs.values()))}" in complaint
    assert f"{words.knobs['topic']} = 'words' is not allowed: {' | '.join(words.choices.values())}" in complaint
    assert designs[0].by == "tutor-v1"


@pytest.mark.parametrize("kind", WORLDS, ids=lambda cls: cls.id)
def test_a_disguise_is_lossless(kind):
    world = kind()
    disguise = Disguise(world.brief(1, 4))
    for i in range(20):
        setting = world.Setting.sample(generator(0, "disguise", i)).values
        assert disguise.real(disguise.values(setting)) == setting


def test_a_key_that_is_missing_stops_a_run_before_it_spends_anything():
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        llm(LADDER(), model="gpt-4o").propose(LADDER().brief(1, 4), 2, Bench(LADDER()))


def test_the_embedded_model_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError, match=r"pip install 'curricle\[embedded\]'"):
        llm(LADDER(), model="local").propose(LADDER().brief(1, 4), 2, Bench(LADDER()))
