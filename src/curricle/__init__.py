"""Curricle trains an agent in environments that are made for it while it learns: EnvGen and GenEnv as one loop."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curricle.agent import Agent
    from curricle.config import resolve, resume, start
    from curricle.designer import Designer
    from curricle.records import Skill
    from curricle.setting import Setting, knob
    from curricle.views.table import table
    from curricle.world import TaskWorld, VectorWorld
    from curricle.worlds.gym import GymWorld

__version__ = "0.1.0"

_WHERE = {
    "Agent": "agent",
    "Designer": "designer",
    "Setting": "setting",
    "knob": "setting",
    "Skill": "records",
    "TaskWorld": "world",
    "VectorWorld": "world",
    "GymWorld": "worlds.gym",
    "resolve": "config",
    "start": "config",
    "resume": "config",
    "table": "views.table",
}
__all__ = [
    "Agent",
    "Designer",
    "GymWorld",
    "Setting",
    "Skill",
    "TaskWorld",
    "VectorWorld",
    "knob",
    "resolve",
    "resume",
    "start",
    "table",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import curricle` costs nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'curricle' has no attribute {name!r}")
    return getattr(importlib.import_module(f"curricle.{_WHERE[name]}"), name)
