"""EnvGen's run in Crafter: PPO from pixels with the tutor's designs, and as many steps without designs.

    python experiments/envgen-crafter/study.py run      # the runs that results.jsonl lacks; a GPU's work
    python experiments/envgen-crafter/study.py table

`experiments/common/whole_runs.py` says what both commands do.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from whole_runs import Setting, Study, main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = str(ROOT / "configs" / "envgen-crafter.toml")
FAST = ("agent.workers=2", "agent.environments=256", "agent.steps=16", "agent.epochs=2", "agent.minibatches=16")
"""The shape of rollout and update that experiments/ppo-crafter chose."""
STUDY = Study(
    data=HERE / "results.jsonl",
    settings={
        "none": Setting(CONFIG, (0, 1, 2), ("designer.id=none", *FAST, "world.threads=4")),
        "tutor": Setting(CONFIG, (0, 2, 3, 4, 5, 6, 7), ("designer.id=tutor", *FAST, "world.threads=15")),
    },
    keys=("designer.id",),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
