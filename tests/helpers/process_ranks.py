"""Ranks for tests: what each of several processes does, and how they are started."""

import gc
import json
import multiprocessing
import os
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from helpers import fsdp_on_cpu as on_cpus
from helpers.sweep import quiet
from helpers.tiny_model import Pick, Steps, tiny

from curricle import config
from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.errors import AgentError
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CHECKPOINT_WRAPPER, whole
from curricle.records import Message
from curricle.scale import ranks

WARM = ["helpers.process_ranks", "trl.trainer.grpo_trainer", "peft", "datasets", "torch.distributed.fsdp"]
PATIENCE = 300
WORDS = ["aye", "b", "cat", "on and on", "zoo", "d", "e", "", "fog", "aye", "h", "i", "bee", "k", "cat", "m"]
"""What is said in answer to the rows of an update; first letters decide what is right."""


KEPT_WHOLE = [0]
"""How many microbatches left a gradient that is summed over the ranks only later; FSDP keeps it whole until then."""


class Scripted(GRPO):
    """Says what stands above, by row and turn, however many ranks share the rows out."""

    turn: Any = 0

    def _roll_out(self, tasks):
        self.turn, self.rows = 0, len(tasks)
        return super()._roll_out(tasks)

    def _sample(self, prompts, seed):
        first, replies = ranks.number() * self.rows + 3 * self.turn, []
        self.turn += 1
        assert len(prompts) == self.rows, "all rows go on, so a row is known by its place"
        for row in range(self.rows):
            words = self.causal.tokenizer(WORDS[(first + row) % len(WORDS)] or "x")["input_ids"]
            replies.append(Reply([*words, self.causal.ends[0]], True))
        return replies

    def look(self):
        """A pass without learning, after which parts that were gathered are kept; nothing is lost by that."""
        ranks.call_followers(self.agent_number, "look")
        with torch.no_grad():
            self.causal.model(input_ids=torch.tensor([[5, 6, 7]]))

    def keep_own(self, folder):
        """Write this rank's weights, gathered if it holds a part, and how many numbers its optimiser remembers."""
        ranks.call_followers(self.agent_number, "keep_own", folder=folder)
        with torch.no_grad():
            found = {name: whole(p).float().numpy().copy() for name, p in self.causal.trained()}
        moments = [state["exp_avg"] for state in self.causal.optimizer.state.values()]
        held = sum((m.to_local() if hasattr(m, "to_local") else m).numel() for m in moments)
        safetensors.numpy.save_file(found, Path(folder) / f"own-{ranks.number()}.safetensors")
        (Path(folder) / f"held-{ranks.number()}").write_text(str(held))
        recomputed = sum(f"{name}.".endswith(CHECKPOINT_WRAPPER) for name, _ in self.causal.model.named_modules())
        (Path(folder) / f"manner-{ranks.number()}").write_text(f"{recomputed} {KEPT_WHOLE[0]}")


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
        return ["c", "f"] if task.gold["wanted"] == "a" else ()


class Talkative(GRPO):
    """Draws by TRL; every reply is taken for ended, so that conversations go on."""

    drawn = 0

    def _sample_by_trl(self, prompts):
        self.drawn += 1
        said = super()._sample_by_trl(prompts)
        return said if said is None else [Reply([5, self.causal.ends[0]], True) for _ in said]


def making(about):
    given = {
        "device": "cpu",
        "max_tokens": 4,
        "max_turns": 2,
        "learning_rate": 1e-2,
        "entropy_coef": 0.0,
        "tasks_per_update": 3,
        "group_size": 4,
    }
    kind: Any
    world: Any
    kind, world = (Talkative, Uneven()) if about.get("sampler") == "trl" else (Scripted, Steps())
    kind, world = (GRPO, Pick()) if about.get("sampler") == "plain" else (kind, world)
    world = Solved() if about.get("imitation_updates") else world
    options = {name: value for name, value in about.items() if name not in ("begin", "environment")}
    return lambda: kind(world, GRPOOptions(**{**given, "microbatch_size": 2, **options}))


def updates(about, folder):
    """Three updates, with a checkpoint after the first one; or the last two, from the first one's checkpoint."""
    agent = making(about)()
    designs, reported = [agent.world.unaltered()], []

    def report(done, metrics):
        reported.append(metrics)

    outcomes = []
    if about.get("begin"):
        agent.load(Path(about["begin"]))
    else:
        outcomes += agent.practise(designs, agent.options.rollouts_per_update, seed=0, report=report)
        (folder / "first").mkdir()
        agent.save(folder / "first")
    outcomes += agent.practise(designs, 2 * agent.options.rollouts_per_update, seed=1, report=report)
    outcomes += agent.measure(designs * 3, [1, 2, 3], 3)
    agent.look()
    agent.save(folder)
    agent.keep_own(folder)
    (folder / "metrics.json").write_text(json.dumps([reported, [one.model_dump(mode="json") for one in outcomes]]))


def ended(about, folder):
    agent = making(about)()
    (outcome,) = agent.practise([agent.world.unaltered()], agent.options.rollouts_per_update, seed=0, report=quiet)
    (folder / "drawn").write_text(f"{outcome.attempts} {agent.drawn}")


def varied(about, folder):
    """Keep what the four rows of one task were answered, two on each rank."""
    agent, kept = making(about)(), []
    agent._keep = lambda group, designs: kept.extend(one.ids for one in group)
    agent.practise([agent.world.unaltered()], 4, seed=0, report=quiet)
    (folder / "ids.json").write_text(json.dumps(kept))


def refused(about, folder):
    """Nothing: the agent is not made, on no rank."""
    making(about)()


def whole_run(about, folder):
    config.start(config.resolve(about["run"]), folder / "run")


def count_whole_gradients():
    from accelerate import Accelerator

    waits = Accelerator.no_sync

    def counted(self, model):
        KEPT_WHOLE[0] += 1
        return waits(self, model)

    Accelerator.no_sync = counted


def rank(number, count, port, work, about, folder):
    """What one process does: lead the others through some work, or follow."""
    torch.set_num_threads(1)
    gc.freeze()  # a trainer collects garbage each time it trains: what was warm before is none, and stays shared
    on_cpus.allow(fsdp=work is not refused)
    count_whole_gradients()
    if count > 1:
        where = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "MASTER_PORT": port}
        where |= {"OMP_NUM_THREADS": 1, "MASTER_ADDR": "127.0.0.1"}  # unsaid, accelerate takes all cores for each
        os.environ |= {name: str(value) for name, value in where.items()}
    os.environ |= about.get("environment", {})
    if work is whole_run:
        return config.follow() if number else work(about, folder)
    with pytest.raises(AgentError) if work is refused else nullcontext() as caught:
        if number:
            ranks.follow(making)
        else:
            with ranks.lead(about):
                work(about, folder)
    if caught:
        (folder / f"said-{number}").write_text(str(caught.value))


def is_free(port):
    with socket.socket() as place:
        return place.connect_ex(("127.0.0.1", port)) != 0


def launcher():
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
