"""Worlds: implementations of `curricle.world`, one file or folder each.

Importing this package registers its environments with Gymnasium:
`gymnasium.make("curricle.worlds:curricle/Crafter-v1")`.
"""

import gymnasium

if "curricle/Crafter-v1" not in gymnasium.registry:
    gymnasium.register("curricle/Crafter-v1", entry_point="curricle.worlds.crafter.env:CrafterEnv")
if "curricle/Heist-v1" not in gymnasium.registry:
    gymnasium.register("curricle/Heist-v1", entry_point="curricle.worlds.heist.env:HeistEnv")
