"""The arms of the study: what each changes in `configs/genenv-chains.toml`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curricle import config

BASE = Path(__file__).parents[2] / "configs" / "genenv-chains.toml"
BEFORE = "before"
"""Imitation and nothing more: all other arms of a seed begin with its agent."""
ARMS = {
    "agent_only": "no designs: all practice is at the target",
    "random": "levels drawn uniformly",
    "static": "the environment policy as it is after imitating seed tasks, frozen",
    "easy_to_hard": "levels from easy to hard in about equal slices, ranked before practice",
    "offline": "tasks that the frozen policy wrote before practice, 3.3 for each seed task, used in turn",
    "genenv": "the environment policy learns",
    "policy": "numbers in the designer's seat: a distribution over levels that learns by the same reward",
}
VARIANTS = ("alpha=X", "kl=X", "rate=X", "share=X", "paper", "genenv=soft", "agent_only=soft", "random-entropy=X")
"""Other settings of the environment policy, rewards for some right results, and `random` with another bonus."""
LEVEL_DESIGNS = 16
"""Designs a cycle where a design is a level."""
SCARCE = {"base": 20, "examples": 4}
"""Tasks of the original, and seed tasks of each level, in the part with few tasks."""
SCARCE_DESIGNS = 128
"""Half of the practice is in the original there, and each design still needs two groups of attempts."""

PAPER = {"band": "strict", "strength": 1.0, "initial_share": 0.0}
"""The filter and the weights of GenEnv's paper, and no exploration but its own."""


def make_scarce(plain: dict[str, Any]) -> None:
    """Leave few tasks of the original, which half of the practice is in."""
    plain["world"].update(SCARCE)
    plain["schedule"]["ratio"] = "1:1"
    plain["schedule"]["designs"] = SCARCE_DESIGNS


def make_config(arm: str, seed: int, cycles: int, scarce: bool, changes: Sequence[str]) -> dict[str, Any]:
    """The config of one arm."""
    plain = config.override(config.load(str(BASE)), changes)
    plain["seed"] = seed
    if cycles:
        plain["schedule"]["cycles"] = cycles
    if scarce:
        make_scarce(plain)
    language = {key: value for key, value in plain["designer"].items() if key != "id"}
    match arm.split("="):
        case ["agent_only", "soft"]:
            plain["designer"] = {"id": "none"}
            plain["world"]["partial"] = 0.5
        case ["before"]:
            plain["designer"] = {"id": "none"}
            plain["schedule"].update(cycles=0, final=0)
        case ["agent_only"]:
            plain["designer"] = {"id": "none"}
        case ["random"]:
            plain["designer"] = {"id": "random"}
            plain["schedule"]["designs"] = LEVEL_DESIGNS
        case ["random-entropy", value]:
            plain["designer"] = {"id": "random"}
            plain["schedule"]["designs"] = LEVEL_DESIGNS
            plain["agent"]["entropy_coef"] = float(value)
        case ["policy"]:
            plain["designer"] = {"id": "policy"}
            plain["schedule"]["designs"] = LEVEL_DESIGNS
            plain["world"]["tested"] = "original"  # it learns from tests, and may not see how other levels go
            plain["schedule"]["test_episodes"] = 50
        case ["static"]:
            plain["designer"]["learn"] = False
        case ["easy_to_hard"]:
            ranked = LEVEL_DESIGNS * plain["schedule"]["cycles"]
            plain["designer"] = {"id": arm, "of": "random", "candidates": ranked, "validation_practice": 0}
            plain["schedule"]["designs"] = LEVEL_DESIGNS
        case ["offline"]:
            frozen = language | {"learn": False}
            plain["designer"] = {"id": "fixed", "of": "language", "of_options": frozen, "variations": 3.3}
        case ["genenv"]:
            pass
        case ["alpha", value]:
            plain["designer"]["alpha"] = float(value)
        case ["kl", value]:
            plain["designer"]["kl_coef"] = float(value)
        case ["share", value]:
            plain["designer"]["initial_share"] = float(value)
        case ["rate", value]:
            plain["designer"]["learning_rate"] = float(value)
        case ["paper"]:
            plain["designer"].update(PAPER)
        case ["genenv", "soft"]:
            plain["world"]["partial"] = 0.5
        case _:
            names = ", ".join(
                [*ARMS, "alpha=X", "kl=X", "rate=X", "share=X", "paper", "genenv=soft", "agent_only=soft"]
            )
            sys.exit(f"there is no arm {arm!r}; there are: {names}")
    return plain
