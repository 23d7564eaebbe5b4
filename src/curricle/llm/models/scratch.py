"""Scratch: a small language model that begins with random weights, for experiments on a laptop.

It is a Llama of `transformers` like any other model here, only with two narrow layers, and it reads text character by
character. It knows nothing at first: let it imitate some solutions before it practises (`imitation_updates`). Its
weights come from the seed, so no file holds them; a checkpoint has all of them.
"""

import re
from typing import Any

import torch

from curricle.errors import ModelError, needed

NAME = re.compile(r"scratch(:(?P<layers>\d{1,2})x(?P<width>\d{1,4}))?")
"""`scratch`, or with its size: scratch:LAYERSxWIDTH."""
LAYERS = 2
WIDTH = 64
HEAD_WIDTH = 16
CONTEXT = 2048
SPREAD = 0.1
"""Standard deviation of the first weights. With the usual 0.02 so narrow a model needs ten times as many updates."""
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
PAD = "<pad>"
END = "<end>"
UNKNOWN = "<unknown>"
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '>' + m['content'] + eos_token }}"
    "{% else %}{{ m['content'] + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '>' }}{% endif %}"
)


def is_scratch(name: str) -> bool:
    """Whether a model's name stands for one of these."""
    return name.partition(":")[0] == "scratch"


def build(name: str, player: str, seed: int) -> tuple[Any, Any]:
    """A tokenizer and a model with the weights that the seed gives."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ModelError(
            f"{player}: model = {name!r} is not understood; write 'scratch' or, for example, 'scratch:4x128'"
        )
    layers = int(found["layers"] or LAYERS)
    width = int(found["width"] or WIDTH)
    if not layers or not width or width % HEAD_WIDTH:
        raise ModelError(
            f"{player}: model = {name!r}: it needs at least one layer, and a width that {HEAD_WIDTH} divides, like 64"
        )
    tokenizer = character_tokenizer()
    transformers = needed("transformers")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // HEAD_WIDTH,
        num_key_value_heads=width // HEAD_WIDTH,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        initializer_range=SPREAD,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config)
    return tokenizer, model


def character_tokenizer() -> Any:
    """A tokenizer with one token for each printable ASCII character and the line break."""
    tokenizers = needed("tokenizers")
    words = [PAD, END, UNKNOWN, *CHARACTERS]
    vocabulary = {word: number for number, word in enumerate(words)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=UNKNOWN))
    every_character = tokenizers.Regex(r"[\s\S]")
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(every_character, "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    made = needed("transformers").PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made
