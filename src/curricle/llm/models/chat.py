"""Chat: conversations in the tokens that a model was trained on.

The first prompt is rendered by the model's own chat template. Later turns are appended token by token and never
rendered again: what the agent said stays exactly what it said, so a loss over a conversation is a loss over its tokens.
"""

from collections.abc import Sequence
from typing import Any

from curricle.errors import ModelError
from curricle.records import Message

DEFAULT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""For tokenizers that come without a template."""


def render_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return a conversation's tokens, up to where the model is to answer."""
    text = _render(tokenizer, messages, ask=True)
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def render_turn(tokenizer: Any, message: Message) -> list[int]:
    """Return the tokens between the end of the model's turn and its next one, with `message` in between."""
    conversation = [Message(role="user", content="x"), Message(role="assistant", content="y")]
    before = _render(tokenizer, conversation, ask=False)
    after = _render(tokenizer, [*conversation, message], ask=True)
    if not after.startswith(before):
        raise ModelError("this model's chat template rewrites earlier turns, so it cannot hold a conversation here")
    closing = before.rpartition("y")[2].replace(tokenizer.eos_token, "", 1)  # the model has said its end token itself
    return [int(i) for i in tokenizer(closing + after[len(before) :], add_special_tokens=False)["input_ids"]]


def decode_reply(tokenizer: Any, ids: Sequence[int], ends: Sequence[int]) -> str:
    """Return the text of a reply, without the token that ended it."""
    body = list(ids[:-1]) if ids and ids[-1] in ends else list(ids)
    return str(tokenizer.decode(body, skip_special_tokens=False))


def _render(tokenizer: Any, messages: Sequence[Message], ask: bool) -> str:
    chat = [{"role": m.role, "content": m.content} for m in messages]
    template = None if tokenizer.chat_template else DEFAULT_TEMPLATE
    return str(tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=ask))
