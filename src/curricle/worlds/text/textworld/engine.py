"""TextWorld games: make a game from a `Plan`, compile it once, keep it in a cache folder, and play it.

In: a plan and commands. Out: a `View`, what the player sees. TextWorld's interpreter writes files on `save` and
`script` and crashes on odd characters. So only commands that the game itself lists as possible reach it; other commands
are answered here.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curricle.errors import UsageError, WorldError

UNKNOWN = "That is not possible here, or not a command of this game."
HEADING = re.compile(r"-= (.*) =-")
"""The name of a room, over what it looks like."""
MAX_OPEN = 512
"""Games kept open at a time; each takes about two megabytes."""


@dataclass(frozen=True)
class Plan:
    """What a game is made from; equal plans give equal games."""

    rooms: int
    objects: int
    length: int
    theme: str
    every_step: bool
    number: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class View:
    """What a player sees after some commands."""

    text: str
    possible: tuple[str, ...]
    won: bool
    over: bool
    room: str = ""
    refused: int = 0
    """Commands so far that the game did not list as possible."""


def cache_folder(path: str) -> Path:
    """Where compiled games are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(path) if path else Path(home) / "curricle" / "textworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cache = {str(folder)!r} cannot be used: {error}") from None
    return folder


def textworld() -> Any:
    """The package `textworld`; importing it takes a while."""
    try:
        import textworld
        import textworld.generator
    except ImportError:
        raise UsageError("textworld-v1 needs textworld: pip install 'curricle[text]'") from None
    return textworld


def _options(plan: Plan) -> Any:
    options = textworld().GameOptions()
    options.kb = textworld().generator.KnowledgeBase.default()  # read once; reading it takes longer than making a game
    options.seeds = plan.number
    options.nb_rooms = plan.rooms
    options.nb_objects = plan.objects
    # this also sets the depth, which must not be less
    options.quest_length = plan.length
    options.quest_breadth = 1
    options.grammar.theme = plan.theme
    options.grammar.only_last_action = not plan.every_step
    return options


@functools.lru_cache(maxsize=64)
def _game(plan: Plan) -> Any:
    generator = textworld().generator
    try:
        return generator.make_game(_options(plan))
    except Exception as error:  # the generator fails in many ways; the setting is ours to fix
        raise WorldError(f"TextWorld cannot make {plan}: {type(error).__name__}: {error}") from error


@functools.lru_cache(maxsize=4096)
def script(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """A game's objective in words, and the commands that win it."""
    game = _game(plan)
    return " ".join(str(game.objective).split()), tuple(game.metadata["walkthrough"])


def compiled(plan: Plan, folder: Path) -> Path:
    """The file of a compiled game; it is moved to its place when it is complete."""
    place = folder / f"{plan.name}.z8"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder) as workplace:
            options = _options(plan)
            options.path = str(Path(workplace) / place.name)
            with contextlib.redirect_stdout(io.StringIO()):
                made = Path(textworld().generator.compile_game(_game(plan), options))
            made.with_suffix(".json").replace(place.with_suffix(".json"))  # what the game knows; read with it
            made.replace(place)
    return place


class GamePlayer:
    """Plays games. It keeps some open, so that the next command of an attempt does not replay those before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: OrderedDict[tuple[Plan, tuple[str, ...]], View] = OrderedDict()
        self._open_games: OrderedDict[tuple[Plan, tuple[str, ...]], tuple[Any, View]] = OrderedDict()

    def view(self, plan: Plan, commands: Sequence[str]) -> View:
        """What the player sees after these commands."""
        given = tuple(commands)
        if (plan, given) in self._views:
            return self._views[plan, given]
        done = next((i for i in range(len(given), 0, -1) if (plan, given[:i]) in self._open_games), 0)
        known = (plan, given[:done])
        game, view = self._open_games.pop(known) if known in self._open_games else self._open(plan)
        self._keep(plan, given[:done], view)
        for i in range(done, len(given)):
            view = self._step(game, view, given[i])
            self._keep(plan, given[: i + 1], view)
        self._open_games[plan, given] = game, view
        while len(self._open_games) > MAX_OPEN:
            self._open_games.popitem(last=False)[1][0].close()
        return view

    def _open(self, plan: Plan) -> tuple[Any, View]:
        tw = textworld()
        wanted = tw.EnvInfos(feedback=True, description=True, admissible_commands=True, won=True, lost=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the interpreter does not know this game by name, and need not
            game = tw.start(str(compiled(plan, self.folder)), wanted)
            return game, _view_of(game.reset())

    @staticmethod
    def _step(game: Any, view: View, command: str) -> View:
        wanted = next((one for one in view.possible if one.lower() == command.lower()), None)
        if view.over or wanted is None:
            return replace(view, text=UNKNOWN, refused=view.refused + 1)
        state, _, over = game.step(wanted)
        return replace(_view_of(state, over), refused=view.refused)

    def _keep(self, plan: Plan, given: tuple[str, ...], view: View) -> None:
        self._views[plan, given] = view
        while len(self._views) > 16 * MAX_OPEN:
            self._views.popitem(last=False)


def _view_of(state: Any, over: bool | None = None) -> View:
    """A state of TextWorld as a view; `over` is None for the first."""
    text = str(state.description if over is None else state.feedback).partition("\n>")[0]
    lines = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    possible = tuple(sorted(state.admissible_commands or ()))
    room = HEADING.search(str(state.description))
    return View(lines, possible, bool(state.won), bool(over or state.won or state.lost), room[1] if room else "")


def walkthrough_key(plan: Plan) -> int:
    """A number that is the same for games with the same walkthrough, whatever their theme and objective."""
    text = json.dumps(script(plan)[1])
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)
