"""Which language model: from a name, or from the environment, to something that answers.

A name is `hand`, `replay:RUN`, `local` or `local:FILE` (the embedded model), a model's name at the endpoint, or both
together: `qwen3@http://localhost:11434/v1`. An endpoint counts as configured when CURRICLE_LLM holds such a name: a key
alone is not enough, so nothing is sent anywhere and nothing is paid before somebody named a model.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from curricle.errors import ModelError, UsageError
from curricle.llm.client import Model
from curricle.llm.clients.by_hand import Hand
from curricle.llm.clients.endpoint import Endpoint
from curricle.llm.clients.llama_cpp import Embedded
from curricle.llm.clients.options import ModelOptions
from curricle.llm.clients.replay import Cached, Recorded
from curricle.records import Exchange

VARIABLE = "CURRICLE_LLM"
ADDRESS = "CURRICLE_LLM_BASE_URL"
KEY = "CURRICLE_LLM_KEY_ENV"
LONGEST = 2_048
"""Tokens of the embedded model's longest reply: prompt and reply have to fit its context."""
M = TypeVar("M", bound=ModelOptions)


def named(name: str) -> dict[str, Any]:
    """The options that a name on the command line stands for."""
    model, at, address = name.strip().partition("@http")
    if not model:
        raise UsageError("--llm names no model: write hand, replay:RUN, local, a model's name, or name@http://...")
    return {"model": model, "base_url": f"http{address}"} if at else {"model": model}


def from_environment() -> dict[str, Any]:
    """The options that the environment asks for; nothing where it names no model."""
    name = os.environ.get(VARIABLE, "").strip()
    if not name:
        return {}
    given = {"base_url": os.environ.get(ADDRESS, ""), "key_env": os.environ.get(KEY, "")} | named(name)
    if not given["base_url"] and (address := os.environ.get("OPENAI_BASE_URL", "")):
        key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else ""  # as OpenAI's own client does
        given |= {"base_url": address, "key_env": given["key_env"] or key}
    return {key: value for key, value in given.items() if value}


def with_environment(given: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Options with what the environment says of the rest; its key goes to its own address and to no other."""
    if given.get("base_url", found.get("base_url", "")) != found.get("base_url", ""):
        found = {name: value for name, value in found.items() if name != "key_env"}
    return {**found, **given}


def settled(options: M, what: str) -> M:
    """Options that no longer depend on the environment or the current folder: what a run keeps."""
    if not options.model:
        found = from_environment()
        if not found:
            raise UsageError(
                f"{what}: no model is named; use --llm MODEL, model = '...', or the variable {VARIABLE} "
                "(--llm hand needs no model, --designer tutor neither)"
            )
        given = {name: getattr(options, name) for name in options.model_fields_set - {"model"}}
        options = type(options).model_validate(with_environment(given, found))
    kind, colon, place = options.model.partition(":")
    if colon and kind in ("replay", "local"):
        options = options.model_copy(update={"model": f"{kind}:{Path(place).resolve()}"})
    return options


def open_model(options: ModelOptions, folder: Path, used: Sequence[Exchange], without: set[str] | None = None) -> Model:
    """The model that options name.

    `folder` is for prompts by hand, `used` are answers an earlier sitting had, `without` is what an endpoint is known
    not to know: it is added to.
    """
    kind, _, place = options.model.partition(":")
    if not options.model:
        raise ModelError("no model is named")
    if options.model == "hand":
        return Hand(folder, used)
    if kind == "replay":
        return Recorded(Path(place), used)
    model = _embedded(place, options) if kind == "local" else Endpoint(options, without)
    sampling = (options.base_url, options.temperature, options.max_tokens)
    return Cached(model, options.cache, sampling) if options.cache else model


def _embedded(place: str, options: ModelOptions) -> Model:
    """The offline model, from its usual place or a file."""
    return Embedded(place or None, temperature=options.temperature, longest=min(options.max_tokens, LONGEST))
