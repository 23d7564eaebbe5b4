"""Tables and the picture of GenEnv's runs, from files that `genenv.py` wrote.

    python experiments/common/genenv_tables.py table FILE [--against agent_only]
    python experiments/common/genenv_tables.py picture FILE --out PNG [--arms A ...]

`±` in the table is a 95 % interval over seeds.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reporting import interval, markdown, option, read_lines


def means_by_cycle(lines: Sequence[dict[str, Any]]) -> list[float]:
    """Success in the designs of each cycle, the mean over seeds."""
    return [statistics.fmean(rates) for rates in zip(*(line["success"] for line in lines), strict=False)]


def table(arguments: argparse.Namespace) -> None:
    """One row an arm: held-out scores, what it gains over another arm, success in the designs."""
    lines = read_lines(arguments.file)
    late = {(line["arm"], line["seed"]): statistics.fmean(line["held_out"][-3:]) for line in lines}
    rows = []
    for name in dict.fromkeys(line["arm"] for line in lines):
        mine = [line for line in lines if line["arm"] == name]
        _, comma, label = name.partition(",")
        other = f"{arguments.against}{comma}{label}"  # a label says how both arms were run
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
        f"gain over `{arguments.against}`, by seed (pairs)",
        "success in the designs, by cycle",
    )
    print(markdown(columns, rows))


def picture(arguments: argparse.Namespace) -> None:
    """Success in the designs by cycle, of every seed and the mean, with the band around the target."""
    from matplotlib.figure import Figure

    lines = read_lines(arguments.file)
    figure = Figure(figsize=(3.4 * len(arguments.arms), 3.2), layout="constrained")
    axes = figure.subplots(1, len(arguments.arms), sharey=True, squeeze=False)[0]
    for axis, name in zip(axes, arguments.arms, strict=True):
        mine = [line for line in lines if line["arm"] == name]
        if not mine:
            names = ", ".join(sorted({line["arm"] for line in lines}))
            sys.exit(f"{arguments.file} has no arm {name!r}; it has: {names}")
        for line in mine:
            axis.plot(range(1, len(line["success"]) + 1), line["success"], color="0.7", linewidth=1)
        means = means_by_cycle(mine)
        axis.plot(range(1, len(means) + 1), means, color="black", label="mean")
        alpha = option(mine[0], "designer", "alpha")
        k_min = option(mine[0], "designer", "k_min")
        if alpha is not None and option(mine[0], "designer", "learn", True):
            axis.axhspan(alpha - k_min, alpha + k_min, color="tab:green", alpha=0.2, label=f"band {alpha} ± {k_min}")
        axis.set(title=f"{name}, {len(mine)} seeds", xlabel="cycle", ylim=(0, 1))
        axis.legend(fontsize="small")
    axes[0].set_ylabel("success in the designs")
    figure.savefig(arguments.out, dpi=100)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    tables = commands.add_parser("table")
    tables.add_argument("file", type=Path)
    tables.add_argument("--against", default="agent_only", metavar="ARM", help="The arm that gains are measured from.")
    tables.set_defaults(command=table)
    pictures = commands.add_parser("picture")
    pictures.add_argument("file", type=Path)
    pictures.add_argument("--out", required=True)
    pictures.add_argument("--arms", nargs="+", default=["alpha=0.25", "genenv", "alpha=0.75", "random"])
    pictures.set_defaults(command=picture)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
