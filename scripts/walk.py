"""Print the files that one cycle runs through, in the order of their first call: the walk for a new reader.

    python scripts/walk.py envgen     a language model designs, PPO learns in Crafter
    python scripts/walk.py genenv     one small language model designs tasks, another one learns to solve sums
    python scripts/walk.py envgen --markdown     the list of CONTRIBUTING.md, "One cycle, file by file"

A small run is made in this process. The second of its cycles is recorded, when all is loaded and compiled. The inside
of Crafter's compiled kernels is not entered; `--interpreted` runs the kernels as plain Python and shows their files,
too.
"""

import argparse
import ast
import inspect
import json
import logging
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

from same_bytes_runs import GRPO, LANGUAGE, SMALL, SUMS, fill, make_model, rl, text

TREE = Path(__file__).resolve().parent.parent
PACKAGE = TREE / "src" / "curricle"
UTILITIES = (
    "errors.py",
    "records.py",
    "seeds.py",
    "setting.py",
    "agents/device.py",
    "llm/clients/secrets.py",
    "scale/ranks.py",
    "text/lenient_json.py",
    "text/similarity.py",
    "tracking/checkpoint.py",
    "tracking/watcher.py",
)
"""Files that any other may use: a reader looks them up when needed. They are no part of a walk."""
CLOSED = (
    "agents/cuda/",
    "worlds/crafter/engine/",
    "worlds/crafter/game/",
    "worlds/crafter/observe/",
    "worlds/crafter/worldgen/",
    "worlds/simulation/",
)
"""Folders that a walk does not enter: what only a GPU needs, and how Crafter plays a step."""
NAMES = {"Crafter", "Curricle"}
"""Words that keep their capital letter at the start of a phrase."""
CYCLE = 2
"""The cycle that is recorded."""


def main() -> None:
    """Make the run that is asked for and print its walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walk", choices=["envgen", "genenv"], help="which cycle to follow")
    parser.add_argument("--interpreted", action="store_true", help="run Numba's kernels as Python; slow")
    parser.add_argument("--markdown", action="store_true", help="print the list as CONTRIBUTING.md has it")
    parser.add_argument("--json", action="store_true", help="print a JSON list of [file, function] pairs")
    arguments = parser.parse_args()
    if arguments.interpreted:
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # read when numba is imported
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    logging.disable(logging.WARNING)

    with tempfile.TemporaryDirectory(prefix="walk-") as scratch:
        follow = envgen if arguments.walk == "envgen" else genenv
        calls = follow(Path(scratch))
    if arguments.json:
        print(json.dumps(list(calls.items())))
        return
    if arguments.markdown:
        print(markdown(list(calls)))
        return
    for number, (file, function) in enumerate(calls.items(), start=1):
        print(f"{number:3}. src/curricle/{file:44} {function}")


def is_aside(file: str) -> bool:
    """Whether a file of the package is no part of a walk."""
    return file in UTILITIES or file.startswith(CLOSED)


def markdown(files: list[str]) -> str:
    """The walk as a numbered list with a phrase for each file, and the files beside it."""
    walk = [file for file in files if not is_aside(file)]
    aside = [f"`{file}`" for file in sorted(files) if is_aside(file)]
    counts = f"{len(walk)} files to read in order, then {len(aside)} to look things up in."
    lines = [f"{number}. `{file}`: {phrase(file)}" for number, file in enumerate(walk, start=1)]
    return "\n".join([counts, "", *lines, "", f"To look things up in: {', '.join(aside)}."])


def phrase(file: str) -> str:
    """What a module is, from the first sentence of its docstring, in lower case.

    Where the sentence has a colon, a short title before it is left out, and so is the rest after a longer one.
    """
    text = ast.get_docstring(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))) or ""
    words = " ".join(text.split("\n\n")[0].split()).replace("et al. ", "et al ")
    sentence = words.split(". ")[0].removesuffix(".").replace("et al ", "et al. ")
    label, colon, rest = sentence.partition(": ")
    if not colon:
        return uncapitalised(sentence)
    return uncapitalised(rest if len(label.split()) <= 3 else label)


def uncapitalised(sentence: str) -> str:
    """A sentence without its capital letter, unless it begins with a name or an abbreviation."""
    first = sentence.split()[0]
    is_name = first in NAMES or (len(first) > 1 and not first[1:].islower())
    return sentence if is_name else sentence[0].lower() + sentence[1:]


def envgen(scratch: Path) -> dict[str, str]:
    """One cycle of EnvGen: an endpoint on loopback stands in for the language model."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Designs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    designer = {"id": "llm", "model": "m", "base_url": f"http://127.0.0.1:{server.server_port}/v1"}
    try:
        return record(rl({"id": "crafter"}, SMALL, designer), scratch)
    finally:
        server.shutdown()
        server.server_close()


def genenv(scratch: Path) -> dict[str, str]:
    """One cycle of GenEnv: agent and designer each train an adapter on the tiny model of `same_bytes.py`."""
    model = scratch / "model"
    make_model(model)
    names = {"tree": str(TREE), "model": str(model)}
    return record(fill(text(SUMS, GRPO, LANGUAGE), names), scratch)


def record(config: dict[str, Any], scratch: Path) -> dict[str, str]:
    """Make a run; returns the files that its recorded cycle called, each with the first function called there."""
    from curricle import resolve, start
    from curricle.loop import Loop

    calls: dict[str, str] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # bodies of modules and classes are not
        if event == "call" and is_function and code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            calls.setdefault(Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname)

    propose = Loop.propose
    learn = Loop.learn
    hook = sys.getprofile()  # scripts/entered.py may listen, too
    thread_hook = threading.getprofile()

    def begin_to_record(self: Loop, cycle: int, *rest: Any) -> Any:
        if cycle == CYCLE:
            threading.setprofile(note)
            sys.setprofile(note)
        return propose(self, cycle, *rest)

    def end_recording(self: Loop, cycle: int, *rest: Any) -> None:
        learn(self, cycle, *rest)
        sys.setprofile(hook)
        threading.setprofile(thread_hook)

    Loop.propose = begin_to_record  # type: ignore[method-assign, assignment]
    Loop.learn = end_recording  # type: ignore[method-assign, assignment]
    start(resolve(config), scratch / "run")
    return calls


class _Designs(BaseHTTPRequestHandler):
    """Answers every chat completion with two designs for Crafter."""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        designs = [{"setting": {"biome": biome}, "aim": "collect_wood", "why": ""} for biome in ("forest", "mountain")]
        message = {"role": "assistant", "content": json.dumps({"designs": designs})}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    main()
