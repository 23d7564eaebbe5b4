"""The rules of Crafter as data: names, numbers, recipes.

Everything here is a constant, so that kernels compile it in. The order matters: the state and the observations hold
indices into `MATERIALS`, `ITEMS`, `ACTIONS` and `ACHIEVEMENTS`. The tests compare each value
with the `data.yaml` of the installed `crafter` package.
"""

from typing import Final

import numpy as np

MATERIALS: Final = (
    *("none", "water", "grass", "stone", "path", "sand", "tree", "lava", "coal", "iron", "diamond", "table", "furnace"),
)
(NONE, WATER, GRASS, STONE, PATH, SAND, TREE, LAVA, COAL, IRON, DIAMOND, TABLE, FURNACE) = range(13)

KINDS: Final = ("nothing", "player", "cow", "zombie", "skeleton", "arrow", "plant")
(NOTHING, PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT) = range(7)

ITEMS: Final = (
    *("health", "food", "drink", "energy", "sapling", "wood", "stone", "coal", "iron", "diamond"),
    *("wood_pickaxe", "stone_pickaxe", "iron_pickaxe", "wood_sword", "stone_sword", "iron_sword"),
)
(HEALTH, FOOD, DRINK, ENERGY, SAPLING, WOOD, ROCK, COALS, IRONS, GEM) = range(10)
(WOOD_PICKAXE, STONE_PICKAXE, IRON_PICKAXE, WOOD_SWORD, STONE_SWORD, IRON_SWORD) = range(10, 16)
MOST: Final = 9
"""The most a player can hold of anything."""

ACTIONS: Final = (
    *("noop", "move_left", "move_right", "move_up", "move_down", "do", "sleep"),
    *("place_stone", "place_table", "place_furnace", "place_plant"),
    *("make_wood_pickaxe", "make_stone_pickaxe", "make_iron_pickaxe"),
    *("make_wood_sword", "make_stone_sword", "make_iron_sword"),
)
(NOOP, LEFT, RIGHT, UP, DOWN, DO, SLEEP, PLACE_STONE, PLACE_TABLE, PLACE_FURNACE, PLACE_PLANT, MAKE_FIRST) = range(12)

ACHIEVEMENTS: Final = (
    *("collect_coal", "collect_diamond", "collect_drink", "collect_iron", "collect_sapling", "collect_stone"),
    *("collect_wood", "defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant", "make_iron_pickaxe"),
    *("make_iron_sword", "make_stone_pickaxe", "make_stone_sword", "make_wood_pickaxe", "make_wood_sword"),
    *("place_furnace", "place_plant", "place_stone", "place_table", "wake_up"),
)
DEFEAT_SKELETON, DEFEAT_ZOMBIE, EAT_COW, EAT_PLANT = (
    ACHIEVEMENTS.index(name) for name in ("defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant")
)
WAKE_UP: Final = ACHIEVEMENTS.index("wake_up")

DX: Final = np.array([-1, 1, 0, 0], np.int64)
DY: Final = np.array([0, 0, -1, 1], np.int64)
"""The four directions: left, right, up, down."""

_COLLECT = {
    # material: (tool it needs or None, item it gives, what it leaves behind, chance of success)
    "tree": (None, "wood", "grass", 1.0),
    "stone": ("wood_pickaxe", "stone", "path", 1.0),
    "coal": ("wood_pickaxe", "coal", "path", 1.0),
    "iron": ("stone_pickaxe", "iron", "path", 1.0),
    "diamond": ("iron_pickaxe", "diamond", "path", 1.0),
    "water": (None, "drink", "water", 1.0),
    "grass": (None, "sapling", "grass", 0.1),
}


def _collect_table() -> tuple[np.ndarray, np.ndarray]:
    """Rows by material: tool (-1 none), item (-1 cannot be collected), what is left, achievement; and the chances."""
    table = np.full((len(MATERIALS), 4), -1, np.int64)
    chance = np.zeros(len(MATERIALS))
    for name, (tool, item, leaves, probability) in _COLLECT.items():
        row = MATERIALS.index(name)
        table[row] = (
            ITEMS.index(tool) if tool else -1,
            ITEMS.index(item),
            MATERIALS.index(leaves),
            ACHIEVEMENTS.index(f"collect_{item}"),
        )
        chance[row] = probability
    return table, chance


COLLECT, COLLECT_CHANCE = _collect_table()

_PLACE = {
    # thing: (item it uses, how many, where it can stand)
    "stone": ("stone", 1, ("grass", "sand", "path", "water", "lava")),
    "table": ("wood", 2, ("grass", "sand", "path")),
    "furnace": ("stone", 4, ("grass", "sand", "path")),
    "plant": ("sapling", 1, ("grass",)),
}
PLACE: Final = np.array(
    [[ITEMS.index(item), count, ACHIEVEMENTS.index(f"place_{name}")] for name, (item, count, _) in _PLACE.items()]
)
"""Rows by placing action: item, how many, achievement."""
PLACE_WHERE: Final = np.array([[material in where for material in MATERIALS] for _, _, where in _PLACE.values()])

_MAKE = {
    # thing: (wood, stone, coal, iron, needs a furnace beside the table)
    "wood_pickaxe": (1, 0, 0, 0, False),
    "stone_pickaxe": (1, 1, 0, 0, False),
    "iron_pickaxe": (1, 0, 1, 1, True),
    "wood_sword": (1, 0, 0, 0, False),
    "stone_sword": (1, 1, 0, 0, False),
    "iron_sword": (1, 0, 1, 1, True),
}
MAKE: Final = np.array(
    [
        [*needs[:4], int(needs[4]), ITEMS.index(name), ACHIEVEMENTS.index(f"make_{name}")]
        for name, needs in _MAKE.items()
    ]
)
"""Rows by making action: wood, stone, coal, iron, furnace, item it gives, achievement."""

WALKABLE: Final = np.array([m in ("grass", "path", "sand") for m in MATERIALS])
PLAYER_WALKABLE: Final = np.array([m in ("grass", "path", "sand", "lava") for m in MATERIALS])
ARROW_WALKABLE: Final = np.array([m in ("grass", "path", "sand", "water", "lava") for m in MATERIALS])

NEARBY: Final = ("table", "furnace", "plant", "water", "coal", "iron", "diamond")
"""What a setting can put near the start, in the order in which it is put there."""
OFF: Final = 9
"""The distance that stands for not at all."""
STAGES: Final = (
    ("collect_wood", "collect_sapling", "collect_drink", "eat_cow", "place_plant", "place_table", "wake_up"),
    ("make_wood_pickaxe", "make_wood_sword"),
    ("collect_stone", "collect_coal", "place_stone"),
    ("make_stone_pickaxe", "make_stone_sword", "place_furnace"),
    ("collect_iron",),
    ("make_iron_pickaxe", "make_iron_sword"),
)
"""The way along the skill tree to the diamond: what a setting can count as done, stage by stage."""

VIEW_X: Final = 9
VIEW_Y: Final = 7
"""The part of the map an agent sees, in cells; two more rows below it show the inventory."""
NEAR: Final = 2 * 9
"""Objects closer to the player than this move."""
RIPE_AFTER: Final = 300
"""A plant older than this can be eaten."""
CHUNK: Final = 12
BALANCE_EVERY: Final = 10
DAY: Final = 300
LENGTH: Final = 10000
