"""The rules of Heist as data: names and numbers, as in Procgen 0.10.7.

Everything here is a plain constant, so that kernels compile it in. Numbers that Procgen keeps as C++ floats are
float32 here: a sum with one of them is rounded as it is there. The numbers of the kinds are Procgen's.
"""

from typing import Final

import numpy as np

DOOR, KEY, GEM, RING = 1, 2, 9, 11
"""Kinds of things; a key on the ring is the picture in the corner of a key that is held."""
COLOURS: Final = ("blue", "green", "red")
MOST_KEYS: Final = 3
MOST_ITEMS: Final = 2 * MOST_KEYS + 1

ACTIONS: Final = 15
REST: Final = 4
"""Actions 0 to 8 push by (action // 3 - 1, action % 3 - 1); 4 rests, and so do 9 to 14."""
SKILLS: Final = (
    *("collect_key_1", "collect_key_2", "collect_key_3"),
    *("open_door_1", "open_door_2", "open_door_3"),
    "reach_gem",
)
COLLECT: Final = 0
OPEN: Final = 3
REACH: Final = 6
"""Where the skills of keys, of doors and of the gem begin."""

LARGEST: Final = 23
"""Cells a side of the largest world, Procgen's memory mode."""
SMALLEST_MAZE: Final = 5
LENGTH: Final = 1000
"""Steps after which Procgen ends an episode."""
VIEW: Final = 8
"""Cells a side that a player sees whose view is partial."""
REWARD: Final = 10.0

SPEED: Final = np.float32(0.75)
KEPT: Final = np.float32(0.5)
"""Share of the velocity that stays when a push is added; the push is the other share of the speed."""
DRAG: Final = 0.9
"""A double in Procgen, so the product is rounded once, to float32."""
RADIUS: Final = np.float32(0.375)
CORNER: Final = RADIUS * np.float32(0.98)
"""Where the four corners are that walls stop."""
MARGIN: Final = np.float32(-0.001)
"""A door stops a player that is this much inside of it."""
NEAR: Final = np.float32(3)
"""Cells beyond which no step, not even one of a fast player, meets a door."""
DEEPEST: Final = 5
"""How often in a row doors may push a player."""

DOOR_RADIUS: Final = np.float32(0.5)
KEY_HEIGHT: Final = RADIUS / np.float32(84 / 52)
GEM_HEIGHT: Final = RADIUS / np.float32(70 / 48)
"""Half heights; Procgen derives them from the width and height of its pictures."""
RING_RADIUS: Final = np.float32(0.03)
RING_HEIGHT: Final = RING_RADIUS / np.float32(84 / 52)
RING_X: Final = tuple(np.float32(1 - float(RING_RADIUS) * (2 * key + 1.25)) for key in range(MOST_KEYS))
RING_Y: Final = np.float32(float(RING_RADIUS) * 0.75)
"""Parts of the screen, from the left and from the top."""
BACKGROUNDS: Final = 9
"""Procgen draws one of so many pictures of a floor."""

WALL, FREE, FIRST_DOOR, FIRST_KEY, GEM_CELL = 0, 1, 2, 5, 8
"""What a cell of the map holds; doors and keys stand in the order of their numbers."""
