"""One run by several processes: the updates of one, each attempt counted once, one writer, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from helpers import paths
from helpers.killing import contents
from helpers.process_ranks import PATIENCE, ended, launcher, making, near, updates, varied, whole_run
from helpers.tiny_model import Pick, tiny, tiny_qwen

from curricle import config
from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.errors import AgentError, UsageError
from curricle.records import Outcome
from curricle.run import JOURNAL, LOCK, read_config, read_records
from curricle.scale import ranks


@pytest.fixture(scope="module")
def launched():
    return launcher()


ASKED = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
ASKED |= {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
"""What accelerate's launcher says for `--use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP`."""


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"step_weight": 1.0}, {"lora": 4}], ids=["all weights", "adapter"])
def test_the_updates_of_two_ranks_are_those_of_one(options, launched, tmp_path):
    """12 rows, 6 a rank: the second group lies across both, and is compared as a whole, also by turns."""
    alone = launched(1, updates, options, tmp_path / "alone")
    both = [launched(2, updates, options, tmp_path / "both")]
    near(alone / "first", both[0] / "first")
    parts = {"trl": {"fsdp": True}} if options.get("lora") else {"environment": ASKED}
    begin = {"begin": str(alone / "first"), **parts}  # what one process wrote, two read, in parts
    both.append(launched(2, updates, {**options, **begin}, tmp_path / "later"))
    metrics, outcomes = json.loads((alone / "metrics.json").read_text())
    assert [o["attempts"] for o in outcomes] == [12, 24, 3, 3, 3] and outcomes[1]["spent"] == 24
    assert metrics[1]["practice/kl"] > 0 and 0 < metrics[0]["practice/success"] < 1
    for folder in both:
        seen, same = json.loads((folder / "metrics.json").read_text())
        assert same == outcomes[-len(same) :], "every attempt is counted, once"
        for mine, theirs in zip(metrics[-len(seen) :], seen, strict=True):
            assert mine["practice/grad_norm"] == pytest.approx(theirs["practice/grad_norm"], rel=1e-3)
        near(alone, folder)
        held = [int((folder / f"held-{n}").read_text()) for n in (0, 1)]
        assert folder is both[0] or held[0] < 0.51 * int((both[0] / "held-0").read_text()), "it learnt in parts"
        own = [(folder / f"own-{n}.safetensors").read_bytes() for n in (0, 1)]
        assert own[0] == own[1], "all ranks end with the same weights"


def test_a_hand_computed_gradient(launched, tmp_path):
    """One update of plain policy gradient: mean over all tokens of advantage times the gradient of log-probability.

    The policy has not moved at the first update, so the clipped ratio is 1 with the gradient of the log-probability.
    """
    about = {"kl_coef": 0.0, "tasks_per_update": 1, "group_size": 4, "microbatch_size": 1}
    folder = launched(2, updates, about, tmp_path / "both")
    agent = making({"model": tiny(), **about})()
    agent.rows = 4
    tries = agent._roll_out([(agent.task_world.tasks(agent.task_world.setting({}), 1, 0)[0], 0)] * 4)
    rewards = np.array([one.verdict.reward for one in tries])
    gain = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    assert len(set(rewards)) > 1
    model = agent.causal.model
    for one, advantage in zip(tries, gain, strict=True):
        logits = model(input_ids=torch.tensor([one.prompt + one.ids])).logits[0, len(one.prompt) - 1 : -1]
        said = logits.log_softmax(-1)[torch.arange(len(one.ids)), torch.tensor(one.ids)]
        mask = torch.tensor(one.mask)
        (-advantage * (said * mask).sum() / sum(sum(one.mask) for one in tries)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    metrics, _ = json.loads((folder / "metrics.json").read_text())
    assert metrics[0]["practice/grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    stored = safetensors.numpy.load_file(folder / "first" / "arrays.safetensors")
    for name, p in agent.causal.trained():
        np.testing.assert_allclose(stored[f"exp_avg/{name}"], 0.1 * p.grad.numpy(), rtol=1e-3, atol=1e-7, err_msg=name)


def test_ranks_whose_conversations_differ_in_length_draw_together(launched, tmp_path):
    """TRL may gather prompts over all ranks (vLLM): whoever is done earlier draws for nothing until all are."""
    folder = launched(2, ended, {"sampler": "trl", "max_turns": 3}, tmp_path / "both")
    assert (folder / "drawn").read_text() == "12 4", "a first turn, two that only the other rank has, and the end"


def test_ranks_answer_the_same_task_each_in_its_own_way(launched, tmp_path):
    folder = launched(2, varied, {"sampler": "plain", "tasks_per_update": 1}, tmp_path / "both")
    ids = json.loads((folder / "ids.json").read_text())
    assert len(ids) == 4 and ids[:2] != ids[2:]


PLAIN: dict[str, Any] = {
    "world": {"id": paths.PICK},
    "designer": {"id": "language", "device": "cpu"},
    "agent": {
        "id": "grpo",
        "device": "cpu",
        "max_tokens": 4,
        "tasks_per_update": 2,
        "group_size": 4,
        "microbatch_size": 4,
        "learning_rate": 1e-2,
    },
    "schedule": {
        **{"cycles": 2, "designs": 2, "per_cycle": 16, "final": 8, "save_every": 8},
        **{"test_seeds": 2, "test_episodes": 3},
    },
    "log": {"tensorboard": False},
}
SPY = """
import os, sys
def watch(event, given):
    if event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        if str(given[0]).startswith(os.environ["SPIED"]):
            sys.stderr.write(f"rank {os.environ['RANK']} wrote {given[0]}\\n"); sys.stderr.flush(); os._exit(9)
    if event in ("os.mkdir", "os.rename", "os.remove") and str(given[0]).startswith(os.environ["SPIED"]):
        sys.stderr.write(f"rank {os.environ['RANK']} changed {given[0]}\\n"); sys.stderr.flush(); os._exit(9)
if os.environ.get("RANK", "0") != "0":
    sys.addaudithook(watch)
if "RANK" in os.environ:
    from helpers import fsdp_on_cpu as on_cpus
    on_cpus.allow()
"""


def torchrun(place, folder, *words):
    """The real launcher and command; a follower that writes into the run folder ends at once. CPUs may hold parts."""
    (place / "sitecustomize.py").write_text(SPY)
    search = [str(place), str(paths.ROOT / "src"), str(paths.ROOT / "tests")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "SPIED": str(folder)}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "curricle"]
    with (place / "said").open("w") as file:  # a pipe that nobody reads yet would fill up
        return subprocess.Popen([sys.executable, *launcher, *words], env=env, stdout=file, stderr=subprocess.STDOUT)


def said(process, place):
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # a launcher ends its ranks, unless it is killed
        process.wait(60)
    return (place / "said").read_text()


@pytest.mark.slow
def test_a_launched_run_is_killed_and_resumed_and_ends_with_the_same_bytes(launched, tmp_path):
    import tomli_w

    plain = {**PLAIN, **{part: {**PLAIN[part], "model": tiny()} for part in ("agent", "designer")}}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(plain))
    runs, kept = tmp_path / "runs", launched(2, whole_run, {"run": plain}, tmp_path / "whole") / "run"
    broken = runs / "broken"
    outcomes = [outcome for _, outcome in read_records(kept, Outcome)]
    assert sum(o.spent for o in outcomes) == sum(o.attempts for o in outcomes) == 2 * 16 + 8

    victim = torchrun(tmp_path, runs, "run", str(tmp_path / "run.toml"), "--out", str(broken))
    while victim.poll() is None and len(journal(broken)) < 3:
        time.sleep(0.01)
    os.kill(int((broken / LOCK).read_text().split()[1]), signal.SIGKILL)  # the leader; the launcher ends the other
    text = said(victim, tmp_path)
    assert victim.returncode not in (0, None) and 3 <= len(journal(broken)) < len(journal(kept)), text
    second = torchrun(tmp_path, runs, "resume", str(broken))
    text = said(second, tmp_path)
    assert second.returncode == 0 and text.count("headline") == 2, text
    assert contents(broken) == contents(kept)
    _, agent = config.trained(broken)  # one process reads what two wrote
    assert agent.measure([agent.world.unaltered()], [0], 2)[0].attempts == 2


@pytest.mark.slow
def test_the_papers_run_begins_on_several_ranks(tmp_path):
    """All weights of both players, tasks in words: only the models and the length are smaller than in the file."""
    few = ["cycles=1", "designs=2", "per_cycle=32", "save_every=16", "test_seeds=1", "test_episodes=2"]
    small = [f"{player}.model={tiny_qwen()}" for player in ("agent", "designer")]
    small += [
        "agent.tasks_per_update=2",
        "agent.max_tokens=4",
        "designer.max_text_tokens=8",
        *(f"schedule.{one}" for one in few),
    ]
    words = [word for pair in small for word in ("--set", pair)]
    path, folder = str(paths.ROOT / "configs" / "genenv-7b.toml"), tmp_path / "runs" / "seven"
    process = torchrun(tmp_path, tmp_path / "runs", "run", path, "--out", str(folder), *words)
    text = said(process, tmp_path)
    assert process.returncode == 0, text
    plain = read_config(folder)
    assert plain["agent"]["lora"] == plain["designer"]["lora"] == 0 and plain["designer"]["text"] == "required"
    assert plain["agent"]["trl"] == config.load(path)["agent"]["trl"]
    assert sum(o.spent for _, o in read_records(folder, Outcome)) >= 32


def journal(folder):
    path = folder / JOURNAL
    return path.read_text().splitlines() if path.exists() else []


def test_a_designer_may_ask_for_another_agent(launched, tmp_path):
    """One that is made, practised and dropped, beside the agent of the run, on all ranks."""
    agent, designer = (
        {**PLAIN["agent"], "model": tiny()},
        {"id": "easy_to_hard", "of": "random", "validation_practice": 8, "candidates": 4},
    )
    plain = {**PLAIN, "agent": agent, "designer": designer}
    folder = launched(2, whole_run, {"run": plain}, tmp_path / "whole") / "run"
    assert sum(outcome.spent for _, outcome in read_records(folder, Outcome)) == 2 * 16 + 8


def test_refusals_name_the_value_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "count", lambda: 2)
    model: dict[str, Any] = {"model": tiny(), "device": "cpu"}
    plain = {
        **PLAIN,
        "designer": {"id": "random"},
        "agent": {"id": "grpo", **model, "group_size": 3, "tasks_per_update": 5},
    }
    with pytest.raises(
        AgentError, match=r"group_size \* tasks_per_update = 3 \* 5 = 15 rollouts .* evenly over 2 ranks"
    ):
        config.start(config.resolve(plain), tmp_path / "run")
    for options, words in (
        (
            {"spread_over_gpus": True},
            "spread_over_gpus = true lays the agent over all GPUs of one process, but 2 ranks",
        ),
        ({"trl": {"fsdp_config": {"version": 2}}}, "'version': 2}} does nothing without fsdp = true"),
        ({"trl": {"fsdp": True, "fsdp_config": {"version": 1}}}, "'fsdp': True}, version 1 of FSDP: .* use version 2"),
        ({"trl": {"fsdp": True, "fsdp_config": {"cpu_ram_efficient_loading": True}}}, "only one rank .* leave it out"),
        (
            {"trl": {"fsdp": True}, "lora": 4, "imitation_updates": 2},
            "'fsdp': True}, imitation_updates = 2, lora = 4: .* or leave FSDP out",
        ),
    ):
        with pytest.raises(AgentError, match=words):
            GRPO(Pick(), GRPOOptions(**model, **options))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(AgentError, match=r"ACCELERATE_USE_FSDP=true, version 1 .* accelerate launch --fsdp_version 2"):
        GRPO(Pick(), GRPOOptions(**model))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", "true")
    with pytest.raises(AgentError, match=r"ACCELERATE_USE_MEGATRON_LM=true: megatron is not supported; .* use FSDP"):
        GRPO(Pick(), GRPOOptions(**model))
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    vault = config.resolve({"world": {"id": paths.VAULT}, "designer": {"id": "random"}})
    with pytest.raises(UsageError, match="tabular-v1 learns in one process, but 4 were launched"):
        config.start(vault, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(UsageError, match="rank 3 cannot begin a run"), ranks.lead({}):
        pass
