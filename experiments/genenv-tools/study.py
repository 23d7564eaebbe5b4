"""GenEnv on tool calls: the arms, and the choice of the learning rate.

    python experiments/genenv-tools/study.py run --processes 8      # the arms that results.jsonl lacks; a GPU's work
    python experiments/genenv-tools/study.py rates
    python experiments/genenv-tools/study.py table [--of rates.jsonl]

`experiments/common/genenv_study.py` says what these commands do. Two kinds of lines in the data are of code that is
gone, so nothing here makes them: those named `old verifiers`, and those named `old moments`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from genenv_study import Study, main

HERE = Path(__file__).parent
MEAN_A_REPLY = 'agent.trl={loss_type="grpo"}'
BY_TURN = "agent.step_weight=1.0"
STUDY = Study(
    folder=HERE,
    world="tools",
    arms=("before", "agent_only", "genenv", "random", "static"),
    rates={
        "1e-4, a mean a reply": ("agent.learning_rate=1e-4", MEAN_A_REPLY),
        "1e-4": ("agent.learning_rate=1e-4",),
        "3e-4, a mean a reply": ("agent.learning_rate=3e-4", MEAN_A_REPLY),
        "3e-4": ("agent.learning_rate=3e-4",),
        "3e-4, with advantages by turn": ("agent.learning_rate=3e-4", BY_TURN),
        "1e-3": ("agent.learning_rate=1e-3",),
    },
    all_rates=("schedule.cycles=2", "schedule.per_cycle=2048", "schedule.save_every=2048"),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
