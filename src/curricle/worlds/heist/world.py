"""Heist as a world of curricle: its knobs, its seven skills and what each needs, and the guide a designer reads.

In: settings. Out: a `HeistVector`. The headline is how often the gem is reached, in percent. The reward is Procgen's:
10 at the gem, which ends the episode.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from curricle import records
from curricle.errors import UsageError
from curricle.records import Frozen, Skill
from curricle.setting import Setting as AnySetting
from curricle.world import VectorWorld
from curricle.worlds.heist.env import HeistVector
from curricle.worlds.heist.game.rules import SKILLS
from curricle.worlds.heist.observe.fetch import stock
from curricle.worlds.heist.setting import HeistSetting

GUIDE = """
Heist is a maze seen from above. The player walks through corridors, picks up keys, opens the doors of their colours and
takes the gem. Only the gem is rewarded, with 10, and it ends the episode; so does the time limit.

**The maze** stands somewhere in a square world of walls. Larger mazes have longer ways and more dead ends. In the
original, `maze_size` and `keys` are drawn anew for each level: mazes of 5 to 13 cells, and more keys in larger ones.

**Keys and doors** form a chain. Key 1 (blue) lies where the player can walk from the start. Door 1 bars the way to key
2 (green), door 2 the way to key 3 (red), and the last door the way to the gem. A door opens when the player walks into
it with its key. Doors stand where corridors fork; a small maze may have fewer forks than keys, and then the number of
doors is smaller. With `doors_before_gem` the gem lies behind fewer doors than there are.

**Making it easier.** A small maze, few keys, keys that are held at the start (`keys_held`), doors that are open already
(`doors_open`), a first key or a gem near the start (`key_within`, `gem_within`: cells to walk, doors included; where
no cell is that near, the nearest one is taken). `speed` makes steps longer. `partial_view` makes it harder: only the
8 x 8 cells around the player are seen.

**Walking.** The player moves smoothly and keeps some of its speed. Corridors are one cell wide and the player fills
three quarters of one, so it has to be near the middle of a corridor to turn into another one.

Each skill counts once an episode. What is handed out earns no skill: a key that is held at the start is not collected,
and a door that is open is not opened. `collect_key_3` needs a level with three keys.
""".strip()


def _skill(name: str, *needs: str, **eased_by: str | int) -> Skill:
    return Skill(name=name, needs=needs, eased_by=Frozen(eased_by))


_TREE = (
    _skill("collect_key_1", maze_size="5", keys="1", key_within=3),
    _skill("collect_key_2", "open_door_1", maze_size="7", keys="2", keys_held=1, key_within=6),
    _skill("collect_key_3", "open_door_2", maze_size="9", keys="3", keys_held=2, key_within=8),
    _skill("open_door_1", "collect_key_1", maze_size="5", keys="1", keys_held=1),
    _skill("open_door_2", "collect_key_2", maze_size="7", keys="2", keys_held=2),
    _skill("open_door_3", "collect_key_3", maze_size="9", keys="3", keys_held=3),
    _skill("reach_gem", maze_size="5", doors_before_gem="0", gem_within=4),
)


class HeistOptions(records.Options):
    """How Heist is run; none of it changes the rules."""

    observation: Literal["symbols", "pixels", "text"] = Field("symbols", description="What the agent sees.")
    size: int = Field(64, ge=23, le=1024, description="Side of a frame in pixels.")
    pictures: str = Field(
        "own",
        description="What frames are drawn with: our own pictures; those of procgen (get them with `curricle data "
        "heist`); or a folder that has Procgen's assets.",
    )
    levels: int = Field(0, ge=0, le=2**31 - 1, description="Number of levels, Procgen's num_levels; 0 means all.")
    first_level: int = Field(0, ge=0, le=2**31 - 1, description="The first of them, Procgen's start_level.")


class Heist(VectorWorld):
    """Procgen's Heist, bit-exact and configurable."""

    id = "heist-v1"
    Options = HeistOptions
    options: HeistOptions
    Setting = HeistSetting
    skills = _TREE
    guide = GUIDE
    suggests: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agent": {"id": "ppo", "environments": 64, "steps": 64, "epochs": 2, "learning_rate": 1e-3, "gamma": 0.99},
        "schedule": {"test_episodes": 4},
    }
    keys: ClassVar[Mapping[str, tuple[int, str]]] = {
        "a": (1, "left"),
        "d": (7, "right"),
        "w": (5, "up"),
        "s": (3, "down"),
        ".": (4, "rest"),
        "e": (8, "up and right"),
        "z": (0, "down and left"),
        "c": (6, "down and right"),
        "y": (2, "up and left"),
    }

    @classmethod
    def suggested(cls, options: records.Options) -> Mapping[str, Mapping[str, Any]]:
        """Fewer passes at a higher rate are for symbols; from pixels an agent learns by its defaults."""
        if isinstance(options, HeistOptions) and options.observation == "pixels":
            return {**cls.suggests, "agent": {"id": "ppo", "environments": 64, "steps": 64}}
        return cls.suggests

    def vector(self, settings: Sequence[AnySetting]) -> HeistVector:
        """One sub-environment a setting."""
        fitting = [setting for setting in settings if isinstance(setting, HeistSetting)]
        if len(fitting) != len(settings):
            raise UsageError(f"heist-v1 needs settings of its own, HeistSetting, not {settings!r}")
        o = self.options
        return HeistVector(
            fitting,
            o.observation,
            size=o.size,
            pictures=_folder(o.pictures),
            levels=o.levels,
            first_level=o.first_level,
        )

    def succeeded(self, aim: str | None, shown: Iterable[str]) -> bool:
        """Whether an attempt met an aim; without one, the gem counts, for few levels have all keys and doors."""
        return (aim or SKILLS[-1]) in set(shown)

    def headline(self, rates: Mapping[str, float]) -> float:
        """How often the gem is reached, in percent."""
        return 100 * rates.get(SKILLS[-1], 0.0)


def _folder(pictures: str) -> Path | None:
    """The folder of the pictures that the options name; None for our own."""
    if pictures == "own":
        return None
    return stock() if pictures == "procgen" else Path(pictures).expanduser()
