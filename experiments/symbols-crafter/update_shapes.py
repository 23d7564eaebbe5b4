"""Shapes of PPO's update: passes over a rollout, minibatches a pass, learning rate.

    python experiments/symbols-crafter/update_shapes.py run [--shapes 3:8:3e-4 2:8:1e-3 ...] [--seeds 0 1]
    python experiments/symbols-crafter/update_shapes.py table

Trains PPO in plain Crafter from symbols, without designs, in a single process. One line a run goes to `updates.jsonl`:
Crafter's score over the training episodes of each half, the mean return of each quarter, the KL divergence of an update
and the share of ratios that it clips. What the file already has is not run again.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from reporting import append_line, interval, markdown, mean, read_lines

from curricle.agents.ppo.agent import PPO
from curricle.records import Outcome
from curricle.worlds.crafter import Crafter

DATA = Path(__file__).parent / "updates.jsonl"


class Shape(NamedTuple):
    """Passes over a rollout, minibatches a pass, learning rate."""

    passes: int
    minibatches: int
    rate: float


def read_shape(text: str) -> Shape:
    """A shape as it stands on the command line."""
    try:
        passes, minibatches, rate = text.split(":")
        return Shape(int(passes), int(minibatches), float(rate))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not PASSES:MINIBATCHES:RATE, such as 2:8:1e-3") from None


SHAPES = ("3:8:3e-4", "3:8:1e-3", "2:8:6e-4", "2:8:1e-3", "2:8:1.5e-3", "2:16:6e-4", "1:32:1e-3", "1:8:1.5e-3")


def train(shape: Shape, seed: int, steps: int) -> dict[str, Any]:
    """Train one agent; its results as a line of data."""
    world = Crafter(Crafter.Options(observation="symbols", threads=1))
    options = PPO.Options(
        environments=64,
        steps=64,
        epochs=shape.passes,
        minibatches=shape.minibatches,
        learning_rate=shape.rate,
        workers=1,
    )
    agent = PPO(world, options, seed)
    metrics: list[Mapping[str, float]] = []
    scores = []
    start = time.monotonic()
    for half in range(2):
        (outcome,) = agent.practise(
            [world.unaltered()],
            steps // 2,
            seed=10 * seed + half,
            report=lambda _, row: metrics.append(row),
        )
        scores.append(round(score(world, outcome), 2))
    returns = [row["practice/return"] for row in metrics if "practice/return" in row]
    quarter = len(returns) // 4
    quarters = [returns[i * quarter : (i + 1) * quarter] for i in range(4)]
    return {
        "view": "symbols",
        "epochs": shape.passes,
        "minibatches": shape.minibatches,
        "rate": shape.rate,
        "seed": seed,
        "steps": steps,
        "scores": scores,
        "returns": [round(statistics.fmean(values), 2) for values in quarters],
        "kl": round(statistics.fmean(row["policy/kl"] for row in metrics), 4),
        "clipped": round(statistics.fmean(row["policy/clipped"] for row in metrics), 3),
        "seconds": round(time.monotonic() - start),
    }


def score(world: Crafter, outcome: Outcome) -> float:
    """Crafter's score of some episodes."""
    return world.headline({skill.name: outcome.share(skill.name) for skill in world.skills})


def shape_of(line: Mapping[str, Any]) -> Shape:
    """The shape of a line of data."""
    return Shape(line["epochs"], line["minibatches"], line["rate"])


def run(arguments: argparse.Namespace) -> None:
    """Train all that the file does not have yet."""
    done = {(shape_of(line), line["seed"], line["steps"]) for line in read_lines(arguments.out)}
    for seed in arguments.seeds:
        for shape in arguments.shapes:
            if (shape, seed, arguments.steps) not in done:
                append_line(arguments.out, train(shape, seed, arguments.steps))


def table(arguments: argparse.Namespace) -> None:
    """Means over seeds, with a 95 % interval where there are three or more."""
    shapes = defaultdict[Shape, list[dict[str, Any]]](list)
    for line in read_lines(arguments.out):
        shapes[shape_of(line)].append(line)
    rows = []
    for shape in sorted(shapes):
        lines = shapes[shape]
        summary = interval if len(lines) > 2 else mean
        rows.append(
            (
                shape.passes,
                shape.minibatches,
                f"{shape.rate:g}",
                len(lines),
                summary([line["scores"][1] for line in lines]),
                summary([line["returns"][3] for line in lines]),
                mean([line["kl"] for line in lines], 3),
                mean([line["clipped"] for line in lines], 2),
            )
        )
    columns = ("passes", "minibatches", "learning rate", "seeds", "score, second half", "return, last quarter")
    print(markdown((*columns, "KL", "clipped"), rows))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, default=DATA)
    runs.add_argument("--shapes", type=read_shape, nargs="+", default=list(map(read_shape, SHAPES)), metavar="P:M:RATE")
    runs.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    runs.add_argument("--steps", type=int, default=600_000)
    runs.set_defaults(command=run)
    tables = commands.add_parser("table")
    tables.add_argument("--out", type=Path, default=DATA)
    tables.set_defaults(command=table)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
