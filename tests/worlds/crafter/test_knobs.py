"""Every knob does what it says: counted over the worlds it makes."""

from typing import Any

import numpy as np
import pytest

from curricle.errors import ValueRefused
from curricle.worlds.crafter.engine.batch import engines
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.setting import CrafterSetting, knobs_of
from curricle.worlds.crafter.worldgen.extras import has_water

WORLDS = 50


def worlds(steps: int = 0, **values: Any) -> np.ndarray:
    """States of many worlds of one setting, after some steps of doing nothing (the dead begin again)."""
    engine = engines([WORLDS], "state", exact=False)[0]
    engine.states["upcoming"] = knobs_of(CrafterSetting.of(values))[0]
    engine.states["seed"] = np.arange(WORLDS)
    engine.reset()
    for _ in range(steps):
        engine.step(np.zeros(WORLDS, np.int64))
        engine.reset_ended()
    return engine.states


def cells(material: int, **values: Any) -> float:
    states = worlds(**values)
    area = states["area"][0]
    return float((states["material"][:, :area, :area] == material).sum() / WORLDS)


def creatures(kind: int, steps: int = 0, **values: Any) -> float:
    return float(np.mean([(s["kind"][: s["count"]] == kind).sum() for s in worlds(steps, **values)]))


def test_defaults_are_stock() -> None:
    k = knobs_of(CrafterSetting())[0]
    assert (k["mountain_gain"], k["mountain_lift"], k["water_gain"], k["water_lift"]) == (1, 0, 1, 0)
    assert (k["coal_bar"], k["iron_bar"], k["diamond_bar"], k["tree_bar"]) == (0.85, 0.75, 0.994, 0.8)
    assert (k["coal_mask"], k["iron_mask"], k["tree_mask"]) == (0, 0.4, 0)
    assert (k["cow_bar"], k["zombie_bar"], k["skeleton_bar"]) == (0.985, 0.993, 0.95)
    assert k["cow_rate"] == k["zombie_rate"] == k["skeleton_rate"] == 1
    assert not (k["pond"] or k["near_table"] or k["near_furnace"] or k["near_plant"])


@pytest.mark.parametrize(
    ("name", "material"), [("coal", r.COAL), ("iron", r.IRON), ("diamond", r.DIAMOND), ("tree", r.TREE)]
)
def test_rarity(name: str, material: int) -> None:
    rare, common, many = (cells(material, **{name: word}) for word in ("rare", "common", "very common"))
    assert rare < 0.75 * common and 1.4 * common < many


def test_biomes() -> None:
    share = {
        biome: {name: cells(i, biome=biome) / 4096 for i, name in enumerate(r.MATERIALS)}
        for biome in ("natural", "grassland", "mountain", "beaches")
    }
    rock = ("stone", "coal", "iron", "diamond", "lava")
    assert sum(share["grassland"][m] for m in rock) == sum(share["beaches"][m] for m in rock) == 0
    assert share["grassland"]["grass"] > 1.3 * share["natural"]["grass"]
    assert share["mountain"]["stone"] > 2 * share["natural"]["stone"]
    assert share["beaches"]["sand"] > 3 * share["natural"]["sand"]


@pytest.mark.parametrize("biome", ["grassland", "mountain", "beaches"])
@pytest.mark.parametrize("water", ["plenty", "normal", "scarce"])
def test_every_biome_has_water_within_reach(biome: str, water: str) -> None:
    if (biome, water) != ("beaches", "scarce"):
        for area in (24, 64):
            assert all(has_water(s) for s in worlds(biome=biome, water=water, area=area))


def test_water() -> None:
    plenty, normal, scarce, none = (cells(r.WATER, water=word) for word in ("plenty", "normal", "scarce", "none"))
    assert plenty > 1.3 * normal > 2 * scarce > 0 == none


@pytest.mark.parametrize(("name", "kind"), [("cow", r.COW), ("zombie", r.ZOMBIE), ("skeleton", r.SKELETON)])
@pytest.mark.parametrize("steps", [0, 120])
def test_crowds(name: str, kind: int, steps: int) -> None:
    none, few, normal, many = (creatures(kind, steps, **{name: word}) for word in ("none", "few", "normal", "many"))
    assert none == 0 < few < 0.8 * normal < 0.7 * many


def test_peaceful() -> None:
    for kind in (r.ZOMBIE, r.SKELETON, r.ARROW):
        assert creatures(kind, 250, peaceful=True) == 0
    assert creatures(r.COW, 0, peaceful=True) > 10


def test_area_length_and_day() -> None:
    states = worlds(area=30)
    assert (
        (states["x"][:, 0] == 15).all()
        and not states["material"][:, 30:].any()
        and not states["material"][:, :, 30:].any()
    )
    assert (worlds(101, episode_length=100, peaceful=True)["step"] == 1).all()
    short, long = worlds(50, day_length=100), worlds(50, day_length=1000)
    assert short["daylight"][0] != long["daylight"][0] == pytest.approx(1 - abs(np.cos(np.pi * 0.35)) ** 3)


def test_start() -> None:
    values = {f"start_{item}": i % 2 + 1 if i < r.WOOD_PICKAXE else 1 for i, item in enumerate(r.ITEMS) if i > r.ENERGY}
    states = worlds(health=5, food=4, drink=3, energy=2, **values)
    assert (states["inventory"] == [5, 4, 3, 2, *values.values()]).all()
    states = worlds(2, start_wood=9, start_iron_pickaxe=1, table_nearby=True, furnace_nearby=True, plant_nearby=True)
    assert not states["unlocked"].any() and not states["achievements"].any()
    for material in (r.TABLE, r.FURNACE):
        assert cells(material, table_nearby=True, furnace_nearby=True) == 1
    assert all((s["grown"][s["kind"] == r.PLANT] > r.RIPE_AFTER).all() for s in worlds(plant_nearby=True))
    assert creatures(r.PLANT, plant_nearby=True) == 1


def test_a_setting_holds_from_the_next_reset_on() -> None:
    engine = engines([2], "state")[0]
    engine.states["upcoming"] = knobs_of(CrafterSetting())[0]
    engine.reset()
    engine.states["upcoming"][1] = knobs_of(CrafterSetting(area=32, start_wood=7))[0]
    engine.step(np.zeros(2, np.int64))
    assert engine.states["area"].tolist() == [64, 64]
    engine.reset()
    assert engine.states["area"].tolist() == [64, 32]
    assert engine.states["inventory"][:, r.WOOD].tolist() == [0, 7]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"coal": "very_common"}, "coal = 'very_common' is not allowed: very common | common | rare"),
        ({"start_wood": 10}, "start_wood = 10 is not allowed: whole number from 0 to 9"),
        ({"start_furnace": 1}, "unknown knob 'start_furnace'"),
        ({"area": "large"}, "area = 'large' is not allowed"),
        ({"biome": "grassland", "iron": "very common"}, "iron = 'very common' needs mountains"),
        ({"biome": "beaches", "water": "none"}, "biome = 'beaches' is made of water"),
        ({"peaceful": True, "zombie": "many"}, "zombie = 'many' contradicts peaceful"),
    ],
)
def test_bad_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueRefused) as caught:
        CrafterSetting.of(values)
    assert message in str(caught.value)
