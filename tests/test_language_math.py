"""The mathematics of both language-model players, against values worked out by hand."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
from parts import Bench
from small_model import Pick, Steps, tiny

from curricle.agents.grpo.attempts import Attempt, Turn, attempt
from curricle.agents.grpo.credit import relative, step_advantages, token_advantages
from curricle.agents.grpo.settings import LearningOptions
from curricle.agents.grpo.trainer import Grpo
from curricle.designers.language import Language, LanguageOptions
from curricle.llm.attention import NAME, opened
from curricle.llm.causal import Causal, CausalOptions
from curricle.llm.regression import Example, divergence, step, token_logits, unlikelihood
from curricle.llm.sampling import Reply
from curricle.records import Message, Task, Verdict


def causal(**options):
    return Causal(CausalOptions(model=tiny(), device="cpu", **options), "test", 0)


def test_advantages_inside_a_group():
    mean, std = 0.25, math.sqrt(((0.75**2) + 3 * 0.25**2) / 3)
    assert relative([1, 0, 0, 0]) == pytest.approx([(1 - mean) / (std + 1e-4)] + [(0 - mean) / (std + 1e-4)] * 3)
    assert relative([1, 1, 1]) == [0, 0, 0] and relative([1]) == [0.0]


def episode(reward, *states, task="t"):
    turns = [Turn(3 * i, 3 * i + 2, state) for i, state in enumerate(states)]
    return Attempt(
        Task(id=task, prompt=(Message(role="user", content="go"),), skill="s"),
        0,
        [1],
        ids=[0] * (3 * len(states) - 1),
        turns=turns,
        verdict=Verdict(reward=reward),
    )


def test_advantages_by_turn_group_equal_states_of_one_task():
    """Two episodes share the start; one passes 'a' twice as late; another task's equal state is not compared."""
    tries = [
        episode(1.0, "start", "a"),
        episode(0.0, "start", "b"),
        episode(1.0, "start", "c", "a"),
        episode(1.0, "a", task="u"),
    ]
    found = step_advantages(tries, 0.5)
    start = relative([0.5, 0.0, 0.25])  # one turn later each: 1 * 0.5, 0, 1 * 0.25
    assert [found[i][0] for i in range(3)] == pytest.approx(start)
    assert found[0][1] == found[2][2] == 0.0, "both reached 'a' and won in that very turn"
    assert found[1][1] == found[2][1] == found[3][0] == 0.0, "alone in their state"
    rows = token_advantages(tries, 0.5, 9)
    assert rows[0] == pytest.approx([start[0], start[0], 0, 0, 0, 0, 0, 0, 0]), "the world's tokens have none"


def test_turns_of_the_world_are_masked_and_its_words_are_heard():
    model, asked = causal(), []

    def speak(prompts, seed):
        asked.append([model.tokenizer.decode(p) for p in prompts])
        said = "b" if len(asked) == 1 else "a"  # b is of the kind 'c': cold; then a is 'b'
        return [Reply([*model.tokenizer(said)["input_ids"], model.ends[0]], True) for _ in prompts]

    world = Steps()
    task = world.tasks(world.Setting(letter="b"), 1, 0)[0]
    (one,) = attempt(world, [(task, 0)], model, speak, 8, 5, 0)
    assert asked[1] == [
        "<|start|>user\nb<|end|>\n<|start|>assistant\nb<|end|>\n<|start|>user\ncold<|end|>\n<|start|>assistant\n"
    ]
    assert one.verdict.reward == 1.0 and one.shown == ("consonant",) and not one.fault
    mine = [token for token, own in zip(one.ids, one.mask, strict=True) if own]
    assert model.tokenizer.decode(mine) == "b<|end|>a<|end|>" and one.length == 4
    assert [(t.state, one.mask[t.start : t.end]) for t in one.turns] == [("b", [1, 1]), ("cold", [1, 1])]
    world.state = lambda task, transcript: f"after {len(transcript)}"
    assert attempt(world, [(task, 0)], model, speak, 8, 5, 0)[0].turns[0].state == "after 0"


@pytest.mark.parametrize(("world", "turns"), [(Pick(), 1), (Steps(), 1), (Steps(), 3)])
@pytest.mark.parametrize("ended", [True, False])
def test_a_reply_that_never_ends_earns_nothing_however_right(world, turns, ended):
    """As the only turn, as the last one that is allowed, and as the last of a conversation."""
    model, heard = causal(), []

    def speak(prompts, seed):
        heard.append(prompts)
        stops = ended or len(heard) < (2 if turns > 1 else 1)
        return [Reply([*model.tokenizer("a")["input_ids"], *([model.ends[0]] if stops else [])], stops)]

    task = world.tasks(world.Setting(letter="b"), 1, 0)[0]  # a is of the kind 'b'
    (one,) = attempt(world, [(task, 0)], model, speak, 8, turns, 0)
    assert one.transcript[-1].content == "a" and len(one.transcript) == (3 if turns > 1 else 1)
    assert (one.verdict.reward, one.shown, one.fault) == ((1.0, ("consonant",), "") if ended else (0.0, (), "endless"))
    assert ended or one.verdict.why.startswith("endless")


def test_the_gradient_of_an_update_is_that_of_grpo():
    """TRL's update, reckoned apart: clip inactive, KL and entropy off, one batch, advantages by turn."""
    options = LearningOptions(
        model=tiny(), device="cpu", kl=0.0, entropy=0.0, rate=0.0, group=2, tasks=1, micro=2, step_weight=0.5
    )
    model, world = Causal(options, "test", 0), Pick()
    task = world.tasks(world.Setting(), 1, 0)[0]
    words = model.tokenizer("hello")["input_ids"]
    prompt = model.tokenizer("say")["input_ids"]

    def rollout(slots):
        tries = [
            Attempt(task, 0, prompt, ids=[*words, 9, 9, *words], mask=[1] * len(words) + [0, 0] + [1] * len(words)),
            Attempt(task, 0, prompt, ids=[7, 8], mask=[1, 1]),
        ]
        n = len(words)
        tries[0].turns = [Turn(0, n, "x"), Turn(n + 2, 2 * n + 2, "y")]
        tries[1].turns = [Turn(0, 2, "x")]
        tries[0].verdict = Verdict(reward=1.0)
        kept.extend(tries)
        return tries

    kept, grads = [], {}
    grpo = Grpo(model, options, rollout)
    model.optimizer.register_step_pre_hook(lambda *_: grads.update({n: p.grad.clone() for n, p in model.trained()}))
    grpo.run(iter([(task, 0)] * 4), 1, 0, lambda *_: None)
    whole = relative([1.0, 0.0])
    steps = token_advantages(kept, 0.95, len(kept[0].ids))
    model.optimizer.zero_grad()
    loss = torch.zeros(())
    for row, one in enumerate(kept):
        logits, tokens, _ = token_logits(model.model, [Example(prompt, one.ids, 1.0)], model.tokenizer.pad_token_id)
        log_p = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))[:, 0]
        mask = torch.tensor(one.mask, dtype=torch.float32)
        advantage = whole[row] + 0.5 * torch.tensor(steps[row][: len(one.ids)])
        loss = loss - (log_p * advantage * mask).sum() / sum(sum(one.mask) for one in kept)  # all tokens weigh the same
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    assert norm > 0.01
    for name, p in model.trained():
        assert torch.allclose(grads[name], p.grad, atol=2e-5), name


def test_the_second_update_from_the_same_rollouts_is_clipped_and_keeps_its_entropy():
    """-min(r A, clip(r, 0.8, 1.2) A) of every token, less a bonus for entropy, where odds have moved since then."""
    about = {"kl": 0.0, "entropy": 0.3, "rate": 3e-4, "group": 2, "tasks": 1, "micro": 2, "iterations": 2}
    options = LearningOptions(model=tiny(0.5), device="cpu", clip=0.2, **about)
    model, world = Causal(options, "test", 0), Pick()
    (task,) = world.tasks(world.Setting(), 1, 0)
    prompt, said, seen = [5, 6], [[7, 8, 9, 10, 30, 31], [11, 12, 40, 41]], []

    def rollout(slots):
        tries = [Attempt(task, 0, prompt, ids=ids, mask=[1] * len(ids)) for ids in said]
        tries[0].verdict = Verdict(reward=1.0)
        return tries

    def odds():
        found = [
            token_logits(model.model, [Example(prompt, ids, 1.0)], model.tokenizer.pad_token_id)[0].log_softmax(-1)
            for ids in said
        ]
        own = [each.gather(-1, torch.tensor(ids)[:, None])[:, 0] for each, ids in zip(found, said, strict=True)]
        return own, -torch.cat([(each.exp() * each).sum(-1) for each in found])

    def look(*_):
        seen.append({name: (p.detach().clone(), p.grad.clone()) for name, p in model.trained()})

    model.optimizer.register_step_pre_hook(look)
    Grpo(model, options, rollout).run(iter([(task, 0)]), 1, 0, lambda *_: None)
    first, second = seen
    with torch.no_grad():
        for name, p in model.trained():
            p.copy_(first[name][0])
    old = [one.detach() for one in odds()[0]]
    with torch.no_grad():
        for name, p in model.trained():
            p.copy_(second[name][0])
    model.optimizer.zero_grad()
    now, entropy = odds()
    ratios = [(new - before).exp() for new, before in zip(now, old, strict=True)]
    terms = [torch.min(r * a, r.clamp(0.8, 1.2) * a) for r, a in zip(ratios, relative([1.0, 0.0]), strict=True)]
    (-torch.cat(terms).mean() - 0.3 * entropy.mean()).backward()
    torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    cut = [bool(r > 1.2) for r in ratios[0]] + [bool(r < 0.8) for r in ratios[1]]
    assert any(cut) and not all(cut), "some tokens have moved too far, some not"
    for name, p in model.trained():
        assert torch.allclose(second[name][1], p.grad, atol=2e-5), name


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize(("rewards", "trl"), [((0, 0), {}), ((1, 0), {}), ((1, 0), {"use_bias_correction_kl": False})])
def test_the_kl_term_of_an_update_is_weighted_and_pulls_back_to_where_it_began(lora, rewards, trl):
    """k3 = r/p - log(r/p) - 1 of every token of the agent's own, beside the advantage of its group.

    TRL multiplies it by the odds over those it was drawn with: 1 in value, but its slope makes k3's that of KL(p|r).
    """
    about = {"lora": lora, "kl": 0.3, "entropy": 0.0, "rate": 1e-3, "group": 2, "tasks": 1, "micro": 2, "trl": trl}
    options = LearningOptions(model=tiny(0.5), device="cpu", **about)
    model, world = Causal(options, "test", 0), Pick()
    with torch.no_grad():  # away from where it began
        luck = torch.Generator().manual_seed(0)
        for _, p in model.trained():
            p.add_(0.05 * torch.randn(p.shape, generator=luck))
    (task,) = world.tasks(world.Setting(), 1, 0)
    prompt, said = [5, 6], [[7, 8, 9, 10], [11, 12]]
    own, grads, told = [[1, 0, 1, 1], [1, 1]], {}, []

    def rollout(slots):
        tries = [Attempt(task, 0, prompt, ids=ids, mask=mask) for ids, mask in zip(said, own, strict=True)]
        for one, reward in zip(tries, rewards, strict=True):
            one.verdict = Verdict(reward=float(reward))
        return tries

    def log_odds(network, row):
        logits, tokens, _ = token_logits(network, [Example(prompt, said[row], 1.0)], model.tokenizer.pad_token_id)
        return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))[:, 0]

    def kl(row):
        with torch.no_grad(), model.origin() as origin:
            began = log_odds(origin, row)
        now, mask = log_odds(model.model, row), torch.tensor(own[row])
        return now, ((began - now).exp() - (began - now) - 1) * mask, mask

    loss = torch.zeros(())
    for row, advantage in enumerate(relative(rewards)):
        now, apart, mask = kl(row)
        moved = (now - now.detach()).exp()  # 1; its slope is that of the log-odds
        apart = apart if trl else apart * moved
        loss = loss + ((0.3 * apart - moved * advantage) * mask).sum() / sum(map(sum, own))
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    expected = {name: p.grad.clone() for name, p in model.trained()}
    before = sum(float(kl(row)[1].detach().sum()) for row in (0, 1))
    assert before > 0.01
    model.optimizer.zero_grad()
    model.optimizer.register_step_pre_hook(lambda *_: grads.update({n: p.grad.clone() for n, p in model.trained()}))
    Grpo(model, options, rollout).run(iter([(task, 0)]), 1, 0, lambda step, fresh, figures: told.append(figures))
    assert max(float(g.abs().max()) for g in expected.values()) > 0.01
    for name, grad in expected.items():
        assert torch.allclose(grads[name], grad, atol=2e-5), name
    assert told[0]["loss"] == pytest.approx(float(loss.detach()), abs=1e-4)
    after = sum(float(kl(row)[1].detach().sum()) for row in (0, 1))
    assert any(rewards) or after < before, "alone it brings the model back"


def test_divergence_and_likelihood_of_two_tokens():
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    logits, other = torch.tensor([p, p]).log(), torch.tensor([q, p]).log()
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert float(divergence(logits, other)) == pytest.approx(kl / 2)
    assert float(divergence(logits[:1], other[:1])) == pytest.approx(kl)
    tokens, together, apart = torch.tensor([0, 2]), torch.tensor([0, 0]), torch.tensor([0, 2])
    assert unlikelihood(logits, tokens, together, 1).tolist() == pytest.approx([(math.log(2) + math.log(4)) / 2])
    assert unlikelihood(logits, tokens, apart, 3).tolist() == pytest.approx([math.log(2), 0, math.log(4)])


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
    assert opened(mask).tolist() == [[True, True], [False, True]]
    one = causal()
    assert one.model.config._attn_implementation == NAME
    short, long, grads = [5, 6], list(range(7, 30)), []
    for rows in ([short], [short, long]):
        one.model.zero_grad()
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        out = one.model(input_ids=ids, attention_mask=seen, position_ids=(seen.cumsum(1) - 1).clamp(min=0))
        out.logits[0, -2:].square().mean().backward()
        grads.append(torch.cat([p.grad.flatten() for _, p in one.trained() if p.grad is not None]))
    assert torch.allclose(*grads, atol=1e-5) and grads[0].abs().sum() > 0


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
    model = causal(rate=1e-2, lora=lora)
    liked, other = Example([5, 6], [20, 21, 22], 3.0), Example([5, 6], [30, 31, 32], 0.5)

    def costs():
        with torch.no_grad():
            out = token_logits(model.model, [liked, other], 0)
        return unlikelihood(*out, 2).tolist()

    before, told = costs(), []
    for _ in range(12):
        told.append(step(model, [liked, other], 0.1, 0.02, 8))
    weighted = (3 * before[0] + 0.5 * before[1]) / 3.5
    assert told[0]["loss"] == pytest.approx(weighted, rel=1e-5) and told[0]["kl_initial"] == pytest.approx(0, abs=1e-6)
    assert all(0 <= t["kl_step"] <= 0.02 for t in told) and (lora or min(t["step_scale"] for t in told) < 1)
    assert costs()[0] < before[0] - 0.05 and told[-1]["kl_initial"] > told[1]["kl_initial"]


def test_a_batch_moves_a_model_by_its_share_of_the_whole_pass():
    """Two updates on one reply, then one on another that weighs as much, less, or next to nothing."""
    liked, other, gains = Example([5, 6], [20, 21, 22], 1.0), Example([7, 8], [30, 31, 32], 1.0), []
    for weight in (1.0, 0.3, 0.1, 1e-6):
        model = Causal(CausalOptions(model=tiny(0.5), device="cpu", rate=1e-3), "test", 0)
        for _ in range(2):
            step(model, [liked], 0.0, float("inf"), 1, 1.0)
        before = cost(model, other)
        step(model, [replace(other, weight=weight)], 0.0, float("inf"), 1, 1.0)
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
        model = causal(rate=1e-2)
        for _ in range(100):
            step(model, [long], 0.0, float("inf"), 1)
        before = [odds(model.model, e).detach() for e in (long, *short)]
        told.append(step(model, [long, *short], 0.0, 0.05, micro))
        after = [odds(model.model, e).detach() for e in (long, *short)]
        each = [(new.exp() * (new - old)).sum(-1) for new, old in zip(after, before, strict=True)]
        assert torch.cat(each).mean() <= 0.05 and told[-1]["step_scale"] < 1
        assert told[-1]["kl_step"] == pytest.approx(float(torch.cat(each).mean()), rel=1e-3), "12 tokens count alike"
    assert told[0] == pytest.approx(told[1], rel=1e-3) and told[1] == pytest.approx(told[2], rel=1e-3)


@pytest.mark.parametrize("micro", [1, 8])
def test_the_penalty_is_the_divergence_from_the_initial_model(micro):
    """KL(now || initial), its mean over the tokens said, times `kl`, beside the weighted likelihood; by hand."""
    examples = [Example([5, 6], [20, 21, 22], 3.0, [1, 0, 1]), Example([7], [30], 1.0)]
    model, begun, grads = causal(rate=3e-2), causal(), []
    for _ in range(3):
        step(model, [Example([5, 6], [40, 41, 42], 1.0)], 0.0, float("inf"), 8)
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
    told = step(model, examples, 5.0, float("inf"), micro)
    assert away > 0.01 and told["kl_initial"] == pytest.approx(away, rel=1e-4)
    assert told["loss"] == pytest.approx(fit, rel=1e-5)
    for name, grad in grads[0].items():
        assert torch.allclose(grad, wanted[name], atol=1e-5), name


def test_words_of_others_in_a_reply_are_not_learnt():
    whole, masked = (Example([5], [20, 21, 22], 1.0, mask) for mask in (None, [1, 0, 1]))
    with torch.no_grad():
        logits, tokens, _ = token_logits(causal().model, [whole], 0)
    costs = -logits.log_softmax(-1)[range(3), tokens]
    losses = [step(causal(rate=1e-3), [example], 0.0, 1.0, 8)["loss"] for example in (whole, masked)]
    assert losses == pytest.approx([float(costs.mean()), float(costs[[0, 2]].mean())], rel=1e-5)


def test_what_is_not_measured_is_not_told_and_moves_alike():
    """A cap that never bites changes nothing but what is known."""
    free, capped = causal(rate=1e-2), causal(rate=1e-2)
    told = [step(one, [Example([5], [20], 1.0)], 0.0, cap, 8) for one, cap in ((free, float("inf")), (capped, 1e9))]
    assert list(told[0]) == ["loss"] and told[1]["kl_step"] > 0 and told[1]["kl_initial"] == pytest.approx(0, abs=1e-6)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(free.trained(), capped.trained(), strict=True))


def test_a_step_that_may_not_move_does_not():
    model = causal(rate=0.5)
    before = {name: p.detach().clone() for name, p in model.trained()}
    told = step(model, [Example([5], [20], 1.0)], 0.0, 1e-30, 8)
    assert told["step_scale"] == 0.0 and all(torch.equal(before[name], p) for name, p in model.trained())


def test_a_pass_over_many_seed_tasks_has_each_answer_three_requests_that_show_others(monkeypatch):
    class Seeded(Pick):
        def examples(self, cycle):
            return [self.setting({"note": f"note{number}"}).values for number in range(6)]

    def seen(causal, examples, *_):
        batches.append([causal.tokenizer.decode(e.prompt + e.reply) for e in examples])
        return {"loss": 1.0}

    batches, world = [], Seeded()
    monkeypatch.setattr("curricle.designers.language.designer.step", seen)
    options = LanguageOptions(model=tiny(), device="cpu", warm=2, text_tokens=4, rounds=1)
    Language(Pick.Setting, options, seed=1).propose(world.brief(1, 1), 1, Bench(world))
    shown = [[re.findall(r"note\d", text) for text in batch] for batch in batches]
    assert [len(batch) for batch in batches] == [18, 18], "two passes, three records a task"
    assert all(len(set(pair)) == 2 == len(pair) for batch in shown for pair in batch), "never itself"
    each = {f"note{number}": 3 for number in range(6)}
    assert all(Counter(pair[-1] for pair in batch) == each for batch in shown)
    assert sorted(shown[0]) != sorted(shown[1]), "drawn anew"
