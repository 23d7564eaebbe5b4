"""Plots of a run, out of its folder alone: designs around the band, knobs drifting, skills over cycles.

`plots(folder, out)` writes three PNG files and gives back their paths; matplotlib comes with the extra `plots`.
"""

import errno
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curricle.errors import RunError, RunUnwritable, UsageError
from curricle.records import Outcome, Scores, Value
from curricle.run import read_config, read_records
from curricle.views.designs import designs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLUMNS = 4
MOST_KNOBS = 16
"""Panels of knobs beside each other, and in all: those that are moved most."""
MANY = 18
"""Cycles from which on there is no room for everything."""
NEAR = 0.025
"""Rates less far apart than this are drawn over each other."""


def plots(folder: Path | str, out: Path | str) -> list[Path]:
    """Draw a run; it may still be running."""
    with _words_as_they_are():
        return _plots(Path(folder), Path(out))


@contextmanager
def _words_as_they_are() -> Iterator[None]:
    """Draw names with dollar signs as names: they are no mathematics, and may come from anybody."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure  # noqa: F401 - what is drawn with, looked for once
    except ImportError as error:
        raise UsageError(f"plots need matplotlib: pip install 'curricle[plots]' ({error})") from None
    with rc_context({"text.parse_math": False}):
        yield


def _plots(folder: Path, out: Path) -> list[Path]:
    config = read_config(folder)
    designed = designs(folder)
    scores = read_records(folder, Scores)
    if not scores:
        raise RunError(f"{folder} has nothing to plot yet: none of its cycles has been tested")
    drawn = {"skills": _skills([(step.cycle, score) for step, score in scores], config["schedule"]["cycles"])}
    if designed:
        title = f"{folder.resolve().name}: designs by {config['designer']['id']}"
        skills = list(scores[0][1].skills)
        drawn["designs"] = _designs(designed, config["designer"], skills, title)
        drawn["knobs"] = _knobs(designed, config["original"])
    try:
        _write(drawn, out)
    except OSError as error:
        raise RunUnwritable(f"cannot write {out}: {error.strerror or error}; choose another --out") from error
    return [out / f"{name}.png" for name in drawn]


def _write(drawn: Mapping[str, "Figure"], out: Path) -> None:
    """Write the pictures, never through a link: the folder may be somebody else's."""
    out.mkdir(parents=True, exist_ok=True)
    if out.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "it is a link", str(out))
    for name, figure in drawn.items():
        path = out / f"{name}.png"
        if path.is_symlink():
            path.unlink()
        figure.savefig(path, dpi=110, metadata={"Software": None})


def _figure(rows: int, columns: int, width: float, height: float) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _designs(
    designed: Sequence[tuple[int, Outcome]], designer: Mapping[str, Any], skills: Sequence[str], title: str
) -> "Figure":
    """Success at the aim of each design beside the band, and the share of designs per skill."""
    figure, axes = _figure(2, 1, 9, 8)
    success, shares = axes[:, 0]
    cycles = sorted({cycle for cycle, _ in designed})
    colours = _colours(designed, skills)
    if "alpha" in designer:
        alpha = designer["alpha"]
        half = designer.get("k_min", 0.0)
        success.axhspan(alpha - half, alpha + half, color="0.9", label=f"band {alpha:g} ± {half:g}")
    _dots(success, designed, colours)
    means = {c: [o.rate for at, o in designed if at == c and o.rate is not None] for c in cycles}
    known = [c for c in cycles if means[c]]
    mean = [sum(means[c]) / len(means[c]) for c in known]
    success.plot(known, mean, color="black", lw=1, zorder=1, label="mean of the cycle")
    success.set(ylim=(-0.03, 1.03), ylabel="success at the aim", title=title)
    floor = [0.0] * len(cycles)
    for aim, colour in colours.items():
        share = [_share(designed, cycle, aim) for cycle in cycles]
        shares.bar(cycles, share, width=0.8 if len(cycles) < MANY else 1.0, bottom=floor, color=colour, label=aim)
        floor = [a + b for a, b in zip(floor, share, strict=True)]
    shares.set(xlabel="cycle", ylabel="share of the designs")
    for axis in (success, shares):
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
        _count(axis.xaxis)
        axis.set_xlim(cycles[0] - 0.6, cycles[-1] + 0.6)
    return figure


def _dots(axis: "Axes", designed: Sequence[tuple[int, Outcome]], colours: Mapping[str, Any]) -> None:
    """A dot a design, in the colour of its aim; those of a cycle that lie at one height stand side by side."""
    cycles = {cycle for cycle, _ in designed}
    order = list(colours)
    area = 30 * min(1.0, MANY / len(cycles))
    for cycle in sorted(cycles):
        tried = [(o.rate, _aim(o)) for at, o in designed if at == cycle and o.rate is not None]
        tried.sort(key=lambda dot: order.index(dot[1]))
        rates = [rate for rate, _ in tried]
        places = [cycle + aside for aside in _asides(rates, 0.016 * len(cycles))]  # as wide as a dot, about
        axis.scatter(places, rates, color=[colours[aim] for _, aim in tried], s=area, ec="white", lw=0.4, zorder=2)
    axis.scatter([], [], color="0.5", s=area, label="one design,\ncolours as below")


def _asides(rates: Sequence[float], step: float) -> list[float]:
    """How far each dot of a cycle steps aside so that none hides another of almost the same height."""
    groups: list[list[int]] = []
    for i in sorted(range(len(rates)), key=lambda i: rates[i]):
        if groups and rates[i] - rates[groups[-1][0]] < NEAR:
            groups[-1].append(i)
        else:
            groups.append([i])
    asides = [0.0] * len(rates)
    for group in groups:
        for place, i in enumerate(sorted(group)):
            asides[i] = min(step, 0.8 / len(group)) * (place - (len(group) - 1) / 2)
    return asides


def _knobs(designed: Sequence[tuple[int, Outcome]], original: Mapping[str, Value]) -> "Figure":
    """The values of the knobs that were moved, cycle by cycle, those moved most first; the original's is dashed."""
    settings = [outcome.design.setting for _, outcome in designed]
    times = Counter({n: sum(setting.get(n) != original[n] for setting in settings) for n in original})
    moved = [name for name, count in times.most_common() if count] or [*original][:1]
    shown = moved[:MOST_KNOBS]
    rows = -(-len(shown) // COLUMNS)
    figure, axes = _figure(rows, COLUMNS, 3 * COLUMNS, 2.1 * rows + 1.0)
    for i, (axis, name) in enumerate(zip(axes.flat, shown, strict=False)):
        _knob(axis, [(cycle, o.design.setting[name]) for cycle, o in designed], original[name])
        axis.set_title(f"{name} ({times[name] / len(settings):.0%})", fontsize=9)
        axis.set_xlabel("cycle" if i + COLUMNS >= len(shown) else "", fontsize=8)  # the lowest of each column
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    left = f"; less often moved: {len(moved) - len(shown)} more" if len(moved) > len(shown) else ""
    meaning = "dashed: the original; dots: values in the designs of a cycle, larger where several designs share one"
    figure.suptitle(f"Knobs over cycles (share of the designs that move it{left})\n{meaning}", fontsize=10)
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
    names = list(scores[0][1].skills)
    many = len(scores) > MANY
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
    aims = [_aim(outcome) for at, outcome in designed if at == cycle]
    return aims.count(aim) / len(aims)


def _aim(outcome: Outcome) -> str:
    return outcome.design.aim or "everything"


def _colours(designed: Sequence[tuple[int, Outcome]], skills: Sequence[str]) -> dict[str, Any]:
    """The aims of a run in the order of the world's skills; a skill has one colour in all runs of its world."""
    from matplotlib import colormaps

    names = ("tab10",) if len(skills) < 10 else ("tab20", "tab20b")
    palette = [colormaps[name](i) for name in names for i in range(colormaps[name].N)]
    aims = {_aim(outcome) for _, outcome in designed}
    order = dict.fromkeys([*skills, *sorted(aims)])  # "everything" is no skill and comes last
    return {aim: palette[i % len(palette)] for i, aim in enumerate(order) if aim in aims}
