"""Procgen's Heist, bit-exact with Procgen 0.10.7, compiled by numba, and configurable.

`Heist` is the world, `HeistSetting` its knobs, `HeistVector` its environments; Gymnasium knows the single one as
`curricle/Heist-v1`. `trace_player` plays Procgen's levels with their whole state in plain data. Read `game/step.py`
first: a step and a reset call everything else.
"""

from curricle.worlds.heist.env import HeistEnv, HeistVector
from curricle.worlds.heist.setting import HeistSetting
from curricle.worlds.heist.trace import trace_player
from curricle.worlds.heist.world import Heist

__all__ = ["Heist", "HeistEnv", "HeistSetting", "HeistVector", "trace_player"]
