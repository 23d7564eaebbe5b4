"""The pools of both players: what is kept, and that others read it as it is."""

import json

import pytest
from helpers.grpo_agents import Solved, agent, scripted
from helpers.language_policies import RecordingContext, policy
from helpers.sweep import quiet, scores
from helpers.tiny_model import Pick, Steps

from curricle.errors import RunDamaged
from curricle.llm import pools
from curricle.records import Message, Outcome

trl = pytest.importorskip("trl")


def loaded(path):
    from datasets import load_dataset

    return load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))


def test_the_pool_is_read_by_others(tmp_path):
    """As TRL and verl do: a chat list, a ground truth, a data source."""
    one = agent()
    scripted(one, "aye")
    one.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    one.save(tmp_path)
    rows = loaded(tmp_path / pools.TRAIN)
    assert rows[0]["prompt"] == [{"role": "user", "content": "a"}] and rows[0]["data_source"] == "pick-v1"
    truth = '{"wanted": "a", "by": "its kind"}'
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": truth} and rows[0]["ability"] == "vowel"
    assert pools.read(tmp_path / pools.TRAIN) == list(one.pool.values())
    same, other = agent(), agent(Solved())
    for another in (same, other):
        another.load(tmp_path)
    assert same.pool == one.pool and not other.pool, "another world could not score its tasks"
    (tmp_path / pools.TRAIN).write_bytes(b"junk")
    with pytest.raises(RunDamaged, match=pools.TRAIN):
        one.load(tmp_path)


def test_the_pool_keeps_a_conversation_whole(tmp_path):
    """The world's turns stand between the agent's, as chat, so that TRL renders what was really said."""
    one = agent(Steps(), max_turns=3)
    scripted(one, *["cat"] * 8, *["fog"] * 8)  # eight tries, two turns each
    one.practise([Steps().unaltered()], 8, seed=0, report=quiet)
    one.save(tmp_path)
    assert pools.read(tmp_path / pools.TRAIN) == list(one.pool.values())
    (row,) = loaded(tmp_path / pools.TRAIN)
    said = [("assistant", "cat"), ("user", "warm"), ("assistant", "fog")]
    assert [(m["role"], m["content"]) for m in row["completion"]] == said
    shown = trl.apply_chat_template({k: row[k] for k in ("prompt", "completion")}, one.causal.tokenizer)
    assert shown == {
        "prompt": "<|start|>user\na<|end|>\n<|start|>assistant\n",
        "completion": "cat<|end|>\n<|start|>user\nwarm<|end|>\n<|start|>assistant\nfog<|end|>\n",
    }


def test_a_pool_of_before_conversations_were_kept_is_still_read(tmp_path):
    """It had one message a completion, the agent's turns in lines."""
    row = pools.Row(source="w", prompt=(Message(role="user", content="x"),), completion="cat\nfog", info={"id": "1"})
    pools.write(tmp_path / pools.TRAIN, [row])
    assert pools.read(tmp_path / pools.TRAIN) == [row] and row.before == ()


def test_the_pool_keeps_the_newest_tasks():
    one, world = agent(pool_size=3, tasks_per_update=5), Pick()
    scripted(one, "a", "c")
    noted = [world.setting({"note": note}).values for note in ("one", "two", "three", "four", "five")]
    designs = [world.unaltered().model_copy(update={"setting": values}) for values in noted]
    one.practise(designs, 20, seed=0, report=quiet)
    assert [row.prompt[0].content for row in one.pool.values()] == ["threea", "foura", "fivea"]


def test_the_environments_pool_is_read_by_others(tmp_path):
    """Request and task as a chat, the weight beside it."""
    world, designer = Pick(), policy(text="off", aim="task", oversample=1.0)
    designs = designer.propose(world.brief(1, 2), 2, RecordingContext(world))
    designer.learn(
        [Outcome(design=d, attempts=10, successes=5) for d in designs], scores(world), RecordingContext(world)
    )
    designer.save(tmp_path)
    row = loaded(tmp_path / pools.ENV)[0]
    assert row["data_source"] == "pick-v1" and row["weight"] > 1 and json.loads(row["extra_info"]["info"])["p"] == 0.5
    assert json.loads(row["reward_model"]["ground_truth"])["letter"] == designs[0].setting["letter"]
    shown = trl.apply_chat_template({k: row[k] for k in ("prompt", "completion")}, designer.causal.tokenizer)
    assert shown["prompt"].startswith("<|start|>user\n") and shown["completion"].startswith("letter: ")
