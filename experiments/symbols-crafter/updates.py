"""Shapes of PPO's update: passes over a rollout, minibatches a pass, learning rate.

    python experiments/updates.py run --out FILE [--shapes 3:8:3e-4 2:8:1e-3 ...] [--seeds 0 1] [--steps 600_000]
    python experiments/updates.py table FILE
    python experiments/updates.py runs FILE...

Plain Crafter from symbols, in one lane, which keeps one core busy; `--view pixels` is a GPU's work. One line a run:
Crafter's score over the training episodes of each half, the mean return of each quarter, the KL that an update moves
and the share of ratios it clips. What the file has is not run again. `runs` makes its table of whole runs instead, of
which `collect.py` wrote a line each.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intervals import interval

from curricle.agents.ppo.agent import PPO, PPOOptions
from curricle.worlds.crafter import Crafter

SHAPES = ("3:8:3e-4", "3:8:1e-3", "2:8:6e-4", "2:8:1e-3", "2:8:1.5e-3", "2:16:6e-4", "1:32:1e-3", "1:8:1.5e-3")
VIEWS: dict[str, dict[str, int]] = {
    "symbols": {"environments": 64, "steps": 64},
    "pixels": {"environments": 128, "steps": 32},
}

SHAPE = ("environments", "steps", "epochs", "minibatches", "rate", "ahead")


def shaped(text: str) -> dict[str, Any]:
    """The options that a shape on the command line stands for."""
    try:
        epochs, minibatches, rate = text.split(":")
        return {"epochs": int(epochs), "minibatches": int(minibatches), "rate": float(rate)}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no PASSES:MINIBATCHES:RATE, as 2:8:1e-3 is") from None


def learnt(view: str, options: dict[str, Any], seed: int, steps: int) -> dict[str, Any]:
    """Learn for a while, and say how it went."""
    world = Crafter(Crafter.Options(observation=view, threads=4 if view == "pixels" else 1))
    agent = PPO(world, PPOOptions(lanes=1, **VIEWS[view], **options), seed)
    told, scores, start = list[Mapping[str, float]](), list[float](), time.monotonic()
    for half in range(2):
        luck = {"seed": 10 * seed + half, "report": lambda _, figures: told.append(figures)}
        (outcome,) = agent.practise([world.unaltered()], steps // 2, **luck)
        scores.append(round(world.headline({skill.name: outcome.share(skill.name) for skill in world.skills}), 2))
    returns = [figures["practice/return"] for figures in told if "practice/return" in figures]
    quarter = len(returns) // 4
    return {
        "view": view,
        **options,
        "seed": seed,
        "steps": steps,
        "scores": scores,
        "returns": [round(statistics.fmean(returns[i * quarter : (i + 1) * quarter]), 2) for i in range(4)],
        "kl": round(statistics.fmean(figures["policy/kl"] for figures in told), 4),
        "clipped": round(statistics.fmean(figures["policy/clipped"] for figures in told), 3),
        "seconds": round(time.monotonic() - start),
    }


def run(args: argparse.Namespace) -> None:
    """All that the file does not have yet."""
    out = Path(args.out)
    rows = list(map(json.loads, out.read_text().splitlines())) if out.exists() else []
    have = {(row["view"], row["epochs"], row["minibatches"], row["rate"], row["seed"], row["steps"]) for row in rows}
    for seed in args.seeds:
        for options in args.shapes:
            if (args.view, *options.values(), seed, args.steps) not in have:
                with out.open("a") as file:
                    file.write(json.dumps(learnt(args.view, options, seed, args.steps)) + "\n")


def table(args: argparse.Namespace) -> None:
    """Means over seeds, with a 95 % interval where there are three or more."""
    rows = [json.loads(text) for text in Path(args.file).read_text().splitlines()]
    print("| passes | minibatches | rate | seeds | score, second half | return, last quarter | KL | clipped |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in sorted({(row["epochs"], row["minibatches"], row["rate"]) for row in rows}):
        mine = [row for row in rows if (row["epochs"], row["minibatches"], row["rate"]) == shape]
        score, last = ([row["scores"][1] for row in mine], [row["returns"][3] for row in mine])
        told = _told(score), _told(last)
        kl, clipped = (statistics.fmean(row[key] for row in mine) for key in ("kl", "clipped"))
        cells = (*shape[:2], f"{shape[2]:g}", len(mine), *told, f"{kl:.3f}", f"{clipped:.2f}")
        print("| " + " | ".join(map(str, cells)) + " |")


def _told(values: list[float]) -> str:
    return interval(values) if len(values) > 2 else f"{statistics.fmean(values):.1f}"


def runs(args: argparse.Namespace) -> None:
    """The same of whole runs: score over all training episodes, reward of the last ones, score over test episodes."""
    found = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for row in (json.loads(text) for file in args.files for text in Path(file).read_text().splitlines()):
        found[tuple(row["config"]["agent"].get(name, 0.0) for name in SHAPE)].append(row)
    print(
        "| environments of steps | passes | minibatches | rate | `ahead` | seeds | score | late reward | test score |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (environments, steps, *shape, rate, ahead), mine in sorted(found.items()):
        late = [row["late_reward"] for row in mine if row["late_reward"] is not None]
        trained, tested = ([row[protocol]["headline"] for row in mine] for protocol in ("trained", "tested"))
        told = _told(trained), _told(late), _told(tested)
        cells = f"{environments} of {steps}", *shape, f"{rate:g}", f"{ahead:g}" if ahead else "", len(mine), *told
        print("| " + " | ".join(map(str, cells)) + " |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    go = commands.add_parser("run")
    go.add_argument("--out", required=True)
    go.add_argument("--shapes", type=shaped, nargs="+", default=list(map(shaped, SHAPES)), metavar="P:M:RATE")
    go.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    go.add_argument("--steps", type=int, default=600_000)
    go.add_argument("--view", choices=["symbols", "pixels"], default="symbols")
    go.set_defaults(go=run)
    show = commands.add_parser("table")
    show.add_argument("file")
    show.set_defaults(go=table)
    whole = commands.add_parser("runs")
    whole.add_argument("files", nargs="+")
    whole.set_defaults(go=runs)
    args = parser.parse_args()
    args.go(args)


if __name__ == "__main__":
    main()
