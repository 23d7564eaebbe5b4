"""The runs of `same_bytes.py`: their configs, the tiny language model they use, and an endpoint on loopback.

Configs are written with the keys of the oldest tree that is compared, so that newer trees also show that they still
read them. In a value `{tree}` stands for the tree that runs it, `{model}` for the folder with the model and the world.
"""

import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VAULT = {"id": "{tree}/examples/vault.py:Vault"}
SUMS = {"id": "{tree}/examples/sums.py:Sums"}
STORE = {"id": "{tree}/examples/store.py:Store"}
AIM = {"id": "{model}/same_bytes_world.py:Aim"}
SCHEDULE = {"cycles": 2, "designs": 2, "per_cycle": 512, "ratio": "1:1", "final": 256, "save_every": 128}
SMALL = {"id": "ppo", "environments": 8, "steps": 16, "minibatches": 2, "epochs": 2, "width": 32, "hidden": 32}
PIXELS = {**SMALL, "channels": [4, 8, 8], "blocks": 1, "environments": 4, "steps": 32}
TABULAR = {"id": "tabular"}
ADAPTER = {"model": "{model}", "device": "cpu", "lora": 4, "rate": 1e-3}
GRPO = {"id": "grpo", **ADAPTER, "most_tokens": 6, "tasks": 2, "group": 2, "micro": 2, "warm": 2, "warm_tasks": 4}
LANGUAGE = {"id": "language", **ADAPTER, "text_tokens": 24, "n": 2, "band": "off", "micro": 2}
TEXT_SCHEDULE = {"cycles": 2, "designs": 2, "per_cycle": 16, "ratio": "1:1", "final": 4, "save_every": 4}


def rl(world: Any, agent: Any, designer: Any, **more: Any) -> dict[str, Any]:
    """A run of an RL agent."""
    schedule = {**SCHEDULE, "test_seeds": 2, **more.pop("schedule", {})}
    parts = {"seed": 3, "world": world, "agent": agent, "designer": designer, "schedule": schedule}
    return {**parts, "log": {"tensorboard": False}, **more}


def text(world: Any, agent: Any, designer: Any, **more: Any) -> dict[str, Any]:
    """A run of a language-model agent."""
    schedule = {**TEXT_SCHEDULE, "test_seeds": 2, "test_episodes": 2, **more.pop("schedule", {})}
    return rl(world, agent, designer, schedule=schedule, **more)


def rl_runs() -> dict[str, dict[str, Any]]:
    """PPO, distillation, tabular, and every designer that needs no trained language model."""
    symbols, pixels = {"id": "crafter"}, {"id": "crafter", "observation": "pixels"}
    longer = {"per_cycle": 1024, "final": 512, "save_every": 512}
    runs = {
        "ppo-symbols": rl(symbols, {**SMALL, "trace": 0.7}, {"id": "tutor"}),
        "ppo-one-lane": rl({**symbols, "threads": 2}, {**SMALL, "lanes": 1, "gradient": 0.1}, {"id": "random"}),
        "ppo-pixels": rl(pixels, PIXELS, {"id": "policy", "search": 2, "dreams": 8}),
        "ppo-continuous": rl(AIM, {**PIXELS, "greedy": True}, {"id": "random"}),
        "distill-symbols": rl(symbols, {**SMALL, "id": "distill", "every": 2}, {"id": "tutor"}, schedule=longer),
        "distill-pixels": rl(pixels, {**PIXELS, "id": "distill", "every": 2, "passes": 2}, {"id": "none"}),
        "random-agent": rl(symbols, {"id": "random"}, {"id": "tutor"}),
        "fast-crafter": rl({**symbols, "exact": False, "threads": 2}, SMALL, {"id": "random"}),
        "llm": rl(VAULT, TABULAR, {"id": "llm", "model": "m", "base_url": "{endpoint}", "retries": 0}),
    }
    for designer in ("none", "random", "fixed", "easy_to_hard", "adversarial", "tutor", "policy"):
        runs[f"tabular-{designer}"] = rl(VAULT, TABULAR, {"id": designer})
    return runs


def text_runs() -> dict[str, dict[str, Any]]:
    """Language models as agent and as designer, on sums, tool calls, puzzles and a world that answers back."""
    whole = {key: value for key, value in GRPO.items() if key != "lora"}
    frozen = {**LANGUAGE, "text": "off", "learn": False}
    words = {**GRPO, "turns": 2, "step_weight": 0.5}
    return {
        "sums": text(SUMS, {**GRPO, "replay": 0.3}, {**LANGUAGE, "aim": "task"}),
        "sums-whole-model": text(SUMS, whole, {"id": "random"}),
        "sums-plain": text(SUMS, {**GRPO, "sampler": "plain", "warm": 0}, frozen),
        "tools": text({"id": "tools"}, words, {**LANGUAGE, "text": "allowed", "warm": 1}),
        "store": text(STORE, {**words, "turns": 8, "test_temperature": 1.0}, {"id": "random"}),
        "puzzles": text({"id": "reasoning"}, GRPO, {"id": "tutor"}),
        "knobs-by-language": rl(VAULT, TABULAR, {**LANGUAGE, "kl": 0.1, "old": 1.0}),
    }


RESUMED = ("ppo-symbols", "distill-symbols", "tabular-policy", "sums", "tools")
"""Runs that are also begun by the old tree, killed, and resumed by the new one; and by the new tree alone."""


def fill(value: Any, names: dict[str, str]) -> Any:
    """Put the tree, the model and the endpoint into a config."""
    if isinstance(value, dict):
        return {key: fill(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, names) for inner in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
    return value


def make_model(folder: Path) -> None:
    """Write a Llama of some ten thousand random weights, with a tokenizer that knows this file's words."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([Path(__file__).read_text(encoding="utf-8")], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    fast.chat_template = (
        "{% for m in messages %}{{ '<|start|>' + m['role'] + '\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}"
    )
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=8192,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    torch.manual_seed(7)
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = [fast.eos_token_id, *range(0, len(fast), 3)]  # short replies
    model.save_pretrained(folder)


class Endpoint:
    """An OpenAI-compatible endpoint whose designs depend on the prompt alone."""

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Endpoint":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chosen = zlib.crc32(json.dumps(body["messages"]).encode())
        designs = [{"setting": {"dials": 1 + (chosen + i) % 5}, "aim": None, "why": "a test"} for i in range(2)]
        message = {"role": "assistant", "content": json.dumps({"designs": designs})}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        reply = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
