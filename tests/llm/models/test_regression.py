"""Learning replies by weight: likelihood, divergence, penalty, cap and shares, against values worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from helpers.skips import skip_without
from helpers.tiny_model import causal, tiny

from curricle.llm.models.layers import SAFE_ATTENTION, fill_empty_rows
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, kl_divergence, reply_losses, token_logits, update

skip_without("llm")


def test_divergence_and_likelihood_of_two_tokens():
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    logits, other = torch.tensor([p, p]).log(), torch.tensor([q, p]).log()
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert float(kl_divergence(logits, other)) == pytest.approx(kl / 2)
    assert float(kl_divergence(logits[:1], other[:1])) == pytest.approx(kl)
    tokens, together, apart = torch.tensor([0, 2]), torch.tensor([0, 0]), torch.tensor([0, 2])
    assert reply_losses(logits, tokens, together, 1).tolist() == pytest.approx([(math.log(2) + math.log(4)) / 2])
    assert reply_losses(logits, tokens, apart, 3).tolist() == pytest.approx([math.log(2), 0, math.log(4)])


@pytest.mark.parametrize("lora", [0, 4])
def test_logits_are_of_the_tokens_a_model_said_itself_and_do_not_hang_on_padding(lora, monkeypatch):
    """Beside the whole model's, row by row: its last layer is made to look at few places, and is as it was after."""
    one = causal(lora=lora)
    examples = [Example([5, 6], [7, 8, 9], 1.0, [1, 0, 1]), Example([1, 2, 3, 4], [1], 1.0), Example([9], [7], 1, [0])]
    with torch.no_grad():
        logits, tokens, rows = token_logits(one.model, examples, one.tokenizer.pad_token_id)
        first, second = (one.model(torch.tensor([e.prompt + e.reply])).logits[0] for e in examples[:2])
    assert tokens.tolist() == [7, 9, 1] and rows.tolist() == [0, 0, 1]
    assert torch.allclose(logits, torch.stack([first[1], first[3], second[3]]), atol=1e-5)
    monkeypatch.setattr(one.model, "get_output_embeddings", lambda: torch.nn.Linear(1, 1))  # one that is not asked
    with torch.no_grad():
        assert torch.allclose(token_logits(one.model, examples, one.tokenizer.pad_token_id)[0], logits, atol=1e-5)


def test_padding_may_look_at_everything_and_changes_nothing():
    mask = torch.tensor([[False, False], [False, True]])
    assert fill_empty_rows(mask).tolist() == [[True, True], [False, True]]
    one = causal()
    assert one.model.config._attn_implementation == SAFE_ATTENTION
    short, long, grads = [5, 6], list(range(7, 30)), []
    for rows in ([short], [short, long]):
        one.model.zero_grad()
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        out = one.model(input_ids=ids, attention_mask=seen, position_ids=(seen.cumsum(1) - 1).clamp(min=0))
        out.logits[0, -2:].square().mean().backward()
        grads.append(torch.cat([p.grad.flatten() for _, p in one.trained() if p.grad is not None]))
    assert torch.allclose(grads[0], grads[1], atol=1e-5) and grads[0].abs().sum() > 0


def test_cudnn_is_not_asked_for_attention(monkeypatch):
    def seen(module, query, *_, **__):
        asked.append(torch.backends.cuda.cudnn_sdp_enabled())
        return torch.zeros(query.shape).transpose(1, 2), None

    monkeypatch.setattr("transformers.integrations.sdpa_attention.sdpa_attention_forward", seen)
    asked, one = [], causal()
    one.model(torch.tensor([[5, 6]]))
    monkeypatch.undo()
    causal()  # takes the true one again
    assert asked and not any(asked) and torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("lora", [0, 4])
def test_regression_fits_what_weighs_and_stays_under_its_cap(lora):
    model = causal(learning_rate=1e-2, lora=lora)
    liked, other = Example([5, 6], [20, 21, 22], 3.0), Example([5, 6], [30, 31, 32], 0.5)

    def costs():
        with torch.no_grad():
            out = token_logits(model.model, [liked, other], 0)
        return reply_losses(*out, 2).tolist()

    before, told = costs(), []
    for _ in range(12):
        told.append(update(model, [liked, other], 0.1, 0.02, 8))
    weighted = (3 * before[0] + 0.5 * before[1]) / 3.5
    assert told[0]["loss"] == pytest.approx(weighted, rel=1e-5) and told[0]["kl_initial"] == pytest.approx(0, abs=1e-6)
    assert all(0 <= t["kl_step"] <= 0.02 for t in told) and (lora or min(t["step_scale"] for t in told) < 1)
    assert costs()[0] < before[0] - 0.05 and told[-1]["kl_initial"] > told[1]["kl_initial"]


def test_a_batch_moves_a_model_by_its_share_of_the_whole_pass():
    """Two updates on one reply, then one on another that weighs as much, less, or next to nothing."""
    liked, other, gains = Example([5, 6], [20, 21, 22], 1.0), Example([7, 8], [30, 31, 32], 1.0), []
    for weight in (1.0, 0.3, 0.1, 1e-6):
        model = CausalModel(CausalOptions(model=tiny(0.5), device="cpu", learning_rate=1e-3), "test", 0)
        for _ in range(2):
            update(model, [liked], 0.0, float("inf"), 1, 1.0)
        before = cost(model, other)
        update(model, [replace(other, weight=weight)], 0.0, float("inf"), 1, 1.0)
        gains.append(before - cost(model, other))
    assert gains[0] > 1.1 * gains[1] and gains[1] > 1.1 * gains[2] and gains[2] > gains[3]


def cost(model, example):
    """Negative log-likelihood of a reply."""
    return float(-odds(model.model, example).gather(-1, torch.tensor(example.reply)[:, None]).mean().detach())


def odds(model, example):
    """Log-odds before every token of a reply, alone in its batch; (tokens, words)."""
    return token_logits(model, [replace(example, mask=None)], 0)[0].log_softmax(-1)


def test_the_cap_is_on_the_whole_batch_in_however_many_parts():
    """One long reply that is known by heart hardly moves; the short ones do, and must stay under the cap with it."""
    long, short = Example([5] * 9, [7] * 6, 1.0), [Example([9 + i], [20 + i, 21 + i], 1.0) for i in range(3)]
    told = []
    for micro in (1, 2, 8):
        model = causal(learning_rate=1e-2)
        for _ in range(100):
            update(model, [long], 0.0, float("inf"), 1)
        before = [odds(model.model, e).detach() for e in (long, *short)]
        told.append(update(model, [long, *short], 0.0, 0.05, micro))
        after = [odds(model.model, e).detach() for e in (long, *short)]
        each = [(new.exp() * (new - old)).sum(-1) for new, old in zip(after, before, strict=True)]
        assert torch.cat(each).mean() <= 0.05 and told[-1]["step_scale"] < 1
        assert told[-1]["kl_step"] == pytest.approx(float(torch.cat(each).mean()), rel=1e-3), "12 tokens count alike"
    assert told[0] == pytest.approx(told[1], rel=1e-3) and told[1] == pytest.approx(told[2], rel=1e-3)


@pytest.mark.parametrize("micro", [1, 8])
def test_the_penalty_is_the_divergence_from_the_initial_model(micro):
    """KL(now || initial), its mean over the tokens said, times `kl`, beside the weighted likelihood; by hand."""
    examples = [Example([5, 6], [20, 21, 22], 3.0, [1, 0, 1]), Example([7], [30], 1.0)]
    model, begun, grads = causal(learning_rate=3e-2), causal(), []
    for _ in range(3):
        update(model, [Example([5, 6], [40, 41, 42], 1.0)], 0.0, float("inf"), 8)
    rows, first = [odds(model.model, e) for e in examples], [odds(begun.model, e).detach() for e in examples]
    said = [(rows[0][0], first[0][0]), (rows[0][2], first[0][2]), (rows[1][0], first[1][0])]
    fit = -(3 / 4 * (rows[0][0, 20] + rows[0][2, 22]) / 2 + 1 / 4 * rows[1][0, 30])
    away = sum((now.exp() * (now - then)).sum() for now, then in said) / 3
    (fit + 5.0 * away).backward()
    fit, away = float(fit.detach()), float(away.detach())
    torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    wanted = {name: p.grad.clone() for name, p in model.trained()}
    hook = lambda *_: grads.append({name: p.grad.clone() for name, p in model.trained()})  # noqa: E731
    model.optimizer.register_step_pre_hook(hook)
    told = update(model, examples, 5.0, float("inf"), micro)
    assert away > 0.01 and told["kl_initial"] == pytest.approx(away, rel=1e-4)
    assert told["loss"] == pytest.approx(fit, rel=1e-5)
    for name, grad in grads[0].items():
        assert torch.allclose(grad, wanted[name], atol=1e-5), name


def test_words_of_others_in_a_reply_are_not_learnt():
    whole, masked = (Example([5], [20, 21, 22], 1.0, mask) for mask in (None, [1, 0, 1]))
    with torch.no_grad():
        logits, tokens, _ = token_logits(causal().model, [whole], 0)
    costs = -logits.log_softmax(-1)[range(3), tokens]
    losses = [update(causal(learning_rate=1e-3), [example], 0.0, 1.0, 8)["loss"] for example in (whole, masked)]
    assert losses == pytest.approx([float(costs.mean()), float(costs[[0, 2]].mean())], rel=1e-5)


def test_what_is_not_measured_is_not_told_and_moves_alike():
    """A cap that never bites changes nothing but what is known."""
    free, capped = causal(learning_rate=1e-2), causal(learning_rate=1e-2)
    told = [update(one, [Example([5], [20], 1.0)], 0.0, cap, 8) for one, cap in ((free, float("inf")), (capped, 1e9))]
    assert list(told[0]) == ["loss"] and told[1]["kl_step"] > 0 and told[1]["kl_initial"] == pytest.approx(0, abs=1e-6)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(free.trained(), capped.trained(), strict=True))


def test_a_step_that_may_not_move_does_not():
    model = causal(learning_rate=0.5)
    before = {name: p.detach().clone() for name, p in model.trained()}
    told = update(model, [Example([5], [20], 1.0)], 0.0, 1e-30, 8)
    assert told["step_scale"] == 0.0 and all(torch.equal(before[name], p) for name, p in model.trained())
