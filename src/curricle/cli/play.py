"""Play a world yourself, in the terminal or in a window, or watch an agent play it.

In: a world that declares `keys`, a setting and a seed. A terminal shows two pixels a character cell; keys come from the
keyboard, or one by one from a pipe. A window is drawn with tkinter, which comes with Python. Films are GIF, or MP4
with the extra `film`.
"""

import base64
import io
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curricle.errors import UsageError
from curricle.setting import Setting
from curricle.text.terminal import clean
from curricle.world import VectorWorld, WorldVector

QUIT = "q"
CELLS = 64
"""Width and height of the picture in a terminal, in pixels: 64 columns and 32 lines."""


class Game:
    """One episode after another, one action at a time."""

    def __init__(self, world: VectorWorld, setting: Setting, seed: int) -> None:
        if not world.keys:
            raise UsageError(f"{world.id} cannot be played: it declares no keys")
        self.world = world
        self.vector = world.vector([setting])
        self.total = 0.0
        self.steps = 0
        self.said = "a new episode"
        self.vector.reset(seed=[seed])

    def press(self, key: str) -> bool:
        """Act on a key; False when the player wants to leave. Keys without a meaning do nothing."""
        if key == QUIT:
            return False
        if key in self.world.keys:
            action, name = self.world.keys[key]
            _, reward, terminated, truncated, info = self.vector.step(np.array([action]))
            self.total = self.total + float(reward[0])
            self.steps = self.steps + 1
            self.said = f"{name}; reward {reward[0]:+.1f}"
            if terminated[0] or truncated[0]:
                shown = ", ".join(self.world.names(info["skills"][0])) or "none"
                self.said = f"the episode ended after {self.steps} steps, return {self.total:.1f}; skills: {shown}"
                self.total = 0.0
                self.steps = 0
        return True

    @property
    def help(self) -> str:
        """What each key does."""
        names = {" ": "space", "\t": "tab"}
        keys = [f"{names.get(key, key)} {name}" for key, (_, name) in self.world.keys.items()]
        return ", ".join([*keys, f"{QUIT} quit"])


def in_terminal(game: Game, keyboard: TextIO, screen: TextIO) -> None:
    """Play until `q` or the end of the input."""

    def show() -> None:
        if screen.isatty():
            screen.write("\x1b[H\x1b[2J" + blocks(game.vector.picture(0, (CELLS, CELLS))))
        screen.write(f"{game.said}\n{_words(game.vector)}{game.help}\n")
        screen.flush()

    with _raw(keyboard):
        show()
        for key in iter(lambda: keyboard.read(1), ""):
            if not game.press(key):
                break
            show()


def watch(performance: Iterable[WorldVector], screen: TextIO, pause: float = 0.1) -> None:
    """Show an agent's episode, step by step."""
    for vector in performance:
        if screen.isatty():
            screen.write("\x1b[H\x1b[2J" + blocks(vector.picture(0, (CELLS, CELLS))))
            time.sleep(pause)
        screen.write(_words(vector) + "\n")
        screen.flush()


def film(performance: Iterable[WorldVector], path: Path, size: int, longest: int, rate: int = 10) -> int:
    """Write an episode as a GIF or MP4; returns how many frames it has."""
    if path.suffix not in (".gif", ".mp4"):
        raise UsageError(f"{path} is neither a .gif nor an .mp4")
    frames = [vector.picture(0, (size, size)) for vector in itertools.islice(performance, longest)]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        first, *rest = (Image.fromarray(frame) for frame in frames)
        first.save(path, save_all=True, append_images=rest, duration=1000 // rate, loop=0)
        return len(frames)
    import imageio

    try:
        imageio.mimsave(path, frames, fps=rate, macro_block_size=1)  # type: ignore[arg-type]
    except (ImportError, ValueError) as error:
        raise UsageError(f"no MP4 can be written ({error}); pip install 'curricle[film]', or choose a .gif") from None
    return len(frames)


def in_window(game: Game, size: int = 576) -> None:
    """Play in a window."""
    import tkinter

    try:
        window = tkinter.Tk()
    except tkinter.TclError as error:
        raise UsageError(f"no window can be opened ({error}); play in the terminal instead, without --window") from None
    window.title(f"{game.world.id}: {game.help}")
    picture = tkinter.Label(window)
    text = tkinter.Label(window, text=game.said)
    picture.pack()
    text.pack()

    def draw() -> None:
        image = tkinter.PhotoImage(data=base64.b64encode(png(game.vector.picture(0, (size, size)))))
        picture.configure(image=image)
        picture.image = image  # type: ignore[attr-defined]  # tkinter itself keeps no reference
        text.configure(text=game.said)

    def pressed(event: Any) -> None:
        if game.press(event.char):
            draw()
        else:
            window.destroy()

    window.bind("<Key>", pressed)
    draw()
    window.mainloop()


def blocks(picture: NDArray[np.uint8]) -> str:
    """A picture as coloured half blocks: each character shows an upper and a lower pixel."""
    lines = []
    for upper, lower in zip(picture[::2].tolist(), picture[1::2].tolist(), strict=True):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]}m\x1b[48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(upper, lower, strict=True)
        )
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines) + "\n"


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def _words(vector: WorldVector) -> str:
    try:
        return clean(vector.text(0)) + "\n"
    except UsageError:
        return ""


@contextmanager
def _raw(keyboard: TextIO) -> Iterator[None]:
    """Hand over every key at once instead of line by line, where the input is a terminal that can."""
    if not keyboard.isatty() or sys.platform == "win32":
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
