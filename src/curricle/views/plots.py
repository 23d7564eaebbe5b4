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
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLUMNS, MOST_KNOBS = 4, 16
"""Panels of knobs beside each other, and in all: those that are moved most."""
MANY = 18
"""Cycles from which on there is no room for everything."""


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
        shares.bar(cycles, share, width=0.8 if len(cycles) < MANY else 1.0, bottom=floor, color=colour, label=aim)
        floor = [a + b for a, b in zip(floor, share, strict=True)]
    shares.set(xlabel="cycle", ylabel="share of the designs")
    shares.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    for axis in (success, shares):
        _count(axis.xaxis)
        axis.set_xlim(cycles[0] - 0.6, cycles[-1] + 0.6)
    return figure


def _knobs(designed: Sequence[tuple[int, Outcome]], original: Mapping[str, Value]) -> "Figure":
    """The values of the knobs that were moved, cycle by cycle, those moved most first; the original's is dashed."""
    settings = [outcome.design.setting for _, outcome in designed]
    times = Counter({n: sum(setting.get(n) != original[n] for setting in settings) for n in original})
    moved = [name for name, count in times.most_common() if count] or [*original][:1]
    shown = moved[:MOST_KNOBS]
    rows = -(-len(shown) // COLUMNS)
    figure, axes = _figure(rows, COLUMNS, 3 * COLUMNS, 2.1 * rows + 0.6)
    for axis, name in zip(axes.flat, shown, strict=False):
        _knob(axis, [(cycle, o.design.setting[name]) for cycle, o in designed], original[name])
        axis.set_title(f"{name} ({times[name] / len(settings):.0%})", fontsize=9)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    left = f"; less often moved: {len(moved) - len(shown)} more" if len(moved) > len(shown) else ""
    figure.suptitle(f"Knobs over cycles (share of the designs that move it{left})", fontsize=10)
    return figure


def _knob(axis: "Axes", points: Sequence[tuple[int, Value]], home: Value) -> None:
    """One knob: a dot for each value and cycle, larger where several designs share it."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for _, value in points)
    words = [] if numbers else sorted({str(value) for _, value in points} | {str(home)})
    sizes = Counter((cycle, value if numbers else words.index(str(value))) for cycle, value in points)
    room = min(1.0, MANY / len({cycle for cycle, _ in points}))
    areas = [18 * room * count for count in sizes.values()]
    axis.axhline(float(home) if numbers else words.index(str(home)), color="0.6", ls="--", lw=1)
    axis.scatter([c for c, _ in sizes], [float(v) for _, v in sizes], s=areas, alpha=0.7, lw=0)
    _count(axis.xaxis, 8)
    if len(words) > MANY:  # texts, mostly
        axis.set_yticks([])
        axis.set_ylabel(f"{len(words)} values", fontsize=8)
    elif words:
        axis.set_yticks(range(len(words)), [word[:20] for word in words], fontsize=7)
    elif all(isinstance(value, int) for _, value in points):
        _count(axis.yaxis, 5)


def _skills(scores: Sequence[tuple[int, Scores]], cycles: int) -> "Figure":
    """Success at each skill in the original world, tested after every cycle; in figures too where there is room."""
    names, many = list(scores[0][1].skills), len(scores) > MANY
    figure, axes = _figure(1, 1, 3 + 0.7 * min(len(scores), MANY), 1.2 + 0.28 * len(names))
    axis = axes[0, 0]
    table = [[100 * score.skills[name].mean for _, score in scores] for name in names]
    shades = axis.imshow(table, cmap="Greens", vmin=0, vmax=100, aspect="auto")
    written = [(x, y, percent) for y, row in enumerate(table) for x, percent in enumerate(row) if not many]
    for x, y, percent in written:
        axis.text(x, y, f"{percent:.0f}", ha="center", va="center", fontsize=7, color="w" if percent > 60 else "k")
    if many:
        figure.colorbar(shades, pad=0.01)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    labels = ["final" if cycle > cycles else str(cycle) for cycle, _ in scores]
    places = [x for x, label in enumerate(labels) if not many or int(scores[x][0]) % 5 == 0 or label == "final"]
    axis.set_xticks(places, [labels[x] for x in places])
    axis.set(xlabel="cycle", title="Success in the original world, %")
    return figure


def _count(axis: "Axis", most: int = 16) -> None:
    """Label an axis of whole numbers, not more of them than are legible."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _share(designed: Sequence[tuple[int, Outcome]], cycle: int, aim: str) -> float:
    aims = [outcome.design.aim or "everything" for at, outcome in designed if at == cycle]
    return aims.count(aim) / len(aims)


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["tab20" if count <= 20 else "nipy_spectral"](i / max(1, count - 1)) for i in range(count)]
