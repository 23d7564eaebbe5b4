"""Designs: how good the embedded model's are, stock and tuned, beside those of `random` and `tutor`.

    python benchmarks/designs.py make NAME [--model PATH] [--free] [--each 4] --agent RUN >> DATA
    python benchmarks/designs.py table DATA

`make` asks one designer (original, random, tutor, or any other name for the embedded model) for designs at each of
Crafter's 22 skills, given imagined agents that are weak at it, and prints one JSON object a design: what was written,
whether it was readable and needed repairs, how many of the knobs that ease the skill were moved the right way, and how
often the skill was shown in it by a random agent and by the agent of a run, which know nothing of any designer's
opinion. `--free` lets the model write without the grammar. `table` condenses the objects of a file.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curricle import config
from curricle.agent import Agent
from curricle.agents.random import RandomAgent
from curricle.designers.baselines import Random
from curricle.designers.tutor import Tutor
from curricle.llm.embedded import Embedded
from curricle.llm.lines import grammar, prompt, read, write
from curricle.llm.tune import Alone, profile
from curricle.records import Brief, Cycle, Design, Knob, Skill, Value, Values
from curricle.seeds import derive, generator
from curricle.worlds.crafter import Crafter

WORLD = Crafter()
KNOBS = {knob.name: knob for knob in WORLD.Setting.knobs()}
AGENTS = ("random_agent", "trained_agent")
HELD_OUT = ("collect_diamond", "make_stone_sword")
"""Skills that the tuned model of the table was never taught (`curricle tune-designer --without`)."""


def brief_for(skill: Skill, index: int) -> Brief:
    """An agent that is weak at a skill and able to do what it needs."""
    scores = profile(WORLD, skill, generator(1, "benchmark", skill.name, index))
    return WORLD.brief(2, 4, [Cycle(number=1, designed=(), scores=scores)])


def written(name: str, model: Embedded | None, free: bool, skill: Skill, index: int) -> dict[str, Any]:
    """One design: the line, and what it means."""
    brief, seed = brief_for(skill, index), derive(1, name, skill.name, index)
    original = WORLD.original.values
    if model is not None:
        asked = prompt(brief, skill, taught=model.taught == WORLD.id)
        line = model.reply(asked, seed=seed, grammar=None if free else grammar(WORLD.Setting)).reply
        reading = read(line, WORLD.Setting, original)
        return {"line": line, "setting": reading.values, "notes": len(reading.notes)}
    values: Values = original
    if name == "random":
        values = Random(WORLD.Setting, seed=seed).propose(brief, 1, Alone())[0].setting
    if name == "tutor":
        found = Tutor(WORLD.Setting, seed=seed).propose(brief, len(WORLD.skills), Alone())
        values = next(design.setting for design in found if design.aim == skill.name)
    return {"line": write(values, WORLD.Setting.knobs(), original), "setting": values, "notes": 0}


def towards(knob: Knob, value: Value, eased: Value) -> bool:
    """Whether a knob was moved from the original towards the value that eases the skill."""
    original = WORLD.original.values[knob.name]
    if knob.kind in ("int", "float"):
        return abs(float(value) - float(eased)) < abs(float(original) - float(eased))
    if knob.kind == "choice" and knob.harder:
        at, start, end = (knob.choices.index(str(v)) for v in (value, original, eased))
        return abs(at - end) < abs(start - end)
    return value == eased


def shown(agent: Agent, designs: Sequence[Design], episodes: int) -> list[float]:
    """How often an agent shows the aim of each design."""
    rates: list[float] = []
    for start in range(0, len(designs), 32):
        part = designs[start : start + 32]
        seeds = [derive(2, "episode", start + i) for i in range(len(part))]
        rates += [outcome.rate or 0.0 for outcome in agent.measure(part, seeds, episodes)]
    return rates


def make(name: str, path: str, free: bool, each: int, run: Path, episodes: int) -> None:
    model = None if name in ("original", "random", "tutor") else Embedded(path or None, longest=128)
    rows = []
    for skill in WORLD.skills:
        for index in range(each):
            row = {"designer": name, "aim": skill.name, **written(name, model, free, skill, index)}
            if row["setting"] is not None and skill.eased_by:
                moved = [towards(KNOBS[knob], row["setting"][knob], value) for knob, value in skill.eased_by.items()]
                row["eased"] = sum(moved) / len(moved)
            rows.append(row)
    usable = [row for row in rows if row["setting"] is not None]
    designs = [Design(setting=row["setting"], aim=row["aim"]) for row in usable]
    _, trained = config.trained(run)
    for key, agent in zip(AGENTS, (RandomAgent(WORLD), trained), strict=True):
        for row, rate in zip(usable, shown(agent, designs, episodes), strict=True):
            row[key] = rate
    for row in rows:
        values = row.pop("setting")
        row["means"] = None if values is None else write(values, WORLD.Setting.knobs(), WORLD.original.values)
        if row["line"] == row["means"]:  # written as it was meant
            del row["line"]
        print(json.dumps(row))


def mean(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.0f}%" if values else "-"


def table(path: Path) -> str:
    """One row a designer; success at the aim is over all its designs, unreadable ones counting as the original."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    original = {
        (aim.name, key): [row[key] for row in rows if (row["designer"], row["aim"]) == ("original", aim.name)]
        for aim in WORLD.skills
        for key in AGENTS
    }

    def success(row: dict[str, Any], key: str) -> float:
        plain = original[row["aim"], key]
        return float(row.get(key, sum(plain) / len(plain)))

    lines = [
        "| designs by | readable | needing no repair | different ones | easing knobs set | "
        "success of a random agent | of a trained agent | the two held-out skills: easing knobs set, trained agent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["designer"] for row in rows):
        mine = [row for row in rows if row["designer"] == name]
        held = [row for row in mine if row["aim"] in HELD_OUT]
        different = len({(row["aim"], row["means"]) for row in mine if row["means"]}) / len(mine)
        eased = [mean([row.get("eased", 0.0) for row in part]) for part in (mine, held)]
        by_chance, trained = ([success(row, key) for row in mine] for key in AGENTS)
        of_held = [success(row, "trained_agent") for row in held]
        readable = [row["means"] is not None for row in mine]
        clean = [row["means"] is not None and not row["notes"] for row in mine]
        cells = [name, mean(readable), mean(clean), f"{100 * different:.0f}%", eased[0], mean(by_chance), mean(trained)]
        cells.append(f"{eased[1]}, {mean(of_held)}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("make")
    made.add_argument("name")
    made.add_argument("--model", default="")
    made.add_argument("--free", action="store_true")
    made.add_argument("--each", type=int, default=4)
    made.add_argument("--episodes", type=int, default=8)
    made.add_argument("--agent", type=Path, required=True)
    commands.add_parser("table").add_argument("data", type=Path)
    given = parser.parse_args()
    if given.command == "table":
        print(table(given.data))
    else:
        make(given.name, given.model, given.free, given.each, given.agent, given.episodes)
