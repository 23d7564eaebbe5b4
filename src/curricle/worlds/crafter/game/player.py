"""The player's step: move, use what is ahead, place, make, sleep; then hunger, thirst, fatigue and health.

In: a record and an action. Amounts are clamped to 0..9 last, so a meal can lift food above the limit in between.
"""

from typing import Any

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.creatures import hurt
from curricle.worlds.crafter.game.objects import add, inside, move, set_material
from curricle.worlds.crafter.game.rng import uniform


@kernel
def update_player(s: Any, action: int) -> None:
    """Carry out an action, then update needs and health."""
    if s.sleeping:
        if s.inventory[r.ENERGY] < r.MOST:
            action = r.SLEEP
        else:
            s.sleeping = False
            s.achievements[r.WAKE_UP] += 1
    if r.LEFT <= action <= r.DOWN:
        _walk(s, action - r.LEFT)
    elif action == r.DO:
        _interact(s)
    elif action == r.SLEEP:
        if s.inventory[r.ENERGY] < r.MOST:
            s.sleeping = True
    elif r.PLACE_STONE <= action <= r.PLACE_PLANT:
        _place(s, action)
    elif action >= r.MAKE_FIRST:
        _make(s, action - r.MAKE_FIRST)
    _update_needs(s)
    _update_health(s)
    for item in range(len(r.ITEMS)):
        s.inventory[item] = max(0, min(s.inventory[item], r.MOST))
    if s.inventory[r.HEALTH] < s.hurt_from:
        s.sleeping = False
    s.hurt_from = s.inventory[r.HEALTH]


@kernel
def _walk(s: Any, way: int) -> None:
    """Turn, and step if the cell is free; lava is walkable once."""
    s.face_x = r.DX[way]
    s.face_y = r.DY[way]
    move(s, 0, s.face_x, s.face_y, r.PLAYER_WALKABLE)
    if s.material[s.x[0], s.y[0]] == r.LAVA:
        s.inventory[r.HEALTH] = 0


@kernel
def _interact(s: Any) -> None:
    """Use whatever is ahead: hit or eat an object, collect a material."""
    x = s.x[0] + s.face_x
    y = s.y[0] + s.face_y
    if not inside(s, x, y):
        return
    if s.who[x, y]:
        _strike(s, s.who[x, y] - 1)
    else:
        _collect(s, x, y)


@kernel
def _strike(s: Any, slot: int) -> None:
    """Eat a ripe plant, or hit a creature with the best sword."""
    kind = s.kind[slot]
    if kind == r.PLANT:
        if s.grown[slot] > r.RIPE_AFTER:
            s.grown[slot] = 0
            s.inventory[r.FOOD] += 4
            s.achievements[r.EAT_PLANT] += 1
        return
    if kind == r.ARROW:
        return
    damage = 1
    if s.inventory[r.IRON_SWORD]:
        damage = 5
    elif s.inventory[r.STONE_SWORD]:
        damage = 3
    elif s.inventory[r.WOOD_SWORD]:
        damage = 2
    hurt(s, slot, damage)
    if s.health[slot] > 0:
        return
    if kind == r.ZOMBIE:
        s.achievements[r.DEFEAT_ZOMBIE] += 1
    elif kind == r.SKELETON:
        s.achievements[r.DEFEAT_SKELETON] += 1
    elif kind == r.COW:
        s.inventory[r.FOOD] += 6
        s.achievements[r.EAT_COW] += 1
        s.hunger = 0


@kernel
def _collect(s: Any, x: int, y: int) -> None:
    """Take a material if the player has the tool for it; some materials are found only with a probability."""
    material = s.material[x, y]
    if material == r.WATER:
        s.thirst = 0
    tool, item, leaves, achievement = r.COLLECT[material]
    if item < 0 or (tool >= 0 and s.inventory[tool] < 1):
        return
    if leaves != material:
        set_material(s, x, y, leaves)
    if uniform(s) <= r.COLLECT_CHANCE[material]:
        s.inventory[item] += 1
        s.achievements[achievement] += 1


@kernel
def _place(s: Any, action: int) -> None:
    """Put a stone, table, furnace or sapling on the cell ahead."""
    x = s.x[0] + s.face_x
    y = s.y[0] + s.face_y
    row = action - r.PLACE_STONE
    item, count, achievement = r.PLACE[row]
    if not inside(s, x, y) or s.who[x, y] or not r.PLACE_WHERE[row, s.material[x, y]] or s.inventory[item] < count:
        return
    s.inventory[item] -= count
    if action == r.PLACE_PLANT:
        add(s, r.PLANT, x, y)
    elif action == r.PLACE_STONE:
        set_material(s, x, y, r.STONE)
    else:
        set_material(s, x, y, r.TABLE if action == r.PLACE_TABLE else r.FURNACE)
    s.achievements[achievement] += 1


@kernel
def _beside(s: Any, material: int) -> bool:
    """Whether a material is among the nine cells around the player."""
    x = s.x[0]
    y = s.y[0]
    if x == 0 or y == 0:  # the reference's slice starts at -1 there, which makes it empty
        return False
    for i in range(x - 1, min(x + 2, s.area)):
        for j in range(y - 1, min(y + 2, s.area)):
            if s.material[i, j] == material:
                return True
    return False


@kernel
def _make(s: Any, row: int) -> None:
    """Craft a tool beside a table, an iron one beside a furnace too."""
    wood, stone, coal, iron, furnace, item, achievement = r.MAKE[row]
    held = s.inventory
    if held[r.WOOD] < wood or held[r.ROCK] < stone or held[r.COALS] < coal or held[r.IRONS] < iron:
        return
    if not _beside(s, r.TABLE) or (furnace and not _beside(s, r.FURNACE)):
        return
    held[r.WOOD] -= wood
    held[r.ROCK] -= stone
    held[r.COALS] -= coal
    held[r.IRONS] -= iron
    held[item] += 1
    s.achievements[achievement] += 1


@kernel
def _update_needs(s: Any) -> None:
    """Update hunger, thirst and fatigue; a sleeper needs half as much, and its fatigue falls."""
    pace = 0.5 if s.sleeping else 1.0
    s.hunger += pace
    if s.hunger > 25:
        s.hunger = 0
        s.inventory[r.FOOD] -= 1
    s.thirst += pace
    if s.thirst > 20:
        s.thirst = 0
        s.inventory[r.DRINK] -= 1
    s.fatigue = min(s.fatigue - 1, 0) if s.sleeping else s.fatigue + 1
    if s.fatigue < -10:
        s.fatigue = 0
        s.inventory[r.ENERGY] += 1
    if s.fatigue > 30:
        s.fatigue = 0
        s.inventory[r.ENERGY] -= 1


@kernel
def _update_health(s: Any) -> None:
    """Raise health while nothing is lacking, and lower it otherwise."""
    held = s.inventory
    if held[r.FOOD] > 0 and held[r.DRINK] > 0 and (held[r.ENERGY] > 0 or s.sleeping):
        s.recover += 2 if s.sleeping else 1
    else:
        s.recover -= 0.5 if s.sleeping else 1
    if s.recover > 25:
        s.recover = 0
        held[r.HEALTH] = max(0, held[r.HEALTH] + 1)
    if s.recover < -15:
        s.recover = 0
        held[r.HEALTH] = max(0, held[r.HEALTH] - 1)
