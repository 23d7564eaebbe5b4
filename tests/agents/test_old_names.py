"""Options that have been renamed: the old names are still read, and mean the same."""

import pytest
from helpers.paths import VAULT

from curricle.agents.distill.agent import DistillOptions
from curricle.agents.grpo import GRPOOptions
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.tabular import TabularOptions
from curricle.config import override, resolve

OLD_NAMES = {
    "tabular": {"rate": 0.5, "discount": 0.5, "explore": 0.5, "optimism": 0.5},
    "ppo": {"rate": 0.1, "trace": 0.5, "entropy": 0.5, "value": 0.1, "gradient": 0.1, "keep": 0.5, "lanes": 3},
    "distill": {
        "lanes": 3,
        "every": 2,
        "passes": 2,
        "blur": 0.5,
        "likeness": 0.25,
        "targets": 2,
        "hold_policy": 0.5,
        "hold_value": 0.5,
        "most": 2,
    },
    "grpo": {
        "rate": 0.1,
        "decay": 0.1,
        "group": 4,
        "tasks": 2,
        "micro": 2,
        "kl": 0.1,
        "entropy": 0.1,
        "most_tokens": 9,
        "warm": 2,
        "warm_tasks": 3,
        "warm_rate": 0.1,
        "turns": 2,
        "replay": 0.5,
        "pool": 9,
    },
}


@pytest.mark.parametrize("kind", [TabularOptions, PPOOptions, DistillOptions, GRPOOptions])
def test_every_new_name_is_an_option(kind):
    renamed = kind.every_renamed()
    assert set(renamed.values()) <= set(kind.model_fields)
    assert not set(renamed) & set(kind.model_fields)


@pytest.mark.parametrize("agent", OLD_NAMES)
def test_old_names_mean_the_same_as_the_new_ones(agent):
    old = OLD_NAMES[agent]
    plain = {"world": {"id": VAULT}, "agent": {"id": agent}}
    defaults = resolve(plain).to_toml()["agent"]
    from_config = resolve({**plain, "agent": {"id": agent, **old}})
    from_command_line = resolve(override(plain, [f"agent.{name}={value}" for name, value in old.items()]))
    assert from_config.to_toml() == from_command_line.to_toml()
    renamed = from_config.agent.Options.every_renamed()
    changed = {renamed[name]: value for name, value in old.items()}
    assert from_config.to_toml()["agent"] == {**defaults, **changed}
