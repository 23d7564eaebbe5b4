"""A real HTTP server on loopback that acts as an OpenAI-compatible endpoint, well or badly, as a script says."""

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from helpers.skips import skip_without


def chat(content, finish="stop", **more):
    """The body of a chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **more}}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


class Loopback:
    """`with Loopback([act, ...]) as server:` - each request is answered by the next act, the last one for ever."""

    def __init__(self, acts: Sequence[Callable[..., Any]]) -> None:
        skip_without("endpoints")
        self.acts = list(acts)
        self.requests: list[Any] = []
        self.headers: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                act = outer.acts[min(len(outer.requests), len(outer.acts)) - 1]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    act(self, body)
                self.close_connection = True

            def say(self, status, text, kind="application/json", **headers):
                data = text.encode("utf-8", "surrogatepass")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def says(content, finish="stop", **more):
    return lambda handler, body: handler.say(200, chat(content, finish, **more))


def answers(status, text="", kind="application/json", **headers):
    return lambda handler, body: handler.say(status, text, kind, **headers)


def echoes(status, before=0):
    """Repeats the key in its error, as some do, after so many other characters."""

    def act(handler, body):
        handler.say(status, json.dumps({"error": "-" * before + f" bad key: {handler.headers['Authorization']}"}))

    return act


def drops(handler, body):
    handler.connection.close()


def breaks_off(handler, body):
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()


def stalls(handler, body):
    time.sleep(3)


def drips(handler, body):
    """A byte now and then: never idle for long, never done."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def slowly(content):
    """The whole answer, in small pieces."""

    def act(handler, body):
        data = chat(content).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for i in range(0, len(data), 40):
            handler.wfile.write(data[i : i + 40])
            handler.wfile.flush()
            time.sleep(0.005)

    return act


def refuses(*fields, then):
    """Answers 400 as long as a request holds one of these fields."""

    def act(handler, body):
        for field in fields:
            if field in body:
                message = f"Unsupported parameter: '{field}' is not supported with this model."
                handler.say(400, json.dumps({"error": {"message": message}}))
                return
        then(handler, body)

    return act


def ladder(*difficulties, aim="sums"):
    """An answer for the toy world: one design a difficulty."""
    return json.dumps({"designs": [{"setting": {"difficulty": d}, "aim": aim, "why": "x"} for d in difficulties]})


def designer(handler, body):
    """Designs for the toy world that differ with the prompt, and with nothing else."""
    text = json.dumps(body["messages"])
    low = zlib.crc32(text.encode()) % 1000 / 2000
    handler.say(200, chat(ladder(low, low + 0.25)))


def by_schema(handler, body):
    """As many designs as the schema asks for, for any world, disguised or not: they set its first knob."""
    schema = body["response_format"]["json_schema"]["schema"]["properties"]["designs"]
    n, knob = schema["minItems"], next(iter(schema["items"]["properties"]["setting"]["properties"]))
    designs = [{"setting": {knob: i / 10}, "aim": None, "why": "x"} for i in range(n)]
    handler.say(200, chat(json.dumps({"designs": designs})))
