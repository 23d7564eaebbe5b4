"""Language: tokens a second of rollouts and of updates, beside plain `transformers.generate` in the same run.

    python benchmarks/language.py [--model embedded] [--rows 512] [--prompt 128] [--new 64] [--out FILE] [--profile]

Every sampler draws the same number of tokens from the same prompts: random words, each prompt `--group` times as GRPO
asks it, an end token that never comes. Plain `generate` is what a user would write: the model in bfloat16 on a GPU
(float32 on a CPU), batched, its default cache. The first call of each, which prepares, is timed apart. Updates are
GRPO's of TRL over rollouts of that length: forward, backward, KL and optimiser together, with every row on its own and
with prompts shared (`microbatches.py`). Imitation is one update by weighted regression over as many. Writing is what an
environment policy does, tool tasks held to their grammar, in steps a second of a token of every row: in fixed shapes
beside transformers' growing cache. With `--json` the last line is one object; `--out` appends it to a file, with what
was asked for and the machine it was measured on; `--profile` adds, on a GPU, the kernels of updates by their time.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from profiles import kernels

from curricle.agents.grpo import microbatches
from curricle.agents.grpo.options import LearningOptions
from curricle.agents.grpo.rollouts import Attempt, DesignTask
from curricle.agents.grpo.trainer import GRPOTrainer
from curricle.designers.language.conditioning import requests
from curricle.designers.language.form import Form, write
from curricle.llm.generate.sampling import Sampler
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, update
from curricle.records import Message, Task, Verdict
from curricle.registry import find
from curricle.seeds import generator
from curricle.world import World


def timed(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def rollouts(causal: CausalModel, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Tokens a second of every sampler."""
    noise = torch.Generator().manual_seed(0)
    vocabulary = len(causal.tokenizer)
    shape = (-(-args.rows // args.group), args.prompt)
    prompts = (
        torch.randint(0, vocabulary, shape, generator=noise).repeat_interleave(args.group, 0)[: args.rows].tolist()
    )
    ends = causal.ends
    causal.ends = []  # so that every row has the same length
    on_gpu = causal.device.type == "cuda"
    found = {}
    plain = Sampler(causal, "plain", args.rows)
    model = plain.copy if on_gpu else causal.model
    kept = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = None
    ids = torch.tensor(prompts, device=causal.device)

    def generate() -> Any:
        return model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=args.new
        )

    ways: dict[str, Callable[[], Any]] = {"transformers.generate": generate}
    for kind in args.samplers or (["plain", "static", "continuous"] if on_gpu else ["plain", "static"]):
        sampler = Sampler(causal, kind, args.batch or args.rows)
        if on_gpu:
            sampler.copy.generation_config.eos_token_id = None
        ways[f"sampler {kind}"] = partial(sampler.sample, prompts, max_tokens=args.new, temperature=1.0, seed=0)
    for name, work in ways.items():
        try:
            first = timed(work, causal.device)
            seconds = min(timed(work, causal.device) for _ in range(args.repeat))
        except Exception as error:  # one way failing must not hide the others
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        rate = args.rows * args.new / seconds
        found[name] = {"tokens_per_s": round(rate), "first_s": round(first, 1)}
        base = found.get("transformers.generate", found[name])["tokens_per_s"]
        print(f"{name:>22}: {rate:10,.0f} tokens/s, {rate / base:5.2f} x plain generate; first call {first:.1f} s")
    causal.ends = ends
    model.generation_config.eos_token_id = kept
    return found


def updates(causal: CausalModel, options: LearningOptions, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Tokens a second of TRL's update, prompt and reply counted; with each row on its own, and packed as we do it."""
    task = Task(id="t", prompt=(Message(role="user", content="x"),), skill="s")

    def rollout(slots: Any) -> list[Attempt]:
        made = []
        for number, _ in enumerate(slots):
            prompt = [5 + number // options.group_size] * args.prompt
            one = Attempt(task, 0, prompt, ids=[6] * args.new, mask=[1] * args.new)
            one.verdict = Verdict(reward=float(number % 2))
            made.append(one)
        return made

    trainer = GRPOTrainer(causal, options, rollout)
    found = {}
    slots = (DesignTask(task, 0) for _ in range(10**9))
    for name, most in {"rows": 0.0, "packed": microbatches.MAX_WORK}.items():
        microbatches.MAX_WORK = most
        first = timed(lambda: trainer.run(slots, 1, 0, lambda *_: None), causal.device)
        seconds = timed(lambda: trainer.run(slots, args.updates, 0, lambda *_: None), causal.device)
        rate = args.updates * options.rollouts_per_update * (args.prompt + args.new) / seconds
        label = f"{'updates, ' + name:>22}"
        count = options.rollouts_per_update
        print(f"{label}: {rate:10,.0f} tokens/s, {count} rollouts each; first call {first:.1f} s")
        found[name] = {"tokens_per_s": round(rate), "first_s": round(first, 1)}
        if args.profile and causal.device.type == "cuda":
            kernels(lambda: trainer.run(slots, 2, 0, lambda *_: None), 2, "update")
    return found


def imitation(causal: CausalModel, args: argparse.Namespace) -> dict[str, float]:
    """Tokens a second of learning by weight, as an agent that imitates does.

    An environment policy does so as well, with passes of the model it began as and of the cap on KL beside it.
    """
    shown = [Example([5] * args.prompt, [6] * args.new, 1.0) for _ in range(args.rows)]

    def learn() -> None:
        update(causal, shown, 0.0, float("inf"), args.micro)

    first = timed(learn, causal.device)
    seconds = min(timed(learn, causal.device) for _ in range(args.repeat))
    rate = args.rows * (args.prompt + args.new) / seconds
    print(f"{'imitation':>22}: {rate:10,.0f} tokens/s; first call {first:.1f} s")
    if args.profile and causal.device.type == "cuda":
        kernels(learn, 1, "update")
    return {"tokens_per_s": round(rate), "first_s": round(first, 1)}


def writing(causal: CausalModel, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Steps a second of writing designs, and seconds until all were written or had `--text` tokens."""
    world = find(World, "tools")()
    form = Form(world.Setting.knobs(), causal.tokenizer, causal.ends, follows=world.Setting.follows)
    asked = requests(world.brief(1, 1), args.written, form, 0.5, False, generator(0, "ask"))
    prompts = [causal.render_prompt(one.prompt) for one in asked]
    found: dict[str, dict[str, float]] = {}
    for kind in ("plain", "static"):
        sampler = _Counted(causal, kind, args.written)
        act = partial(write, sampler, form, prompts, args.text, 0.7, 0)
        first = timed(act, causal.device)
        sampler.counted = 0
        seconds = timed(act, causal.device)
        rate = sampler.counted / seconds
        found[kind] = {"steps_per_s": round(rate, 1), "seconds": round(seconds, 2), "first_s": round(first, 1)}
        base = found["plain"]["steps_per_s"]
        print(f"{'writing, ' + kind:>22}: {rate:10,.1f} steps/s, {rate / base:5.2f} x growing cache; {seconds:.1f} s")
    return found


class _Counted(Sampler):
    """Counts its steps."""

    counted = 0

    @contextmanager
    def steps(self, prompts: Any, max_tokens: int) -> Iterator[Any]:
        with super().steps(prompts, max_tokens) as (count, next_logits):

            def counted(tokens: Any) -> Any:
                self.counted += 1
                return next_logits(tokens)

            yield count, counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--rows", type=int, default=512 if torch.cuda.is_available() else 8)
    parser.add_argument("--batch", type=int, default=0, help="rows at a time; 0: all")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--micro", type=int, default=64 if torch.cuda.is_available() else 8)
    parser.add_argument("--written", type=int, default=24 if torch.cuda.is_available() else 4, help="designs")
    parser.add_argument("--text", type=int, default=64, help="tokens of a design's text")
    parser.add_argument("--samplers", nargs="*", default=[])
    parser.add_argument("--profile", action="store_true", help="On a GPU: which kernels take the time.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="file to append one line of JSON to")
    args = parser.parse_args()
    tasks = max(1, args.rows // 8)
    options = LearningOptions(
        model=args.model, lora=args.lora, tasks_per_update=tasks, microbatch_size=args.micro, max_tokens=args.new
    )
    causal = CausalModel(options, "benchmark", 0)
    result: dict[str, Any] = {"rollouts": rollouts(causal, args), "updates": updates(causal, options, args)}
    result["imitation"] = imitation(causal, args)
    result["writing"] = writing(causal, args)
    if args.json:
        print(json.dumps(result))
    if args.out:
        asked = {name: value for name, value in vars(args).items() if name not in ("json", "out", "profile")}
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**result, "asked": asked, "machine": machine(causal.device)}) + "\n")


def machine(device: torch.device) -> dict[str, str]:
    """What the figures hang on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {"device": name} | {package: version(package) for package in ("torch", "transformers", "trl")}


if __name__ == "__main__":
    main()
