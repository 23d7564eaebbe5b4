"""Tables and pictures of the study, from its lines of data."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reporting import interval, markdown

Line = dict[str, Any]
LAST = 5
"""Tests at the end of a run that its success is the mean of: one test has 50 tasks a level."""
REACHED = 0.5
"""Success at which a level counts as reached, as the mean of three tests."""
LEVELS = range(1, 7)
COST = (
    "arm",
    "success, by fifths",
    "refused",
    "copies",
    "fallback",
    "distinct",
    "updates",
    "trials",
    "designer, s",
    "all, s",
)
"""Columns of the table on designers."""


def final(line: Line, level: int = 6) -> float:
    """Success at a level in the last tests of a run, in percent; not a number if it was not tested."""
    rates = [test[level - 1] for test in line["tests"][-LAST:]]
    return math.nan if None in rates else 100 * statistics.fmean(rates)


def rungs(line: Line) -> float:
    """How far up the ladder a run ended: success summed over the levels, from 0 to 6."""
    return sum(final(line, level) for level in LEVELS) / 100


def reached_at(line: Line, level: int) -> float:
    """Rollouts after which a level is reached for the first time; infinite if it never is."""
    rollouts = 0
    for cycle, spent in enumerate(line["rollouts"]):
        rollouts += spent
        window = [test[level - 1] for test in line["tests"][max(0, cycle - 2) : cycle + 1]]
        if len(window) == 3 and None not in window and statistics.fmean(window) >= REACHED:
            return rollouts
    return math.inf


def by_arm(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines of each arm, by seed."""
    arms: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["seed"]):
        arms.setdefault(line["arm"], []).append(line)
    return arms


def probability_of_improvement(better: Sequence[float], other: Sequence[float]) -> float:
    """How likely a run of one arm is ahead of a run of another; a tie counts half."""
    wins = 0.0
    for one in better:
        for two in other:
            wins += 1.0 if one > two else 0.5 * (one == two)
    return wins / (len(better) * len(other))


def paired(better: Sequence[Line], other: Sequence[Line], measure: Callable[[Line], float]) -> str:
    """The gain of one arm over another by seed, with its interval."""
    ends = {line["seed"]: measure(line) for line in other}
    gains = [measure(line) - ends[line["seed"]] for line in better if line["seed"] in ends]
    return interval(gains) if gains and not any(math.isnan(gain) for gain in gains) else "-"


def thousands(values: Sequence[float]) -> str:
    """The median of rollouts in thousands, and in how many runs a level was reached at all."""
    count = sum(math.isfinite(value) for value in values)
    median = statistics.median(values)
    what = f"{median / 1000:.0f}k" if math.isfinite(median) else "not reached"
    return f"{what} ({count} of {len(values)})"


def summary(lines: Sequence[Line], ours: str = "genenv") -> str:
    """All tables: what each arm learnt, how it compares with GenEnv, and what the environment policy did."""
    arms = by_arm(lines)
    learnt = []
    compared = []
    cost = []
    for name, mine in arms.items():
        rollouts = sum(mine[0]["rollouts"])
        levels = [percent([final(line, level) for line in mine]) for level in LEVELS]
        learnt.append((name, len(mine), f"{rollouts:,}", *levels))
        reached = []
        for level in (4, 5, 6):
            tested = mine[0]["tests"][0][level - 1] is not None
            reached.append(thousands([reached_at(line, level) for line in mine]) if tested else "-")
        compared.append((name, *reached, *against(arms.get(ours, []), mine)))
        cost.append((name, *designer_columns(mine)))
    tables = [
        markdown(("arm", "seeds", "rollouts", *(f"level {level}" for level in LEVELS)), learnt),
        markdown(
            (
                "arm",
                *(f"level {level} reached" for level in (4, 5, 6)),
                "rungs",
                f"{ours} ahead, rungs",
                f"{ours} ahead, level 6",
                "P(ahead)",
            ),
            compared,
        ),
        markdown(
            (
                "arm",
                "success, by fifths",
                "refused",
                "copies",
                "fallback",
                "distinct",
                "updates",
                "trials",
                "designer, s",
                "all, s",
            ),
            cost,
        ),
    ]
    return "\n\n".join(tables)


def against(ours: Sequence[Line], mine: Sequence[Line]) -> tuple[str, ...]:
    """How far up the ladder an arm came, and how far ours is ahead of it."""
    heights = [rungs(line) for line in mine]
    height = "-" if any(math.isnan(value) for value in heights) else interval(heights)
    if not ours or mine is ours:
        return height, "-", "-", "-"
    chance = "-"
    if height != "-":
        chance = f"{probability_of_improvement([rungs(line) for line in ours], heights):.2f}"
    return height, paired(ours, mine, rungs), paired(ours, mine, final), chance


def percent(values: Sequence[float]) -> str:
    """Mean and interval; a dash where the level was not tested."""
    return "-" if any(math.isnan(value) for value in values) else interval(values, 0)


def designer_columns(mine: Sequence[Line]) -> tuple[str, ...]:
    """Success in practice, what became of the candidates, and seconds."""
    fifths = []
    for part in range(5):
        rates = []
        for line in mine:
            count = len(line["success"])
            rates += line["success"][part * count // 5 : (part + 1) * count // 5]
        fifths.append(f"{statistics.fmean(rates):.2f}".lstrip("0") if rates else "-")
    shares = []
    for name in ("refused", "duplicate", "fallback"):
        values = [sum(line["writing"][name]) for line in mine if "candidates" in line["writing"]]
        written = [sum(line["writing"]["candidates"]) for line in mine if "candidates" in line["writing"]]
        shares.append(f"{sum(values) / sum(written):.0%}" if written else "-")
    distinct = [statistics.fmean(line["writing"]["distinct_2"]) for line in mine if "distinct_2" in line["writing"]]
    shares.append(f"{statistics.fmean(distinct):.2f}" if distinct else "-")
    updates = [sum(line["writing"].get("updates", [0])) for line in mine]
    trials = [line["trials"] for line in mine]
    seconds = [line["seconds"].get("propose", 0) + line["seconds"].get("learn", 0) for line in mine]
    total = [sum(line["seconds"].values()) for line in mine]
    return (
        " ".join(fifths),
        *shares,
        f"{statistics.fmean(updates):.0f}",
        f"{statistics.fmean(trials):,.0f}",
        f"{statistics.fmean(seconds):.0f}",
        f"{statistics.fmean(total):.0f}",
    )


def levels_table(lines: Sequence[Line]) -> str:
    """Success at every level as practice goes on, one row a tenth of it."""
    rows = []
    for line in lines:
        count = len(line["tests"])
        for number in sorted({max(1, count * part // 10) for part in range(1, 11)}):
            rollouts = sum(line["rollouts"][:number])
            rates = ["-" if rate is None else f"{rate:.2f}" for rate in line["tests"][number - 1]]
            shares = [f"{share:.0%}" for share in line["shares"][number - 1]]
            rows.append((line["arm"], f"{rollouts:,}", *rates, " ".join(shares)))
    columns = ("arm", "rollouts", *(f"level {level}" for level in LEVELS), "practice at levels 1 to 6")
    return markdown(columns, rows)


def draw(lines: Sequence[Line], path: Path) -> None:
    """How far up the ladder each arm came; GenEnv's success at every level; and the levels of what its policy wrote."""
    from matplotlib.figure import Figure

    arms = by_arm(lines)
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    height, levels, written = figure.subplots(1, 3)
    for name, mine in arms.items():
        _draw_band(height, mine, tuple(LEVELS), f"{name} ({len(mine)})")
    height.set(title="all arms", xlabel="rollouts", ylabel="success, summed over six levels", ylim=(-0.1, 6.1))
    height.legend(fontsize="small")
    mine = arms.get("genenv", [])
    if mine:
        for level in LEVELS:
            _draw_band(levels, mine, (level,), f"level {level}")
        levels.set(title="genenv, every level", xlabel="rollouts", ylabel="success in tests", ylim=(-0.02, 1.02))
        levels.legend(fontsize="small", loc="center left")
        shares = mean_shares(mine)
        spent = cumulated(mine[0]["rollouts"])[: len(shares)]
        written.stackplot(spent, *zip(*shares, strict=True), labels=[f"level {level}" for level in LEVELS])
        written.set(title="genenv, what was written", xlabel="rollouts", ylabel="share", ylim=(0, 1))
    figure.savefig(path, dpi=100)


def _draw_band(axis: Any, mine: Sequence[Line], levels: Sequence[int], label: str) -> None:
    """Success at some levels, summed: the mean over seeds, and from the lowest to the highest seed."""
    runs = []
    for line in mine:
        rates = [[test[level - 1] for level in levels] for test in line["tests"]]
        if any(None in of_test for of_test in rates):
            return
        runs.append(smoothed([sum(of_test) for of_test in rates]))
    by_test = list(zip(*runs, strict=False))
    spent = cumulated(mine[0]["rollouts"])[: len(by_test)]
    axis.plot(spent, [statistics.fmean(values) for values in by_test], label=label)
    axis.fill_between(spent, [min(values) for values in by_test], [max(values) for values in by_test], alpha=0.12)


def mean_shares(mine: Sequence[Line]) -> list[list[float]]:
    """The share of each level in what was written in a cycle, the mean over seeds."""
    means = []
    for of_seeds in zip(*(line["written"] for line in mine), strict=False):
        means.append([statistics.fmean(values) for values in zip(*of_seeds, strict=True)])
    return means


def cumulated(values: Sequence[float]) -> list[float]:
    """Running sums."""
    total = 0.0
    sums = []
    for value in values:
        total += value
        sums.append(total)
    return sums


def smoothed(values: Sequence[float]) -> list[float]:
    """Means over three neighbours: one test has 50 tasks a level."""
    return [statistics.fmean(values[max(0, i - 1) : i + 2]) for i in range(len(values))]
