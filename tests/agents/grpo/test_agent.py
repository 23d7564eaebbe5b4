"""The language-model agent: it learns, counts its own rollouts, keeps a pool, and resumes to the bit."""

import subprocess
import sys

import pytest
import torch
from helpers.grpo_agents import Solved, agent, brief, scripted
from helpers.skips import skip_without
from helpers.sweep import quiet
from helpers.tiny_model import Pick, Steps, kind, tiny

from curricle.agents.grpo.imitation import solve
from curricle.errors import AgentError, DeclarationError, ModelError, WorldError
from curricle.records import Message, Verdict


@pytest.mark.slow
@pytest.mark.parametrize(("lora", "spread"), [(0, 0.02), (4, 0.5)])
def test_a_tiny_model_learns_to_say_the_right_kind_of_letter(lora, spread):
    options = {
        "model": tiny(spread),
        "lora": lora,
        "learning_rate": 1e-2,
        "tasks_per_update": 4,
        "group_size": 8,
        "microbatch_size": 32,
    }
    one, home = agent(**options, max_tokens=1, test_temperature=1.0), Pick().unaltered()
    brief(one)
    (before,) = one.measure([home], [1], 160)
    one.practise([home], 1440, seed=1, report=quiet)
    (after,) = one.measure([home], [2], 160)
    assert before.rate < 0.5 < 0.9 < after.rate


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_practice_in_parts_with_a_checkpoint_between_is_practice_in_one(lora, tmp_path):
    """Optimiser, pool and policy carry over: a second agent that loads the first one's checkpoint goes on alike."""
    designs = [
        Pick().unaltered(),
        Pick().unaltered().model_copy(update={"setting": Pick().setting({"letter": "b"}).values}),
    ]
    options = {"model": tiny(curt=True), "lora": lora, "learning_rate": 1e-2, "replay_share": 0.3, "iterations": 2}
    one, other = agent(**options), agent(**options)
    assert sum(outcome.successes for outcome in one.practise(designs, 24, seed=1, report=quiet)) and len(one.pool) == 2
    one.save(make(tmp_path / "one"))
    other.load(tmp_path / "one")
    first, second = (x.practise(designs, 24, seed=2, report=quiet) for x in (one, other))
    assert first == second
    for x, name in ((one, "a"), (other, "b")):
        x.save(make(tmp_path / name))
    names = [path.name for path in (tmp_path / "a").iterdir()]
    assert sorted(names) == ["arrays.safetensors", "d_train.parquet", "state.json"]
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)


def make(folder):
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True])
def test_parts_of_a_practice_go_on_by_turns_where_the_last_one_stopped(resumed, tmp_path):
    """Two tasks an update and one update a part: without that the first two of three designs would get them all."""
    world, one = Pick(), agent()
    designs = [
        world.unaltered().model_copy(update={"setting": world.setting({"letter": letter}).values}) for letter in "abc"
    ]
    shares = []
    for part in range(3):
        shares.append(one.practise(designs, 8, seed=part, report=quiet))
        if resumed:
            one.save(make(tmp_path / f"{part}"))
            one = agent()
            one.load(tmp_path / f"{part}")
    assert [[o.attempts for o in part] for part in shares] == [[4, 4, 0], [4, 0, 4], [0, 4, 4]]
    assert all(o.spent == o.attempts for part in shares for o in part)
    (home,) = one.practise([world.unaltered()], 8, seed=3, report=quiet)
    assert home.attempts == 8
    again = one.practise(designs, 8, seed=4, report=quiet)
    assert [o.attempts for o in again] == [4, 4, 0], "other designs begin anew"


@pytest.mark.slow
def test_a_model_that_is_shown_solutions_first_solves_tasks_before_it_practises(tmp_path, monkeypatch):
    options = {"learning_rate": 1e-2, "tasks_per_update": 4, "group_size": 4, "max_turns": 2}
    shares = []
    for warm in (0, 24):
        one, reported = agent(Solved(), imitation_updates=warm, **options), []
        shares.append(one.measure([Solved().unaltered()], [1], 16)[0].rate)
        assert one.imitated == warm
    assert shares[1] == 1.0 > shares[0]
    one.save(make(tmp_path / "one"))
    other = agent(Solved(), imitation_updates=24, **options)
    other.load(tmp_path / "one")
    before = [p.clone() for _, p in other.causal.trained()]
    assert other.measure([Solved().unaltered()], [1], 16)[0].rate == 1.0
    assert all(torch.equal(a, b) for a, (_, b) in zip(before, other.causal.trained(), strict=True)), "only once"
    slow = agent(Solved(), imitation_updates=1, imitation_learning_rate=1e-9, **options)
    was = [p.clone() for _, p in slow.causal.trained()]
    slow.measure([Solved().unaltered()], [1], 1)
    assert all(torch.allclose(a, b, atol=1e-7) for a, (_, b) in zip(was, slow.causal.trained(), strict=True))
    assert slow.causal.optimizer.param_groups[0]["lr"] == options["learning_rate"]
    fresh = agent(Solved(), imitation_updates=2, **options)
    fresh.practise([Solved().unaltered()], 16, seed=0, report=lambda done, seen: reported.append((done, seen)))
    assert [list(seen) for done, seen in reported[:2]] == [
        ["practice/imitation_updates", "practice/imitation_loss"]
    ] * 2
    assert reported[0][0] == 0
    few, asked = agent(Solved(), imitation_updates=2, imitation_tasks=3, **options), []
    draw = few.task_world.draw

    def counted(setting, n, seed):
        asked.append(n)
        return draw(setting, n, seed)

    monkeypatch.setattr(few.task_world, "draw", counted)
    few.measure([Solved().unaltered()], [1], 5)
    assert asked == [3, 3, 5]


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_what_imitation_made_of_it_is_what_it_began_as(lora, tmp_path):
    """KL is measured from there, in practice, in origin() and after a restart; or imitation would be unlearned."""
    options, seen = (
        {
            "lora": lora,
            "learning_rate": 1e-2,
            "tasks_per_update": 4,
            "group_size": 4,
            "max_turns": 2,
            "imitation_updates": 6,
        },
        [],
    )
    one, other, home = agent(Solved(), **options), agent(Solved(), **options), Solved().unaltered()
    prompt = torch.tensor([[5, 6, 7]])

    def initial_logits(player):
        with torch.no_grad(), player.causal.initial() as model:
            return model(prompt).logits

    cold = initial_logits(one)
    one.practise([home], 16, seed=0, report=lambda done, metrics: seen.append(metrics.get("practice/kl")))
    assert abs(seen[-1]) < 1e-5, "the first update starts where imitation ended"
    assert not torch.allclose(initial_logits(one), cold, atol=1e-2)
    steps = {float(state["step"]) for state in one.causal.optimizer.state.values()}
    assert steps == {1.0}, "the optimiser, too, begins there"
    one.practise([home], 64, seed=1, report=lambda done, metrics: seen.append(metrics.get("practice/kl")))
    one.save(make(tmp_path / "one"))
    other.load(tmp_path / "one")
    assert torch.equal(initial_logits(one), initial_logits(other)) and not torch.allclose(
        initial_logits(one), one.causal.model(prompt).logits
    )
    for player in (one, other):
        player.practise([home], 16, seed=2, report=quiet)
    weights = zip(one.causal.trained(), other.causal.trained(), strict=True)
    assert all(torch.equal(a, b) for (_, a), (_, b) in weights)


def test_the_words_of_a_world_weigh_nothing_however_unlikely():
    """TRL's KL term of a masked token, exp(r - l) - (r - l) - 1, is infinite for l = -200, r = 0; here it is finite."""
    skip_without("llm")
    from curricle.agents.grpo.trainer import MASKED_LOG_PROB, mask_reference

    batch = {"completion_mask": torch.tensor([[1, 1, 1, 0]]), "tool_mask": torch.tensor([[1, 0, 1, 1]])}
    reference = torch.tensor([[-1.0, 0.0, -2.0, 0.0]])
    found = mask_reference({**batch, "ref_per_token_logps": reference})
    assert found.tolist() == [[-1.0, MASKED_LOG_PROB, -2.0, MASKED_LOG_PROB]]
    log = torch.tensor([[-1.0, -200.0, -2.0, -200.0]])
    kl = torch.exp(found - log) - (found - log) - 1
    assert kl.isfinite().all() and not (torch.exp(reference - log)).isfinite().all()


@pytest.mark.parametrize("how", ["practice", "imitation"])
def test_an_update_that_is_no_number_stops_the_run(how):
    one = agent(Solved(), learning_rate=1e-2, max_turns=2, imitation_updates=int(how == "imitation"))
    next(p for _, p in one.causal.trained()).data.fill_(float("nan") if how == "imitation" else 1e30)
    with pytest.raises((AgentError, ModelError), match=r"an update came out as .*Lower learning_rate, 0.01"):
        one.practise([Solved().unaltered()], 8, seed=0, report=quiet)


def test_running_out_of_memory_is_explained_in_words(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")

    one = agent(Solved(), max_turns=2, imitation_updates=1)
    monkeypatch.setattr("curricle.llm.models.regression.token_logits", full)
    with pytest.raises(
        ModelError, match=r"grpo-v1 ran out of memory; lower its microbatch_size: CUDA out of memory\. Tried"
    ):
        one.measure([Solved().unaltered()], [1], 1)
    other = agent()
    monkeypatch.setattr(other.causal.model, "forward", full)
    with pytest.raises(ModelError, match="grpo-v1 ran out of memory; lower its sample_batch"):
        other.measure([Pick().unaltered()], [1], 1)


def test_solutions_are_needed_for_that_and_only_the_agents_own_turns_are_learnt():
    with pytest.raises(AgentError, match=r"pick-v1 gave none.*curricle check.* imitation_updates = 0"):
        agent(imitation_updates=1).measure([Pick().unaltered()], [1], 1)
    one = agent(Solved())
    example = solve(Solved(), Solved().tasks(Solved.Setting(), 1, 0)[0], one.causal, 4, 2)
    said = [token for token, own in zip(example.reply, example.mask, strict=True) if own]
    c, f = (one.causal.tokenizer(word)["input_ids"] for word in "cf")
    assert said == [*c, one.causal.ends[0], *f, one.causal.ends[0]] and len(example.reply) > len(said)
    assert example.weight == len(said), "every token counts the same, in long solutions as in short ones"


def test_what_goes_wrong_is_counted_and_stays_out_of_the_pool():
    one, reported = agent(max_turns=1), []
    scripted(one, "fog", None, "", "zoo")  # right, right but endless, empty, wrong
    (outcome,) = one.practise([Pick().unaltered()], 8, seed=0, report=lambda done, metrics: reported.append(metrics))
    assert [kind(word) for word in ("fog", "on and on", "zoo")] == ["a", "a", "c"]
    assert (outcome.attempts, outcome.spent, outcome.successes) == (8, 8, 2)
    assert outcome.tried == {"vowel": 8} and outcome.reward == 2
    assert (reported[-1]["practice/endless"], reported[-1]["practice/empty"]) == (0.25, 0.25)
    (row,) = one.pool.values()
    assert row.info["attempts"] == 8 and row.completion == "fog" and row.weight == row.info["reward"]
    scripted(one, None)
    one.pool.clear()
    one.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    assert not one.pool, "no valid attempt, no row"

    class Formal(Pick):
        def score(self, task, transcript):
            return Verdict(reward=0.0, valid=transcript[-1].content == "zoo")

    formal = agent(Formal(), max_turns=1)
    scripted(formal, "fog", "zoo")
    formal.practise([Pick().unaltered()], 8, seed=0, report=lambda done, metrics: reported.append(metrics))
    assert reported[-1]["practice/malformed"] == 0.5 and "practice/malformed" in reported[0]
    assert [row.completion for row in formal.pool.values()] == ["zoo"], "wrong, but in the form that was asked for"


def test_a_verifier_that_breaks_down_is_counted_and_a_prompt_that_is_too_long_is_not_tried(caplog):
    class Broken(Pick):
        id = "broken-v1"

        def score(self, task, transcript):
            raise RecursionError("junk")

    class Lost(Steps):
        id = "lost-v1"

        def state(self, task, transcript):
            raise RecursionError("where am I?")

    class Long(Pick):
        id = "long-v1"

        def tasks(self, setting, n, seed):
            tasks = super().tasks(setting, n, seed)
            return [t.model_copy(update={"prompt": (Message(role="user", content="word " * 9000),)}) for t in tasks]

    caplog.set_level("WARNING", "curricle")
    for world, fault in ((Broken(), "unverified"), (Lost(), "unverified"), (Long(), "too_long")):
        one, reported = agent(world), {}
        scripted(one, "fog")
        (outcome,) = one.practise([world.unaltered()], 8, seed=0, report=lambda _, seen, to=reported: to.update(seen))
        assert reported[f"practice/{fault}"] == 1.0 and outcome.successes == 0 and outcome.attempts == 8
    said, other = [record.getMessage() for record in caplog.records if "broke down" in record.getMessage()]
    assert said.startswith("broken-v1: score broke down: RecursionError: junk (test_agent.py, line "), "and only once"
    assert other.startswith("lost-v1: state broke down: RecursionError: where am I?")


@pytest.mark.parametrize(("given", "words"), [([], "gave 0 tasks"), (None, "gave None")])
def test_a_world_that_gives_no_tasks_is_named(given, words):
    class Empty(Pick):
        id = "empty-v1"

        def tasks(self, setting, n, seed):
            return given

    one = agent(Empty())
    with pytest.raises(WorldError, match=f"empty-v1: tasks.setting, n=1, seed=.*{words} in "):
        one.practise([Empty().unaltered()], 8, seed=0, report=quiet)


def test_a_verifier_that_gives_no_verdict_stops_the_run():
    class Plain(Pick):
        id = "plain-v1"

        def score(self, task, transcript):
            return True

    one = agent(Plain())
    scripted(one, "aye")
    with pytest.raises(DeclarationError, match=r"plain-v1: score.* gave True; it must return a Verdict"):
        one.practise([Plain().unaltered()], 8, seed=0, report=quiet)


def test_replay_draws_old_tasks_and_counts_them_for_nobody():
    one, world = agent(replay_share=1.0), Pick()
    scripted(one, "aye")
    (first,) = one.practise([world.unaltered()], 8, seed=0, report=quiet)
    assert first.attempts == first.spent == 8, "nothing to replay yet"
    (second,) = one.practise([world.unaltered()], 8, seed=1, report=quiet)
    assert (second.attempts, second.spent) == (0, 8) and [r.info["attempts"] for r in one.pool.values()] == [16]


def test_old_tasks_take_no_designs_turn():
    one, world = agent(replay_share=0.5), Pick()
    scripted(one, "aye")
    designs = [
        world.unaltered().model_copy(update={"setting": world.setting({"letter": letter}).values}) for letter in "abc"
    ]
    one.practise(designs, 24, seed=0, report=quiet)
    made = one.practise(designs, 96, seed=1, report=quiet)
    tries = [outcome.attempts for outcome in made]
    assert 24 < sum(tries) < 72 and max(tries) - min(tries) <= 4, "as often as each other, however the draws fell"
    assert [outcome.spent for outcome in made] == [32] * 3


def test_conversations_are_practised_with_credit_by_turn():
    one, reported = agent(Steps(), step_weight=1.0, max_turns=3, learning_rate=1e-3), []
    scripted(one, "aye", "bee", "cat", "dot")
    one.practise([Steps().unaltered()], 16, seed=0, report=lambda done, metrics: reported.append(metrics))
    assert reported[-1]["practice/turns"] == 2.0 and reported[-1]["practice/grad_norm"] > 0


@pytest.mark.slow
def test_the_heavy_packages_are_imported_late():
    heavy = "{'transformers', 'trl', 'peft', 'datasets'}"
    code = f"import sys, curricle.agents.grpo, curricle.designers.language; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", (done.stdout, done.stderr)


def test_sampled_tests_are_decided_by_their_seed_alone():
    one, world = agent(test_temperature=1.0), Pick()
    three = one.measure([world.unaltered()] * 3, [5, 5, 6], 4)
    assert three[0] == three[1] and three[2] == one.measure([world.unaltered()], [6], 4)[0]


def test_the_verdict_is_of_the_response_alone():
    """What the world judged is what the agent said: no template, no prompt, no end token."""
    heard = []

    class Listening(Pick):
        id = "listening-v1"

        def score(self, task, transcript):
            heard.append(transcript[0].content)
            return Verdict(reward=0.0)

    one = agent(Listening())
    scripted(one, " spaces stay ")
    one.practise([Listening().unaltered()], 8, seed=0, report=quiet)
    assert set(heard) == {" spaces stay "}
