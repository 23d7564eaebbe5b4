"""Language models on a GPU: graphs and bfloat16 change how fast replies come, not which. Skipped without a GPU."""

import pytest
import torch
from helpers.grpo_agents import brief
from helpers.tiny_model import Pick, tiny

from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.llm.generate.sampling import Sampler
from curricle.llm.models.layers import fill_empty_rows, fused_rotary, kernels
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel

modeling_llama = pytest.importorskip("transformers.models.llama.modeling_llama")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [8], list(range(20, 95))]


def sampler(kind, **options):
    return Sampler(CausalModel(CausalOptions(model=tiny(), **options), "test", 0), kind, 4)


def test_graphs_say_what_plain_generation_says():
    plain, static = sampler("plain"), sampler("static")
    expected = plain.sample(PROMPTS, max_tokens=24, temperature=0, seed=0)
    for _ in range(2):  # captured, then replayed
        found = static.sample(PROMPTS, max_tokens=24, temperature=0, seed=0)
        same = [a == b for x, y in zip(expected, found, strict=True) for a, b in zip(x.ids, y.ids, strict=False)]
        assert sum(same) > 0.9 * len(same), "rounding may turn a choice between two equal ones"
    assert all(loop.graph for loop in static.decoder.loops.values())


def test_graphs_draw_by_the_models_odds_anew_for_each_seed():
    static = sampler("static")
    with torch.no_grad():
        odds = static.copy(torch.tensor([[5, 6, 7]], device="cuda")).logits[0, -1].float().softmax(-1)
    drawn = [
        [reply.ids[0] for reply in static.sample([[5, 6, 7]] * 400, max_tokens=1, temperature=1, seed=seed)]
        for seed in (1, 2, 1)
    ]
    assert drawn[0] == drawn[2] != drawn[1]
    for token in odds.topk(3).indices.tolist():
        share = (drawn[0] + drawn[1]).count(token) / 800
        assert abs(share - float(odds[token])) < 4 * (float(odds[token]) / 800) ** 0.5 + 0.01


def test_graphs_score_what_they_are_told_as_a_growing_cache_does():
    """Twice, since the second time nothing is captured."""
    scores = list[list[torch.Tensor]]()
    for one, turns in ((sampler("plain"), 1), (sampler("static"), 2)):
        for _ in range(turns):
            with one.steps(PROMPTS, 5) as (count, next_logits):
                steps = [[prompt[-1] for prompt in PROMPTS[:count]], *([30 + i] * count for i in range(4))]
                scores.append([next_logits(tokens).softmax(-1).clone() for tokens in steps])
    assert count == 4
    for other in scores[1:]:
        for a, b in zip(scores[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0.05, atol=1e-3)


def test_kernels_are_built_and_find_what_torch_does():
    """In bfloat16, with heads as the embedded model has them, and rows that see little."""
    static, theirs = sampler("static"), modeling_llama.apply_rotary_pos_emb
    with fused_rotary(static.copy):
        assert modeling_llama.apply_rotary_pos_emb is not theirs
    assert modeling_llama.apply_rotary_pos_emb is theirs
    given = (torch.randn(128, 9, 1, 64), torch.randn(128, 3, 864, 64), torch.randn(128, 3, 864, 64))
    query, keys, values = (one.cuda().bfloat16() for one in given)
    hidden = torch.arange(864, device="cuda") > torch.randint(1, 864, (128, 1), device="cuda")
    mask = torch.zeros(128, 864, device="cuda", dtype=torch.bfloat16).masked_fill(hidden, -torch.inf)
    found = kernels().decode_attention(query.view(128, 3, 3, 64), keys, values, mask, 0.125)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.float().view(128, 3, 3, 64), keys.float(), values.float(), attn_mask=mask[:, None, None].float()
    )
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("lora", "spread"), [(0, 0.02), (4, 0.5)])
def test_an_agent_learns_there_too(lora, spread):
    options = GRPOOptions(
        model=tiny(spread),
        lora=lora,
        learning_rate=1e-2,
        tasks_per_update=4,
        group_size=8,
        microbatch_size=32,
        max_tokens=1,
        dtype="float32",
    )
    one, world = GRPO(Pick(), options), Pick()
    assert one.causal.device.type == "cuda" and one.sampler.kind == "static"
    brief(one)
    one.practise([world.unaltered()], 1600, seed=1, report=lambda done, figures: None)
    assert one.measure([world.unaltered()], [1], 32)[0].rate > 0.8


def test_a_base_under_an_adapter_is_halved():
    halved, whole = (CausalModel(CausalOptions(model=tiny(), lora=lora), "test", 0) for lora in (4, 0))
    assert {p.dtype for _, p in halved.trained()} == {torch.float32} == {p.dtype for _, p in whole.trained()}
    assert halved.model.get_base_model().lm_head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(("length", "padding"), [(1032, 155), (1036, 161), (1036, 0), (900, 300)])
def test_padding_that_sees_nothing_has_a_gradient_all_the_same(length, padding):
    """Heads as the embedded model has them, masks as `llm/models` opens them."""
    seen = torch.arange(length, device="cuda") >= torch.tensor([0, padding, padding // 2], device="cuda")[:, None]
    mask = fill_empty_rows(seen[:, None, None] & torch.ones(length, length, device="cuda").tril().bool())
    query, key, value = (
        torch.randn(3, 9, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    (out * seen[:, None, :, None]).float().pow(2).sum().backward()
    assert all(bool(one.grad.isfinite().all()) for one in (query, key, value))
