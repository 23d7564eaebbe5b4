"""The knobs of Crafter: EnvGen's controls and more; the defaults are stock Crafter, bit for bit.

Designers choose a `CrafterSetting`. `knobs_of(setting)` turns it into the numbers that the kernels read
(`state.KNOBS`). Combinations in which a value would have no effect are refused, with a message that names it. The bars
are those of EnvGen's table. The noise masks are stock Crafter's, except for "very common", which widens them.
"""

import functools
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from curricle.records import Frozen
from curricle.setting import Setting, knob
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.state import KNOBS, SIDE

Rarity = Literal["very common", "common", "rare"]
Crowd = Literal["none", "few", "normal", "many"]
_NEVER: Final = 2.0
"""A bar that no draw exceeds."""
_RIPE: Final = r.RIPE_AFTER + 1


def _distance(thing: str) -> Any:
    """The knob that says how far from the start a thing stands."""
    return knob(
        r.OFF,
        f"Steps from the start to {thing}: 0 beside the player, {r.OFF} puts none there.",
        ge=0,
        le=r.OFF,
        harder="up",
    )


class CrafterSetting(Setting):
    """How a world of Crafter is made and what the player starts with."""

    biome: Literal["natural", "grassland", "mountain", "beaches"] = knob(
        "natural", "Landscape: natural mixes all; grassland and beaches have no mountains, mountain is nearly all rock."
    )
    coal: Rarity = knob("common", "How rare coal is in mountains.", harder="up")
    iron: Rarity = knob("common", "How rare iron is in mountains.", harder="up")
    diamond: Rarity = knob("rare", "How rare diamonds are in mountains.", harder="up")
    tree: Rarity = knob("common", "How rare trees are on grassland.", harder="up")
    water: Literal["plenty", "normal", "scarce", "none"] = knob(
        "normal", "How much water there is; none leaves the player to thirst.", harder="up"
    )
    cow: Crowd = knob("normal", "How many cows live on grassland.", harder="down")
    zombie: Crowd = knob("normal", "How many zombies roam, most of them at night.", harder="up")
    skeleton: Crowd = knob("normal", "How many skeletons live in the tunnels of mountains.", harder="up")
    peaceful: bool = knob(False, "No zombies, skeletons or arrows at all.", harder="down")
    area: int = knob(SIDE, "Side of the square world in cells.", ge=24, le=SIDE, harder="up")
    day_length: int = knob(r.DAY, "Steps from one night to the next.", ge=100, le=1000)
    episode_length: int = knob(r.LENGTH, "Steps after which an episode ends.", ge=100, le=r.LENGTH)
    health: int = knob(9, "Health at the start.", ge=1, le=9, harder="down")
    food: int = knob(9, "Food at the start.", ge=1, le=9, harder="down")
    drink: int = knob(9, "Drink at the start.", ge=1, le=9, harder="down")
    energy: int = knob(9, "Energy at the start.", ge=1, le=9, harder="down")
    start_sapling: int = knob(0, "Saplings in the inventory at the start.", ge=0, le=9, harder="down")
    start_wood: int = knob(0, "Wood in the inventory at the start.", ge=0, le=9, harder="down")
    start_stone: int = knob(0, "Stone in the inventory at the start.", ge=0, le=9, harder="down")
    start_coal: int = knob(0, "Coal in the inventory at the start.", ge=0, le=9, harder="down")
    start_iron: int = knob(0, "Iron in the inventory at the start.", ge=0, le=9, harder="down")
    start_diamond: int = knob(0, "Diamonds in the inventory at the start.", ge=0, le=9, harder="down")
    start_wood_pickaxe: int = knob(0, "Wood pickaxe at the start.", ge=0, le=1, harder="down")
    start_stone_pickaxe: int = knob(0, "Stone pickaxe at the start.", ge=0, le=1, harder="down")
    start_iron_pickaxe: int = knob(0, "Iron pickaxe at the start.", ge=0, le=1, harder="down")
    start_wood_sword: int = knob(0, "Wood sword at the start.", ge=0, le=1, harder="down")
    start_stone_sword: int = knob(0, "Stone sword at the start.", ge=0, le=1, harder="down")
    start_iron_sword: int = knob(0, "Iron sword at the start.", ge=0, le=1, harder="down")
    table_distance: int = _distance("a table")
    furnace_distance: int = _distance("a furnace, beside the table if there is one at a like distance")
    plant_distance: int = _distance("a plant")
    water_distance: int = _distance("a pond of one cell")
    coal_distance: int = _distance("coal, in any biome")
    iron_distance: int = _distance("iron, in any biome")
    diamond_distance: int = _distance("a diamond, in any biome")
    ore_count: int = knob(1, "Blocks of each ore that has a distance.", ge=1, le=9, harder="down")
    plant_age: int = knob(
        0, "Age in steps of the plant that has a distance: 0 just planted, 301 ripe.", ge=0, le=_RIPE, harder="down"
    )
    plant_safe: bool = knob(
        False, "No creature harms a plant, neither this one nor one of the player's.", harder="down"
    )
    already_done: int = knob(
        0,
        "Skills that count as done before and earn nothing: 1 gathering and table, 2 also wood tools, 3 also stone and "
        "coal, 4 also stone tools and furnace, 5 also iron, 6 also iron tools.",
        ge=0,
        le=len(r.STAGES),
        harder="up",
    )

    replaced = Frozen(
        {
            "table_nearby": {True: {"table_distance": 2}, False: {"table_distance": r.OFF}},
            "furnace_nearby": {True: {"furnace_distance": 2}, False: {"furnace_distance": r.OFF}},
            "plant_nearby": {
                True: {"plant_distance": 1, "plant_age": _RIPE},
                False: {"plant_distance": r.OFF, "plant_age": 0},
            },
        }
    )

    @model_validator(mode="after")
    def _no_contradictions(self) -> Self:
        """Refuse combinations in which one knob takes away what another asks for."""
        flat = self.biome in ("grassland", "beaches")
        for name, stock in (("coal", "common"), ("iron", "common"), ("diamond", "rare"), ("skeleton", "normal")):
            word = getattr(self, name)
            more = word in ("very common", "many") or (name == "diamond" and word == "common")
            if flat and more:
                raise ValueError(
                    f"{name} = {word!r} needs mountains, and biome = {self.biome!r} has none; "
                    f"use biome = 'natural' or 'mountain', or {name} = {stock!r}"
                )
        for name in ("zombie", "skeleton"):
            if self.peaceful and getattr(self, name) in ("few", "many"):
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} contradicts peaceful = true; use 'none' or 'normal'"
                )
        if self.biome == "beaches" and self.water in ("none", "scarce"):
            raise ValueError(f"biome = 'beaches' is made of water; water = {self.water!r} contradicts it")
        return self

    @model_validator(mode="after")
    def _nothing_for_what_is_off(self) -> Self:
        """Refuse knobs of things near the start where these things are not there."""
        if self.water == "none" and self.water_distance != r.OFF:
            raise ValueError(
                f"water_distance = {self.water_distance} contradicts water = 'none'; "
                f"use water_distance = {r.OFF}, or water = 'scarce'"
            )
        if self.plant_age and self.plant_distance == r.OFF:
            raise ValueError(
                f"plant_age = {self.plant_age} needs a plant near the start, and plant_distance = {r.OFF} is none; "
                f"use a plant_distance from 0 to {r.OFF - 1}, or plant_age = 0"
            )
        if self.ore_count > 1 and self.coal_distance == self.iron_distance == self.diamond_distance == r.OFF:
            raise ValueError(
                f"ore_count = {self.ore_count} needs an ore near the start; "
                f"use a coal_distance, iron_distance or diamond_distance from 0 to {r.OFF - 1}, or ore_count = 1"
            )
        return self


_BARS: Final = {
    # word: (noise mask, bar); diamonds have no mask
    "coal": {"very common": (-0.2, 0.75), "common": (0.0, 0.85), "rare": (0.0, 0.95)},
    "iron": {"very common": (0.1, 0.65), "common": (0.4, 0.75), "rare": (0.4, 0.85)},
    "diamond": {"very common": (0.0, 0.85), "common": (0.0, 0.9), "rare": (0.0, 0.994)},
    "tree": {"very common": (-0.2, 0.7), "common": (0.0, 0.8), "rare": (0.0, 0.9)},
}
_BIOMES: Final = {
    # biome: mountain gain and lift, water gain and lift
    "natural": (1.0, 0.0, 1.0, 0.0),
    "grassland": (0.0, -9.0, 1.0, 0.0),
    "mountain": (1.0, 0.4, 1.0, 0.0),
    "beaches": (0.0, -9.0, 0.3, 0.18),
}
_WATER: Final = {"plenty": 0.15, "normal": 0.0, "scarce": -0.25, "none": -9.0}
_BIRTHS: Final = {"cow": 0.985, "zombie": 0.993, "skeleton": 0.95}
_CROWDS: Final = {"none": 0.0, "few": 0.4, "normal": 1.0, "many": 2.5}


@functools.lru_cache(64)
def knobs_of(setting: CrafterSetting) -> NDArray[np.void]:
    """The numbers of a setting: an array of one KNOBS record, read-only because it is cached."""
    numbers = np.zeros(1, KNOBS)
    k = numbers[0]
    k["area"] = setting.area
    k["length"] = setting.episode_length
    k["day"] = setting.day_length
    k["mountain_gain"], k["mountain_lift"], k["water_gain"], k["water_lift"] = _BIOMES[setting.biome]
    k["water_lift"] += _WATER[setting.water]
    for name in ("coal", "iron", "diamond", "tree"):
        mask, bar = _BARS[name][getattr(setting, name)]
        k[f"{name}_bar"] = bar
        if name != "diamond":
            k[f"{name}_mask"] = mask
    for name, bar in _BIRTHS.items():
        banned = setting.peaceful and name != "cow"
        rate = 0.0 if banned else _CROWDS[getattr(setting, name)]
        k[f"{name}_rate"] = rate
        k[f"{name}_bar"] = _scaled_bar(bar, rate)
    k["pond"] = setting.water != "none" and (setting.biome != "natural" or setting.water != "normal")
    k["distances"] = [getattr(setting, f"{thing}_distance") for thing in r.NEARBY]
    k["ore_count"] = setting.ore_count
    k["plant_age"] = setting.plant_age
    k["plant_safe"] = setting.plant_safe
    for stage in r.STAGES[: setting.already_done]:
        for name in stage:
            k["done"][r.ACHIEVEMENTS.index(name)] = True
    for index, item in enumerate(r.ITEMS):
        k["start_items"][index] = getattr(setting, item if index <= r.ENERGY else f"start_{item}")
    numbers.flags.writeable = False
    return numbers


def _scaled_bar(bar: float, rate: float) -> float:
    """The bar that so many times as many draws exceed; a rate of 1 leaves it untouched to the last bit."""
    if rate == 0.0:
        return _NEVER
    if rate == 1.0:
        return bar
    return 1 - (1 - bar) * rate
