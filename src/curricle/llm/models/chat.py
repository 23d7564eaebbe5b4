"""Chat: conversations as the tokens a model was trained on.

A prompt is rendered by the model's own chat template. Turns that follow are appended token by token, never rendered
anew: what the agent said stays exactly what it said, so a loss over a whole conversation is a loss over its own words.
"""

from collections.abc import Sequence
from typing import Any

from curricle.errors import ModelError
from curricle.records import Message

PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""For tokenizers that come without a template."""


def rendered(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """A conversation up to the point where the model is to speak."""
    text = _text(tokenizer, messages, speak=True)
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def answered(tokenizer: Any, message: Message) -> list[int]:
    """What stands between the end of the model's turn and its next one, when `message` came in between."""
    said = [Message(role="user", content="x"), Message(role="assistant", content="y")]
    before = _text(tokenizer, said, speak=False)
    after = _text(tokenizer, [*said, message], speak=True)
    if not after.startswith(before):
        raise ModelError("this model's chat template rewrites earlier turns, so it cannot hold a conversation here")
    closing = before.rpartition("y")[2].replace(tokenizer.eos_token, "", 1)  # the model has said its end token itself
    return [int(i) for i in tokenizer(closing + after[len(before) :], add_special_tokens=False)["input_ids"]]


def spoken(tokenizer: Any, ids: Sequence[int], ends: Sequence[int]) -> str:
    """The words of a reply, without the token that ended it."""
    body = list(ids[:-1]) if ids and ids[-1] in ends else list(ids)
    return str(tokenizer.decode(body, skip_special_tokens=False))


def _text(tokenizer: Any, messages: Sequence[Message], speak: bool) -> str:
    plain = [{"role": m.role, "content": m.content} for m in messages]
    template = None if tokenizer.chat_template else PLAIN
    return str(
        tokenizer.apply_chat_template(plain, chat_template=template, tokenize=False, add_generation_prompt=speak)
    )
