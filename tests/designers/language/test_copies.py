"""What the environment policy may not write again, and what stands in for it."""

import pytest
from helpers.language_policies import RecordingContext, policy, script, writing
from helpers.tiny_model import Pick, tiny

from curricle.designers.language import Language, LanguageOptions
from curricle.setting import written_texts
from curricle.worlds.text.tools.world import Tools


def test_copies_of_the_seed_are_dropped_and_the_fallback_is_the_seed():
    class Seeded(Pick):
        id = "seeded-v1"

        def examples(self, cycle):
            return [self.setting({"note": f"say a letter please, number {cycle}"}).values]

    world, designer = Seeded(), policy(oversample=1.0, max_rounds=2, text="required", aim="task")
    script(designer, {"note": "Say a letter, please, number 1"}, {"note": "something quite different for once"})
    context = RecordingContext(world)
    designs = designer.propose(world.brief(1, 2), 2, context)
    assert context.metrics["design/duplicate"] == 2.0
    assert [d.setting["note"] for d in designs] == [
        "something quite different for once",
        "say a letter please, number 1",
    ]
    assert "```\nsay a letter please, number 1\n```" in designer.rows[0].prompt[0].content
    assert designs[0].aim is None and designer.rows[0].info["group"] == "1/0"


def test_a_text_of_an_earlier_cycle_is_a_copy_also_after_a_restart(tmp_path):
    world, designer = Pick(), policy(oversample=1.0, max_rounds=1, text="required")
    first, second = ({"note": f"tell me about {what} now please"} for what in ("the moon", "our sun"))
    script(designer, first)
    designer.propose(world.brief(1, 3), 1, RecordingContext(world))
    designer.save(tmp_path)
    again = policy(oversample=1.0, max_rounds=1, text="required")
    again.load(tmp_path)
    for one in (designer, again):
        script(one, first, second)
        assert [d.by for d in one.propose(world.brief(2, 3), 2, RecordingContext(world))] == [
            "",
            "language-v1 fallback",
        ]
        assert [row.info["fault"] for row in one.rows] == ["", "duplicate", ""]
        assert one.rows[1].info["why"] == "a copy of an earlier text"


class Seeded(Pick):
    """Two seed tasks a cycle, and one in the guide."""

    id = "two-seeds-v1"
    guide = "A note may say something.\n\nsay the first letter of your street\n\nAnswers begin with a letter."

    def examples(self, cycle):
        notes = (f"{what} number {cycle} of this little list" for what in ("a letter", "some other"))
        return [self.setting({"note": note}).values for note in notes]


@pytest.mark.parametrize(
    "note", ["some other number 1 of this little list", "Say the first letter of your street!"], ids=["seed", "guide"]
)
def test_nothing_that_a_request_has_shown_is_new(note, tmp_path):
    """Also a seed of an earlier cycle, which the policy may have learnt by heart, and after a restart."""
    options = {"oversample": 1.0, "max_rounds": 1, "text": "required", "aim": "task"}
    world, designer = Seeded(), policy(**options)
    script(designer, {"note": "completely new words of mine"})
    designer.propose(world.brief(1, 2), 1, RecordingContext(world))
    designer.save(tmp_path)
    again = policy(**options)
    again.load(tmp_path)
    for one in (designer, again):
        script(one, {"note": note})
        (design,) = one.propose(world.brief(2, 2), 1, RecordingContext(world))
        assert one.rows[-1].info["fault"] == "duplicate" and design.by == "language-v1 fallback"


@pytest.mark.parametrize(("cycles", "fault"), [(0, "duplicate"), (1, ""), (2, "duplicate")])
def test_only_texts_of_the_last_cycles_may_not_come_again(cycles, fault, tmp_path):
    world = Seeded()
    options = {"oversample": 1.0, "max_rounds": 1, "text": "required", "aim": "task", "copy_cycles": cycles}
    designer = policy(**options)
    for cycle, note in ((1, "completely new words of mine"), (2, "and then something else again")):
        script(designer, {"note": note})
        designer.propose(world.brief(cycle, 3), 1, RecordingContext(world))
    designer.save(tmp_path)
    again = policy(**options)
    again.load(tmp_path)
    for one in (designer, again):
        script(one, {"note": "completely new words of mine"})
        one.propose(world.brief(3, 3), 1, RecordingContext(world))
        assert one.rows[-1].info["fault"] == fault


def test_no_seed_stands_in_twice_before_all_have():
    world, designer = Seeded(), policy(oversample=1.0, max_rounds=1, text="required", aim="task")
    designer._write = lambda asked, seed: [writing(designer, "endless") for _ in asked]
    notes = [d.setting["note"] for d in designer.propose(world.brief(1, 2), 4, RecordingContext(world))]
    assert len(set(notes[:2])) == len(set(notes[2:])) == 2


def test_an_example_of_the_guide_of_tool_tasks_is_no_task_of_its_own():
    parts = [part for part in Tools.guide.split("\n\n") if part.startswith(("tools:", "simulator:"))]
    assert len(parts) == 3 and all(tool_copies().refusal(part) for part in parts)


def tool_copies():
    """What a policy for tool tasks may not write in its first cycle."""
    designer = Language(Tools.Setting, LanguageOptions(model=tiny(), device="cpu"))
    return designer._earlier_texts(Tools().brief(1, 1))


@pytest.mark.parametrize(
    "text",
    [
        "tools: set_timer, get_forecast\nrequest: How will Rome be for 3 days?\n"
        'call: get_forecast(city="Rome", days=3)',
        "tools: get_forecast, set_timer, split_bill, play_music\nrequest: How will Rome be for 3 days?\n"
        'call: get_forecast(days=3, city="Rome")',
        '{"tools": ["get_forecast"], "request": "How will Rome be for 3 days?", "calls": [{"name": "get_forecast", '
        '"arguments": {"days": 3, "city": "Rome"}}]}',
        'simulator: bank 9\nrequest: Freeze my silver card.\ncall: set_frozen(card="silver", frozen=true)',
    ],
    ids=["order", "more tools", "JSON", "start"],
)
def test_what_is_asked_and_gold_make_a_tool_task_another_one(text):
    copies, setting = tool_copies(), Tools.Setting.of({"task": text})
    texts = written_texts(Tools.Setting, setting.values, {"task": ""})
    assert any(copies.refusal(one) for one in texts) and not copies.refusal(text), "as it stands it looks new"
    counterpart = 'When does the sun rise in Oslo?\ncall: get_sunrise(city="Oslo")'
    fitting = written_texts(
        Tools.Setting, {"task": f"tools: get_sunrise, play_music\nrequest: {counterpart}"}, {"task": ""}
    )
    assert len(fitting) == 2 and not any(map(copies.refusal, fitting)), "the guide has it without its tool"
    other = Tools.Setting.essence("task", text.replace("Rome", "Oslo").replace("3", "7").replace("silver", "gold"))
    assert not copies.refusal(other)
