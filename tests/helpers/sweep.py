"""Everything that is registered, and the toys and examples, for the contract sweeps."""

from typing import Any

from helpers import paths
from helpers.bench import Bench as Bench
from helpers.tiny_model import tiny
from pydantic import Field, create_model

from curricle.agent import Agent
from curricle.designer import Designer
from curricle.designers.policy.space import Space
from curricle.records import Score, Scores
from curricle.registry import find, installed
from curricle.world import World

WORLDS: list[Any] = [
    *(cls for _, cls in installed(World)),
    find(World, paths.VAULT),
    find(World, paths.LADDER),
]


def small(cls):
    """A player with a language model gets a tiny one, and says little; every other one is left as it is."""
    fields = cls.Options.model_fields
    if "model" not in fields or "lora" not in fields:
        return cls
    words: dict[str, Any] = {name: (int, 6) for name in ("max_tokens", "max_text_tokens") if name in fields}
    words |= (
        {"max_rounds": (int, 1), "oversample": (float, 1.0)}
        if "max_rounds" in fields
        else {"microbatch_size": (int, 64)}
    )
    options = create_model("Options", __base__=cls.Options, model=(str, Field(default_factory=tiny)), **words)
    return type(cls.__name__, (cls,), {"Options": options})


DESIGNERS: list[Any] = [
    *(small(cls) for _, cls in installed(Designer)),
    find(Designer, paths.CHATTY),
]
AGENTS: list[Any] = [*(small(cls) for _, cls in installed(Agent)), find(Agent, paths.STUDENT)]
VAULT: Any = WORLDS[-2]
LADDER: Any = WORLDS[-1]


def quiet(done, metrics):
    """A report that nobody reads."""


def space_of(world):
    """A world's settings as the policy sees them."""
    return Space(world.Setting, world.original.values, world.skills)


def scored(world, trained=None, **rates):
    """Scores in the original by skill; those that are not named are 0."""
    found = {skill.name: Score(mean=rates.get(skill.name, 0.0), std=0.0, n=12) for skill in world.skills}
    return Scores(skills=found, reward=Score(mean=0.0, std=0.0, n=12), trained=trained)


def scores(world, **rates):
    found = {skill.name: Score(mean=rates.get(skill.name, 0.0), std=0.1, n=12) for skill in world.skills}
    return Scores(skills=found, reward=Score(mean=1.0, std=0.0, n=12))
