"""The language-model agent and TRL: whose settings decide what, who draws replies, and what is remarked on."""

import inspect
import tomllib
from typing import Any

import pytest
from helpers.grpo_agents import agent, scripted
from helpers.paths import ROOT
from helpers.sweep import quiet
from helpers.tiny_model import Pick

from curricle.agents.grpo import GRPOOptions
from curricle.agents.grpo import options as settings
from curricle.errors import AgentError

trl = pytest.importorskip("trl")


OVERRIDDEN = {
    "_generate_and_score_completions": ["inputs"],
    "_prepare_inputs": ["generation_batch"],
    "_compute_loss": ["model", "inputs"],
    "_get_per_token_logps_and_entropies": ["model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"],
}
"""Private methods of TRL that ours override, and their first parameters."""
CALLED = {"_generate_single_turn": ["prompt_ids", "images", "multimodal_fields", "num_generations"]}
"""Private methods of TRL that ours call."""


def test_private_methods_of_trl_are_there_and_take_what_they_took():
    for name, parameters in {**OVERRIDDEN, **CALLED}.items():
        found = list(inspect.signature(getattr(trl.GRPOTrainer, name)).parameters)[1:]
        assert found[: len(parameters)] == parameters, (
            f"TRL {trl.__version__} changed {name}; see agents/grpo/trainer.py"
        )


def test_no_other_private_method_of_trl_is_overridden():
    from curricle.agents.grpo.trainer import GRPOTrainer

    own = {name for name in vars(GRPOTrainer) if name.startswith("_") and not name.startswith("__")}
    assert {name for name in own if hasattr(trl.GRPOTrainer, name)} == set(OVERRIDDEN)


def test_trl_still_keeps_its_state_where_ours_reads_it():
    one = agent(learning_rate=1e-3)
    scripted(one, "a", "c")
    one.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    assert one.trainer._step == one.trainer.args.gradient_accumulation_steps
    assert len(one.trainer._buffered_inputs) == one.trainer.args.steps_per_generation
    assert "train" in one.trainer._metrics


@pytest.mark.parametrize("version", ["1.15.0", "1.17.0", "2.0rc1"])
def test_an_untested_version_of_trl_is_refused(version, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    words = rf"TRL {version} is installed, .* tested with 1.16 only: pip install 'trl>=1.16,<1.17'"
    with pytest.raises(AgentError, match=words):
        agent(model="/no/such")


def test_the_package_asks_for_the_tested_version_of_trl():
    major, minor = settings.TESTED_TRL
    wanted = f"trl>={major}.{minor},<{major}.{minor + 1}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert wanted in project["optional-dependencies"]["llm"]


def test_an_error_of_ours_is_not_taken_for_a_setting_that_trl_refuses():
    one = agent(trl={"scale_rewards": "none"})

    def fail(prompts, seed):
        raise ValueError("a tokenizer that fails")

    one._sample = fail
    with pytest.raises(ValueError, match=r"^a tokenizer that fails$"):
        one.practise([Pick().unaltered()], 8, seed=0, report=quiet)


def test_a_budget_that_is_no_whole_number_of_updates_is_remarked_on_once(caplog):
    one, world = agent(), Pick()
    scripted(one, "aye")
    for seed, budget in enumerate((8, 11, 3)):
        (outcome,) = one.practise([world.unaltered()], budget, seed=seed, report=quiet)
        assert outcome.spent == (16 if budget > 8 else 8)
    said = [record.getMessage() for record in caplog.records]
    assert [words for words in said if "rollouts are asked for" in words] == [
        "grpo-v1: 11 rollouts are asked for, but an update takes group_size * tasks_per_update = 8: 16 are made"
    ]


def test_answers_that_all_run_into_the_limit_are_remarked_on_once(caplog):
    one, world = agent(), Pick()
    scripted(one, None)
    one.practise([world.unaltered()], 16, seed=0, report=quiet)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("grpo-v1: all 8 answers of an update ran into max_tokens = 4, and such earn nothing")


def test_passes_over_answers_that_are_known_are_no_reason_to_remark(caplog):
    one, world = agent(iterations=2), Pick()
    scripted(one, "a", "c")
    one.practise([world.unaltered()], 8, seed=0, report=quiet)
    assert not caplog.records


def test_rollouts_can_be_drawn_by_trl_itself():
    """Its own settings then decide how: here plain generate, elsewhere vLLM."""
    one = agent(sampler="trl", learning_rate=1e-3)
    (outcome,) = one.practise([Pick().unaltered()], 16, seed=0, report=quiet)
    again = agent(sampler="trl", learning_rate=1e-3).practise([Pick().unaltered()], 16, seed=0, report=quiet)
    assert outcome.attempts == 16 and [outcome] == again


def test_a_server_of_vllm_draws_for_trl():
    """What TRL would ask of vLLM, answered by a stand-in: here no GPU runs the real one."""

    class Server:
        def sync_weights(self):
            pass

        def generate(self, prompts, **_):
            said = [one.causal.tokenizer("abc"[n % 3])["input_ids"] + one.causal.ends[:1] for n in range(len(prompts))]
            return None, said, [[[-1.0]] * len(ids) for ids in said], None

    one, told = agent(sampler="trl", learning_rate=1e-3), []
    one.trainer.use_vllm, one.trainer.vllm_generation, one.trainer._last_loaded_step = True, Server(), -1
    (outcome,) = one.practise([Pick().unaltered()], 16, seed=0, report=lambda done, figures: told.append(figures))
    assert outcome.successes == 4 and told[-1]["practice/grad_norm"] > 0
    with pytest.raises(AgentError, match="vllm_importance_sampling_correction"):
        agent(sampler="trl", trl={"vllm_importance_sampling_correction": True})


def test_trl_may_draw_by_continuous_batching():
    """It knows attention by name; that it then runs, `test_players.py` sees to."""
    one, names = agent(sampler="trl", trl={"use_transformers_continuous_batching": True}), list[str]()

    def drawn(prompts, *_):
        names.append(one.causal.model.config._attn_implementation)
        return [[5, one.causal.ends[0]] for _ in prompts], None

    one.trainer._generate_single_turn = drawn
    (outcome,) = one.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    assert outcome.attempts == 8 and set(names) == {"sdpa"}
    assert one.causal.model.config._attn_implementation == "curricle-sdpa", "ours is back"


def test_our_options_become_those_of_trl(tmp_path):
    given: dict[str, Any] = {
        "clip": 0.31,
        "entropy_coef": 0.07,
        "temperature": 0.9,
        "max_tokens": 5,
        "iterations": 3,
        "learning_rate": 2e-4,
    }
    options = GRPOOptions(group_size=4, tasks_per_update=6, microbatch_size=8, **given)
    made = settings.make_config(options, False, tmp_path)
    assert (made.epsilon, made.entropy_coef, made.temperature) == (0.31, 0.07, 0.9)
    assert (made.max_completion_length, made.num_iterations, made.learning_rate) == (5, 3, 2e-4)
    assert (made.num_generations, made.generation_batch_size, made.per_device_train_batch_size) == (4, 24, 8)


def test_tries_that_all_earn_the_same_are_remarked_on_once(caplog):
    one = agent()
    scripted(one, "a")
    for _ in range(2):
        one.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    (said,) = [r.getMessage() for r in caplog.records]
    assert "in none of 2 tasks did the rewards of attempts differ" in said and "make the original easier" in said
    caplog.clear()
    mute = agent()
    scripted(mute, None, None, None, "a")
    mute.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    (said,) = [r.getMessage() for r in caplog.records]
    assert "; 6 of 8 answers ran into max_tokens = 4: raise it, or let it imitate first (imitation_updates)" in said
    caplog.clear()
    other = agent()
    scripted(other, "a", "c")
    other.practise([Pick().unaltered()], 8, seed=0, report=quiet)
    assert not caplog.records
