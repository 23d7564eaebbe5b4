"""Achievement distillation from pixels in stock Crafter, 1M steps.

    python experiments/distillation-crafter/study.py run      # the runs that results.jsonl lacks; a GPU's work
    python experiments/distillation-crafter/study.py table

`experiments/common/whole_runs.py` says what both commands do.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from whole_runs import Setting, Study, main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = str(ROOT / "configs" / "ad-crafter-pixels.toml")
SEEDS = (0, 1, 2, 4)
"""Seed 3 was lost when other programs took the GPU's memory."""
STUDY = Study(
    data=HERE / "results.jsonl",
    settings={"distill": Setting(CONFIG, SEEDS, ("schedule.save_every=125000", "world.threads=3"))},
    keys=("agent.id",),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
