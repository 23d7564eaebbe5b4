"""The table of GenEnv's runs, from a file that `genenv.py` wrote.

    python experiments/common/genenv_tables.py FILE [--against agent_only]

`±` is a 95 % interval over seeds.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reporting import interval, markdown, read_lines


def means_by_cycle(lines: Sequence[dict[str, Any]]) -> list[float]:
    """Success in the designs of each cycle, the mean over seeds."""
    return [statistics.fmean(rates) for rates in zip(*(line["success"] for line in lines), strict=False)]


def table(lines: Sequence[dict[str, Any]], against: str) -> str:
    """One row an arm: held-out scores, what it gains over another arm, success in the designs."""
    late = {(line["arm"], line["seed"]): statistics.fmean(line["held_out"][-3:]) for line in lines}
    rows = []
    for name in dict.fromkeys(line["arm"] for line in lines):
        mine = [line for line in lines if line["arm"] == name]
        _, comma, label = name.partition(",")
        other = f"{against}{comma}{label}"  # a label says how both arms were run
        pairs = [line["seed"] for line in mine if (other, line["seed"]) in late]
        gains = [late[name, seed] - late[other, seed] for seed in pairs]
        success = [f"{rate:.2f}".lstrip("0") for rate in means_by_cycle(mine)]
        rows.append(
            (
                name,
                len(mine),
                f"{mine[0]['samples']:,}",
                interval([line["held_out"][-1] for line in mine]),
                interval([late[name, line["seed"]] for line in mine]),
                f"{interval(gains)} ({len(gains)})" if gains and name != other else "-",
                " ".join(success) or "-",
            )
        )
    columns = (
        "arm",
        "seeds",
        "rollouts",
        "last test",
        "mean of the last three tests",
        f"gain over `{against}`, by seed (pairs)",
        "success in the designs, by cycle",
    )
    return markdown(columns, rows)


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", default="agent_only", metavar="ARM", help="The arm that gains are measured from.")
    arguments = parser.parse_args()
    print(table(read_lines(arguments.file), arguments.against))


if __name__ == "__main__":
    main()
