"""Answers that were given before: a whole run repeated without a model, or a cache for prompts that come again."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from curricle.downloads.wheels import cache
from curricle.errors import ModelError
from curricle.llm.client import Model
from curricle.records import Exchange, Frozen, Message
from curricle.run import read_config, read_exchanges


class Recorded(Model):
    """Gives what the model of an earlier run gave, failures included, in the order it gave them."""

    live = False

    def __init__(self, folder: Path, used: Sequence[Exchange] = ()) -> None:
        read_config(folder)  # says so if this is no run folder
        self.name = f"replay of {folder.name}"
        self.answers: dict[tuple[Message, ...], deque[Exchange]] = {}
        for _, exchange in read_exchanges(folder):
            self.answers.setdefault(exchange.prompt, deque()).append(exchange)
        for exchange in used:
            if left := self.answers.get(exchange.prompt):
                left.popleft()

    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """The next recorded answer to this very prompt."""
        left = self.answers.get(tuple(prompt))
        if left:
            return left.popleft()
        return Exchange(prompt=tuple(prompt), reply="", model=self.name, error=f"{self.name}: no answer to this prompt")


class Cached(Model):
    """Asks another model only what nobody asked it before; the seed of a run does not count."""

    def __init__(self, model: Model, folder: str, sampling: Sequence[object]) -> None:
        self.model = model
        self.name = model.name
        self.sampling = list(sampling)
        self.folder = cache() / "replies" if folder == "user" else Path(folder).expanduser()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"cache = {folder!r}: {error}; name another folder, or leave it out") from None

    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """The answer on file, at no cost, or a new one that is put on file."""
        key = [self.name, self.sampling, schema, [message.model_dump() for message in prompt]]
        path = self.folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()}.json"
        try:
            return Exchange.from_json(path.read_bytes()).model_copy(update={"usage": Frozen({"cached": 1})})
        except (OSError, ValueError):  # not there, or damaged: ask anew
            exchange = self.model.reply(prompt, schema=schema, seed=seed)
        if not exchange.error:
            new = path.with_suffix(f".{os.getpid()}.new")
            with suppress(OSError):  # a full disk costs the next run a call, no more
                new.write_text(exchange.to_json() + "\n", encoding="utf-8")
                new.replace(path)
        return exchange
