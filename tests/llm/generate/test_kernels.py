"""Kernels for decoding, by Triton's interpreter beside what they stand for; and compiled for a large GPU.

Processes of their own, because Triton decides when it is loaded whether it compiles or interprets.
"""

import pytest
from helpers.skips import skip_without
from helpers.triton_interpreter import interpreted

skip_without("dev")

LOOK = """
import json
import torch
from torch.nn.functional import scaled_dot_product_attention
from curricle.llm.generate.kernels import decode_attention

torch.manual_seed(0)
found = []
for rows, shared, group, size, columns in ((3, 2, 3, 64, 300), (2, 1, 1, 24, 40), (2, 3, 20, 16, 128)):
    query = torch.randn(rows, shared, group, size)
    keys, values = (torch.randn(rows, shared, columns, size) for _ in range(2))
    hidden = torch.rand(rows, columns) < 0.5
    hidden[0, 5:] = True  # whole blocks are hidden,
    hidden[0, columns - 3] = hidden[1, 0] = False
    for poisoned in (keys, values):  # and what is hidden must not even be touched
        poisoned.masked_fill_(hidden[:, None, :, None], float("nan"))
    mask = torch.zeros(rows, columns).masked_fill(hidden, -torch.inf)
    out = decode_attention(query.transpose(1, 2).contiguous().transpose(1, 2), keys, values, mask, 0.3)
    expected = scaled_dot_product_attention(
        query, keys.nan_to_num(), values.nan_to_num(), attn_mask=mask[:, None, None], scale=0.3
    )
    nothing = decode_attention(query, keys, values, torch.full_like(mask, -torch.inf), 0.3)
    found.append([float((out - expected).abs().max()), float(nothing.abs().max())])
print(json.dumps(found))
"""
TURN = """
import json
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from curricle.llm.generate.kernels import rotate

torch.manual_seed(0)
found = []
for rows, heads, shared, tokens, size, places in ((3, 9, 3, 5, 64, 3), (2, 1, 1, 1, 24, 2), (4, 4, 2, 7, 16, 1)):
    query, keys = (torch.randn(rows, tokens, count, size).transpose(1, 2) for count in (heads, shared))
    cosine, sine = (torch.randn(places, tokens, size) for _ in range(2))
    expected, out = apply_rotary_pos_emb(query, keys, cosine, sine), rotate(query, keys, cosine, sine)
    found += [float((a - b).abs().max()) for a, b in zip(expected, out)]
print(json.dumps(found))
"""
COMPILED = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from curricle.llm.generate.kernels import BLOCK, _decode_attention, _rotate

def compiled(function, given, fixed):
    given = iter(given)
    signature = {one: "constexpr" if one in fixed else next(given) for one in function.arg_names}
    constants = {(i,): fixed[one] for i, one in enumerate(function.arg_names) if one in fixed}
    made = triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", 90, 32))
    assert made.metadata.shared <= 227 * 1024, (fixed, made.metadata.shared)

for kind, group, size in (("*bf16", 3, 64), ("*fp32", 1, 80), ("*bf16", 8, 128)):
    deep = max(16, triton.next_power_of_2(size))
    fixed = {"SHARED": 4, "GROUP": group, "SIZE": size, "WIDE": 16, "DEEP": deep, "BLOCK": BLOCK}
    compiled(_decode_attention, [kind] * 5 + ["fp32", "i32"], fixed)
    fixed = {"HEADS": 4 * group, "SHARED": 4, "HALF": size // 2, "WIDE": triton.next_power_of_2(4 * group)}
    compiled(_rotate, [kind] * 6 + ["i32", "i32"], fixed | {"DEEP": triton.next_power_of_2(size // 2)})
print(json.dumps(True))
"""


def test_the_kernel_finds_what_torch_does_and_touches_nothing_that_is_hidden():
    for far, nothing in interpreted(LOOK):
        assert far < 1e-5 and nothing == 0


@pytest.mark.slow
def test_places_are_given_as_the_model_itself_gives_them():
    assert all(far < 1e-5 for far in interpreted(TURN))


@pytest.mark.slow
def test_they_compile_for_a_large_gpu():
    assert interpreted(COMPILED, interpret="0")
