"""What settings add to a generated world: water within reach, and things that stand near the start.

Stock Crafter has none of it: without such a knob no random number is drawn here. Nothing that is placed here counts as
an achievement. To be credited for a table, the player has to place one.
"""

from typing import Any

import numpy as np

from curricle.worlds.crafter.engine.compile import kernel
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.objects import set_material
from curricle.worlds.crafter.game.rng import below
from curricle.worlds.crafter.game.state import SIDE
from curricle.worlds.crafter.worldgen.nearby import REACH, place, place_nearby, walks

_POND_FROM = 4
_POND_TO = 7
_WATER = r.NEARBY.index("water")


@kernel
def has_water(s: Any) -> bool:
    """Whether the player can walk to water."""
    steps = walks(s, REACH)
    for x in range(s.area):
        for y in range(s.area):
            if steps[x, y] >= 0 and s.material[x, y] == r.WATER:
                return True
    return False


@kernel
def _dig_pond(s: Any, kept: Any) -> None:
    """Turn a spot a few steps from the start into water, 2 x 2 where there is room; what stands near stays."""
    steps = walks(s, REACH)
    spots = 0
    for x in range(s.area):
        for y in range(s.area):
            spots += _POND_FROM <= steps[x, y] <= _POND_TO
    pick = below(s, spots)
    for x in range(s.area):
        for y in range(s.area):
            if not _POND_FROM <= steps[x, y] <= _POND_TO:
                continue
            if pick == 0:
                for i in range(x, min(x + 2, s.area)):
                    for j in range(y, min(y + 2, s.area)):
                        if s.who[i, j] == 0 and steps[i, j] != 0 and not kept[i, j]:
                            set_material(s, i, j, r.WATER)
                if s.material[x, y] == r.WATER:
                    return
                pick = 1  # something stands there: take the next spot
            pick -= 1
    x = int(np.int64(s.x[0]))
    y = int(np.int64(s.y[0]) + 2)
    if kept[x, y]:
        place(s, kept, _WATER, 1, -1, -1)
    else:
        set_material(s, x, y, r.WATER)  # shut in: right beside the start


@kernel
def add_extras(s: Any) -> None:
    """Carry out the knobs that change a finished world; the player stands at the start."""
    kept = np.zeros((SIDE, SIDE), np.bool_)
    place_nearby(s, kept)
    if s.knobs.pond and not has_water(s):
        _dig_pond(s, kept)
