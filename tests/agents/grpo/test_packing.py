"""Packed sequences: a prompt that several rows share goes through the network once, and nothing else changes."""

import itertools

import numpy as np
import pytest
import torch
from helpers.grpo_agents import make_trainer
from helpers.tiny_model import tiny

from curricle.agents.grpo.microbatches import balanced_sizes, pack, split, split_by_length, token_share
from curricle.agents.grpo.options import LearningOptions
from curricle.agents.grpo.rollouts import Attempt
from curricle.llm.models.model import CausalModel
from curricle.records import Message, Task, Verdict

pytest.importorskip("trl")

PAD = 0
TRIES = [  # prompt, reply
    ([5, 6, 7, 8, 9, 10, 11], [20, 21, 22]),
    ([12, 13, 14, 15, 16], [23]),
    ([5, 6, 7, 8, 9, 10, 11], [24, 25, 26, 27]),
    ([17], [28, 29]),
    ([12, 13, 14, 15, 16], [30, 31]),
    ([5, 6, 7, 8, 9, 10, 11], [20, 21, 22]),
    ([12, 13, 14, 15, 16], [32, 33, 34]),
    ([17], [35]),
]


def rows(tries) -> tuple[torch.Tensor, torch.Tensor, int]:
    """As TRL lays them out: prompts padded at the left, replies at the right."""
    wide, keep = max(len(p) for p, _ in tries), max(len(r) for _, r in tries)
    ids, seen = torch.full((len(tries), wide + keep), PAD), torch.zeros(len(tries), wide + keep, dtype=torch.long)
    for row, (prompt, reply) in enumerate(tries):
        here = slice(wide - len(prompt), wide + len(reply))
        ids[row, here], seen[row, here] = torch.tensor([*prompt, *reply]), 1
    return ids, seen, keep


def test_replies_look_at_their_prompt_and_at_themselves():
    (one,) = pack(*rows([([5, 6, 7], [20, 21]), ([5, 6, 7], [22])] * 2), PAD)
    assert one.ids.tolist() == [[5, 6, 7, 20, 7, 7, 20, 7]]
    assert one.labels.tolist() == [[-100, -100, 20, 21, 22, 20, 21, 22]]
    assert one.positions.tolist() == [[0, 1, 2, 3, 2, 2, 3, 2]]
    looks = {i: [j for j in range(8) if one.mask[0, 0, i, j]] for i in (0, 1, 3, 4, 6)}
    assert looks == {0: [0], 1: [0, 1], 3: [0, 1, 2, 3], 4: [0, 1, 4], 6: [0, 1, 5, 6]}
    assert one.token_places.tolist() == [[2, 3], [4, 0], [5, 6], [7, 0]]
    assert one.token_exists.tolist() == [[True, True], [True, False]] * 2


def test_padding_looks_at_itself():
    found = pack(*rows([*TRIES, ([7] * 6, [20])] * 2), PAD)
    assert [tuple(one.ids.shape) for one in found] == [(1, 6 + 2 * 10), (1, 4 + 2 * 6), (2, 5 + 2 * 1)], "by length"
    assert all(bool(one.mask.any(-1).all()) for one in found), "a softmax over nothing is no number"
    assert found[2].ids[1, -1] == PAD != found[2].ids[0, -1]
    assert sorted(torch.cat([one.rows for one in found]).tolist()) == list(range(18))
    (one,) = pack(*rows(TRIES * 2), PAD, by_length=False)
    assert one.ids.shape == (3, 26)


LONG = [20] * 1000


@pytest.mark.parametrize(
    "tries",
    [
        [([5, 6, 7, 8, 9], [20, 21]), ([4, 6, 7, 8, 9], [20, 21])],  # different prompts
        [([5, 6], [*range(20, 30)]), ([5, 6], [*range(30, 40)])],  # little shared
        [([5] * 400, LONG)] * 8,  # attention over all replies would be more work
    ],
)
def test_what_shares_too_little_is_left_as_it_is(tries):
    assert pack(*rows(tries), PAD) == []


def test_long_replies_share_a_sequence_with_few_others():
    (one,) = pack(*rows([([5] * 900, [20] * 300)] * 8), PAD)
    assert one.ids.shape == (3, 899 + 3 * 300) and one.rows.tolist() == list(range(8))
    assert (one.ids[2, 899 + 2 * 300 :] == PAD).all(), "the last has two"


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize(("batch", "longest"), [(None, 2048), (4, 2048), (None, 12)])
def test_odds_entropies_and_gradients_are_those_of_the_rows_one_by_one(lora, batch, longest, monkeypatch):
    monkeypatch.setattr("curricle.agents.grpo.microbatches.MAX_PACKED_TOKENS", longest)
    options = LearningOptions(
        model=tiny(0.3), lora=lora, device="cpu", tasks_per_update=1, group_size=2, temperature=0.7
    )
    causal = CausalModel(options, "test", 0)
    with torch.no_grad():
        for _, p in causal.trained():
            p.add_(0.02 * torch.randn_like(p))
    trainer, (ids, seen, keep) = make_trainer(causal, options, lambda tasks: []), rows(TRIES)
    passed, found = [], []

    def count(module, given, named):
        passed.append(named["input_ids"].numel())

    causal.model.register_forward_pre_hook(count, with_kwargs=True)
    for packs in (True, False):
        monkeypatch.setattr("curricle.agents.grpo.trainer.supports_packing", lambda model, packs=packs: packs)
        odds, entropies, _ = trainer._get_per_token_logps_and_entropies(
            causal.model, ids, seen, keep, batch, compute_entropy=True
        )
        slope = torch.arange(odds.numel()).view_as(odds).sin() * seen[:, -keep:]
        parameters = [p for _, p in causal.trained()]
        grads = torch.autograd.grad((odds * slope + 0.1 * entropies * slope).sum(), parameters)
        found.append([odds.detach(), entropies.detach(), *grads])
    assert bool((found[0][0] != 0).any())
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=2e-5, rtol=1e-4)
    packed_tokens, plain_tokens = sum(passed[: len(passed) // 2]), sum(passed[len(passed) // 2 :])
    assert packed_tokens < plain_tokens or batch


def test_an_update_is_the_same_packed_or_not(monkeypatch):
    """All of TRL's update, with a world's turn that is masked, and a reference."""
    found = []
    for packs in (True, False):
        monkeypatch.setattr("curricle.agents.grpo.trainer.supports_packing", lambda model, packs=packs: packs)
        options = LearningOptions(
            model=tiny(0.3),
            device="cpu",
            tasks_per_update=2,
            group_size=4,
            microbatch_size=8,
            learning_rate=1e-3,
            kl_coef=0.1,
        )
        causal = CausalModel(options, "test", 0)
        trainer, metrics = make_trainer(causal, options, _attempts), []
        task = Task(id="t", prompt=(Message(role="user", content="x"),), skill="s")
        trainer.run(((task, 0) for _ in range(100)), 2, 0, recorder(metrics))
        found.append([metrics, [p.detach().clone() for _, p in causal.trained()]])
    (told, after), (told_plainly, after_plainly) = found
    for figures, plain in zip(told, told_plainly, strict=True):
        assert figures == pytest.approx(plain, rel=1e-3, abs=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(after, after_plainly, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "entropy"), [("dapo", 0.5), ("grpo", 0.0)])
def test_an_update_is_the_same_in_one_part_or_in_several(loss, entropy):
    """TRL takes a mean of entropy over each part, and one of figures over parts; here parts weigh what they hold."""
    found = []
    for micro in (8, 4, 1):
        about = {
            "microbatch_size": micro,
            "learning_rate": 1e-3,
            "kl_coef": 0.1,
            "entropy_coef": entropy,
            "trl": {"loss_type": loss},
        }
        options = LearningOptions(model=tiny(0.3), device="cpu", tasks_per_update=2, group_size=4, **about)
        causal, metrics = CausalModel(options, "test", 0), []
        trainer = make_trainer(causal, options, _attempts)
        task = Task(id="t", prompt=(Message(role="user", content="x"),), skill="s")
        trainer.run(((task, 0) for _ in range(100)), 2, 0, recorder(metrics))
        found.append([[p.detach().clone() for _, p in causal.trained()], metrics])
        assert trainer.entropy_coef == entropy
    (weights, told), *others = found
    for other, said in others:
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(weights, other, strict=True))
        for figures, theirs in zip(told, said, strict=True):
            names = ("kl", "entropy", "clipped", "grad_norm") if loss == "dapo" else ("grad_norm",)
            assert {n: figures[n] for n in names} == pytest.approx({n: theirs[n] for n in names}, rel=1e-3, abs=1e-6)


def test_parts_have_whole_groups_of_like_length_and_about_as_many_tokens():
    said = [2, 2, 90, 80, 3, 3, 2, 4, 70, 60, 1, 1]  # groups of two, their prompts of 5 tokens
    mask = (torch.arange(90) < torch.tensor(said)[:, None]).int()
    prompts = torch.tensor([[0, 0, 1, 1, 1, 1, 1]] * 12)
    batch = {"completion_mask": mask, "prompt_mask": prompts, "of": torch.arange(12), "num_items_in_batch": mask.sum()}
    parts = split_by_length(batch, 3, 2)
    assert [part["of"].tolist() for part in parts] == [[10, 11, 0, 1, 4, 5, 6, 7], [8, 9], [2, 3]]
    assert [tuple(part["completion_mask"].shape) for part in parts] == [(8, 4), (2, 70), (2, 90)], "padding goes"
    assert all((part["prompt_mask"] == 1).all() and part["prompt_mask"].shape[1] == 5 for part in parts)
    hidden = split_by_length({**batch, "completion_mask": 0 * mask}, 3, 2)
    assert all(part["completion_mask"].shape[1] == 1 for part in hidden), "TRL may mask whole replies"
    assert [token_share(part, 3) for part in parts] == pytest.approx([3 * n / 318 for n in (18, 130, 170)])


@pytest.mark.parametrize(("loss", "rows", "ranks", "apart"), [
    ("dapo", 8, 1, True), ("grpo", 8, 1, False), ("dapo", 4, 1, False), ("dapo", 8, 2, False),
])  # fmt: skip
def test_parts_have_equally_many_rows_where_they_must(loss, rows, ranks, apart, monkeypatch):
    """Means over rows; fewer groups than parts; ranks that agree on shapes."""
    monkeypatch.setattr("curricle.agents.grpo.microbatches.ranks.count", lambda: ranks)
    said = torch.tensor([9, 9, 9, 9, 1, 1, 1, 1])[:rows]
    mask = (torch.arange(9) < said[:, None]).int()
    batch = {"completion_mask": mask, "prompt_mask": torch.ones(rows, 2), "of": torch.arange(rows)}
    parts = split(batch, 2, 4, loss)
    assert [one for part in parts for one in part["of"].tolist()] == (
        [4, 5, 6, 7, 0, 1, 2, 3] if apart else [*range(rows)]
    )


def test_the_largest_part_is_as_small_as_can_be():
    assert balanced_sizes([1, 1, 1, 9], 2) == [3, 1]
    assert balanced_sizes([5] * 4, 4) == [1] * 4
    assert balanced_sizes([9, 1, 1], 3) == [1, 1, 1]
    rng = np.random.default_rng(0)
    for _ in range(50):
        work, count = rng.integers(1, 30, rng.integers(3, 9)).tolist(), int(rng.integers(1, 4))
        found, ends = balanced_sizes(work, count), [0]
        for size in found:
            ends.append(ends[-1] + size)
        assert len(found) == count and ends[-1] == len(work) and min(found) > 0
        cuts = itertools.combinations(range(1, len(work)), count - 1)
        best = min(max(sum(work[a:b]) for a, b in itertools.pairwise([0, *cut, len(work)])) for cut in cuts)
        assert max(sum(work[a:b]) for a, b in itertools.pairwise(ends)) == best


def recorder(metrics):
    return lambda update, attempts, found: metrics.append(found)


def _attempts(tasks):
    made = []
    for number, (task, _) in enumerate(tasks):
        prompt = [5 + number // 4] * 9
        one = Attempt(
            task, 0, prompt, ids=[20 + number, 21, 22, 23][: 2 + number % 3], mask=[1, 0, 1, 1][: 2 + number % 3]
        )
        one.verdict = Verdict(reward=float(number % 2))
        made.append(one)
    return made
