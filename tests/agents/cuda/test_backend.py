"""The backend of a GPU finds its fast versions by the names of the plain functions."""

import ast
from importlib.util import find_spec

import pytest
from helpers.paths import ROOT

from curricle.agents.cuda.backend import FASTEST
from curricle.agents.ppo import actors, agent, rollout


def names_given_to_fastest():
    """The names of the functions that the agents hand to `fastest`."""
    found = set()
    for path in (ROOT / "src" / "curricle" / "agents").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fastest":
                (function,) = node.args
                if isinstance(function, ast.Name):
                    found.add(function.id)
    return found


def test_every_function_that_has_a_fast_version_is_asked_for_by_its_name():
    if find_spec("triton") is None:
        pytest.skip("needs an extra: pip install 'curricle[dev]'")
    assert set(FASTEST) == names_given_to_fastest(), "a renamed function would lose its fast version without a word"


@pytest.mark.parametrize("name", sorted(FASTEST))
def test_a_plain_function_has_that_name(name):
    plain = [getattr(module, name) for module in (actors, agent, rollout) if hasattr(module, name)]
    assert plain and all(function.__name__ == name for function in plain)
