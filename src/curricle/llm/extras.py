"""Extras: packages that only language-model players need, imported when they are first used."""

import functools
import importlib
import logging
from typing import Any

from curricle.errors import ModelError

LOG = logging.getLogger("curricle")


def needed(name: str) -> Any:
    """Import a package of the `llm` extra, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f"language models as players need {name}: pip install 'curricle[llm]' ({type(error).__name__}: {error})"
        ) from error


@functools.cache
def kernels() -> Any:
    """Return the module of our own kernels; None where Triton is missing or cannot compile them."""
    try:
        module = importlib.import_module("curricle.llm.generate.kernels")
        module.try_build()
    except Exception as error:  # compilers fail in many ways, and decoding works without
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        LOG.warning("Triton builds no kernels here, so decoding goes without: %s", why)
        return None
    return module
