"""One run by several processes: the updates of one, each attempt counted once, one writer, killed and resumed."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import on_cpus
import pytest
import safetensors.numpy
import torch
from parts import quiet
from small_model import Pick, Steps, tiny
from test_kill import contents

from curricle import config, ranks
from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.errors import AgentError, UsageError
from curricle.llm.sampling import Reply
from curricle.llm.shards import whole
from curricle.records import Message, Outcome
from curricle.run import JOURNAL, LOCK, read_config, read_records

HERE = Path(__file__).parent
WARM = ["test_ranks", "trl.trainer.grpo_trainer", "peft", "datasets", "torch.distributed.fsdp"]
PATIENCE = 300
WORDS = ["aye", "b", "cat", "on and on", "zoo", "d", "e", "", "fog", "aye", "h", "i", "bee", "k", "cat", "m"]
"""What is said in answer to the rows of an update; first letters decide what is right."""


class Scripted(GRPO):
    """Says what stands above, by row and turn, however many ranks share the rows out."""

    turn = 0

    def _rollout(self, slots):
        self.turn, self.rows = 0, len(slots)
        return super()._rollout(slots)

    def _speak(self, prompts, seed):
        first, replies = ranks.number() * self.rows + 3 * self.turn, []
        self.turn += 1
        assert len(prompts) == self.rows, "all rows go on, so a row is known by its place"
        for row in range(self.rows):
            words = self.causal.tokenizer(WORDS[(first + row) % len(WORDS)] or "x")["input_ids"]
            replies.append(Reply([*words, self.causal.ends[0]], True))
        return replies

    def look(self):
        """A pass without learning, after which parts that were gathered are kept; nothing is lost by that."""
        ranks.ask(self.number, "look")
        with torch.no_grad():
            self.causal.model(input_ids=torch.tensor([[5, 6, 7]]))

    def keep_own(self, folder):
        """Write this rank's weights, gathered if it holds a part."""
        ranks.ask(self.number, "keep_own", folder=folder)
        found = {name: whole(p.detach()).numpy().copy() for name, p in self.causal.trained()}
        safetensors.numpy.save_file(found, Path(folder) / f"own-{ranks.number()}.safetensors")


class Uneven(Pick):
    """Answers back on the second rank only."""

    id = "uneven-v1"

    def reply(self, task, transcript):
        more = ranks.number() == 1 and len(transcript) < 4
        return Message(role="user", content="more") if more else None


class Solved(Steps):
    """Says how one of its tasks is solved."""

    id = "solved-v1"

    def solution(self, task):
        return ["c", "f"] if task.gold == "a" else ()


class Talkative(GRPO):
    """Draws by TRL; every reply is taken for ended, so that conversations go on."""

    drawn = 0

    def _speak_by_trl(self, prompts):
        self.drawn += 1
        said = super()._speak_by_trl(prompts)
        return said if said is None else [Reply([5, self.causal.ends[0]], True) for _ in said]


def making(about):
    given = {"device": "cpu", "most_tokens": 4, "turns": 2, "rate": 1e-2, "entropy": 0.0, "tasks": 3, "group": 4}
    kind, world = (Talkative, Uneven()) if about.get("sampler") == "trl" else (Scripted, Steps())
    kind, world = (GRPO, Pick()) if about.get("sampler") == "plain" else (kind, world)
    world = Solved() if about.get("warm") else world
    options = {name: value for name, value in about.items() if name != "begin"}
    return lambda: kind(world, GRPOOptions(**{**given, "micro": 2, **options}))


def updates(about, folder):
    """Three updates, with a checkpoint after the first one; or the last two, from the first one's checkpoint."""
    agent = making(about)()
    designs, told = [agent.world.unaltered()], []

    def report(done, figures):
        told.append(figures)

    outcomes = []
    if about.get("begin"):
        agent.load(Path(about["begin"]))
    else:
        outcomes += agent.practise(designs, agent.grpo.width, seed=0, report=report)
        (folder / "first").mkdir()
        agent.save(folder / "first")
    outcomes += agent.practise(designs, 2 * agent.grpo.width, seed=1, report=report)
    outcomes += agent.measure(designs * 3, [1, 2, 3], 3)
    agent.look()
    agent.save(folder)
    agent.keep_own(folder)
    (folder / "told.json").write_text(json.dumps([told, [one.model_dump(mode="json") for one in outcomes]]))


def ended(about, folder):
    agent = making(about)()
    (outcome,) = agent.practise([agent.world.unaltered()], agent.grpo.width, seed=0, report=quiet)
    (folder / "drawn").write_text(f"{outcome.attempts} {agent.drawn}")


def varied(about, folder):
    """Keep what the four rows of one task were answered, two on each rank."""
    agent, kept = making(about)(), []
    agent._keep = lambda group, designs: kept.extend(one.ids for one in group)
    agent.practise([agent.world.unaltered()], 4, seed=0, report=quiet)
    (folder / "ids.json").write_text(json.dumps(kept))


def whole_run(about, folder):
    config.start(config.resolve(about["run"]), folder / "run")


def rank(number, count, port, work, about, folder):
    """What one process does: lead the others through some work, or follow."""
    torch.set_num_threads(1)
    on_cpus.allow()
    if count > 1:
        where = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "MASTER_PORT": port}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in where.items()}}
    if work is whole_run:
        return config.follow() if number else work(about, folder)
    if number:
        return ranks.follow(making)
    with ranks.lead(about):
        work(about, folder)


def is_free(port):
    with socket.socket() as place:
        return place.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def launched():
    """Starts ranks as children of a warm process, which costs less than launchers do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    ports = iter(range(10_000 + os.getpid() * 100 % 20_000, 32_000))  # none that a system gives to whoever asks for any

    def launch(count, work, about, folder):
        folder.mkdir()
        port = next(filter(is_free, ports))
        about = {"model": tiny(), **about}
        children = [context.Process(target=rank, args=(n, count, port, work, about, folder)) for n in range(count)]
        for child in children:
            child.start()
        try:
            for child in children:
                child.join(PATIENCE)
                assert child.exitcode == 0, (about, child.exitcode)
        finally:
            for child in children:
                child.kill()
        return folder

    return launch


def near(one, other):
    """Whether two checkpoints hold the same, up to what summing in another order does."""
    first, second = (safetensors.numpy.load_file(folder / "arrays.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol=1e-3, atol=1e-5, err_msg=name)


WAYS = {
    "fsdp": {"fsdp": True},
    "zero2": {"deepspeed": {"zero_optimization": {"stage": 2}}},
    "zero3": {"deepspeed": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": "auto"}}},
}
AUTO = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps", "gradient_clipping")
for way in ("zero2", "zero3"):
    WAYS[way]["deepspeed"] |= dict.fromkeys(AUTO, "auto")


@pytest.mark.parametrize("way", WAYS)
def test_way(way, launched, tmp_path):
    alone = launched(1, updates, {}, tmp_path / "alone")
    both = launched(2, updates, {"trl": WAYS[way]}, tmp_path / "both")
    near(alone / "first", both / "first")
    near(alone, both)
    both = launched(2, updates, {"trl": WAYS[way], "begin": str(alone / "first")}, tmp_path / "later")
    near(alone, both)


@pytest.mark.parametrize("options", [{"step_weight": 1.0}, {"lora": 4}], ids=["all weights", "adapter"])
def test_the_updates_of_two_ranks_are_those_of_one(options, launched, tmp_path):
    """12 rows, 6 a rank: the second group lies across both, and is compared as a whole, also by turns."""
    alone = launched(1, updates, options, tmp_path / "alone")
    both = [launched(2, updates, options, tmp_path / "both")]
    near(alone / "first", both[0] / "first")
    begin = {"begin": str(alone / "first"), "shard": not options.get("lora")}  # what one process wrote, two read
    both.append(launched(2, updates, {**options, **begin}, tmp_path / "later"))
    figures, outcomes = json.loads((alone / "told.json").read_text())
    assert [o["attempts"] for o in outcomes] == [12, 24, 3, 3, 3] and outcomes[1]["spent"] == 24
    assert figures[1]["practice/kl"] > 0 and 0 < figures[0]["practice/success"] < 1
    for folder in both:
        seen, same = json.loads((folder / "told.json").read_text())
        assert same == outcomes[-len(same) :], "every attempt is counted, once"
        for mine, theirs in zip(figures[-len(seen) :], seen, strict=True):
            assert mine["practice/grad_norm"] == pytest.approx(theirs["practice/grad_norm"], rel=1e-3)
        near(alone, folder)
        own = [(folder / f"own-{n}.safetensors").read_bytes() for n in (0, 1)]
        assert own[0] == own[1], "all ranks end with the same weights"


@pytest.mark.parametrize("more", [{"shard": True}, {"lora": 4}], ids=["in parts", "adapter"])
def test_ranks_warm_up_alike_and_begin_there(more, launched, tmp_path):
    options = {"warm": 2, **{name: value for name, value in more.items() if name != "shard"}}
    alone = launched(1, updates, options, tmp_path / "alone")
    both = launched(2, updates, {**options, **more}, tmp_path / "both")
    near(alone / "first", both / "first")
    near(alone, both)
    begun = [name for name in safetensors.numpy.load_file(both / "arrays.safetensors") if name.startswith("origin/")]
    assert begun
    figures, _ = json.loads((both / "told.json").read_text())
    assert [list(seen) for seen in figures[:2]] == [["practice/warm_loss"]] * 2
    assert abs(figures[2]["practice/kl"]) < 1e-5 < figures[3]["practice/kl"]


def test_a_hand_computed_gradient(launched, tmp_path):
    """One update of plain policy gradient: mean over rows of advantage times the gradient of the mean log-probability.

    At the first update the odds have not moved, so the clipped ratio is 1 and its gradient that of the log-probability.
    """
    about = {"kl": 0.0, "tasks": 1, "group": 4, "micro": 1}
    folder = launched(2, updates, about, tmp_path / "both")
    agent = making({"model": tiny(), **about})()
    agent.rows = 4
    tries = agent._rollout([(agent.tasks.tasks(agent.tasks.setting({}), 1, 0)[0], 0)] * 4)
    rewards = np.array([one.verdict.reward for one in tries])
    gain = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    assert len(set(rewards)) > 1
    model = agent.causal.model
    for one, advantage in zip(tries, gain, strict=True):
        logits = model(input_ids=torch.tensor([one.prompt + one.ids])).logits[0, len(one.prompt) - 1 : -1]
        said = logits.log_softmax(-1)[torch.arange(len(one.ids)), torch.tensor(one.ids)]
        mask = torch.tensor(one.mask)
        (-advantage / 4 * (said * mask).sum() / mask.sum()).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    figures, _ = json.loads((folder / "told.json").read_text())
    assert figures[0]["practice/grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    stored = safetensors.numpy.load_file(folder / "first" / "arrays.safetensors")
    for name, p in agent.causal.trained():
        np.testing.assert_allclose(stored[f"exp_avg/{name}"], 0.1 * p.grad.numpy(), rtol=1e-3, atol=1e-7, err_msg=name)


def test_ranks_whose_conversations_differ_in_length_draw_together(launched, tmp_path):
    """TRL may gather prompts over all ranks (vLLM): whoever is done earlier draws for nothing until all are."""
    folder = launched(2, ended, {"sampler": "trl", "turns": 3}, tmp_path / "both")
    assert (folder / "drawn").read_text() == "12 4", "a first turn, two that only the other rank has, and the end"


def test_ranks_answer_the_same_task_each_in_its_own_way(launched, tmp_path):
    folder = launched(2, varied, {"sampler": "plain", "tasks": 1}, tmp_path / "both")
    ids = json.loads((folder / "ids.json").read_text())
    assert len(ids) == 4 and ids[:2] != ids[2:]


PLAIN = {
    "world": {"id": f"{HERE}/small_model.py:Pick"},
    "designer": {"id": "language", "device": "cpu"},
    "agent": {"id": "grpo", "device": "cpu", "most_tokens": 4, "tasks": 2, "group": 4, "micro": 4, "rate": 1e-2},
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
"""


def torchrun(place, folder, *words):
    """The real launcher and the real command; a follower that writes into the run folder ends at once."""
    (place / "sitecustomize.py").write_text(SPY)
    paths = [str(place), str(HERE.parent / "src"), str(HERE)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "SPIED": str(folder)}
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


def test_the_papers_run_begins_on_several_ranks(tmp_path):
    """All weights of both players, tasks in words: only the models and the length are smaller than in the file."""
    few = ["cycles=1", "designs=2", "per_cycle=32", "save_every=16", "test_seeds=1", "test_episodes=2"]
    small = [f"{player}.model={tiny()}" for player in ("agent", "designer")]
    small += ["agent.tasks=2", "agent.most_tokens=4", "designer.text_tokens=8", *(f"schedule.{one}" for one in few)]
    words = [word for pair in small for word in ("--set", pair)]
    path, folder = str(HERE.parent / "configs" / "genenv-7b.toml"), tmp_path / "runs" / "seven"
    process = torchrun(tmp_path, tmp_path / "runs", "run", path, "--out", str(folder), *words)
    text = said(process, tmp_path)
    assert process.returncode == 0, text
    plain = read_config(folder)
    assert plain["agent"]["lora"] == plain["designer"]["lora"] == 0 and plain["designer"]["text"] == "required"
    assert plain["agent"]["shard"] and sum(o.spent for _, o in read_records(folder, Outcome)) >= 32


def journal(folder):
    path = folder / JOURNAL
    return path.read_text().splitlines() if path.exists() else []


def test_a_designer_may_ask_for_another_agent(launched, tmp_path):
    """One that is made, practised and dropped, beside the agent of the run, on all ranks."""
    agent, designer = {**PLAIN["agent"], "model": tiny()}, {"id": "easy_to_hard", "practised": 8, "candidates": 4}
    plain = {**PLAIN, "agent": agent, "designer": designer}
    folder = launched(2, whole_run, {"run": plain}, tmp_path / "whole") / "run"
    assert sum(outcome.spent for _, outcome in read_records(folder, Outcome)) == 2 * 16 + 8


def test_refusals_name_the_value_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "count", lambda: 2)
    model = {"model": tiny(), "device": "cpu"}
    plain = {**PLAIN, "designer": {"id": "random"}, "agent": {"id": "grpo", **model, "group": 3, "tasks": 5}}
    with pytest.raises(AgentError, match=r"group \* tasks = 3 \* 5 = 15 rollouts .* evenly over 2 ranks"):
        config.start(config.resolve(plain), tmp_path / "run")
    for options, words in (
        ({"spread": True}, "spread = true lays the agent over all GPUs of one process, but 2 ranks"),
        ({"shard": True, "lora": 4}, "shard = true, lora = 4"),
        ({"trl": {"fsdp": "full_shard"}}, "'fsdp': ...} would keep the optimiser"),
        ({"trl": {"deepspeed": "zero3.json"}}, "'deepspeed': ...} would keep the optimiser"),
    ):
        with pytest.raises(AgentError, match=words):
            GRPO(Pick(), GRPOOptions(**model, **options))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(AgentError, match="ACCELERATE_USE_FSDP=true would keep"):
        GRPO(Pick(), GRPOOptions(**model))
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    vault = config.resolve({"world": {"id": f"{HERE.parent}/examples/vault.py:Vault"}, "designer": {"id": "random"}})
    with pytest.raises(UsageError, match="tabular-v1 learns in one process, but 4 were launched"):
        config.start(vault, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(UsageError, match="rank 3 cannot begin a run"), ranks.lead({}):
        pass
