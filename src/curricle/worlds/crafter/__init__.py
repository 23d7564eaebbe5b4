"""Crafter, bit-exact with `crafter` 1.8.3, compiled by numba, and configurable.

`Crafter` is the world, `CrafterSetting` its knobs, `CrafterVector` its environments; Gymnasium knows the single one as
`curricle/Crafter-v1`. Read `game/step.py` first: a step and a reset call everything else.
"""

from curricle.worlds.crafter.env import CrafterEnv, CrafterVector
from curricle.worlds.crafter.setting import CrafterSetting
from curricle.worlds.crafter.world import Crafter

__all__ = ["Crafter", "CrafterEnv", "CrafterSetting", "CrafterVector"]
