"""Twin: plays the reference `crafter` and this engine with the same actions, and compares their whole state.

In: a seed and actions. `reset()` and `step(action)` raise `Difference` at the first thing that is not equal. `give` and
`ripen` change both worlds alike, so that a test gets far. The reference picks the creature to remove from a Python set,
whose order depends on memory addresses: the twin sorts it by age, and changes nothing else in the reference.
"""

from collections.abc import Iterable
from typing import Any

import crafter
import numpy as np
from numpy.typing import NDArray

from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.game.step import is_dead, is_over, reset, step, stock_daylight
from curricle.worlds.crafter.observe.frames import draw, draw_buffers
from curricle.worlds.crafter.observe.symbols import write_map
from curricle.worlds.crafter.observe.textures import pictures
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of
from curricle.worlds.crafter.worldgen.noise_tables import SCRATCH, fields

_KINDS = {name.capitalize(): kind for kind, name in enumerate(r.KINDS) if kind}


class Difference(AssertionError):
    """The engine and the reference disagree."""


class OrderedEnv(crafter.Env):  # type: ignore[misc]
    """The reference with the creatures of a chunk in the order of their birth."""

    def _balance_object(self, chunk: Any, objs: Iterable[Any], *rest: Any) -> None:
        age = {id(obj): i for i, obj in enumerate(self._world._objects)}
        super()._balance_object(chunk, sorted(objs, key=lambda obj: age[id(obj)]), *rest)


class Twin:
    """One environment, twice."""

    def __init__(self, seed: int, setting: CrafterSetting | None = None, size: int = 64) -> None:
        setting = setting or CrafterSetting()
        self.env = OrderedEnv(
            area=(setting.area, setting.area), size=(size, size), length=setting.episode_length, seed=seed
        )
        self.states = np.zeros(1, STATE)
        self.s: Any = self.states[0]
        self.s["exact"] = True
        self.s["seed"] = seed
        self.s["upcoming"] = knobs_of(setting)[0]
        self.frame = np.zeros((size, size, 3), np.uint8)
        self._pictures = pictures(size // r.VIEW_X, size // r.VIEW_X)
        self._buffers = draw_buffers(*self._pictures.unit)
        self._daylight = stock_daylight()
        self._tables = fields()[0]
        self._work = np.zeros(1, SCRATCH)[0]
        self.steps = 0

    def reset(self) -> None:
        """Begin the next episode in both."""
        pixels = self.env.reset()
        reset(self.s, self._daylight, self._tables, self._work)
        self._paint()
        self._compare(pixels)

    def step(self, action: int) -> bool:
        """Play one step in both; returns whether the episode ended."""
        pixels, reward, done, info = self.env.step(action)
        ours = step(self.s, action, self._daylight)
        self._paint()
        self.steps += 1
        self._equal("reward", reward, ours)
        self._equal("done", bool(done), bool(is_dead(self.s) or is_over(self.s)))
        area = self.s["area"]
        semantic = np.zeros((area, area), np.uint8)
        write_map(self.s, semantic)
        self._equal("semantic map", info["semantic"], semantic)
        self._compare(pixels)
        return bool(done)

    def give(self, item: str, amount: int) -> None:
        """Set what the player holds."""
        self.env._player.inventory[item] = amount
        self.s["inventory"][r.ITEMS.index(item)] = amount

    def ripen(self) -> None:
        """Make every plant ripe."""
        for obj in self.env._world.objects:
            if isinstance(obj, crafter.objects.Plant):
                obj.grown = r.RIPE_AFTER + 1
        self.s["grown"][self.s["kind"] == r.PLANT] = r.RIPE_AFTER + 1

    def _paint(self) -> None:
        draw(self.s, self.frame, self._buffers, 0, *self._pictures)

    def _equal(self, what: str, theirs: Any, ours: Any) -> None:
        """Stop at a difference, and say where it is."""
        if not np.array_equal(theirs, ours):
            where = f"seed {self.s['seed']}, episode {self.s['episode']}, step {self.s['step']}"
            raise Difference(f"{what} differs at {where}: reference {theirs}, engine {ours}")

    def _compare(self, pixels: NDArray[np.uint8]) -> None:
        """Compare everything that is not the outcome of a step."""
        world = self.env._world
        player = self.env._player
        s = self.s
        area = s["area"]
        count = s["count"]
        self._equal("inventory", list(player.inventory.values()), s["inventory"].tolist())
        self._equal("achievements", list(player.achievements.values()), s["achievements"].tolist())
        self._equal("terrain", world._mat_map, s["material"][:area, :area])
        self._equal("daylight", world.daylight, s["daylight"])
        needs = [player._hunger, player._thirst, player._fatigue, player._recover, player.sleeping, *player.facing]
        names = ("hunger", "thirst", "fatigue", "recover", "sleeping", "face_x", "face_y")
        self._equal("vitals", needs, [s[name] for name in names])
        theirs = [(_KINDS[type(obj).__name__], *obj.pos.tolist(), *_inner(obj)) for obj in world.objects]
        ours = np.stack([s["kind"][:count], s["x"][:count], s["y"][:count]], 1).tolist()
        health = [s["inventory"][r.HEALTH], *s["health"][1:count]]
        extra = [_timer(s, slot) for slot in range(count)]
        self._equal("objects", theirs, [(*o, int(h), int(t)) for o, h, t in zip(ours, health, extra, strict=True)])
        keys = [world.chunk_key((i // 6 * r.CHUNK, i % 6 * r.CHUNK)) for i in s["chunk_order"][: s["touched"]].tolist()]
        self._equal("order of chunks", list(world.chunks), keys)
        _, words, at, *_ = world.random.get_state()
        self._equal("position in the random stream", at, s["mt_at"])
        self._equal("random stream", words, s["mt"])
        self._equal("pixels", pixels, self.frame)


def _inner(obj: Any) -> tuple[int, int]:
    """Health of a reference object, and the one number its kind adds."""
    if isinstance(obj, crafter.objects.Arrow):
        way = [(-1, 0), (1, 0), (0, -1), (0, 1)].index(tuple(obj.facing))
        return int(obj.health), way
    return int(obj.health), int(getattr(obj, "cooldown", getattr(obj, "reload", getattr(obj, "grown", 0))))


def _timer(s: Any, slot: int) -> int:
    """The same number of one of our objects."""
    return int(s["grown"][slot] if s["kind"][slot] == r.PLANT else s["timer"][slot])
