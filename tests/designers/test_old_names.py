"""Options of designers that have been renamed: the old names are still read, and mean the same."""

import pytest
from helpers.paths import VAULT
from helpers.skips import skip_without

from curricle.config import override, resolve
from curricle.designer import Designer
from curricle.registry import find

OLD_NAMES: dict[str, dict[str, float]] = {
    "easy_to_hard": {"practised": 50},
    "llm": {"asks": 7, "chat_tokens": 900, "near": 0.5},
    "policy": {
        "hold": 3.0,
        "cap": 0.1,
        "floor": 0.1,
        "search": 2,
        "others": 0.25,
        "close": 0.5,
        "hedge": 0.25,
        "dreams": 8,
        "vivid": 3.0,
        "reach": 0.5,
        "again": 0.25,
        "fade": 0.5,
    },
    "language": {
        "rate": 0.25,
        "decay": 0.5,
        "kl": 0.5,
        "kl_cap": 0.5,
        "batch": 3,
        "micro": 3,
        "old": 0.5,
        "warm": 3,
        "text_tokens": 3,
        "spare": 2.0,
        "rounds": 2,
        "near": 0.5,
    },
}


@pytest.mark.parametrize("designer", OLD_NAMES)
def test_old_names_mean_the_same_as_the_new_ones(designer: str) -> None:
    if designer == "language":
        skip_without("llm")
    old = OLD_NAMES[designer]
    kind = find(Designer, designer).Options
    renamed = kind.every_renamed()
    assert set(renamed.values()) <= set(kind.model_fields)
    assert not set(renamed) & set(kind.model_fields)

    chosen = {"id": designer, "model": "hand"} if designer == "llm" else {"id": designer}
    plain = {"world": {"id": VAULT}, "designer": chosen}
    defaults = resolve(plain).to_toml()["designer"]
    from_config = resolve({**plain, "designer": {**chosen, **old}})
    from_command_line = resolve(override(plain, [f"designer.{name}={value}" for name, value in old.items()]))
    assert from_config.to_toml() == from_command_line.to_toml()
    changed = {renamed[name]: value for name, value in old.items()}
    assert from_config.to_toml()["designer"] == {**defaults, **changed}
