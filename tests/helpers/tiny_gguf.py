"""A language model of 100,000 random weights as a GGUF file: the whole way of the embedded one, without a download."""

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="needs an extra: pip install 'curricle[llm]'")

HIDDEN, LAYERS, HEADS, KEYS, INNER = 64, 2, 4, 2, 128
TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def letters():
    """The 256 bytes as the characters that a byte-level vocabulary writes them with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def write(path, seed=0):
    """Write the file and return its path."""
    rng = np.random.default_rng(seed)
    vocabulary = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters(), "in"]
    writer = gguf.GGUFWriter(str(path), arch="llama")
    writer.add_name("tiny")
    writer.add_context_length(4096)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3] * 3 + [1] * (len(vocabulary) - 3))  # 3: a sign of control, 1: text
    writer.add_token_merges(["i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    keys = HIDDEN * KEYS // HEADS
    shapes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (keys, HIDDEN),
        "attn_v": (keys, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
    }
    shapes |= {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
    weights = {"token_embd": rng.normal(0, 0.2, (len(vocabulary), HIDDEN)), "output_norm": np.ones(HIDDEN)}
    for layer in range(LAYERS):
        weights |= {f"blk.{layer}.{name}": rng.normal(0, 0.1, shape) for name, shape in shapes.items()}
        weights |= {f"blk.{layer}.{name}": np.ones(HIDDEN) for name in ("attn_norm", "ffn_norm")}
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
