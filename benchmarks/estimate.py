"""Estimate: memory and time of GenEnv's run with a model of 7B parameters, by calculation. Nothing is measured here.

    python benchmarks/estimate.py assumptions     what is assumed, and where it comes from
    python benchmarks/estimate.py memory          GB on the fullest GPU, part by part
    python benchmarks/estimate.py activations     GB of a microbatch, with and without gradient checkpointing
    python benchmarks/estimate.py machine         GB in the machine's memory, and on a GPU while models are loaded
    python benchmarks/estimate.py time-h200       seconds of a cycle, phase by phase; time-a100 for the other GPU

The numbers of a run (rows, microbatches, tokens) are read from `configs/genenv-7b.toml` (all weights) and
`configs/genenv-7b-lora.toml` (adapters). Each table is in `docs/genenv-7b.md`, which states the formulas. `--model`
takes a folder with a config.json of the same family instead of Qwen2.5-7B.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from model_shapes import A100, BF16, EMBEDDED, FP32, GPU, H200, Shape, read_shape

from curricle import config
from curricle.agents.grpo.agent import GRPOOptions
from curricle.designers.language.options import LanguageOptions
from curricle.llm.generate.decoding import CACHE_BYTES
from curricle.loop import Schedule

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "experiments" / "speed" / "language.jsonl"
GB = 1e9
PROMPT = 320
"""Tokens of the agent's prompt."""
REPLY = 204
"""Tokens that an attempt adds to its prompt."""
TURNS = 2
"""Turns of an attempt."""
REQUEST = 660
"""Tokens of a request to the environment policy."""
FORM = 100
"""Tokens of a written task beside its text."""
COMPUTE_SHARE = 0.35
"""Share of a GPU's peak that updates reach."""
MEMORY_SHARE = 0.5
"""Share of the memory's and the links' peak that is reached."""
DISK = 2e9
"""Bytes a second of a disk."""
PROCESS = 1e9
"""Bytes that each process takes of a GPU before any tensor."""
ROOM = 0.1
"""Share of a GPU's memory that should stay free."""
LOGIT_COPIES = 6
"""Stacks of logits that live at once in a step of the environment policy."""


@dataclass(frozen=True)
class Plan:
    """A run on some GPUs."""

    name: str
    agent: GRPOOptions
    designer: LanguageOptions
    schedule: Schedule
    shape: Shape
    gpus: int

    @property
    def sharded(self) -> bool:
        """Whether each GPU holds a part of the agent."""
        return self.gpus > 1 and bool(self.agent.trl.get("fsdp"))

    @property
    def spread(self) -> int:
        """GPUs over which the designer is laid."""
        return self.gpus if self.designer.spread_over_gpus else 1

    @property
    def checkpointed(self) -> bool:
        """Whether the agent's activations are computed twice."""
        trl = self.agent.trl
        return bool(trl.get("gradient_checkpointing") or trl.get("fsdp_config", {}).get("activation_checkpointing"))

    @property
    def agent_tokens(self) -> int:
        """Tokens of a microbatch of the agent if every reply runs to its limit."""
        return self.agent.microbatch_size * (PROMPT + self.agent.max_tokens)

    @property
    def task_tokens(self) -> int:
        """Tokens of a written task at its limit."""
        return FORM + self.designer.max_text_tokens

    @property
    def designer_width(self) -> int:
        """Bytes of a number in the designer's passes: only an adapter's base computes in bfloat16."""
        return BF16 if self.designer.lora else FP32

    @property
    def designer_tokens(self) -> int:
        """Tokens of a microbatch of the designer."""
        return self.designer.microbatch_size * (REQUEST + self.task_tokens)


def plan(name: str, file: str, shape: Shape, gpus: int, changes: Sequence[str] = ()) -> Plan:
    """A run as a file of `configs/` says."""
    found = config.resolve(config.override(config.load(str(ROOT / "configs" / file)), changes))
    agent = found.agent_options
    designer = found.designer_options
    if not isinstance(agent, GRPOOptions) or not isinstance(designer, LanguageOptions):
        raise SystemExit(f"{file} has other players than grpo and language")
    return Plan(name, agent, designer, found.schedule, shape, gpus)


def plans(shape: Shape) -> list[Plan]:
    """The runs that the page shows."""
    whole = "genenv-7b.toml"
    alone = ["agent.trl={gradient_checkpointing = true}", "designer.spread_over_gpus=false"]
    return [
        plan("adapters, 1 GPU", "genenv-7b-lora.toml", shape, 1),
        plan("adapters, 8 GPUs", "genenv-7b-lora.toml", shape, 8),
        plan("all weights, 1 GPU", whole, shape, 1, alone),
        plan("all weights, 8 GPUs", whole, shape, 8),
        plan("all weights, the designer an adapter, 8 GPUs", whole, shape, 8, ["designer.lora=16"]),
    ]


# -- memory ------------------------------------------------------------------------------------------------------------


def agent_memory(p: Plan) -> dict[str, float]:
    """Bytes of the agent on one GPU."""
    size = p.shape.parameters
    trained = p.shape.adapter(p.agent.lora) if p.agent.lora else size
    share = p.gpus if p.sharded else 1
    rows = min(p.agent.sample_batch, -(-p.agent.rollouts_per_update // p.gpus))
    cache = rows * (PROMPT + p.agent.max_tokens) * p.shape.cache(BF16)
    gathered = 2 * BF16 * (p.shape.embedding + p.shape.layer) + FP32 * p.shape.embedding
    return {
        "frozen weights": BF16 * size if p.agent.lora else 0,
        "trained weights": FP32 * trained / share,
        "gradients": FP32 * trained / share,
        "optimiser": 2 * FP32 * trained / share,
        "initial model": 0 if p.agent.lora else FP32 * size / share,
        "copy that writes": BF16 * size,
        "cache of rollouts": min(CACHE_BYTES, cache),
        "gathered for a pass": gathered if p.sharded else 0,
        "activations": p.shape.activations(p.agent_tokens, BF16, p.checkpointed),
    }


def designer_memory(p: Plan) -> dict[str, float]:
    """Bytes of the designer on the fullest GPU."""
    size = p.shape.parameters
    lora = p.designer.lora
    trained = p.shape.adapter(lora) if lora else size
    width = p.designer_width
    shares_base = bool(p.agent.lora and lora) and p.spread == 1
    cache = p.designer.sample_batch * (REQUEST + p.task_tokens) * p.shape.cache(width) / p.spread
    logits = p.designer.microbatch_size * p.task_tokens * p.shape.vocabulary * FP32
    return {
        "frozen weights": BF16 * size / p.spread if lora and not shares_base else 0,
        "trained weights": FP32 * trained / p.spread,
        "gradients": FP32 * trained / p.spread,
        "optimiser": 2 * FP32 * trained / p.spread,
        "initial model": 0 if lora else FP32 * size / p.spread,
        "weights before and after a step": 2 * FP32 * trained / p.spread,
        "copy that writes": 0 if p.designer.spread_over_gpus else BF16 * size,
        "cache of writing": min(CACHE_BYTES, cache) if p.spread == 1 else cache,
        "activations": p.shape.activations(p.designer_tokens, width, False) / p.spread,
        "logits": LOGIT_COPIES * logits,
    }


def all_memory(p: Plan) -> dict[str, float]:
    """Bytes on the fullest GPU."""
    parts = {f"agent: {name}": value for name, value in agent_memory(p).items()}
    parts |= {f"designer: {name}": value for name, value in designer_memory(p).items()}
    parts["processes"] = PROCESS * (2 if p.spread > 1 else 1)
    return parts


def all_memory_size(p: Plan) -> float:
    """Bytes of all parts together."""
    return sum(all_memory(p).values())


def memory_table(shape: Shape) -> list[list[str]]:
    """GB of each part."""
    found = [all_memory(p) for p in plans(shape)]
    rows = [["GB on the fullest GPU", *(p.name for p in plans(shape))]]
    for name in found[0]:
        rows.append([name, *(number(parts[name] / GB) for parts in found)])
    sums = [all_memory_size(p) for p in plans(shape)]
    rows.append(["all together", *(number(one / GB) for one in sums)])
    for gpu in (A100, H200):
        rows.append([f"fits into {gpu.memory / GB:.0f} GB", *(fits(one, gpu.memory) for one in sums)])
    return rows


def fits(size: float, memory: float) -> str:
    """Whether something fits; allocators want some room that nothing uses."""
    if size > memory:
        return "no"
    word = "yes" if size < (1 - ROOM) * memory else "barely"
    return f"{word}, {number((memory - size) / GB)} left"


def activation_table(shape: Shape) -> list[list[str]]:
    """GB of a microbatch."""
    rows = [["microbatch", "rows", "tokens", "all kept", "with gradient checkpointing"]]
    seen = {p.name.partition(",")[0]: p for p in reversed(plans(shape))}
    for name in ("adapters", "all weights"):
        p = seen[name]
        kept = [p.shape.activations(p.agent_tokens, BF16, again) for again in (False, True)]
        size = p.agent.microbatch_size
        rows.append([f"agent, {name}", str(size), f"{p.agent_tokens:,}", *(number(one / GB) for one in kept)])
        whole = p.shape.activations(p.designer_tokens, p.designer_width, False)
        size = p.designer.microbatch_size
        rows.append([f"designer, {name}", str(size), f"{p.designer_tokens:,}", number(whole / GB), "not offered"])
    return rows


def machine_table(shape: Shape) -> list[list[str]]:
    """GB beside those that stay on the GPUs."""
    size = shape.parameters
    rows = [["GB", *(p.name for p in plans(shape))]]
    loading = []
    making = []
    saving = []
    logits = []
    for p in plans(shape):
        of_rank = BF16 * size if p.agent.lora else FP32 * size
        loading.append(of_rank * p.gpus * (2 if p.sharded else 1))  # parts are made of two whole models
        before = BF16 * size * 2 if p.agent.lora else all_memory(p)["agent: initial model"] * 2
        making.append(before + FP32 * size)
        saving.append(3 * FP32 * (p.shape.adapter(p.agent.lora) if p.agent.lora else size))
        logits.append(p.schedule.designs * p.task_tokens * p.shape.vocabulary * FP32)
    rows.append(["machine: models of all ranks while they are loaded", *(number(one / GB) for one in loading)])
    rows.append(["machine: a checkpoint of the agent", *(number(one / GB) for one in saving)])
    rows.append(["machine: logits before a step of the designer", *(number(one / GB) for one in logits)])
    rows.append(["GPU: while the copy that writes is made", *(number(one / GB) for one in making)])
    return rows


# -- time --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """Which shares of the peaks are reached."""

    compute: float
    memory: float


def decoding_step(p: Plan, gpu: GPU, rows: int, shares: Shares) -> float:
    """Seconds of one token of every row, from a copy in bfloat16."""
    context = PROMPT + p.agent.max_tokens // 2
    read = BF16 * p.shape.parameters + rows * context * p.shape.cache(BF16)
    return max(read / (shares.memory * gpu.bandwidth), rows * p.shape.forward(context) / (shares.compute * gpu.bf16))


def replying(p: Plan, gpu: GPU, attempts: int, shares: Shares) -> float:
    """Seconds of some attempts: every batch goes on until its longest reply is at the limit, in every turn."""
    rows = -(-attempts // p.gpus)
    batches = -(-rows // p.agent.sample_batch)
    step = decoding_step(p, gpu, min(rows, p.agent.sample_batch), shares)
    return TURNS * batches * p.agent.max_tokens * step


def updating(p: Plan, gpu: GPU, shares: Shares) -> float:
    """Seconds of one update of the agent."""
    o = p.agent
    tokens = o.rollouts_per_update * (PROMPT + REPLY)
    passes = 2 + (1 if o.lora else 2) + p.checkpointed  # forward, initial model; backward; forward again
    computing = tokens * passes * p.shape.forward(PROMPT + REPLY) / (p.gpus * shares.compute * gpu.bf16)
    if not p.sharded:
        return computing
    microbatches = o.rollouts_per_update // p.gpus / o.microbatch_size
    moved = (3 * BF16 + FP32) * p.shape.parameters * (p.gpus - 1) / p.gpus
    return computing + microbatches * moved / (shares.memory * gpu.link)


def writing(p: Plan, gpu: GPU, shares: Shares) -> float:
    """Seconds of writing one round of candidates."""
    candidates = math.ceil(p.schedule.designs * p.designer.oversample)
    batches = -(-candidates // p.designer.sample_batch)
    width = FP32 if p.designer.spread_over_gpus and not p.designer.lora else BF16
    step = width * p.shape.parameters / (shares.memory * gpu.bandwidth)
    if p.designer.spread_over_gpus:  # by transformers' own cache: as many small kernels as layers want
        step = max(step, p.shape.layers / EMBEDDED.layers / measured("writing", "plain", "steps_per_s"))
    return batches * p.task_tokens * step


def learning(p: Plan, gpu: GPU, shares: Shares) -> float:
    """Seconds of the designer's update: one GPU works at a time, and without an adapter in float32."""
    tokens = p.schedule.designs * p.designer.epochs * (REQUEST + p.task_tokens)
    passes = 3 + (1 if p.designer.lora else 2)  # forward, initial model, after the step; backward
    peak = gpu.bf16 if p.designer.lora else gpu.fp32
    return tokens * passes * p.shape.forward(REQUEST + p.task_tokens) / (shares.compute * peak)


def saving(p: Plan) -> float:
    """Seconds of the checkpoints of a cycle."""
    parts = math.ceil(p.schedule.designed / p.schedule.save_every)
    parts += math.ceil(p.schedule.original / p.schedule.save_every)
    sizes = [p.shape.adapter(o.lora) if o.lora else p.shape.parameters for o in (p.agent, p.designer)]
    return (parts * sizes[0] + 2 * sizes[1]) * 3 * FP32 / DISK


def phases(p: Plan, gpu: GPU, shares: Shares) -> dict[str, float]:
    """Seconds of a cycle."""
    updates = p.schedule.per_cycle / p.agent.rollouts_per_update
    tests = p.schedule.test_seeds * p.schedule.test_episodes
    return {
        "the designer writes": writing(p, gpu, shares),
        "rollouts": updates * replying(p, gpu, p.agent.rollouts_per_update, shares),
        "updates of the agent": updates * updating(p, gpu, shares),
        "tests": replying(p, gpu, tests, shares),
        "the designer learns": learning(p, gpu, shares),
        "checkpoints": saving(p),
    }


def time_table(shape: Shape, gpu: GPU) -> list[list[str]]:
    """Seconds of each phase, and hours of the run."""
    shown = [p for p in plans(shape) if all_memory_size(p) < H200.memory]
    assumed = Shares(COMPUTE_SHARE, MEMORY_SHARE)
    found = [phases(p, gpu, assumed) for p in shown]
    rows = [[f"seconds of a cycle, {gpu.name}", *(p.name for p in shown)]]
    for name in found[0]:
        rows.append([name, *(number(parts[name]) for parts in found)])
    rows.append(["all together", *(number(sum(parts.values())) for parts in found)])
    rows.append(["hours of the run", *(number(hours(p, gpu, assumed)) for p in shown)])
    slow = small_model_shares()
    rows.append(["hours, with the shares of the 135M model", *(number(hours(p, gpu, slow)) for p in shown)])
    return rows


def hours(p: Plan, gpu: GPU, shares: Shares) -> float:
    """Hours of the whole run."""
    return sum(phases(p, gpu, shares).values()) * p.schedule.cycles / 3600


def measured(*names: str) -> Any:
    """A figure of experiments/speed: all weights of the 135M model on an H200, the largest microbatch."""
    lines = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    fitting = [one for one in lines if one["machine"]["device"] == "NVIDIA H200" and not one["asked"]["lora"]]
    found: Any = max((one for one in fitting if "writing" in one), key=lambda one: one["asked"]["micro"])
    for name in names:
        found = found[name]
    return found


def small_model_shares() -> Shares:
    """The shares of an H200's peaks that the measured figures of the 135M model come to."""
    asked = measured("asked")
    length = asked["prompt"] + asked["new"]
    rate = measured("updates", "rows", "tokens_per_s")  # forward, backward twice as much, initial model
    compute = rate * 4 * EMBEDDED.forward(length) / H200.bf16
    steps = measured("rollouts", "sampler static", "tokens_per_s") / asked["rows"]
    context = asked["prompt"] + asked["new"] / 2
    read = BF16 * EMBEDDED.parameters + asked["rows"] * context * EMBEDDED.cache(BF16)
    return Shares(compute, steps * read / H200.bandwidth)


# -- tables ------------------------------------------------------------------------------------------------------------


def assumption_table(shape: Shape) -> list[list[str]]:
    """What is assumed, and where it comes from."""
    small = small_model_shares()
    rows = [["what", "value", "where it comes from"]]
    rows.append(["parameters", f"{shape.parameters:,}", "the model's sizes; a test builds it without weights"])
    rows.append(["parameters of an adapter", f"{shape.adapter(16):,}", "rank 16; a test builds it"])
    rows.append(["prompt of the agent", f"{PROMPT} tokens", "characters of the world's prompts, four a token"])
    rows.append(["what an attempt adds", f"{REPLY} tokens", "the paper's replies after training"])
    rows.append(["turns of an attempt", str(TURNS), "assumed"])
    rows.append(["request to the designer", f"{REQUEST} tokens", "characters of the requests, four a token"])
    rows.append(["a task beside its text", f"{FORM} tokens", "assumed"])
    rows.append(["longest reply of every batch", "`max_tokens`", "assumed: the longest there can be"])
    rows.append(["share of peak in updates", f"{COMPUTE_SHARE:.0%}", "assumed, usual for models of this size"])
    rows.append(["the same, 135M model", f"{small.compute:.0%}", "experiments/speed, on an H200"])
    rows.append(["share of peak of memory and links", f"{MEMORY_SHARE:.0%}", "assumed"])
    rows.append(["the same, 135M model", f"{small.memory:.0%}", "experiments/speed, on an H200"])
    rows.append(["rounds of writing", "1", "assumed; at most `max_rounds`"])
    rows.append(["disk", f"{DISK / GB:.0f} GB/s", "assumed"])
    rows.append(["a process on a GPU", f"{PROCESS / GB:.0f} GB", "assumed"])
    rows.append(["room that should stay free", f"{ROOM:.0%} of a GPU", "assumed"])
    rows.append(["stacks of logits at once", str(LOGIT_COPIES), "counted in `llm/models/regression.py`"])
    for gpu in (H200, A100):
        value = f"{gpu.bf16 / 1e12:.0f} and {gpu.fp32 / 1e12:g} TFLOP/s, {gpu.bandwidth / 1e12:.1f} TB/s"
        value += f", links {gpu.link / GB:.0f} GB/s"
        rows.append([f"{gpu.name}: bfloat16 and float32, memory", value, "NVIDIA's data sheets"])
    return rows


def number(value: float) -> str:
    """A number in two or three digits."""
    if value == 0:
        return "-"
    if value < 0.05:
        return "under 0.1"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


TABLES: dict[str, Callable[[Shape], list[list[str]]]] = {
    "assumptions": assumption_table,
    "memory": memory_table,
    "activations": activation_table,
    "machine": machine_table,
    "time-h200": partial(time_table, gpu=H200),
    "time-a100": partial(time_table, gpu=A100),
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--model", default="7b", help="7b, or the folder of a model")
    arguments = parser.parse_args()
    head, *body = TABLES[arguments.table](read_shape(arguments.model))
    for row in (head, ["---"] * len(head), *body):
        print(f"| {' | '.join(row)} |".replace("| --- | --- |", "|---|---|").replace("| --- |", "|---|"))


if __name__ == "__main__":
    main()
