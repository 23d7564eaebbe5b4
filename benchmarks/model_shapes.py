"""Model shapes: the sizes of language models and of GPUs, for `estimate.py`. Nothing is loaded or measured."""

import json
from dataclasses import dataclass
from pathlib import Path

BF16 = 2
"""Bytes of a number in bfloat16."""
FP32 = 4
"""Bytes of a number in float32."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model with Qwen2's or Llama's layers."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tied: bool = False
    bias: bool = True

    @property
    def key_width(self) -> int:
        """Width of all keys, or all values, of a token."""
        return self.key_value_heads * self.hidden // self.heads

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.key_width
        biases = (self.hidden + 2 * self.key_width) * self.bias
        return attention + biases + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; the head has as many, or these."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        return (1 if self.tied else 2) * self.embedding + self.layers * self.layer + self.hidden

    def adapter(self, rank: int) -> int:
        """Parameters of an adapter on all linear layers but the head."""
        queries = 2 * (self.hidden + self.hidden)  # and what leaves attention
        keys = 2 * (self.hidden + self.key_width)  # and values
        wide = 3 * (self.hidden + self.intermediate)
        return self.layers * rank * (queries + keys + wide)

    def cache(self, width: int) -> int:
        """Bytes of the keys and values of a token, with numbers of `width` bytes."""
        return 2 * self.layers * self.key_width * width

    def kept(self, width: int) -> int:
        """Bytes that one layer keeps of a token for its gradient. A test counts them."""
        numbers = 6 * self.hidden + 4 * self.intermediate + 2 * self.key_width
        norms = 2 * FP32 * self.hidden + 2 * FP32
        return width * numbers + norms + FP32 * self.heads

    def activations(self, tokens: int, width: int, checkpointed: bool) -> float:
        """Bytes kept for a gradient: of all layers, or the inputs of all and the rest of one."""
        if checkpointed:
            return tokens * (self.layers * self.hidden * width + self.kept(width))
        return tokens * self.layers * self.kept(width)

    def forward(self, context: int) -> float:
        """Operations of one token's forward pass, in sequences of `context` tokens."""
        multiplied = self.layers * self.layer + self.embedding
        return 2 * multiplied + 2 * self.layers * self.hidden * context


QWEN = Shape(28, 3584, 18944, 28, 4, 152064)
EMBEDDED = Shape(30, 576, 1536, 9, 3, 49152, tied=True, bias=False)
"""SmolLM2-135M, with which the repository has measured."""


@dataclass(frozen=True)
class GPU:
    """What a data sheet of NVIDIA says."""

    name: str
    memory: float
    bf16: float
    """Operations a second."""
    fp32: float
    bandwidth: float
    """Bytes a second of its memory."""
    link: float
    """Bytes a second to other GPUs, one way."""


H200 = GPU("H200", 141e9, 989e12, 67e12, 4.8e12, 450e9)
A100 = GPU("A100", 80e9, 312e12, 19.5e12, 2.0e12, 300e9)


def read_shape(name: str) -> Shape:
    """The sizes of Qwen2.5-7B, or those that a model's folder says."""
    if name == "7b":
        return QWEN
    path = Path(name) / "config.json"
    if not path.exists():
        raise SystemExit(f"--model {name}: there is no {path}; give the folder of a model, or 7b")
    c = json.loads(path.read_text(encoding="utf-8"))
    return Shape(
        c["num_hidden_layers"],
        c["hidden_size"],
        c["intermediate_size"],
        c["num_attention_heads"],
        c["num_key_value_heads"],
        c["vocab_size"],
        tied=c.get("tie_word_embeddings", False),
        bias=c["model_type"] == "qwen2",
    )
