"""Bounded: reads what an endpoint sends within limits on its bytes, packed and unpacked, its time and its nesting.

An endpoint may send without end, a byte now and then, or a few kilobytes that unpack to gigabytes. What it sends is
read in pieces and cut where it becomes too long, bodies of errors included. Redirections are not followed: prompts and
key go to the address that was named.
"""

import functools
import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

LONGEST = 8_000_000
"""Bytes of an answer that are read, after unpacking; whatever is longer is no design."""
DEEPEST = 100
"""Levels of an answer's JSON; a chat completion has less than ten."""
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Encodings that are unpacked here, with what zlib calls them."""


def open_client(openai: Any, url: str, key: str, seconds: float) -> Any:
    """A client for one request that reads no more than it may."""
    http = _client_class(openai)(timeout=seconds, follow_redirects=False)
    http.deadline = time.monotonic() + seconds
    headers = {"Accept-Encoding": "gzip"}
    return openai.OpenAI(
        base_url=url, api_key=key, timeout=seconds, max_retries=0, http_client=http, default_headers=headers
    )


@functools.cache
def _client_class(openai: Any) -> Any:
    """OpenAI's own client for HTTP, whichever library it is built on, with bounded answers."""

    class Bounded(openai.DefaultHttpxClient):  # type: ignore[misc]
        deadline = 0.0

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            raw = super().send(request, stream=True, **options)
            headers = {name: value for name, value in raw.headers.items() if name.lower() not in _ABOUT_BODY}
            pieces = unpacked(raw.iter_raw(65_536), raw.headers.get("content-encoding", ""), self.deadline)
            answer = type(raw)(raw.status_code, headers=headers, content=pieces, request=request)
            if not stream:
                answer.read()
            return answer

    return Bounded


_ABOUT_BODY = ("content-encoding", "content-length", "transfer-encoding")


def unpacked(pieces: Iterator[bytes], encoding: str, deadline: float, longest: int | None = None) -> Iterator[bytes]:
    """Pieces of an answer, unpacked if they are packed; it ends where it becomes too long or takes too long."""
    left = LONGEST if longest is None else longest
    name = encoding.strip().lower()
    if name not in ("", "identity", *PACKED):
        raise ValueError(f"the answer is packed in a way that was not asked for: {name[:40]!r}")
    unpack = zlib.decompressobj(PACKED[name]) if name in PACKED else None
    for piece in pieces:
        waiting = piece
        while waiting and left > 0:
            if unpack is None:
                part = waiting[:left]
                waiting = b""
            else:
                part = unpack.decompress(waiting, left)
                waiting = unpack.unconsumed_tail
            left -= len(part)
            yield part
        if left <= 0 or time.monotonic() > deadline:
            return


def parsed(body: str) -> Any:
    """The JSON of an answer; one that is nested deeper than any answer is refused before it is read."""
    depth = 0
    in_string = False
    escaped = False
    for char in body:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "{[":
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        elif char in "}]":
            depth -= 1
    return json.loads(body)
