"""PPO from symbols in stock Crafter, 1M steps on two cores: five shapes of rollout and update.

    python experiments/symbols-crafter/study.py run      # the runs that results.jsonl lacks
    python experiments/symbols-crafter/study.py table

`experiments/common/whole_runs.py` says what both commands do. `update_shapes.py` compares updates in shorter runs.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from whole_runs import Setting, Study, main

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
PLAIN = ("designer.id=none", "schedule.cycles=0")
THREE_PASSES = (*PLAIN, "agent.epochs=3", "agent.learning_rate=3e-4")
STUDY = Study(
    data=HERE / "results.jsonl",
    settings={
        "default": Setting("crafter", SEEDS, PLAIN),
        "three passes": Setting("crafter", SEEDS, THREE_PASSES),
        "short rollouts": Setting("crafter", SEEDS, (*THREE_PASSES, "agent.steps=32", "agent.minibatches=4")),
        "long rollouts": Setting("crafter", SEEDS, (*THREE_PASSES, "agent.steps=128")),
        "many environments": Setting("crafter", SEEDS, (*THREE_PASSES, "agent.environments=512", "agent.steps=8")),
    },
    keys=("agent.environments", "agent.steps", "agent.epochs", "agent.minibatches", "agent.learning_rate"),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
