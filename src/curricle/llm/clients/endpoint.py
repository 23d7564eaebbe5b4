"""Endpoint: asks any server that speaks OpenAI's protocol, such as vLLM, Ollama, llama.cpp or OpenRouter.

One `reply` is one HTTP request. What the endpoint does not know (structured output, a temperature, a seed) it refuses
with a 400; it is then left out of the next request. The key is read from the environment for each request, and taken
out of everything that comes back, so that no file, log or message can hold it.
"""

import importlib.util
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from curricle.errors import UsageError
from curricle.llm.client import Model, size, tokens
from curricle.llm.clients import bounded
from curricle.llm.clients.options import ModelOptions
from curricle.llm.clients.secrets import without_key
from curricle.records import Exchange, Frozen, Message

OPENAI = "https://api.openai.com/v1"
MOST_TOKENS = 1_000_000_000
"""Tokens of one call that an endpoint can mean; what it says beyond them is no count."""
PASSING = (408, 409, 425, 429)
"""Refusals that may pass, besides everything from 500 on."""


class Endpoint(Model):
    """A model behind an HTTP address."""

    def __init__(self, options: ModelOptions, without: set[str] | None = None) -> None:
        self.options = options
        self.url = options.base_url or OPENAI
        self.name = f"{options.model} at {urlsplit(self.url).netloc}"
        self.key_env = options.key_env or ("OPENAI_API_KEY" if self.url == OPENAI else "")  # no key goes to others
        self.without = set[str]() if without is None else without  # what this endpoint does not know
        if self.key_env and not self._key():
            raise UsageError(
                f"{self.key_env} is not set: put the key for {self.name} there, or name another variable (key_env)"
            )
        if importlib.util.find_spec("openai") is None:
            raise UsageError(f"{self.name} needs openai: pip install 'curricle[endpoints]'")

    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """Make one request; everything that can go wrong comes back as an error, with the key taken out."""
        import openai

        known = {"prompt": tuple(prompt), "model": self.name}
        billed = {"calls": 1, "tokens_in": size(prompt)}  # a request that was cut off may have been paid for
        try:
            body = self._request(openai, prompt, schema, seed)
        except openai.APIStatusError as error:
            said = f"{error.status_code}: {_page(self._clean(_body(error)))}"
            again = _wait(error.response.headers) if error.status_code in PASSING or error.status_code >= 500 else None
            if self._give_way(said, error.status_code, schema is not None):
                again = 0.0
            return self._failed(said, known, {"calls": 1}, again)
        except openai.APITimeoutError:
            return self._failed(f"no answer within {self.options.timeout:g} s", known, billed, 0.0)
        except Exception as error:  # a client that is closed while it reads may raise anything
            cause = error.__cause__ or error
            said = _page(self._clean(f"the connection failed: {type(cause).__name__}: {cause}"))
            return self._failed(said, known, billed, 0.0)
        return self._read(body, known, billed)

    def _request(self, openai: Any, prompt: Sequence[Message], schema: Mapping[str, Any] | None, seed: int) -> str:
        """Send one request and read the answer, within the time allowed for both."""
        o = self.options
        client = bounded.open_client(openai, self.url, self._key() or "none", o.timeout)
        arguments: dict[str, Any] = {
            "model": o.model,
            "messages": [{"role": message.role, "content": message.content} for message in prompt],
            "temperature": o.temperature,
            "seed": seed % 2**31,
            "max_tokens": o.max_tokens,
        }
        if "max_tokens" in self.without:
            arguments["max_completion_tokens"] = o.max_tokens
        if schema is not None:
            form = {"name": "designs", "strict": True, "schema": dict(schema)}
            arguments["response_format"] = {"type": "json_schema", "json_schema": form}
        arguments = {name: value for name, value in arguments.items() if name not in self.without}
        return _within(o.timeout, openai, lambda late: _answer(client, arguments, late))

    def _read(self, body: str, known: Mapping[str, Any], billed: Mapping[str, float]) -> Exchange:
        """Take the reply out of an answer that may be anything; whatever it is, an exchange is made and kept."""
        try:
            answer = bounded.parsed(body)
            choice = answer["choices"][0]
            message = choice.get("message") or {}
            content = message.get("content")
            if isinstance(content, list):  # some endpoints answer in parts
                content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
            reply = self._clean(str(content or message.get("refusal") or ""))
            finish = "refusal" if message.get("refusal") and not content else str(choice.get("finish_reason") or "")
            usage = self._usage(answer, billed, reply)
            return Exchange(**known, reply=reply, finish=_page(self._clean(finish)) if finish else "", usage=usage)
        except Exception:  # it was paid for, so it is kept, whatever is wrong with it
            return self._failed(f"the answer is no chat completion: {_page(self._clean(body))}", known, billed, 0.0)

    def _usage(self, answer: Mapping[str, Any], billed: Mapping[str, float], reply: str) -> Frozen[str, float]:
        """What the call cost: as the endpoint says, or else as estimated."""
        usage = answer.get("usage")
        read = _count(usage, "prompt_tokens", billed["tokens_in"])
        written = _count(usage, "completion_tokens", tokens(reply))
        return self._priced({"calls": 1, "tokens_in": read, "tokens_out": written})

    def _failed(self, said: str, known: Mapping[str, Any], cost: Mapping[str, float], again: float | None) -> Exchange:
        return Exchange(**known, reply="", error=said, again=again, usage=self._priced(cost))

    def _priced(self, cost: Mapping[str, float]) -> Frozen[str, float]:
        o = self.options
        dollars = (cost.get("tokens_in", 0) * o.price_in + cost.get("tokens_out", 0) * o.price_out) / 1e6
        return Frozen({**cost, "dollars": dollars} if o.price_in or o.price_out else dict(cost))

    def _give_way(self, said: str, status: int, structured: bool) -> bool:
        """Leave out of the next request what this refusal is about; False where nothing is left to leave out."""
        said = said.lower()
        if status in (401, 403, 404, *PASSING):
            return False
        for name in ("temperature", "seed", "max_completion_tokens", "max_tokens"):
            sent = name not in self.without and (name != "max_completion_tokens" or "max_tokens" in self.without)
            if sent and re.search(rf"\b{name}\b", said):
                self.without.add(name)
                return True
        named = re.search("response_format|json_schema|schema|grammar|structured|guided", said)
        if structured and "response_format" not in self.without and (named or status < 500):
            self.without.add("response_format")
            return True
        return False

    def _key(self) -> str:
        return os.environ.get(self.key_env, "").strip() if self.key_env else ""

    def _clean(self, text: str) -> str:
        """Take the key out of what an endpoint sent: some repeat it in their errors."""
        return without_key(text, self._key())


def _body(error: Any) -> str:
    try:
        return str(error.response.text)
    except Exception:  # the connection ended before the page did
        return str(error.message)


def _page(text: str) -> str:
    """The beginning of what was sent, on one line; an HTML page without its tags."""
    plain = re.sub(r"<[^<>]{0,500}>", " ", re.sub(r"(?is)<(script|style).*?</\1>", " ", text[:20_000]))
    plain = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return plain[:300] + ("..." if len(plain) > 300 else "") or "(empty)"


def _count(usage: Any, name: str, estimate: float) -> float:
    """Tokens as an endpoint counts them, or as estimated where it says nothing that can be a count."""
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MOST_TOKENS else estimate


def _wait(headers: Mapping[str, str]) -> float:
    """Seconds that an endpoint asks to wait; 0 where it does not say (or says when, not how long)."""
    try:
        seconds = float(headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), 300.0) if math.isfinite(seconds) else 0.0


def _answer(client: Any, arguments: Mapping[str, Any], late: threading.Event) -> str:
    """Send a request and read what comes, until nobody waits for it any longer."""
    try:
        with client.chat.completions.with_streaming_response.create(**arguments) as response:
            pieces = list[bytes]()
            for piece in response.iter_bytes():
                pieces.append(piece)
                if late.is_set():
                    break
        return b"".join(pieces).decode("utf-8", "replace")
    finally:
        client.close()


def _within(seconds: float, openai: Any, work: Callable[[threading.Event], str]) -> str:
    """Work in a thread that is left to itself when the time is up: a client's own limit starts anew with every byte.

    Its connection is closed by the thread that reads from it and by no other, which might hit somebody else's.
    """
    late = threading.Event()
    done = list[str]()
    wrong = list[Exception]()

    def live() -> None:
        try:
            done.append(work(late))
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
        if thread.is_alive():
            raise openai.APITimeoutError(request=None)
    finally:
        late.set()
    if wrong:
        raise wrong[0]
    return done[0]
