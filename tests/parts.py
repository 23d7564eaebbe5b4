"""Everything that is registered, and the toys and examples, for the contract sweeps."""

import zlib
from pathlib import Path

from curricle.agent import Agent
from curricle.designer import Designer
from curricle.records import Exchange, Outcome
from curricle.registry import find, installed
from curricle.world import World

ROOT = Path(__file__).parent.parent
WORLDS = [
    *(cls for _, cls in installed(World)),
    find(World, f"{ROOT}/examples/vault.py:Vault"),
    find(World, f"{ROOT}/tests/toys.py:Ladder"),
]
NEED_WEIGHTS = ("local-v1",)
"""Designers that cannot be made without a file: swept by tests of their own."""
DESIGNERS = [
    *(cls for id, cls in installed(Designer) if id not in NEED_WEIGHTS),
    find(Designer, f"{ROOT}/tests/toys.py:Chatty"),
]
AGENTS = [*(cls for _, cls in installed(Agent)), find(Agent, f"{ROOT}/tests/toys.py:Student")]
VAULT, LADDER = WORLDS[-2], WORLDS[-1]


def quiet(done, metrics):
    """A report that nobody reads."""


class Bench:
    """A workshop without a run: trials score a design by its first number, exchanges are kept in a list."""

    def __init__(self, world):
        self.world, self.exchanges, self.trials, self.figures = world, [], [], []

    cycle = 1
    folder = Path("nowhere")

    def report(self, figures):
        self.figures.append(dict(figures))

    def trial(self, designs, *, episodes=12, practised=None):
        self.trials.append((len(designs), practised))
        names = [skill.name for skill in self.world.skills]
        easiness = [zlib.crc32(d.to_json().encode()) % 7 for d in designs]
        return [
            Outcome(design=d, attempts=10, successes=0, skills={names[0]: e})
            for d, e in zip(designs, easiness, strict=True)
        ]

    def keep(self, exchange):
        self.exchanges.append(exchange)

    def kept(self):
        return tuple(self.exchanges)

    def spent(self):
        return Exchange.total(self.exchanges)
