"""The embedded model: llama.cpp in this process (`xllamacpp`), with no key, no server to start and no network.

One thread is the default: two on a busy machine wait for each other and are many times slower. `xllamacpp` listens on a
loopback port of its own; calls here go past it, and a random key closes it to everyone else on the machine.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from curricle.errors import ModelError, UsageError
from curricle.llm.client import Model
from curricle.llm.embedded import weights
from curricle.records import Exchange, Frozen, Message


class Embedded(Model):
    """A GGUF file that answers prompts; the stock one unless a path is given."""

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        temperature: float = 0.8,
        longest: int = 2048,
        context: int = 8192,
        threads: int = 1,
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise UsageError("the embedded model needs xllamacpp: pip install 'curricle[embedded]'")
        self.path = Path(path).expanduser() if path else weights.stock()
        if not self.path.is_file():
            raise ModelError(f"there is no model file {self.path}")
        self.temperature = temperature
        self.longest = longest
        self.context = context
        self.threads = threads

    @cached_property
    def sha256(self) -> str:
        """The hash of its file."""
        return weights.sha256(self.path)

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        """Its file and the beginning of its hash."""
        return f"{self.path.name} ({self.sha256[:8]})"

    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """Answer a prompt; a JSON schema constrains the answer. The same seed gives the same answer."""
        request: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.content} for message in prompt],
            "max_tokens": self.longest,
            "temperature": self.temperature,
            "seed": seed % 2**32,
            "cache_prompt": False,  # what was asked before must not change an answer, not even in its last digit
        }
        if schema is not None:
            form = {"name": "reply", "schema": dict(schema), "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        answer = self._server.handle_chat_completions(request)
        if "error" in answer:
            problem = str(answer["error"].get("message", answer["error"]))
            return Exchange(prompt=tuple(prompt), reply="", model=self.name, error=problem)
        (choice,) = answer["choices"]
        used = answer["usage"]
        return Exchange(
            prompt=tuple(prompt),
            reply=choice["message"].get("content") or "",
            model=self.name,
            finish=choice["finish_reason"],
            usage=Frozen({"calls": 1, "tokens_in": used["prompt_tokens"], "tokens_out": used["completion_tokens"]}),
        )

    @cached_property
    def _server(self) -> Any:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when the library is loaded
        try:
            import xllamacpp
        except ImportError as error:  # there, but not for this machine
            raise ModelError(f"xllamacpp cannot be loaded: {error}") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(self.path)
        params.n_ctx = self.context
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self.threads
        params.api_keys = [secrets.token_hex(16)]
        params.verbosity = -1
        params.warmup = False
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelError(f"{self.path} cannot be loaded as a language model: {error}") from error
