"""The mathematics of both language-model players, against values worked out by hand."""

import math
import re
from collections import Counter
from typing import Any

import pytest
import torch
from helpers.grpo_agents import make_trainer
from helpers.sweep import Bench
from helpers.tiny_model import Pick, Steps, causal, tiny

from curricle.agents.grpo.credit import group_advantages, token_advantages, turn_advantages
from curricle.agents.grpo.options import LearningOptions
from curricle.agents.grpo.rollouts import Attempt, Turn, roll_out
from curricle.designers.language import Language, LanguageOptions
from curricle.llm.generate.sampling import Reply
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, token_logits
from curricle.records import Message, Task, Verdict


def test_advantages_inside_a_group():
    mean, std = 0.25, math.sqrt(((0.75**2) + 3 * 0.25**2) / 3)
    assert group_advantages([1, 0, 0, 0]) == pytest.approx(
        [(1 - mean) / (std + 1e-4)] + [(0 - mean) / (std + 1e-4)] * 3
    )
    assert group_advantages([1, 1, 1]) == [0, 0, 0] and group_advantages([1]) == [0.0]


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
    found = turn_advantages(tries, 0.5)
    start = group_advantages([0.5, 0.0, 0.25])  # one turn later each: 1 * 0.5, 0, 1 * 0.25
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
    (one,) = roll_out(world, [(task, 0)], model, speak, 8, 5, 0)
    assert asked[1] == [
        "<|start|>user\nb<|end|>\n<|start|>assistant\nb<|end|>\n<|start|>user\ncold<|end|>\n<|start|>assistant\n"
    ]
    assert one.verdict.reward == 1.0 and one.shown == ("consonant",) and not one.fault
    mine = [token for token, own in zip(one.ids, one.mask, strict=True) if own]
    assert model.tokenizer.decode(mine) == "b<|end|>a<|end|>" and one.length == 4
    assert [(t.state, one.mask[t.start : t.end]) for t in one.turns] == [("b", [1, 1]), ("cold", [1, 1])]
    world.state = lambda task, transcript: f"after {len(transcript)}"  # type: ignore[method-assign]
    assert roll_out(world, [(task, 0)], model, speak, 8, 5, 0)[0].turns[0].state == "after 0"


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
    (one,) = roll_out(world, [(task, 0)], model, speak, 8, turns, 0)
    assert one.transcript[-1].content == "a" and len(one.transcript) == (3 if turns > 1 else 1)
    assert (one.verdict.reward, one.shown, one.fault) == ((1.0, ("consonant",), "") if ended else (0.0, (), "endless"))
    assert ended or one.verdict.why.startswith("endless")


def test_the_gradient_of_an_update_is_that_of_grpo():
    """TRL's update, reckoned apart: clip inactive, KL and entropy off, one batch, advantages by turn."""
    options = LearningOptions(
        model=tiny(),
        device="cpu",
        kl_coef=0.0,
        entropy_coef=0.0,
        learning_rate=0.0,
        group_size=2,
        tasks_per_update=1,
        microbatch_size=2,
        step_weight=0.5,
    )
    model, world = CausalModel(options, "test", 0), Pick()
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
    trainer = make_trainer(model, options, rollout)
    model.optimizer.register_step_pre_hook(lambda *_: grads.update({n: p.grad.clone() for n, p in model.trained()}))
    trainer.run(iter([(task, 0)] * 4), 1, 0, lambda *_: None)
    whole = group_advantages([1.0, 0.0])
    steps = token_advantages(kept, 0.95, len(kept[0].ids))
    model.optimizer.zero_grad()
    loss = torch.zeros(())
    for row, one in enumerate(kept):
        logits, tokens, _ = token_logits(model.model, [Example(prompt, one.ids, 1.0)], model.tokenizer.pad_token_id)
        log_p = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))[:, 0]
        mask = torch.tensor(one.mask, dtype=torch.float32)
        advantage = whole[row] + 0.5 * torch.tensor(steps[row][: len(one.ids)])
        loss = loss - (log_p * advantage * mask).sum() / sum(sum(one.mask) for one in kept)  # type: ignore[misc]  # all tokens weigh the same
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    assert norm > 0.01
    for name, p in model.trained():
        assert torch.allclose(grads[name], p.grad, atol=2e-5), name


def test_the_second_update_from_the_same_rollouts_is_clipped_and_keeps_its_entropy():
    """-min(r A, clip(r, 0.8, 1.2) A) of every token, less a bonus for entropy, where odds have moved since then."""
    about: dict[str, Any] = {
        "kl_coef": 0.0,
        "entropy_coef": 0.3,
        "learning_rate": 3e-4,
        "group_size": 2,
        "tasks_per_update": 1,
        "microbatch_size": 2,
        "iterations": 2,
    }
    options = LearningOptions(model=tiny(0.5), device="cpu", clip=0.2, **about)
    model, world = CausalModel(options, "test", 0), Pick()
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
    make_trainer(model, options, rollout).run(iter([(task, 0)]), 1, 0, lambda *_: None)
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
    terms = [torch.min(r * a, r.clamp(0.8, 1.2) * a) for r, a in zip(ratios, group_advantages([1.0, 0.0]), strict=True)]
    (-torch.cat(terms).mean() - 0.3 * entropy.mean()).backward()
    torch.nn.utils.clip_grad_norm_([p for _, p in model.trained()], 1.0)
    cut = [bool(r > 1.2) for r in ratios[0]] + [bool(r < 0.8) for r in ratios[1]]
    assert any(cut) and not all(cut), "some tokens have moved too far, some not"
    for name, p in model.trained():
        assert torch.allclose(second[name][1], p.grad, atol=2e-5), name


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize(("rewards", "trl"), [((0, 0), {}), ((1, 0), {}), ((1, 0), {"use_bias_correction_kl": False})])
def test_the_kl_term_of_an_update_is_weighted_and_pulls_back_to_where_it_began(lora, rewards, trl):
    """k3 = r/p - log(r/p) - 1 of every token of the agent's own, beside the advantage of its group.

    TRL multiplies it by the odds over those it was drawn with: 1 in value, but its slope makes k3's that of KL(p|r).
    """
    about: dict[str, Any] = {
        "lora": lora,
        "kl_coef": 0.3,
        "entropy_coef": 0.0,
        "learning_rate": 1e-3,
        "group_size": 2,
        "tasks_per_update": 1,
        "microbatch_size": 2,
        "trl": trl,
    }
    options = LearningOptions(model=tiny(0.5), device="cpu", **about)
    model, world = CausalModel(options, "test", 0), Pick()
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
        with torch.no_grad(), model.initial() as origin:
            began = log_odds(origin, row)
        now, mask = log_odds(model.model, row), torch.tensor(own[row])
        return now, ((began - now).exp() - (began - now) - 1) * mask, mask

    loss = torch.zeros(())
    for row, advantage in enumerate(group_advantages(rewards)):
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
    make_trainer(model, options, rollout).run(
        iter([(task, 0)]), 1, 0, lambda step, fresh, figures: told.append(figures)
    )
    assert max(float(g.abs().max()) for g in expected.values()) > 0.01
    for name, grad in expected.items():
        assert torch.allclose(grads[name], grad, atol=2e-5), name
    assert told[0]["loss"] == pytest.approx(float(loss.detach()), abs=1e-4)
    after = sum(float(kl(row)[1].detach().sum()) for row in (0, 1))
    assert any(rewards) or after < before, "alone it brings the model back"


def test_a_pass_over_many_seed_tasks_has_each_answer_three_requests_that_show_others(monkeypatch):
    class Seeded(Pick):
        def examples(self, cycle):
            return [self.setting({"note": f"note{number}"}).values for number in range(6)]

    def seen(causal, examples, *_):
        batches.append([causal.tokenizer.decode(e.prompt + e.reply) for e in examples])
        return {"loss": 1.0}

    batches, world = [], Seeded()
    monkeypatch.setattr("curricle.designers.language.designer.update", seen)
    options = LanguageOptions(model=tiny(), device="cpu", imitation_passes=2, max_text_tokens=4, max_rounds=1)
    Language(Pick.Setting, options, seed=1).propose(world.brief(1, 1), 1, Bench(world))
    shown = [[re.findall(r"note\d", text) for text in batch] for batch in batches]
    assert [len(batch) for batch in batches] == [18, 18], "two passes, three records a task"
    assert all(len(set(pair)) == 2 == len(pair) for batch in shown for pair in batch), "never itself"
    each = {f"note{number}": 3 for number in range(6)}
    assert all(Counter(pair[-1] for pair in batch) == each for batch in shown)
    assert sorted(shown[0]) != sorted(shown[1]), "drawn anew"
