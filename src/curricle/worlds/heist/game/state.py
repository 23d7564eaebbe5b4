"""The whole state of one environment, as one numpy record.

`np.zeros(n, STATE)` is a batch with the environment axis first; kernels take one record, `states[i]`. The bytes of the
record are the whole truth: copying them saves and restores an environment exactly. `knobs` are the numbers of the
setting in force; `upcoming` replaces them at the next reset. A level's own random stream is not kept: all that a step
takes from it is one bit, and those of all steps are drawn with the level (`ties`).
"""

from typing import Final

import numpy as np

from curricle.worlds.heist.game import rules as r

PAD: Final = 5
"""Cells of wall around the map, so that a view of 11 x 11 cells never leaves the array."""
SIDE: Final = r.LARGEST + 2 * PAD

STREAM: Final = np.dtype([("words", "u4", 624), ("at", "i4")], align=True)
"""A Mersenne twister: 624 words, and which is next."""

_EPISODE = [
    ("seed", "i8"),  # of the stream of levels
    ("episode", "i8"),
    ("first_level", "i8"),  # levels are drawn from `level_count` numbers that begin here
    ("level_count", "i8"),
    ("level", "i8"),  # Procgen's level seed
    ("step", "i4"),
    ("world", "i4"),  # cells a side
    ("maze", "i4"),
    ("background", "i4"),  # which picture of a floor
    ("ties", "u1", -(-r.LENGTH // 8)),  # a bit a step: which direction is first where both are as good
]
_PLAYER = [
    ("x", "f4"),
    ("y", "f4"),
    ("vx", "f4"),
    ("vy", "f4"),
    ("facing", "i1"),  # the last action with a direction, or REST before any
    ("keys", "i4"),  # how many keys the level was made for
    ("held", "u1", r.MOST_KEYS),
    ("skills", "u1", len(r.SKILLS)),
]
_ITEMS = [
    ("items", "i4"),  # how many there are, in Procgen's order
    ("kind", "u1", r.MOST_ITEMS),
    ("number", "u1", r.MOST_ITEMS),
    ("gone", "u1", r.MOST_ITEMS),  # a key that was taken, a door that was opened
    ("item_x", "f4", r.MOST_ITEMS),
    ("item_y", "f4", r.MOST_ITEMS),
    ("half_width", "f4", r.MOST_ITEMS),
    ("half_height", "f4", r.MOST_ITEMS),
]
_MAP = [("cells", "u1", (SIDE, SIDE))]  # [y, x], y upwards; walls, free cells and what lies or stands in them
_KNOBS = [
    ("world", "i4"),
    ("maze", "i4"),  # 0: drawn
    ("keys", "i4"),  # or KEYS_BY_MAZE, KEYS_DRAWN
    ("doors_before_gem", "i4"),  # or ALL_DOORS
    ("held", "i4"),
    ("open", "i4"),
    ("key_within", "i4"),  # cells' walk from the start, or ANYWHERE
    ("gem_within", "i4"),
    ("centred", "?"),  # the player sees 8 x 8 cells around it
    ("length", "i4"),
    ("push", "f4"),  # what an action adds to the velocity
]
KEYS_BY_MAZE: Final = -1
KEYS_DRAWN: Final = -2
ALL_DOORS: Final = -1
ANYWHERE: Final = 100

KNOBS: Final = np.dtype(_KNOBS, align=True)
STATE: Final = np.dtype(
    [*_EPISODE, *_PLAYER, *_ITEMS, *_MAP, ("knobs", KNOBS), ("upcoming", KNOBS), ("levels", STREAM)], align=True
)
