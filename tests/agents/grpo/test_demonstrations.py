"""Demonstrations from a file: they are learnt, each bad line is refused by its number, and resumed runs draw alike."""

import hashlib
import json
import os
from collections import Counter
from typing import Any

import pytest
from helpers import paths
from helpers.killing import contents
from helpers.skips import skip_without
from helpers.sweep import quiet

skip_without("llm")

from helpers.tiny_model import Pick, Steps  # noqa: E402 - they need the extra

from curricle import config  # noqa: E402
from curricle.agents.grpo import GRPO, demonstrations  # noqa: E402
from curricle.errors import AgentError, WorldError  # noqa: E402
from curricle.seeds import for_test  # noqa: E402
from curricle.tracking.watcher import Watcher  # noqa: E402

ANSWERS = {"a": "c", "b": "a", "c": "b"}
"""A right answer to each letter."""
GOOD = [{"setting": {"letter": letter}, "seed": 3, "replies": [answer]} for letter, answer in ANSWERS.items()]


def written(tmp_path, *lines, name="shown.jsonl"):
    """A file of these lines; texts are written as they are."""
    path = tmp_path / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


OPTIONS: dict[str, Any] = {
    "model": "scratch",
    "lora": 0,
    "device": "cpu",
    "learning_rate": 1e-3,
    "group_size": 2,
    "tasks_per_update": 2,
    "max_tokens": 4,
    "imitation_updates": 2,
    "imitation_learning_rate": 3e-3,
}


def agent(path, world=None, **options):
    return GRPO(world or Pick(), GRPO.Options(**(OPTIONS | {"demonstrations": path} | options)), seed=0)


def test_it_learns_what_the_file_shows(tmp_path):
    one = agent(written(tmp_path, *GOOD), imitation_updates=40)
    designs = [one.world.unaltered().model_copy(update={"setting": {"letter": letter, "most": 3}}) for letter in "abc"]
    outcomes = one.measure(designs, [1, 2, 3], 3)
    assert [outcome.successes for outcome in outcomes] == [3, 3, 3]
    assert one.imitated == 40


def test_a_line_may_leave_out_seed_and_knobs_and_hold_a_written_text(tmp_path):
    path = written(tmp_path, {"replies": ["c"]}, {"setting": {"note": "now: "}, "replies": ["f"]})
    found = agent(path)._read_demonstrations()
    tokenizer = agent(path).causal.tokenizer
    assert [tokenizer.decode(example.prompt) for example in found.examples] == ["a\n>", "now: a\n>"]
    assert found.sha256 == hashlib.sha256((tmp_path / "shown.jsonl").read_bytes()).hexdigest()


def test_several_turns_are_said_in_turn_and_only_they_are_learnt(tmp_path):
    one = agent(written(tmp_path, {"replies": ["x", "c"]}), Steps())
    (example,) = one._read_demonstrations().examples
    said = [token for token, own in zip(example.reply, example.mask, strict=True) if own]
    assert one.causal.tokenizer.decode(said) == "x<end>c<end>"
    assert "warm" in one.causal.tokenizer.decode(example.reply)


def test_all_lines_are_used_once_before_any_is_used_again():
    examples: list[Any] = list(range(7))
    found: Any = demonstrations.Demonstrations("here", "", examples)
    drawn = [found.draw(1, update, 3) for update in range(7)]
    assert Counter(number for batch in drawn for number in batch) == dict.fromkeys(range(7), 3)
    assert len({number for batch in drawn[:2] for number in batch}) == 6
    assert drawn[4] == found.draw(1, 4, 3), "the number of the update decides"
    assert drawn != [found.draw(2, update, 3) for update in range(7)]
    assert sorted(found.draw(1, 5, 64)) == list(range(7)), "of few, an update takes all"


DEEP = '{"setting": ' * 50_000
BAD = {
    "not JSON": ('{"replies": ["c"]', "it is not JSON: Expecting ',' delimiter at column 18"),
    "blank": ("", "it is not JSON"),
    "deep": (DEEP, "it cannot be read"),
    "nested": ({"setting": {"note": json.loads("[" * 40 + "]" * 40)}, "replies": ["c"]}, "nested more than 16"),
    "list": (["c"], r"\['c'\] is not a JSON object"),
    "unknown field": ({"replies": ["c"], "reply": "c"}, "unknown key 'reply', did you mean 'replies'"),
    "no replies": ({"setting": {}}, "'replies' is missing"),
    "empty replies": ({"replies": []}, "replies"),
    "empty reply": ({"replies": [" "]}, "reply 1 is empty"),
    "number as reply": ({"replies": [3]}, "replies.0 = 3 is refused"),
    "seed as text": ({"seed": "1", "replies": ["c"]}, "seed = '1' is refused"),
    "seed below 0": ({"seed": -1, "replies": ["c"]}, "seed = -1 is refused"),
    "large seed": ('{"seed": ' + "9" * 5000 + ', "replies": ["c"]}', "it cannot be read: .*digits"),
    "seed for tests": ({"seed": for_test(4), "replies": ["c"]}, f"seed = {for_test(4)} is for tests"),
    "unknown knob": ({"setting": {"leter": "a"}, "replies": ["c"]}, "unknown knob 'leter', did you mean 'letter'"),
    "bad value": ({"setting": {"letter": "z"}, "replies": ["c"]}, "letter = 'z' is not allowed: a | b | c"),
    "no number": ('{"setting": {"most": NaN}, "replies": ["c"]}', "setting.most"),
    "half a character": ('{"replies": ["\\ud800"]}', "holds a character that no file can hold"),
    "wrong answer": ({"replies": ["a"]}, r"replies = \['a'\] do not solve 'a', says pick-v1; correct the line"),
    "too many replies": ({"replies": ["c", "c"]}, "pick-v1 ends the attempt after 1 of 2 replies"),
    "long reply": ({"replies": ["ccccc"]}, "reply 1, 'ccccc', takes 6 tokens with its end, but .* max_tokens = 4"),
    "unknown symbol": ({"replies": ["é"]}, "the tokenizer of 'scratch' cannot write 'é'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_refused_with_its_number(kind, tmp_path):
    line, what = BAD[kind]
    one = agent(written(tmp_path, GOOD[0], line, GOOD[1]))
    with pytest.raises(AgentError, match=r"shown.jsonl', line 2: .*" + what.replace("|", r"\|")):
        one.ready()
    assert one.imitated == 0


def test_too_few_and_too_many_turns_are_refused(tmp_path):
    with pytest.raises(AgentError, match="line 1: steps-v1 waits for more than its 1 replies to 'a'"):
        agent(written(tmp_path, {"replies": ["c"]}), Steps()).ready()
    with pytest.raises(AgentError, match=r"line 1: it has 2 replies, but \[agent\] max_turns = 1"):
        agent(written(tmp_path, {"replies": ["c", "c"]}), Steps(), max_turns=1).ready()


def test_a_world_that_breaks_down_is_refused_with_the_line(tmp_path, monkeypatch):
    one = agent(written(tmp_path, GOOD[0]))

    def broken(setting, n, seed):
        raise WorldError("no such task")

    monkeypatch.setattr(one.task_world, "tasks", broken)
    with pytest.raises(AgentError, match="line 1: no such task"):
        one.ready()


def test_a_file_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentError, match=r"'gone.jsonl' cannot be read: No such file.*begins in the current folder"):
        agent("gone.jsonl").ready()
    written(tmp_path, *GOOD)
    agent("shown.jsonl").ready()
    with pytest.raises(AgentError, match="cannot be read: Is a directory"):
        agent(str(tmp_path)).ready()
    with pytest.raises(AgentError, match="is not a regular file"):
        agent(os.devnull).ready()
    with pytest.raises(AgentError, match="holds no line"):
        agent(written(tmp_path)).ready()
    (tmp_path / "latin").write_bytes(b'{"replies": ["\xe9"]}\n')
    with pytest.raises(AgentError, match="line 1: it is not UTF-8: byte 15 is 0xe9"):
        agent("latin").ready()


def test_a_file_of_any_size_is_read_up_to_a_bound(tmp_path, monkeypatch):
    path = written(tmp_path, GOOD[0], GOOD[1], "x" * (demonstrations.LONGEST_LINE + 1))
    with pytest.raises(AgentError, match="line 3: it has 1,048,577 bytes; at most 1,048,576 are read"):
        agent(path).ready()
    monkeypatch.setattr(demonstrations, "MOST", 2)
    with pytest.raises(AgentError, match="has 3 lines; at most 2 are read"):
        agent(path).ready()
    with open(path, "r+b") as file:
        file.truncate(2**40)  # a sparse file, which takes no room
    with pytest.raises(AgentError, match="has more than 67,108,864 bytes"):
        agent(path).ready()


def test_settings_beside_a_file_are_refused(tmp_path):
    with pytest.raises(AgentError, match=r"demonstrations = .* and imitation_settings are both given"):
        agent(written(tmp_path, *GOOD), imitation_settings=({"letter": "a"},))


def test_a_file_that_nothing_imitates_is_told(tmp_path, caplog):
    agent(str(tmp_path / "gone"), imitation_updates=0).ready()
    assert "imitation_updates = 0, so" in caplog.text


def run(path, **more):
    return {
        "world": {"id": paths.PICK},
        "designer": {"id": "random"},
        "agent": {"id": "grpo", **OPTIONS, "demonstrations": path, "imitation_tasks": 2, "imitation_updates": 3},
        "schedule": {
            "cycles": 1,
            "designs": 2,
            "per_cycle": 8,
            "ratio": "1:0",
            "final": 0,
            "save_every": 4,
            "test_seeds": 1,
        },
        "log": {"tensorboard": False},
        **more,
    }


class Stop(Watcher):
    """Interrupts a run after some reports."""

    def __init__(self, after):
        self.left = after

    def report(self, total, in_step, metrics):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_a_bad_file_leaves_no_run_folder_behind(tmp_path):
    with pytest.raises(AgentError, match="line 1"):
        config.start(config.resolve(run(written(tmp_path, "?"))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("after", [2, 4])
def test_an_interrupted_run_ends_with_the_same_bytes(after, tmp_path):
    """Once it is interrupted between two updates of imitation, once after them."""
    plain = run(written(tmp_path, *GOOD))
    config.start(config.resolve(plain), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        config.start(config.resolve(plain), tmp_path / "broken", Stop(after))
    config.resume(tmp_path / "broken")
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_a_changed_file_is_refused_when_a_run_goes_on(tmp_path):
    path = written(tmp_path, *GOOD)
    with pytest.raises(KeyboardInterrupt):
        config.start(config.resolve(run(path)), tmp_path / "run", Stop(4))
    written(tmp_path, *GOOD[:2])
    with pytest.raises(AgentError, match=r"shown.jsonl' has changed: its SHA-256 is .* restore the file"):
        config.resume(tmp_path / "run")
    _, trained = config.trained(tmp_path / "run", trusted=True)
    assert trained.measure([trained.world.unaltered()], [1], 1), "to be tested it needs no file"
    os.unlink(path)
    config.resume(tmp_path / "run")


def test_more_imitation_from_a_changed_file_is_refused(tmp_path):
    path = written(tmp_path, *GOOD)
    one = agent(path)
    one.practise([one.world.unaltered()], 0, seed=1, report=quiet)
    (tmp_path / "saved").mkdir()
    one.save(tmp_path / "saved")
    state = json.loads((tmp_path / "saved" / "state.json").read_text())
    assert state["demonstrations"] == hashlib.sha256((tmp_path / "shown.jsonl").read_bytes()).hexdigest()
    written(tmp_path, *GOOD[:2])
    other = agent(path, imitation_updates=3)
    other.load(tmp_path / "saved")
    with pytest.raises(AgentError, match="has changed"):
        other.measure([one.world.unaltered()], [1], 1)
    written(tmp_path, *GOOD)
    other.measure([one.world.unaltered()], [1], 1)
    assert other.imitated == 3
