"""Make runs in the tree that PYTHONPATH names: `same_bytes.py` starts this once for each group of runs.

    same_bytes_worker.py FOLDER PLAN        PLAN is JSON: a config for each run, or null to resume it

Beside each run's folder it leaves a log: empty if all went well, else the error.
"""

import json
import sys
import traceback
from pathlib import Path

from curricle import resolve, resume, start


def main() -> None:
    """Make every run of the plan; a run that fails does not stop the others."""
    folder = Path(sys.argv[1])
    for name, config in json.loads(sys.argv[2]).items():
        failure = ""
        try:
            if config is None:
                resume(folder / name)
            else:
                start(resolve(config), folder / name)
        except Exception:
            failure = traceback.format_exc()
        (folder / f"{name}.log").write_text(failure, encoding="utf-8")


if __name__ == "__main__":
    main()
