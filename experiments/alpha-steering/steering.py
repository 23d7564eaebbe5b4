"""Does a designer bring success to alpha and keep it there? In a world whose success rates are known in closed form.

    python experiments/alpha-steering/steering.py run        # writes the data again; some minutes
    python experiments/alpha-steering/steering.py table
    python experiments/alpha-steering/steering.py ranking

The data: `steering.jsonl` has one line a designer, agent, alpha and seed; `ranking.jsonl` has the bound on ranking
errors beside simulated ones. An agent here is an ability: constant, rising, or rising and then falling. It shows a
skill with probability sigmoid(ability - difficulty). What is measured is that probability, not a count.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from reporting import interval, markdown, read_lines

from curricle import setting as knobs
from curricle.designer import Designer
from curricle.designers.policy.designer import diversity
from curricle.designers.policy.space import Space
from curricle.designers.reward import alpha_reward, ranking_error
from curricle.records import Cycle, Design, Frozen, Message, Outcome, Score, Scores, Skill, Task, Verdict, checked
from curricle.registry import find
from curricle.seeds import derive, generator
from curricle.world import TaskWorld

HERE = Path(__file__).parent
STEERING = HERE / "steering.jsonl"
RANKING = HERE / "ranking.jsonl"
CYCLES = 40
DESIGNS = 4
ATTEMPTS = 12
SETTLED = 10
"""Cycles at the start that are left out of the measures."""
BAND = 0.1
AGENTS = ("constant", "improves", "forgets")
ALPHAS = (0.3, 0.5, 0.7)
DESIGNERS: dict[str, dict[str, Any]] = {
    "policy": {"id": "policy"},
    "policy, no search": {"id": "policy", "search_rounds": 0},
    "tutor": {"id": "tutor"},
    "random": {"id": "random"},
}


class SlopeSetting(knobs.Setting):
    """Five knobs; the last two do nothing."""

    height: int = knobs.knob(9, "How high the slope is.", ge=0, le=9, harder="up")
    help: int = knobs.knob(0, "How many hands help.", ge=0, le=9, harder="down")
    rope: bool = knobs.knob(False, "Whether there is a rope.", harder="down")
    colour: Literal["grey", "red", "blue"] = knobs.knob("grey", "Colour of the rock.")
    wind: float = knobs.knob(0.0, "Wind in the trees.", ge=0.0, le=1.0)


class Slope(TaskWorld):
    """Three skills on a slope, each harder than the one it needs."""

    id = "slope-v1"
    Setting = SlopeSetting
    guide = "Get up the slope."
    skills = (
        Skill(name="walk", eased_by=Frozen(height=2)),
        Skill(name="climb", needs=("walk",), eased_by=Frozen(height=4, rope=True)),
        Skill(name="fly", needs=("climb",), eased_by=Frozen(height=4, help=6)),
    )

    def tasks(self, setting: knobs.Setting, n: int, seed: int) -> list[Task]:
        """None: nothing is played here."""
        return []

    def score(self, task: Task, transcript: Sequence[Message]) -> Verdict:
        """Never asked."""
        return Verdict(reward=0.0)


def difficulty(values: Mapping[str, Any]) -> dict[str, float]:
    """Difficulty of each skill. Rope and hands hinder each other, which no model of single knobs can know."""
    height = values["height"]
    hands = values["help"]
    rope = float(values["rope"])
    clash = 0.1 * hands * rope
    return {
        "walk": 0.6 * height,
        "climb": 1.0 + 0.7 * height - 2.0 * rope + clash,
        "fly": 3.0 + 0.7 * height - 0.5 * hands + clash,
    }


def ability(agent: str, cycle: int) -> float:
    """An agent's ability in a cycle."""
    if agent == "constant":
        return 2.5
    peak = CYCLES if agent == "improves" else CYCLES / 2
    share = cycle / peak if cycle <= peak else 2 - cycle / peak
    return 1.0 + 4.0 * share


def success_rates(agent: str, cycle: int, values: Mapping[str, Any]) -> dict[str, float]:
    """Probability of each skill in a setting."""
    level = ability(agent, cycle)
    return {name: 1 / (1 + math.exp(hard - level)) for name, hard in difficulty(values).items()}


class NoWorkshop:
    """A workshop without a run."""

    def __init__(self, cycle: int) -> None:
        self.cycle = cycle

    def report(self, metrics: Mapping[str, float]) -> None:
        """Nobody reads them."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"no designer here may use {name}")


def attempt(design: Design, rates: Mapping[str, float], rng: np.random.Generator, n: int) -> Outcome:
    """The outcome of n attempts in a design."""
    shown = {name: rng.random(n) < rate for name, rate in rates.items()}
    return Outcome(
        design=design,
        attempts=n,
        successes=int(shown[design.aim].sum()) if design.aim else 0,
        skills={name: int(attempts.sum()) for name, attempts in shown.items()},
    )


def steer(plain: Mapping[str, Any], agent: str, seed: int, cycles: int = CYCLES, n: int = ATTEMPTS) -> dict[str, Any]:
    """Let a designer work with an agent. Returns the true success at its aims, and how its designs differ, by cycle."""
    world = Slope()
    kind = find(Designer, str(plain["id"]))
    options = checked(kind.Options, {key: value for key, value in plain.items() if key != "id"}, kind.id)
    designer = kind(world.Setting, options, derive(seed, "designer"))
    space = Space(world.Setting, world.original.values, world.skills)
    past: list[Cycle] = []
    aimed: list[list[float]] = []
    varied: list[float] = []
    for cycle in range(1, cycles + 1):
        rng = generator(seed, "attempts", cycle)
        workshop: Any = NoWorkshop(cycle)
        designs = designer.propose(world.brief(cycle, cycles, past), DESIGNS, workshop)
        rates = [success_rates(agent, cycle, design.setting) for design in designs]
        outcomes = [attempt(design, chance, rng, n) for design, chance in zip(designs, rates, strict=True)]
        aimed.append([chance[design.aim or "walk"] for design, chance in zip(designs, rates, strict=True)])
        varied.append(diversity([space.encode(design.setting) for design in designs]))
        home = attempt(world.unaltered(), success_rates(agent, cycle, world.original.values), rng, n)
        skills = Frozen({skill.name: Score(mean=home.share(skill.name), std=0.0, n=n) for skill in world.skills})
        scores = Scores(skills=skills, reward=Score(mean=0.0, std=0.0, n=n))
        designer.learn(outcomes, scores, workshop)
        past.append(Cycle(number=cycle, designed=tuple(outcomes), scores=scores))
    return {"aimed": aimed, "diversity": varied}


def measures(run: Mapping[str, Any], alpha: float) -> dict[str, float]:
    """How near to alpha, how steady and how varied, once the designer has settled."""
    settled = np.array(run["aimed"][SETTLED:])
    means = settled.mean(1)
    distances = np.abs(settled - alpha)
    return {
        "success": float(settled.mean()),
        "distance": float(distances.mean()),
        "in_band": float((distances <= BAND).mean()),
        "deviation": float(means.std()),
        "echo": float(np.corrcoef(means[:-1], means[1:])[0, 1]) if means.std() > 0 else 0.0,
        "diversity": float(np.mean(run["diversity"][SETTLED:])),
    }


def study(seeds: int) -> list[dict[str, Any]]:
    """Every designer with every agent. Those that know no alpha run once and are measured against each."""
    lines = []
    for name, plain in DESIGNERS.items():
        knows_alpha = "alpha" in find(Designer, plain["id"]).Options.model_fields
        for agent in AGENTS:
            for seed in range(seeds):
                if knows_alpha:
                    runs = {alpha: steer({**plain, "alpha": alpha}, agent, seed) for alpha in ALPHAS}
                else:
                    runs = dict.fromkeys(ALPHAS, steer(plain, agent, seed))
                for alpha in ALPHAS:
                    line = {"designer": name, "agent": agent, "alpha": alpha, "seed": seed}
                    lines.append({**line, **measures(runs[alpha], alpha)})
    return lines


def ranking(draws: int = 20_000) -> list[dict[str, float]]:
    """How often two designs are ranked wrongly by n attempts each, beside the bound."""
    lines = []
    reward = alpha_reward(0.5, 2.0)
    for near, far in ((0.0, 0.1), (0.0, 0.25), (0.1, 0.4), (0.0, 0.5)):
        for n in (4, 8, 16, 32, 64, 128):
            rng = generator(0, "ranking", n, round(100 * near), round(100 * far))
            wrong = 0.0
            for side in (1, -1):  # the nearer design above or below alpha; the farther one below
                better = reward(rng.binomial(n, 0.5 + side * near, draws) / n)
                worse = reward(rng.binomial(n, 0.5 - far, draws) / n)
                wrong = max(wrong, float((worse >= better).mean()))
            lines.append({"near": near, "far": far, "n": n, "wrong": wrong, "bound": ranking_error(near, far, n)})
    return lines


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """One row a designer and agent: success and share of designs in the band at each alpha; steadiness at 0.5."""
    rows = []
    for designer in DESIGNERS:
        for agent in AGENTS:
            mine = [line for line in lines if (line["designer"], line["agent"]) == (designer, agent)]
            cells = [designer, agent]
            for alpha in ALPHAS:
                success = interval([line["success"] for line in mine if line["alpha"] == alpha], 2)
                in_band = statistics.fmean(line["in_band"] for line in mine if line["alpha"] == alpha)
                cells.append(f"{success}, {in_band:.0%}")
            for name in ("deviation", "echo", "diversity"):
                cells.append(interval([line[name] for line in mine if line["alpha"] == 0.5], 2))
            rows.append(cells)
    columns = ["designer", "agent", *(f"alpha {alpha}: success, in band" for alpha in ALPHAS)]
    return markdown([*columns, "deviation", "echo", "diversity"], rows)


def ranking_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """One row a pair of designs: the share of wrong rankings, and the bound on it, by attempts a design."""
    counts = sorted({line["n"] for line in lines})
    pairs: dict[tuple[float, float], dict[int, str]] = {}
    for line in lines:
        cell = f"{line['wrong']:.3f} / {line['bound']:.3f}"
        pairs.setdefault((line["near"], line["far"]), {})[line["n"]] = cell
    rows = [(near, far, *(cells[n] for n in counts)) for (near, far), cells in pairs.items()]
    return markdown(["near", "far", *(f"{n} attempts" for n in counts)], rows)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write a data file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Run the study, or print one of the tables of its data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table", "ranking"])
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.command == "run":
        write_lines(STEERING, study(arguments.seeds))
        write_lines(RANKING, ranking())
    elif arguments.command == "table":
        print(table(read_lines(STEERING)))
    else:
        print(ranking_table(read_lines(RANKING)))


if __name__ == "__main__":
    main()
