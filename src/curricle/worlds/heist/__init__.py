"""Procgen's Heist, bit-exact with Procgen 0.10.7, compiled by numba, and configurable.

Read `game/step.py` first: a step and a reset call everything else.
"""
