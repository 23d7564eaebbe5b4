"""By hand: a person carries the prompt to any chat model, and the answer back.

The prompt is written to a file of the run folder and shown; its answer is pasted into the file beside it. At a terminal
the run waits for that file; elsewhere it stops, and takes up the answer when it is resumed. Answers stay in the folder,
so nothing is lost between sittings.
"""

import hashlib
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curricle.errors import RunUnwritable, Waiting
from curricle.llm.client import Model, as_text
from curricle.records import Exchange, Message

log = logging.getLogger("curricle")
LOOK_EVERY = 0.5
LONGEST = 8_000_000
"""Characters of an answer that are read."""


class Hand(Model):
    """Asks a person, through files."""

    name = "by hand"

    def __init__(self, folder: Path, used: Sequence[Exchange] = ()) -> None:
        self.folder = folder
        self.asked = [exchange.prompt for exchange in used]

    def reply(self, prompt: Sequence[Message], *, schema: Mapping[str, Any] | None = None, seed: int = 0) -> Exchange:
        """Write the prompt, and wait for its answer or stop."""
        question = self._question(as_text(prompt), self.asked.count(tuple(prompt)))
        answer = question.with_name(question.name.replace("prompt", "answer"))
        text = _read(answer)
        if not text:
            log.info("%s", as_text(prompt))
            todo = f"The prompt above is in {question}. Paste the answer into {answer}"
            if not sys.stdin.isatty():
                raise Waiting(f"{todo}, then: curricle resume {self.folder.parent}")
            log.info("%s and save it: the run waits. Ctrl-C to go on another day.", todo)
            text = _wait(answer)
        self.asked.append(tuple(prompt))
        return Exchange(prompt=tuple(prompt), reply=text, model=self.name, finish="stop", usage={"calls": 1})

    def _question(self, text: str, before: int) -> Path:
        """The file of a prompt: numbered as it comes, found again by its content and how often it was asked before."""
        mark = hashlib.sha256(f"{text}{before or ''}".encode()).hexdigest()[:8]
        known = sorted(self.folder.glob(f"*-prompt-{mark}.md"))
        if known:
            return known[0]
        path = self.folder / f"{len(list(self.folder.glob('*-prompt-*.md'))) + 1:02}-prompt-{mark}.md"
        new = path.with_suffix(".new")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)  # never through a link
            new.write_text(text + "\n", encoding="utf-8")
            new.replace(path)  # there whole, or not at all
        except OSError as error:
            raise RunUnwritable(f"cannot write {path}: {error.strerror}; put it right and resume") from error
        return path


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise RunUnwritable(f"{path} is no file; put the answer into a file and resume")
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return file.read(LONGEST).strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise RunUnwritable(f"cannot read {path}: {error.strerror}; put it right and resume") from error


def _wait(path: Path) -> str:
    """The answer, once it is there and no longer changes: an editor may save in pieces."""
    last = ""
    while True:
        time.sleep(LOOK_EVERY)
        text = _read(path)
        if text and text == last:
            return text
        last = text
