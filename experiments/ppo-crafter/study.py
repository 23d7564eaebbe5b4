"""PPO from pixels in stock Crafter, 1M steps: shapes of the rollout and of the update.

    python experiments/ppo-crafter/study.py run      # the runs that results.jsonl lacks; a GPU's work
    python experiments/ppo-crafter/study.py run --only 256x16-2x16-at-0.0003 --seeds 5
    python experiments/ppo-crafter/study.py table

A setting is named by environments x steps, passes x minibatches and the learning rate.
`experiments/common/whole_runs.py` says what both commands do.
"""

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from whole_runs import Setting, Study, main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = str(ROOT / "configs" / "ppo-crafter-pixels.toml")
"""64 environments of 64 steps, three passes in eight minibatches."""


class Shape(NamedTuple):
    """The shape of a rollout and of its update, and how many seeds were run."""

    environments: int
    steps: int
    epochs: int
    minibatches: int
    learning_rate: float
    seeds: int

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return f"{self.environments}x{self.steps}-{self.epochs}x{self.minibatches}-at-{self.learning_rate:g}"

    @property
    def setting(self) -> Setting:
        """What changes in the config."""
        changes = (
            f"agent.environments={self.environments}",
            f"agent.steps={self.steps}",
            f"agent.epochs={self.epochs}",
            f"agent.minibatches={self.minibatches}",
            f"agent.learning_rate={self.learning_rate}",
            "agent.workers=1",
            "world.threads=4",
        )
        return Setting(CONFIG, range(self.seeds), changes)


SHAPES = (
    Shape(128, 32, 1, 16, 1e-3, seeds=1),
    Shape(128, 32, 1, 32, 6e-4, seeds=1),
    Shape(128, 32, 1, 32, 1e-3, seeds=1),
    Shape(128, 32, 1, 64, 3e-4, seeds=1),
    Shape(128, 32, 1, 64, 6e-4, seeds=1),
    Shape(128, 32, 3, 8, 3e-4, seeds=5),
    Shape(256, 16, 1, 32, 2e-4, seeds=2),
    Shape(256, 16, 1, 32, 3e-4, seeds=2),
    Shape(256, 16, 2, 8, 6e-4, seeds=1),
    Shape(256, 16, 2, 8, 1e-3, seeds=3),
    Shape(256, 16, 2, 12, 3e-4, seeds=2),
    Shape(256, 16, 2, 16, 2e-4, seeds=2),
    Shape(256, 16, 2, 16, 3e-4, seeds=5),
    Shape(256, 16, 2, 16, 6e-4, seeds=5),
    Shape(256, 16, 3, 8, 3e-4, seeds=3),
)
STUDY = Study(
    data=HERE / "results.jsonl",
    settings={"papers": Setting(CONFIG, range(5)), **{shape.name: shape.setting for shape in SHAPES}},
    keys=("agent.environments", "agent.steps", "agent.epochs", "agent.minibatches", "agent.learning_rate"),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
