"""Model: the contract of whatever answers a prompt."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from curricle.records import Exchange, Message


class Model(ABC):
    """Answers prompts, one call at a time; what it says is data, and may be anything."""

    name: str
    """How records speak of it, such as `gpt-4o at api.openai.com`; never holds a key."""
    live: ClassVar[bool] = True
    """Whether waiting can help after a call that failed."""

    @abstractmethod
    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """Make one call. A call that failed comes back as an exchange with an `error` and no reply.

        Where the same call may succeed later, that exchange's `again` says so; whoever calls decides whether to wait.
        A model that can hold its answer to a JSON schema does so; the others are told of it by the prompt.
        """


def tokens(text: str) -> int:
    """About as many tokens as a text has, rather too many than too few: three bytes each."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


def size(prompt: Sequence[Message]) -> int:
    """The same for a whole prompt."""
    return sum(tokens(message.content) + 4 for message in prompt)


def as_text(prompt: Sequence[Message]) -> str:
    """A prompt as one text: a single message as it is, a conversation with a line above each turn that says whose."""
    if len(prompt) == 1:
        return prompt[0].content
    return "\n\n".join(f"=== {message.role} ===\n\n{message.content.strip()}" for message in prompt)
