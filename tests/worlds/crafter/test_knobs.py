"""Every knob does what it says: counted over the worlds it makes."""

from typing import Any

import numpy as np
import pytest

from curricle.errors import ValueRefused
from curricle.records import Design, Frozen, Value
from curricle.worlds.crafter import Crafter
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
    assert not (k["pond"] or k["plant_age"] or k["plant_safe"] or k["done"].any())
    assert (k["distances"] == r.OFF).all() and k["ore_count"] == 1


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
    near = {f"{thing}_distance": 2 for thing in r.NEARBY}
    states = worlds(2, start_wood=9, start_iron_pickaxe=1, ore_count=3, plant_age=301, **near)
    assert not states["unlocked"].any() and not states["achievements"].any()


def distances(s: Any) -> np.ndarray:
    """Steps from the start until the player stands beside each cell, 99 where it cannot; written anew for the test."""
    steps = np.full((66, 66), 99)
    ground = np.zeros((66, 66), bool)
    ground[1 : s["area"] + 1, 1 : s["area"] + 1] = r.WALKABLE[s["material"][: s["area"], : s["area"]]]
    steps[s["x"][0] + 1, s["y"][0] + 1] = 0

    def beside() -> np.ndarray:
        return np.min([np.roll(steps, way, axis) for axis in (0, 1) for way in (1, -1)], axis=0)

    for _ in range(30):
        steps = np.where(ground, np.minimum(steps, beside() + 1), steps)
    return beside()[1:-1, 1:-1]


def stands(s: Any, thing: str) -> np.ndarray:
    """Which cells hold a thing."""
    if thing == "plant":
        cells = np.zeros(s["material"].shape, bool)
        here = s["kind"] == r.PLANT
        cells[s["x"][here], s["y"][here]] = True
        return cells
    return np.asarray(s["material"] == r.MATERIALS.index(thing))


@pytest.mark.parametrize("distance", range(9))
@pytest.mark.parametrize("biome", ["grassland", "natural"])
def test_things_stand_at_their_distance(distance: int, biome: str) -> None:
    for thing in r.NEARBY:
        states = worlds(biome=biome, **{f"{thing}_distance": distance})
        right = [(distances(s)[stands(s, thing)] == distance).any() for s in states]
        assert np.mean(right) >= 0.9 and (distance > 3 or all(right)), thing  # lakes and rocks leave no room to some


def test_distances_are_exact_where_there_is_room() -> None:
    values = {f"{thing}_distance": i + 1 for i, thing in enumerate(r.NEARBY)}
    for s in worlds(biome="grassland", tree="rare", ore_count=2, **values):
        steps = distances(s)
        for i, thing in enumerate(r.NEARBY):
            assert thing == "water" or stands(s, thing).sum() == (2 if i >= 4 else 1)
        assert all(i + 1 in steps[stands(s, thing)] for i, thing in enumerate(r.NEARBY[:4]))


@pytest.mark.parametrize("biome", ["natural", "grassland", "mountain", "beaches"])
@pytest.mark.parametrize("distance", [0, 3, 8])
def test_all_that_stands_near_can_be_reached(biome: str, distance: int) -> None:
    values = {f"{thing}_distance": distance for thing in r.NEARBY}
    bare = worlds(biome=biome, area=24)
    for s, before in zip(worlds(biome=biome, area=24, ore_count=9, **values), bare, strict=True):
        steps = distances(s)
        x, y = int(s["x"][0]), int(s["y"][0])
        assert s["who"][x, y] == 1 and r.WALKABLE[s["material"][x, y]]
        assert any(r.WALKABLE[s["material"][x + dx, y + dy]] for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0)))
        for thing in r.NEARBY:
            if thing != "plant":
                changed = stands(s, thing) & ~stands(before, thing)
                assert (steps[changed] < 99).all(), thing
        for thing in ("table", "furnace", "plant"):
            assert stands(s, thing).sum() == 1 and steps[stands(s, thing)].item() < 99
        assert (stands(s, "iron") & ~stands(before, "iron")).any()


@pytest.mark.parametrize(("biome", "distance"), [("natural", 0), ("natural", 4), ("mountain", 1), ("mountain", 3)])
def test_table_and_furnace_are_used_together(biome: str, distance: int) -> None:
    for s in worlds(biome=biome, table_distance=distance, furnace_distance=distance):
        table, furnace = (np.argwhere(stands(s, thing))[0] for thing in ("table", "furnace"))
        steps = distances(s)
        both = [
            (x, y)
            for x in range(max(table[0], furnace[0]) - 1, min(table[0], furnace[0]) + 2)
            for y in range(max(table[1], furnace[1]) - 1, min(table[1], furnace[1]) + 2)
            if r.WALKABLE[s["material"][x, y]] and steps[x, y] < 99
        ]
        assert both


def test_ore_count() -> None:
    for count in (1, 4, 9):
        assert cells(r.IRON, biome="grassland", iron_distance=3, ore_count=count) == count
        assert cells(r.DIAMOND, biome="grassland", iron_distance=3, ore_count=count) == 0


@pytest.mark.parametrize(
    "name", ["collect_iron", "collect_diamond", "make_iron_pickaxe", "make_iron_sword", "eat_plant"]
)
def test_what_eases_the_late_skills_is_enough(name: str) -> None:
    """A random player, who spends what it holds on anything, still succeeds in a good share of episodes."""
    skill = next(skill for skill in Crafter.skills if skill.name == name)
    engine = engines([WORLDS], "state", exact=False)[0]
    engine.states["upcoming"] = knobs_of(CrafterSetting.of(skill.eased_by))[0]
    engine.states["seed"] = np.arange(WORLDS)
    engine.reset()
    rng = np.random.default_rng(0)
    won = np.zeros(WORLDS, bool)
    for _ in range(400):
        engine.step(rng.integers(len(r.ACTIONS), size=WORLDS))
        won |= engine.skills[:, r.ACHIEVEMENTS.index(name)]
    assert won.mean() > 0.15


def test_designs_of_old_are_read(caplog: pytest.LogCaptureFixture) -> None:
    setting = Frozen[str, Value]({"start_wood": 3, "plant_nearby": True})
    design = Crafter().updated(Design(setting=setting, aim="eat_plant"))
    assert design.setting == {"start_wood": 3, "plant_distance": 1, "plant_age": 301}
    assert CrafterSetting.of(design.setting).plant_distance == 1
    assert list(CrafterSetting.updated({"plant_nearby": None}, "leave")) == ["plant_distance", "plant_age"]
    assert all(
        "the knob plant_nearby is plant_distance and plant_age now" in record.message for record in caplog.records
    )


def test_settings_of_old_make_the_same_worlds() -> None:
    """Table, furnace and plant stand where they stood, and no random number is drawn for them."""
    old = CrafterSetting.of({"table_nearby": True, "furnace_nearby": True, "plant_nearby": True})
    assert (old.table_distance, old.furnace_distance, old.plant_distance, old.plant_age) == (2, 2, 1, 301)
    assert CrafterSetting.of({"table_nearby": False, "plant_nearby": False}) == CrafterSetting()
    changed = worlds(table_distance=2, furnace_distance=2, plant_distance=1, plant_age=301)
    for name in ("cheap", "mt_at", "inventory"):
        assert np.array_equal(changed[name], worlds()[name])
    for s, stock in zip(changed, worlds(), strict=True):
        material = stock["material"].copy()
        material[34, 31], material[34, 33], material[30, 32] = r.TABLE, r.FURNACE, r.GRASS
        assert np.array_equal(s["material"], material)
        plant = s["who"][30, 32] - 1
        assert s["kind"][plant] == r.PLANT and s["grown"][plant] == r.RIPE_AFTER + 1


def test_nothing_is_drawn_for_what_is_off() -> None:
    some, stock = worlds(plant_safe=True, already_done=3), worlds()
    for name in ("cheap", "mt_at", "material", "who", "grown"):
        assert np.array_equal(some[name], stock[name])


def test_plants() -> None:
    young = worlds(5, plant_distance=0, plant_age=100, peaceful=True, cow="none")
    assert (young["grown"][young["kind"] == r.PLANT] == 105).all()
    eaten, safe = (creatures(r.PLANT, 250, plant_distance=2, zombie="many", plant_safe=yes) for yes in (False, True))
    assert eaten < safe == 1


def test_what_is_already_done_earns_nothing() -> None:
    for done, first, second in ((0, 1.0, 1.0), (1, 1.0, 1.0), (2, 0.0, 1.0), (4, 0.0, 0.0)):
        engine = engines([1], "state", exact=False)[0]
        values = {"start_wood": 9, "start_stone": 9, "table_distance": 0, "peaceful": True, "already_done": done}
        engine.states["upcoming"] = knobs_of(CrafterSetting.of(values))[0]
        engine.reset()
        for name, reward in (("make_wood_pickaxe", first), ("make_stone_sword", second)):
            engine.step(np.array([r.ACTIONS.index(name)]))
            assert engine.rewards[0] == reward
            assert engine.skills[0][r.ACHIEVEMENTS.index(name)] == (reward > 0)
            assert engine.states["inventory"][0, r.ITEMS.index(name.removeprefix("make_"))] == 1
    assert len({name for stage in r.STAGES for name in stage}) == sum(map(len, r.STAGES)) == 18
    assert {name for stage in r.STAGES for name in stage} < set(r.ACHIEVEMENTS)


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
        ({"water": "none", "water_distance": 3}, "water_distance = 3 contradicts water = 'none'"),
        ({"plant_age": 200}, "plant_age = 200 needs a plant near the start, and plant_distance = 9 is none"),
        ({"ore_count": 4, "table_distance": 1}, "ore_count = 4 needs an ore near the start"),
        ({"table_nearby": "yes"}, "table_distance = 'yes' is not allowed: whole number from 0 to 9"),
        (
            {"table_nearby": True, "table_distance": 1},
            "table_nearby is table_distance now, and table_distance is given",
        ),
    ],
)
def test_bad_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueRefused) as caught:
        CrafterSetting.of(values)
    assert message in str(caught.value)
