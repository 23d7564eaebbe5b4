"""The whole state of one environment, as one numpy record.

`np.zeros(n, STATE)` is a batch with the environment axis first; kernels take one record, `states[i]`. Its
bytes are the whole state: copying them saves and restores an environment exactly. `knobs` are the numbers of the
setting in force (written by `setting.py`, read by the kernels); `upcoming` replaces them at the next reset.
"""

from typing import Final

import numpy as np

from curricle.worlds.crafter.game.rules import ACHIEVEMENTS, CHUNK, ITEMS, NEARBY

SIDE: Final = 64
"""Side of the largest world; smaller ones use the corner at the origin."""
CHUNKS_A_SIDE: Final = -(-SIDE // CHUNK)
CHUNKS: Final = CHUNKS_A_SIDE**2
SLOTS: Final = SIDE * SIDE
"""Room for objects: one a cell, so that a list without holes can never overflow (see `objects.add`)."""
OVERFLOW: Final = 1

_RANDOM = [
    ("exact", "?"),  # follow numpy's RandomState, or the cheap generator
    ("mt_at", "i4"),  # next word of the twister
    ("mt", "u4", 624),
    ("cheap", "u8"),
    ("night_words", "i4"),  # words that drawing one night frame takes from the stream
]
_EPISODE = [
    ("seed", "i8"),
    ("episode", "i8"),
    ("step", "i4"),
    ("fault", "i4"),  # 0, or what went wrong (OVERFLOW)
    ("daylight", "f8"),
    ("last_health", "i4"),  # what the reward compares with
    ("area", "i4"),  # side of the map
]
_PLAYER = [
    ("face_x", "i4"),
    ("face_y", "i4"),
    ("inventory", "i4", len(ITEMS)),
    ("achievements", "i4", len(ACHIEVEMENTS)),
    ("unlocked", "u1", len(ACHIEVEMENTS)),
    ("sleeping", "?"),
    ("hurt_from", "i4"),  # health after the player's last update: less than that wakes a sleeper
    ("hunger", "f4"),
    ("thirst", "f4"),
    ("fatigue", "f4"),
    ("recover", "f4"),
]
_CHUNKS = [
    ("touched", "i4"),  # how many chunks have held an object
    ("chunk_order", "u1", CHUNKS),  # those chunks, first touched first
    ("chunk_touched", "u1", CHUNKS),
    ("grass", "i2", CHUNKS),  # cells of grass and path in each chunk
    ("paths", "i2", CHUNKS),
    ("creatures", "i2", (CHUNKS, 7)),  # living objects by kind
]
_OBJECTS = [
    ("count", "i4"),  # slots in use; the player is slot 0
    ("removed", "i4"),  # how many of them are dead and wait to be swept
    ("kind", "u1", SLOTS),
    ("x", "u1", SLOTS),
    ("y", "u1", SLOTS),
    ("health", "i1", SLOTS),
    ("timer", "i1", SLOTS),  # a zombie's rest after a hit, a skeleton's reload, an arrow's direction
    ("grown", "i4", SLOTS),  # age of a plant
]
_MAP = [
    ("material", "u1", (SIDE, SIDE)),
    ("who", "u2", (SIDE, SIDE)),  # slot + 1 of the object there, or 0
]
_KNOBS = [
    ("area", "i4"),
    ("length", "i4"),
    ("day", "i4"),
    ("mountain_gain", "f8"),  # noise times gain plus lift: 1 and 0 leave it untouched to the bit
    ("mountain_lift", "f8"),
    ("water_gain", "f8"),
    ("water_lift", "f8"),
    ("coal_mask", "f8"),  # ore grows where noise is above the mask and a draw above the bar
    ("coal_bar", "f8"),
    ("iron_mask", "f8"),
    ("iron_bar", "f8"),
    ("diamond_bar", "f8"),
    ("tree_mask", "f8"),
    ("tree_bar", "f8"),
    ("cow_bar", "f8"),
    ("zombie_bar", "f8"),
    ("skeleton_bar", "f8"),
    ("cow_rate", "f8"),  # factors on the balance of creatures
    ("zombie_rate", "f8"),
    ("skeleton_rate", "f8"),
    ("pond", "?"),  # dig water near the start where there is none
    ("distances", "i4", len(NEARBY)),  # steps from the start to what stands near, OFF where nothing does
    ("ore_count", "i4"),  # blocks of each ore that stands near
    ("plant_age", "i4"),
    ("plant_safe", "?"),
    ("done", "u1", len(ACHIEVEMENTS)),  # skills that earn nothing, as if unlocked before the start
    ("start_items", "i4", len(ITEMS)),
]

KNOBS: Final = np.dtype(_KNOBS, align=True)
_ALL = _RANDOM + _EPISODE + _PLAYER + _CHUNKS + _OBJECTS + _MAP
STATE: Final = np.dtype([*_ALL, ("knobs", KNOBS), ("upcoming", KNOBS)], align=True)
