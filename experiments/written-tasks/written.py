"""Written tasks: how many of the tool tasks that a small environment policy writes can be used, before it learns.

    python experiments/written.py run --out FILE [--warm 0 10 30] [--seeds 0 1 2] [--candidates 32] [--named] [--model]
    python experiments/written.py table FILE
    python experiments/written.py gather RUN ... >> FILE
    python experiments/written.py tried FILE

The policy is held to the grammar of tasks, and asked for one task a candidate, each from a seed task; `warm` is how
many passes over the seed tasks it has learnt from before. A task is used if it can be read, its gold calls run and
score 1 while junk scores 0, and it is no copy. Whether its request asks for what gold does, nobody checks; `named`
counts the used ones in which the request or an earlier result names every value that gold passes on
(`worlds/text/named.py`): necessary, and not enough; with `--named` all others are refused. One line a run: candidates
by what became of them, some used tasks to read.

`gather` takes the tasks that were practised out of runs, one line each; `tried` says which of them were solved: those
whose gold is named, those whose gold is not, those whose gold leaves out a number of the request, those without a call,
and the fallback's.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from intervals import interval

from curricle.designers.language import Language, LanguageOptions
from curricle.designers.language.designer import FAULTS
from curricle.records import Outcome
from curricle.run import read_config, read_records
from curricle.worlds.text.tools.named import left_out, unnamed
from curricle.worlds.text.tools.world import Tools, ToolsOptions
from curricle.worlds.text.tools.writing import written


class Bench:
    """A workshop where only figures are wanted."""

    cycle, folder = 1, Path()

    def report(self, figures: Any) -> None:
        """Print them."""
        print({name: round(value, 3) for name, value in figures.items()}, flush=True)


def measured(model: str, warm: int, seed: int, candidates: int, must_name: bool) -> dict[str, Any]:
    """Write candidates, and say what became of them."""
    world = Tools(ToolsOptions(named=must_name))
    options = LanguageOptions(
        model=model, lora=16, rate=2e-4, warm=warm, text="required", aim="task", temperature=0.7, spare=1.0, rounds=1
    )
    policy = Language(world.Setting, options, seed)
    policy.propose(world.brief(1, 1, []), candidates, Bench())  # type: ignore[arg-type]
    used = [str(row.truth["task"]) for row in policy.rows if not row.info["fault"]]
    items = [written(text) for text in used]
    return {
        "warm": warm,
        "seed": seed,
        "must_name": must_name,
        "candidates": len(policy.rows),
        "faults": dict(Counter(str(row.info["fault"]) for row in policy.rows if row.info["fault"])),
        "used": len(used),
        "named": sum(not unnamed(item) for item in items),
        "kinds": dict(Counter("steps" if i.simulator else "calls" if i.calls else "no call" for i in items)),
        "examples": used[:4],
        "refusals": [str(row.info["why"]) for row in policy.rows if row.info["fault"] == "refused"][:4],
    }


def run(args: argparse.Namespace) -> None:
    """All that the file does not have yet."""
    out = Path(args.out)
    have = {(row["warm"], row["seed"]) for row in map(json.loads, out.read_text().splitlines())} if out.exists() else ()
    for seed in args.seeds:
        for warm in args.warm:
            if (warm, seed) not in have:
                row = measured(args.model, warm, seed, args.candidates, args.named)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def table(args: argparse.Namespace) -> None:
    """Shares of all candidates, means over seeds with a 95 % interval."""
    rows = [json.loads(text) for text in Path(args.file).read_text().splitlines()]
    shown = [fault for fault in FAULTS if any(row["faults"].get(fault) for row in rows)]
    print("| passes before | seeds | candidates | used | of these named | " + " | ".join(shown) + " |")
    print("|" + "---|" * (5 + len(shown)))
    for warm in sorted({row["warm"] for row in rows}):
        mine = [row for row in rows if row["warm"] == warm]
        share = [interval([100 * row["faults"].get(fault, 0) / row["candidates"] for row in mine]) for fault in shown]
        used = interval([100 * row["used"] / row["candidates"] for row in mine])
        told = f"{sum(row['named'] for row in mine)} of {sum(row['used'] for row in mine)}"
        cells = (warm, len(mine), sum(row["candidates"] for row in mine), f"{used} %", told, *(f"{s} %" for s in share))
        print("| " + " | ".join(map(str, cells)) + " |")


def gather(args: argparse.Namespace) -> None:
    """The tasks of some runs, and how often each was solved."""
    for folder in args.runs:
        seed, every = read_config(folder)["seed"], read_records(folder, Outcome)
        if any(step.phase == "designed" and not outcome.design.setting["task"] for step, outcome in every):
            sys.exit(f"{folder}: some of its designs hold no written task; set designer.text = 'required'")
        for step, outcome in every:
            if step.phase == "designed":
                about = {"seed": seed, "cycle": step.cycle, "task": outcome.design.setting["task"]}
                counts = {"attempts": outcome.attempts, "successes": outcome.successes}
                print(json.dumps({**about, "fallback": outcome.design.why == "fallback", **counts}))


def kind(row: dict[str, Any]) -> str:
    """What a task is, as far as its success should depend on it."""
    item = written(row["task"])
    if row["fallback"] or not item.calls:
        return "fallback" if row["fallback"] else "no call"
    return "unnamed" if unnamed(item) else "left out" if left_out(item) else "named"


def tried(args: argparse.Namespace) -> None:
    """Tasks of each kind by cycle, and the share of attempts that succeeded."""
    rows = [json.loads(text) for text in Path(args.file).read_text().splitlines()]
    kinds = ("named", "left out", "unnamed", "no call", "fallback")
    print("| cycle | " + " | ".join(f"{name}: tasks | solved" for name in kinds) + " |")
    print("|" + "---|" * (1 + 2 * len(kinds)))
    for cycle in sorted({row["cycle"] for row in rows}):
        cells = [str(cycle)]
        for name in kinds:
            mine = [row for row in rows if row["cycle"] == cycle and kind(row) == name]
            attempts, solved = (sum(row[count] for row in mine) for count in ("attempts", "successes"))
            cells += [str(len(mine)), f"{100 * solved / attempts:.0f} %" if attempts else "-"]
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    go = commands.add_parser("run")
    go.add_argument("--out", required=True)
    go.add_argument("--warm", type=int, nargs="+", default=[0, 10, 30])
    go.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    go.add_argument("--candidates", type=int, default=32)
    go.add_argument("--model", default="embedded")
    go.add_argument("--named", action="store_true", help="With the world's option `named`.")
    go.set_defaults(go=run)
    show = commands.add_parser("table")
    show.add_argument("file")
    show.set_defaults(go=table)
    collect = commands.add_parser("gather")
    collect.add_argument("runs", type=Path, nargs="+")
    collect.set_defaults(go=gather)
    ask = commands.add_parser("tried")
    ask.add_argument("file")
    ask.set_defaults(go=tried)
    args = parser.parse_args()
    args.go(args)


if __name__ == "__main__":
    main()
