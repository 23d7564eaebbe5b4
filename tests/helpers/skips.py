"""Skips tests whose extra is not installed: `make core` runs the tests without any."""

from importlib.util import find_spec

import pytest

PACKAGES = {
    "dev": "triton",
    "embedded": "xllamacpp",
    "endpoints": "openai",
    "llm": "trl",
    "plots": "matplotlib",
    "tensorboard": "tensorboardX",
    "text": "textworld",
}


def skip_without(extra: str) -> None:
    """Skip the test or the module that calls this, unless an extra is installed."""
    if find_spec(PACKAGES[extra]) is None:
        pytest.skip(f"needs an extra: pip install 'curricle[{extra}]'", allow_module_level=True)
