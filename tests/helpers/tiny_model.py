"""A tiny Llama with random weights and a small tokenizer, and small worlds of text: nothing is downloaded."""

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from helpers.skips import skip_without

from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.records import Message, Skill, Task, Verdict
from curricle.seeds import generator
from curricle.setting import Setting, knob
from curricle.world import TaskWorld

TEMPLATE = (
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}"
)


@functools.cache
def tiny(spread: float = 0.02, curt: bool = False) -> str:
    """The folder of a tiny model; gone with the process.

    Random weights hardly ever end a reply, and what never ends earns nothing: one that is `curt` ends with every third
    word it knows.

    An adapter leaves the head as it is, and with a head of the usual small weights all words stay equally likely: tests
    in which an adapter learns want a greater `spread`.
    """
    skip_without("llm")

    torch.set_num_threads(1)  # so small a model is slowed down by more
    folder = tempfile.mkdtemp(prefix="curricle-tiny-")
    atexit.register(shutil.rmtree, folder, True)
    make(Path(folder), spread=spread, curt=curt)
    return folder


@functools.cache
def tiny_qwen() -> str:
    """The folder of a tiny model with the architecture of Qwen2.5-7B: biases, a head of its own, several layers."""
    skip_without("llm")

    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="curricle-tiny-")
    atexit.register(shutil.rmtree, folder, True)
    make(Path(folder), spread=0.3, qwen=True)
    return folder


def make(folder: Path, width: int = 32, spread: float = 0.02, curt: bool = False, qwen: bool = False) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=640, initial_alphabet=letters, show_progress=False)
    words = Path(__file__).with_name("tiny_model.txt").read_text()  # any text, as long as it stays the same
    plain.train_from_iterator([words], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    kind_of_config, kind_of_model = (Qwen2Config, Qwen2ForCausalLM) if qwen else (LlamaConfig, LlamaForCausalLM)
    config = kind_of_config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2 if qwen else 1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=not qwen,
        initializer_range=spread,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = kind_of_model(config)
    if curt:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(0, len(tokenizer), 3)]
    model.save_pretrained(folder)


def kind(answer: str) -> str:
    """Which of three kinds an answer is of, by its first letter."""
    return "abc"[ord(answer[0]) % 3] if answer else ""


class PickSetting(Setting):
    letter: Literal["a", "b", "c"] = knob("a", "The letter that is asked for.")
    most: int = knob(3, "Most characters of a right answer.", ge=1, le=9, harder="down")
    note: str = knob("", "A remark for the agent.", max_length=60)


class Pick(TaskWorld):
    """Say a letter of one of three kinds: a tiny model learns it in seconds, and is right one time in three before."""

    id = "pick-v1"
    Setting = PickSetting
    skills = (Skill(name="vowel"), Skill(name="consonant"))
    guide = "Answers begin with a letter."

    def tasks(self, setting: Any, n: int, seed: int) -> list[Task]:
        skill = "vowel" if setting.letter == "a" else "consonant"
        prompt = (Message(role="user", content=f"{setting.note}{setting.letter}"),)
        rng, gold = generator(seed, "pick"), {"wanted": setting.letter, "by": "its kind"}  # not in the order of letters
        return [Task(id=f"{int(rng.integers(2**40))}", prompt=prompt, gold=gold, skill=skill) for _ in range(n)]

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        right = kind(transcript[-1].content) == task.gold["wanted"]
        return Verdict(reward=float(right), skills=(task.skill,) if right else ())


class Steps(Pick):
    """The same in two turns: a word of the world stands between them."""

    id = "steps-v1"

    def reply(self, task: Task, transcript: Sequence[Message]) -> Message | None:
        if len(transcript) > 2:
            return None
        return Message(role="user", content="warm" if kind(transcript[0].content) == task.gold["wanted"] else "cold")


def causal(**options):
    return CausalModel(CausalOptions(model=tiny(), device="cpu", **options), "test", 0)
