"""Turn finished run folders into lines of data.

    python experiments/collect.py RUN... >> experiments/NAME/results.jsonl

One line a run: what was run, both protocols' figures, and how long practice took on which machine.
"""

import json
import sys
from pathlib import Path
from typing import Any

from curricle.records import Scores
from curricle.run import read_config, read_environment, read_records, read_timings


def summary(folder: Path) -> dict[str, Any]:
    """The result of one run, as plain data."""
    config, (_, scores) = read_config(folder), read_records(folder, Scores)[-1]
    practice = [t["seconds"] for t in read_timings(folder) if t["phase"] in ("designed", "original")]
    machine = read_environment(folder)[0]
    trained = scores.trained.model_dump(mode="json") if scores.trained else None
    return {
        "config": config,
        "trained": trained,
        "tested": {
            "headline": scores.headline,
            "reward": scores.reward.mean,
            "skills": {name: score.mean for name, score in scores.skills.items()},
        },
        "practice_seconds": round(sum(practice), 1),
        "machine": {"gpu": machine["gpu"], "processor": machine["processor"], "packages": machine["packages"]},
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(summary(Path(name))))
