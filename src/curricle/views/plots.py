"""Plots of a run, out of its folder alone: designs around the band, knobs drifting, skills over cycles.

`plots(folder, out)` writes three PNG files and gives back their paths; matplotlib comes with the extra `plots`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curricle.errors import RunError, UsageError
from curricle.records import Design, Outcome, Scores, Value
from curricle.run import read_config, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4


def plots(folder: Path | str, out: Path | str) -> list[Path]:
    """Draw a run; it may still be running."""
    folder, out = Path(folder), Path(out)
    config, designed, scores = read_config(folder), designs(folder), read_records(folder, Scores)
    if not scores:
        raise RunError(f"{folder} has nothing to plot yet: none of its cycles has been tested")
    drawn = {"skills": _skills([(step.cycle, score) for step, score in scores], config["schedule"]["cycles"])}
    if designed:
        drawn |= {"designs": _designs(designed, config["designer"]), "knobs": _knobs(designed, config["original"])}
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        figure.savefig(out / f"{name}.png", dpi=110, metadata={"Software": None})
    return [out / f"{name}.png" for name in drawn]


def designs(folder: Path) -> list[tuple[int, Outcome]]:
    """Each design with the cycle it was practised in, and all that came of it there."""
    proposed = {(step.cycle, design) for step, design in read_records(folder, Design)}
    parts: dict[tuple[int, int], list[Outcome]] = {}
    seen = Counter[tuple[int, int]]()
    for step, outcome in read_records(folder, Outcome):
        if step.phase == "designed" and (step.cycle, outcome.design) in proposed:  # else: the original stood in
            at = (step.cycle, step.part)
            parts.setdefault((step.cycle, seen[at]), []).append(outcome)
            seen[at] += 1
    return [(cycle, Outcome.merge(outcomes)) for (cycle, _), outcomes in parts.items()]


def _figure(rows: int, columns: int, width: float, height: float) -> tuple["Figure", Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"plots need matplotlib: pip install 'curricle[plots]' ({error})") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _designs(designed: Sequence[tuple[int, Outcome]], designer: Mapping[str, Any]) -> "Figure":
    """Success at the aim of each design beside the band, and the share of designs per skill."""
    figure, axes = _figure(2, 1, 9, 8)
    success, shares = axes[:, 0]
    cycles = sorted({cycle for cycle, _ in designed})
    aims = sorted({outcome.design.aim or "everything" for _, outcome in designed})
    if "alpha" in designer:
        alpha, half = designer["alpha"], designer.get("k_min", 0.0)
        success.axhspan(alpha - half, alpha + half, color="0.9", label=f"band {alpha:g} ± {half:g}")
    colours = _colours(len(aims))
    for aim, colour in zip(aims, colours, strict=True):
        mine = [(c, o.rate) for c, o in designed if (o.design.aim or "everything") == aim and o.rate is not None]
        success.scatter([c for c, _ in mine], [rate for _, rate in mine], color=colour, s=30)
    means = {c: [o.rate for at, o in designed if at == c and o.rate is not None] for c in cycles}
    known = [c for c in cycles if means[c]]
    success.plot(known, [sum(means[c]) / len(means[c]) for c in known], color="black", lw=1, label="mean of the cycle")
    success.set(ylim=(-0.03, 1.03), ylabel="success at the aim", title="Designs")
    success.legend(loc="upper right", fontsize=8)
    floor = [0.0] * len(cycles)
    for aim, colour in zip(aims, colours, strict=True):
        share = [_share(designed, cycle, aim) for cycle in cycles]
        shares.bar(cycles, share, bottom=floor, color=colour, label=aim)
        floor = [a + b for a, b in zip(floor, share, strict=True)]
    shares.set(xlabel="cycle", ylabel="share of the designs")
    shares.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    for axis in (success, shares):
        axis.set_xticks(cycles)
        axis.set_xlim(cycles[0] - 0.6, cycles[-1] + 0.6)
    return figure


def _knobs(designed: Sequence[tuple[int, Outcome]], original: Mapping[str, Value]) -> "Figure":
    """The values of every knob that was ever moved, cycle by cycle; the original's is dashed."""
    moved = [n for n in original if any(o.design.setting.get(n) != original[n] for _, o in designed)] or [*original][:1]
    rows = -(-len(moved) // COLUMNS)
    figure, axes = _figure(rows, COLUMNS, 3 * COLUMNS, 2.1 * rows + 0.3)
    for axis, name in zip(axes.flat, moved, strict=False):
        _knob(axis, name, [(cycle, o.design.setting[name]) for cycle, o in designed], original[name])
    for axis in axes.flat[len(moved) :]:
        axis.set_visible(False)
    return figure


def _knob(axis: "Axes", name: str, points: Sequence[tuple[int, Value]], home: Value) -> None:
    """One knob: a dot for each value and cycle, larger where several designs share it."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for _, value in points)
    words = [] if numbers else sorted({str(value) for _, value in points} | {str(home)})
    sizes = Counter((cycle, value if numbers else words.index(str(value))) for cycle, value in points)
    axis.axhline(float(home) if numbers else words.index(str(home)), color="0.6", ls="--", lw=1)
    axis.scatter([c for c, _ in sizes], [float(v) for _, v in sizes], s=[18 * n for n in sizes.values()], alpha=0.7)
    axis.set_title(name, fontsize=9)
    axis.set_xticks(sorted({cycle for cycle, _ in points}))
    if words:
        axis.set_yticks(range(len(words)), [word[:20] for word in words], fontsize=7)


def _skills(scores: Sequence[tuple[int, Scores]], cycles: int) -> "Figure":
    """Success at each skill in the original world, tested after every cycle."""
    names = list(scores[0][1].skills)
    figure, axes = _figure(1, 1, 3 + 0.7 * len(scores), 1.2 + 0.28 * len(names))
    axis = axes[0, 0]
    table = [[100 * score.skills[name].mean for _, score in scores] for name in names]
    axis.imshow(table, cmap="Greens", vmin=0, vmax=100, aspect="auto")
    for y, row in enumerate(table):
        for x, percent in enumerate(row):
            axis.text(x, y, f"{percent:.0f}", ha="center", va="center", fontsize=7, color="w" if percent > 60 else "k")
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_xticks(range(len(scores)), ["final" if cycle > cycles else str(cycle) for cycle, _ in scores])
    axis.set(xlabel="cycle", title="Success in the original world, %")
    return figure


def _share(designed: Sequence[tuple[int, Outcome]], cycle: int, aim: str) -> float:
    aims = [outcome.design.aim or "everything" for at, outcome in designed if at == cycle]
    return aims.count(aim) / len(aims)


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["tab20" if count <= 20 else "nipy_spectral"](i / max(1, count - 1)) for i in range(count)]
