"""Model: the contract of whatever answers a prompt."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from curricle.records import Exchange, Message


class Model(ABC):
    """Answers prompts, one call at a time; what it says is data, and may be anything."""

    name: str
    """How records speak of it, such as `gpt-4o at api.openai.com`; never holds a key."""

    @abstractmethod
    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """Make one call. A call that failed for good comes back as an exchange with an `error` and no reply.

        A model that can hold its answer to a JSON schema does so; the others are told of it by the prompt.
        """
