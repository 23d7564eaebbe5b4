"""GenEnv on sums: the arms, the choice of the learning rate, and the picture in the project's README.

    python experiments/genenv-sums/study.py run --processes 8      # the arms that results.jsonl lacks; a GPU's work
    python experiments/genenv-sums/study.py rates
    python experiments/genenv-sums/study.py table [--of rates.jsonl] [--against random]
    python experiments/genenv-sums/study.py picture [--out PNG] [--arms A ...]

`experiments/common/genenv_study.py` says what the first three do. `picture` draws success in the designs by cycle, of
each seed and the mean, with the band around the target.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from genenv_study import Study, parsers
from genenv_tables import means_by_cycle
from reporting import option, read_lines

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STUDY = Study(
    folder=HERE,
    world="sums",
    arms=("before", "agent_only", "genenv", "random", "static", "alpha=0.25", "alpha=0.75"),
    rates={
        "1e-4": ("agent.learning_rate=1e-4",),
        "2e-4": ("agent.learning_rate=2e-4",),
        "5e-4": ("agent.learning_rate=5e-4",),
    },
    all_rates=("schedule.cycles=3",),
)
PICTURE = ROOT / "docs" / "images" / "genenv-alpha.png"


def picture(study: Study, arguments: argparse.Namespace) -> None:
    """Success in the designs by cycle, of every seed and the mean, with the band around the target."""
    from matplotlib.figure import Figure

    lines = read_lines(study.folder / "results.jsonl")
    figure = Figure(figsize=(3.4 * len(arguments.arms), 3.2), layout="constrained")
    axes = figure.subplots(1, len(arguments.arms), sharey=True, squeeze=False)[0]
    for axis, name in zip(axes, arguments.arms, strict=True):
        mine = [line for line in lines if line["arm"] == name]
        if not mine:
            names = ", ".join(sorted({line["arm"] for line in lines}))
            sys.exit(f"results.jsonl has no arm {name!r}; it has: {names}")
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


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser, commands = parsers(STUDY, __doc__)
    pictures = commands.add_parser("picture", help=picture.__doc__)
    pictures.set_defaults(command=picture)
    pictures.add_argument("--out", type=Path, default=PICTURE)
    pictures.add_argument("--arms", nargs="+", default=["alpha=0.25", "genenv", "alpha=0.75", "random"])
    arguments = parser.parse_args(words)
    arguments.command(STUDY, arguments)


if __name__ == "__main__":
    main()
