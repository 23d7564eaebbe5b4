"""How many of the tool tasks that a small environment policy writes can be used, and how often they are solved.

    python experiments/written-tasks/written.py run --out FILE [--warm 0 10 30] [--seeds 0 1 2] [--named]
    python experiments/written-tasks/written.py table FILE
    python experiments/written-tasks/written.py gather RUN ... >> FILE
    python experiments/written-tasks/written.py solved FILE

`run` asks a policy that has not learnt from any success for tasks, one a candidate, each from a seed task; `--warm` is
the number of passes over the seed tasks before that. A task is used if it can be parsed, its gold calls run and score
1, junk scores 0, and it is no copy. Nobody checks whether its request asks for what gold does. `named` counts the used
tasks whose request or earlier results contain every value of the gold calls (`worlds/text/tools/named.py`), which is
necessary and not sufficient; with `--named` all others are refused. One line a run: candidates by what became of them,
and some used tasks to read. `table` makes a table of such a file.

`gather` takes the tasks that were practised out of runs of `genenv.py`, one line each. `solved` says how often they
were solved: tasks whose gold is named, whose gold leaves out a number of the request, whose gold is not named, tasks
without a call, and seed tasks that stood in as they are (fallback).
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from reporting import append_line, interval, markdown, read_lines

from curricle.designers.language import Language, LanguageOptions
from curricle.designers.language.designer import FAULTS
from curricle.records import Outcome
from curricle.run import read_config, read_records
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.named import left_out, unnamed
from curricle.worlds.text.tools.world import Tools, ToolsOptions
from curricle.worlds.text.tools.writing import written

KINDS = ("named", "left out", "unnamed", "no call", "fallback")


class NoWorkshop:
    """A workshop without a run, which prints the metrics it gets."""

    cycle = 1
    folder = Path()

    def report(self, metrics: Any) -> None:
        """Print them."""
        print({name: round(value, 3) for name, value in metrics.items()}, flush=True)


def write_tasks(model: str, warm: int, seed: int, candidates: int, must_name: bool) -> dict[str, Any]:
    """Write candidates, and say what became of them."""
    world = Tools(ToolsOptions(named=must_name))
    options = LanguageOptions(
        model=model,
        lora=16,
        learning_rate=2e-4,
        imitation_passes=warm,
        text="required",
        aim="task",
        temperature=0.7,
        oversample=1.0,
        max_rounds=1,
    )
    policy = Language(world.Setting, options, seed)
    workshop: Any = NoWorkshop()
    policy.propose(world.brief(1, 1, []), candidates, workshop)
    rows: Any = policy.rows
    used = [str(row.truth["task"]) for row in rows if not row.info["fault"]]
    items = [written(text) for text in used]
    return {
        "warm": warm,
        "seed": seed,
        "must_name": must_name,
        "candidates": len(rows),
        "faults": dict(Counter(str(row.info["fault"]) for row in rows if row.info["fault"])),
        "used": len(used),
        "named": sum(not unnamed(item) for item in items),
        "kinds": dict(Counter(form(item) for item in items)),
        "examples": used[:4],
        "refusals": [str(row.info["why"]) for row in rows if row.info["fault"] == "refused"][:4],
    }


def form(item: Item) -> str:
    """Whether a task takes several steps, calls, or no call."""
    if item.simulator:
        return "steps"
    return "calls" if item.calls else "no call"


def run(arguments: argparse.Namespace) -> None:
    """Run what the file does not have yet."""
    done = {(line["warm"], line["seed"]) for line in read_lines(arguments.out)}
    for seed in arguments.seeds:
        for warm in arguments.warm:
            if (warm, seed) not in done:
                line = write_tasks(arguments.model, warm, seed, arguments.candidates, arguments.named)
                append_line(arguments.out, line)


def percent(counts: list[float], totals: list[int]) -> str:
    """Shares in percent, the mean over seeds with its 95 % interval."""
    return interval([100 * count / total for count, total in zip(counts, totals, strict=True)]) + " %"


def table(arguments: argparse.Namespace) -> None:
    """What became of the candidates, by passes over the seed tasks."""
    lines = read_lines(arguments.file)
    faults = [fault for fault in FAULTS if any(line["faults"].get(fault) for line in lines)]
    rows = []
    for warm in sorted({line["warm"] for line in lines}):
        mine = [line for line in lines if line["warm"] == warm]
        candidates = [line["candidates"] for line in mine]
        used = [line["used"] for line in mine]
        named = sum(line["named"] for line in mine)
        row = [warm, len(mine), sum(candidates), percent(used, candidates), f"{named} of {sum(used)}"]
        for fault in faults:
            row.append(percent([line["faults"].get(fault, 0) for line in mine], candidates))
        rows.append(row)
    print(markdown(("passes before", "seeds", "candidates", "used", "of these named", *faults), rows))


def gather(arguments: argparse.Namespace) -> None:
    """Print the tasks of some runs, with how often each was solved."""
    for folder in arguments.runs:
        seed = read_config(folder)["seed"]
        designed = [(step, outcome) for step, outcome in read_records(folder, Outcome) if step.phase == "designed"]
        if not all(outcome.design.setting["task"] for _, outcome in designed):
            sys.exit(f"{folder}: some of its designs hold no written task; set designer.text = 'required'")
        for step, outcome in designed:
            line = {
                "seed": seed,
                "cycle": step.cycle,
                "task": outcome.design.setting["task"],
                "fallback": outcome.design.why == "fallback",
                "attempts": outcome.attempts,
                "successes": outcome.successes,
            }
            print(json.dumps(line))


def kind(line: dict[str, Any]) -> str:
    """One of the kinds of tasks whose success is counted apart."""
    if line["fallback"]:
        return "fallback"
    item = written(line["task"])
    if not item.calls:
        return "no call"
    if unnamed(item):
        return "unnamed"
    return "left out" if left_out(item) else "named"


def solved(arguments: argparse.Namespace) -> None:
    """Tasks of each kind by cycle, and the share of attempts that succeeded; kinds that never occur are left out."""
    lines = read_lines(arguments.file)
    kinds = [kind(line) for line in lines]
    shown = [name for name in KINDS if name in kinds]
    rows = []
    for cycle in sorted({line["cycle"] for line in lines}):
        row: list[object] = [cycle]
        for name in shown:
            mine = [line for line, its in zip(lines, kinds, strict=True) if its == name and line["cycle"] == cycle]
            attempts = sum(line["attempts"] for line in mine)
            successes = sum(line["successes"] for line in mine)
            row += [len(mine), f"{100 * successes / attempts:.0f} %" if attempts else "-"]
        rows.append(row)
    columns = ["cycle"]
    for name in shown:
        columns += [f"{name}: tasks", "solved"]
    print(markdown(columns, rows))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--warm", type=int, nargs="+", default=[0, 10, 30])
    runs.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    runs.add_argument("--candidates", type=int, default=32)
    runs.add_argument("--model", default="embedded")
    runs.add_argument("--named", action="store_true", help="With the world's option `named`.")
    runs.set_defaults(command=run)
    collect = commands.add_parser("gather")
    collect.add_argument("runs", type=Path, nargs="+")
    collect.set_defaults(command=gather)
    for name, function in (("table", table), ("solved", solved)):
        tables = commands.add_parser(name)
        tables.add_argument("file", type=Path)
        tables.set_defaults(command=function)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
