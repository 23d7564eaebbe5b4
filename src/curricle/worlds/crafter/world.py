"""Crafter as a world: its knobs, its 22 skills with what each needs, and the guide that a designer reads.

In: settings. Out: a `CrafterVector`. The headline is Crafter's score, the geometric mean of the success rates:
exp(mean(ln(1 + percent))) - 1 (Hafner 2022). The reward is the reference's: 1 for a step that unlocks an achievement,
and a tenth of each change in health.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from curricle import records
from curricle.errors import UsageError
from curricle.records import Frozen, Skill
from curricle.setting import Setting as AnySetting
from curricle.world import VectorWorld
from curricle.worlds.crafter.env import CrafterVector
from curricle.worlds.crafter.game.rules import ACHIEVEMENTS, ACTIONS, RIPE_AFTER
from curricle.worlds.crafter.setting import CrafterSetting

GUIDE = """
Crafter is a square world seen from above. The player sees 9 x 7 cells around it and acts once a step.

**Landscape.** Grassland carries trees and cows. Mountains carry stone, coal, iron, diamonds, lava, caves and tunnels:
coal, iron and diamonds are found nowhere else. Lakes have sandy shores. `natural` mixes all of it; `grassland` and
`beaches` have no mountains; `mountain` is nearly all rock around a small meadow. Water is always within reach
of the start, except in `natural` where it is left to chance, and where `water` is `none`.

**Staying alive.** Food, drink and energy fall with time; where one is empty, health falls too, and at 0 the episode
ends. Cows and ripe plants are eaten, water is drunk, sleep gives energy. Lava kills.

**Creatures.** Zombies live on grass, more of them in the dark, and hit harder when the player sleeps. Skeletons live in
tunnels and shoot arrows. Cows wander.

**Crafting.** A table costs 2 wood. Beside a table: wood pickaxe and sword (1 wood each), stone ones (1 wood, 1 stone).
A furnace costs 4 stone; beside table and furnace: iron pickaxe and sword (1 wood, 1 coal, 1 iron each). Stone and coal
need a wood pickaxe, iron a stone pickaxe, diamonds an iron pickaxe. A stone can be placed on water and lava as well.

**Growing.** Hitting grass gives a sapling one time in ten. Planted on grass it ripens in 300 steps, if no creature
comes beside it; only then it is food.

**Waking up** is credited when sleep ends because energy is full again; an attack ends sleep without credit.

**Near the start.** A table, a furnace, a plant, water and blocks of ore can stand so many steps from the start, in any
biome: `iron_distance` = 0 is beside the player, 8 a short walk, 9 leaves iron to the landscape. Together with what is
in the inventory this makes every link of a chain easy or hard: first everything in hand, then ore beside the table,
then farther away, then a table of the player's own. A plant of an age between 0 and 301 ripens while the player waits.

Each skill counts once an episode. What is handed out at the start, in the inventory or on the map, earns no skill by
itself: a pickaxe in the inventory opens the way to stone, but `make_wood_pickaxe` still has to be made.
`already_done` takes early skills out of the count: they earn nothing, so that practice goes to those that come next.
""".strip()


def _skill(name: str, *needs: str, **eased_by: str | int) -> Skill:
    return Skill(name=name, needs=needs, eased_by=Frozen(eased_by))


_TREE = {
    "collect_coal": _skill(
        "collect_coal", "make_wood_pickaxe", biome="mountain", coal="very common", start_wood_pickaxe=1
    ),
    "collect_diamond": _skill(
        *("collect_diamond", "make_iron_pickaxe"),
        biome="mountain",
        diamond="very common",
        start_iron_pickaxe=1,
        diamond_distance=2,
        ore_count=3,
    ),
    "collect_drink": _skill("collect_drink", biome="beaches", water="plenty", drink=5),
    "collect_iron": _skill(
        *("collect_iron", "make_stone_pickaxe"),
        biome="mountain",
        iron="very common",
        start_stone_pickaxe=1,
        iron_distance=2,
        ore_count=3,
    ),
    "collect_sapling": _skill("collect_sapling", biome="grassland", tree="rare", peaceful=True),
    "collect_stone": _skill("collect_stone", "make_wood_pickaxe", biome="mountain", start_wood_pickaxe=1),
    "collect_wood": _skill("collect_wood", biome="grassland", tree="very common"),
    "defeat_skeleton": _skill("defeat_skeleton", biome="mountain", skeleton="many", start_iron_sword=1),
    "defeat_zombie": _skill("defeat_zombie", biome="grassland", zombie="many", start_iron_sword=1),
    "eat_cow": _skill("eat_cow", biome="grassland", cow="many", food=5),
    "eat_plant": _skill(
        *("eat_plant", "place_plant"),
        plant_distance=1,
        plant_age=RIPE_AFTER + 1,
        plant_safe=True,
        peaceful=True,
        cow="none",
        start_sapling=2,
    ),
    "make_iron_pickaxe": _skill(
        *("make_iron_pickaxe", "place_table", "place_furnace", "collect_coal", "collect_iron"),
        start_wood=9,
        start_stone=9,
        start_coal=9,
        start_iron=9,
        table_distance=2,
        furnace_distance=2,
    ),
    "make_iron_sword": _skill(
        *("make_iron_sword", "place_table", "place_furnace", "collect_coal", "collect_iron"),
        start_wood=9,
        start_stone=9,
        start_coal=9,
        start_iron=9,
        table_distance=2,
        furnace_distance=2,
    ),
    "make_stone_pickaxe": _skill(
        *("make_stone_pickaxe", "place_table", "collect_stone"),
        start_wood=3,
        start_stone=3,
        table_distance=2,
    ),
    "make_stone_sword": _skill(
        *("make_stone_sword", "place_table", "collect_stone"),
        start_wood=3,
        start_stone=3,
        table_distance=2,
    ),
    "make_wood_pickaxe": _skill("make_wood_pickaxe", "place_table", start_wood=3, table_distance=2),
    "make_wood_sword": _skill("make_wood_sword", "place_table", start_wood=3, table_distance=2),
    "place_furnace": _skill("place_furnace", "collect_stone", start_stone=9),
    "place_plant": _skill("place_plant", "collect_sapling", biome="grassland", start_sapling=5),
    "place_stone": _skill("place_stone", "collect_stone", start_stone=5),
    "place_table": _skill("place_table", "collect_wood", start_wood=5),
    "wake_up": _skill("wake_up", peaceful=True, energy=3),
}


_KEYS = {
    "w": "move_up",
    "a": "move_left",
    "s": "move_down",
    "d": "move_right",
    " ": "do",
    "z": "sleep",
    ".": "noop",
    "r": "place_stone",
    "t": "place_table",
    "f": "place_furnace",
    "p": "place_plant",
    "1": "make_wood_pickaxe",
    "2": "make_stone_pickaxe",
    "3": "make_iron_pickaxe",
    "4": "make_wood_sword",
    "5": "make_stone_sword",
    "6": "make_iron_sword",
}


class CrafterOptions(records.Options):
    """How Crafter is run; none of it changes the rules."""

    observation: Literal["symbols", "pixels", "text"] = Field("symbols", description="What the agent sees.")
    exact: bool = Field(True, description="Follow the reference's random stream; off, play faster by the same rules.")
    size: int = Field(64, ge=18, le=1024, description="Side of a frame in pixels.")
    threads: int = Field(1, ge=1, le=256, description="Threads over sub-environments, no more than there are cores.")


class Crafter(VectorWorld):
    """Crafter, bit-exact and configurable."""

    id = "crafter-v1"
    Options = CrafterOptions
    options: CrafterOptions
    Setting = CrafterSetting
    skills = tuple(_TREE[name] for name in ACHIEVEMENTS)
    guide = GUIDE
    suggests: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agent": {"id": "ppo", "environments": 64, "steps": 64, "epochs": 2, "learning_rate": 1e-3},
        "schedule": {"test_episodes": 4},
    }
    keys: ClassVar[Mapping[str, tuple[int, str]]] = {key: (ACTIONS.index(name), name) for key, name in _KEYS.items()}

    @classmethod
    def suggested(cls, options: records.Options) -> Mapping[str, Mapping[str, Any]]:
        """From symbols fewer passes at a higher rate; from pixels the agent's defaults, which are the papers'."""
        if isinstance(options, CrafterOptions) and options.observation == "pixels":
            return {**cls.suggests, "agent": {"id": "ppo", "environments": 64, "steps": 64}}
        return cls.suggests

    def vector(self, settings: Sequence[AnySetting]) -> CrafterVector:
        """One sub-environment a setting."""
        return self.vectors([settings])[0]

    def vectors(self, groups: Sequence[Sequence[AnySetting]]) -> list[CrafterVector]:
        """A vector for each group of settings; all of them share their threads."""
        fitting = [[setting for setting in group if isinstance(setting, CrafterSetting)] for group in groups]
        if [len(group) for group in fitting] != [len(group) for group in groups]:
            raise UsageError(f"crafter-v1 needs settings of its own, CrafterSetting, not {groups!r}")
        o = self.options
        threads = min(o.threads, _cores())
        return CrafterVector.several(fitting, o.observation, exact=o.exact, size=o.size, threads=threads)

    def headline(self, rates: Mapping[str, float]) -> float:
        """Crafter's score, in percent."""
        logs = [math.log1p(100 * rates.get(skill.name, 0.0)) for skill in self.skills]
        return math.expm1(sum(logs) / len(logs))


def _cores() -> int:
    """Cores that this process may use; more threads than that would only wait for each other."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
