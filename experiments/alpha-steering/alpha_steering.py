"""Does a designer bring success to alpha and keep it there? In a world whose success rates are known in closed form.

    python experiments/alpha_steering.py            # all of it again, and the tables

In: nothing. Out: `alpha-steering/steering.jsonl` (one line a designer, agent, alpha and seed), `ranking.jsonl` (the
bound on ranking errors beside simulated ones), and the tables made from them. An agent here is an ability a skill:
constant, rising, or rising and then forgetting. It shows a skill with probability sigmoid(ability - difficulty);
what is measured is that probability, not a count.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from intervals import interval

from curricle.designer import Designer
from curricle.designers.policy.designer import diversity
from curricle.designers.policy.space import Space
from curricle.designers.reward import bell, ranking_error
from curricle.records import Cycle, Design, Frozen, Message, Outcome, Score, Scores, Skill, Task, Verdict, checked
from curricle.registry import find
from curricle.seeds import derive, generator
from curricle.setting import Setting, knob
from curricle.world import TaskWorld

HERE = Path(__file__).parent / "alpha-steering"
CYCLES, DESIGNS, SETTLED = 40, 4, 10
"""Cycles a run, designs a cycle, and cycles at the start that are left out of the measures."""
ATTEMPTS = 12
BAND = 0.1
AGENTS = ("constant", "improves", "forgets")
ALPHAS = (0.3, 0.5, 0.7)
DESIGNERS: dict[str, dict[str, Any]] = {
    "policy": {"id": "policy"},
    "policy, no search": {"id": "policy", "search": 0},
    "tutor": {"id": "tutor"},
    "random": {"id": "random"},
}


class SlopeSetting(Setting):
    """Five knobs; the last two do nothing."""

    height: int = knob(9, "How high the slope is.", ge=0, le=9, harder="up")
    help: int = knob(0, "How many hands help.", ge=0, le=9, harder="down")
    rope: bool = knob(False, "Whether there is a rope.", harder="down")
    colour: Literal["grey", "red", "blue"] = knob("grey", "Colour of the rock.")
    wind: float = knob(0.0, "Wind in the trees.", ge=0.0, le=1.0)


class Slope(TaskWorld):
    """Three skills on a slope, each harder than the one it needs."""

    id, Setting, guide = "slope-v1", SlopeSetting, "Get up the slope."
    skills = (
        Skill(name="walk", eased_by=Frozen(height=2)),
        Skill(name="climb", needs=("walk",), eased_by=Frozen(height=4, rope=True)),
        Skill(name="fly", needs=("climb",), eased_by=Frozen(height=4, help=6)),
    )

    def tasks(self, setting: Setting, n: int, seed: int) -> list[Task]:
        """None: nothing is played here."""
        return []

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Never asked."""
        return Verdict(reward=0.0)


def difficulty(values: Mapping[str, Any]) -> dict[str, float]:
    """Difficulty of each skill; rope and hands get in each other's way, which no model of single knobs can know."""
    height, help, rope = values["height"], values["help"], float(values["rope"])
    clash = 0.1 * help * rope
    return {
        "walk": 0.6 * height,
        "climb": 1.0 + 0.7 * height - 2.0 * rope + clash,
        "fly": 3.0 + 0.7 * height - 0.5 * help + clash,
    }


def ability(agent: str, cycle: int) -> float:
    """An agent's ability in a cycle."""
    if agent == "constant":
        return 2.5
    peak = CYCLES if agent == "improves" else CYCLES / 2
    return 1.0 + 4.0 * (cycle / peak if cycle <= peak else 2 - cycle / peak)


def rates(agent: str, cycle: int, values: Mapping[str, Any]) -> dict[str, float]:
    """Probability of each skill in a setting."""
    return {name: 1 / (1 + math.exp(d - ability(agent, cycle))) for name, d in difficulty(values).items()}


class Bench:
    """A workshop without a run."""

    def __init__(self, cycle: int) -> None:
        self.cycle = cycle

    def report(self, figures: Mapping[str, float]) -> None:
        """Nobody reads it."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"no designer here may use {name}")


def attempt(design: Design, chance: Mapping[str, float], rng: np.random.Generator, n: int) -> Outcome:
    """What n attempts in a design give."""
    shown = {name: rng.random(n) < p for name, p in chance.items()}
    successes = int(shown[design.aim].sum()) if design.aim else 0
    return Outcome(design=design, attempts=n, successes=successes, skills={k: int(v.sum()) for k, v in shown.items()})


def steer(plain: Mapping[str, Any], agent: str, seed: int, cycles: int = CYCLES, n: int = ATTEMPTS) -> dict[str, Any]:
    """Let a designer work with an agent; the true success at its aims, cycle by cycle, and how its designs differ."""
    world, kind = Slope(), find(Designer, str(plain["id"]))
    options = checked(kind.Options, {k: v for k, v in plain.items() if k != "id"}, kind.id)
    designer = kind(world.Setting, options, derive(seed, "designer"))
    space = Space(world.Setting, world.original.values, world.skills)
    past, aimed, varied = list[Cycle](), list[list[float]](), list[float]()
    for cycle in range(1, cycles + 1):
        rng = generator(seed, "attempts", cycle)
        designs = designer.propose(world.brief(cycle, cycles, past), DESIGNS, Bench(cycle))
        outcomes = [attempt(d, rates(agent, cycle, d.setting), rng, n) for d in designs]
        aimed.append([rates(agent, cycle, d.setting)[d.aim or "walk"] for d in designs])
        varied.append(diversity([space.encode(d.setting) for d in designs]))
        home = attempt(world.unaltered(), rates(agent, cycle, world.original.values), rng, n)
        skills = Frozen({s.name: Score(mean=home.share(s.name), std=0.0, n=n) for s in world.skills})
        scores = Scores(skills=skills, reward=Score(mean=0.0, std=0.0, n=n))
        designer.learn(outcomes, scores, Bench(cycle))
        past.append(Cycle(number=cycle, designed=tuple(outcomes), scores=scores))
    return {"aimed": aimed, "diversity": varied}


def measures(run: Mapping[str, Any], alpha: float) -> dict[str, float]:
    """How near, how steady and how varied, once it has settled."""
    settled = np.array(run["aimed"][SETTLED:])
    means = settled.mean(1)
    return {
        "success": float(settled.mean()),
        "distance": float(np.abs(settled - alpha).mean()),
        "in_band": float((np.abs(settled - alpha) <= BAND).mean()),
        "deviation": float(means.std()),
        "echo": float(np.corrcoef(means[:-1], means[1:])[0, 1]) if means.std() > 0 else 0.0,
        "diversity": float(np.mean(run["diversity"][SETTLED:])),
    }


def study(seeds: int) -> list[dict[str, Any]]:
    """Every designer with every agent; those that know no alpha run once and are measured against each."""
    lines = []
    for name, plain in DESIGNERS.items():
        for agent in AGENTS:
            for seed in range(seeds):
                known = "alpha" in find(Designer, plain["id"]).Options.model_fields
                runs = {
                    a: steer({**plain, **({"alpha": a} if known else {})}, agent, seed)
                    for a in ALPHAS[: 3 if known else 1]
                }
                for alpha in ALPHAS:
                    found = measures(runs.get(alpha, runs[ALPHAS[0]]), alpha)
                    lines.append({"designer": name, "agent": agent, "alpha": alpha, "seed": seed, **found})
    return lines


def ranking(draws: int = 20_000) -> list[dict[str, float]]:
    """How often two designs are ranked wrongly by n attempts each, beside the bound."""
    lines, reward = [], bell(0.5, 2.0)
    for near, far in ((0.0, 0.1), (0.0, 0.25), (0.1, 0.4), (0.0, 0.5)):
        for n in (4, 8, 16, 32, 64, 128):
            rng = generator(0, "ranking", n, round(100 * near), round(100 * far))
            wrong = 0.0
            for side in (1, -1):  # the nearer design above or below alpha; the farther one below
                better, worse = (reward(rng.binomial(n, p, draws) / n) for p in (0.5 + side * near, 0.5 - far))
                wrong = max(wrong, float((worse >= better).mean()))
            lines.append({"near": near, "far": far, "n": n, "wrong": wrong, "bound": ranking_error(near, far, n)})
    return lines


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds with their 95 % interval, in markdown."""
    head = ("designer", "agent", "alpha", "success", "distance", "in band", "deviation", "echo", "diversity")
    rows = [" | ".join(head), "|".join(["---"] * len(head))]
    for key in dict.fromkeys((x["designer"], x["agent"], x["alpha"]) for x in lines):
        mine = [x for x in lines if (x["designer"], x["agent"], x["alpha"]) == key]
        keys = ("success", "distance", "in_band", "deviation", "echo", "diversity")
        cells = [interval([x[k] for x in mine], 2) for k in keys]
        rows.append(" | ".join([*map(str, key), *cells]))
    return "\n".join(f"| {row} |" if "---" not in row else f"|{row}|" for row in rows)


def main() -> None:
    """Run the study, or print the tables of its data."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", action="store_true", help="only print the tables of the data that is there")
    arguments = parser.parse_args()
    if not arguments.tables:
        HERE.mkdir(exist_ok=True)
        for name, lines in (("steering", study(arguments.seeds)), ("ranking", ranking())):
            (HERE / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(table([json.loads(line) for line in (HERE / "steering.jsonl").read_text().splitlines()]))
    print("\n| near | far | n | wrong | bound |\n|---|---|---|---|---|")
    for line in map(json.loads, (HERE / "ranking.jsonl").read_text().splitlines()):
        print(f"| {line['near']} | {line['far']} | {line['n']} | {line['wrong']:.3f} | {line['bound']:.3f} |")


if __name__ == "__main__":
    main()
