"""The designs of a run: what each changes in the original and what came of it, out of its folder alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from curricle.errors import RunError, UsageError
from curricle.records import Design, Outcome, Value, Values
from curricle.run import read_config, read_records

MOST_VALUE = 40
MOST_WHY = 80
"""Characters of a knob's text and of a reason that are shown."""


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


def designs_table(folder: Path | str, cycle: int | None = None) -> Table:
    """One row a design, of all cycles or of one; equal designs of a cycle are put together."""
    folder = Path(folder)
    config = read_config(folder)
    found = _together(designs_so_far(folder))
    own = config["designer"]["id"]
    cycles = sorted({at for at, _ in found})
    if not found:
        raise RunError(f"{folder} has no designs to show: {own} has made none so far")
    if cycle is not None and cycle not in cycles:
        raise UsageError(f"{folder} has no designs of cycle {cycle}; it has those of {', '.join(map(str, cycles))}")
    rows = [(at, outcomes) for at, outcomes in found if cycle in (None, at)]
    replaced = any(_fallback(outcomes[0].design, own) for _, outcomes in rows)
    caption = "knobs that differ from the original; success: attempts that showed the aim; - not practised so far"
    shown = Table(title=Text(f"{folder.resolve().name}: designs by {own}"), caption=caption)
    for name in ("cycle", "aim", "knobs", "success", *(["by"] if replaced else []), "why"):
        shown.add_column(name, justify="right" if name in ("cycle", "success") else "left")
    for i, (at, outcomes) in enumerate(rows):
        design = outcomes[0].design
        by = [Text(_fallback(design, own))] if replaced else []
        cells = (Text(_aim(outcomes)), Text(moved_knobs(design.setting, config["original"])), _success(outcomes))
        last = i + 1 == len(rows) or rows[i + 1][0] != at
        shown.add_row(str(at), *cells, *by, Text(_cut(design.why, MOST_WHY)), end_section=last)
    return shown


def designs_so_far(folder: Path) -> list[tuple[int, Outcome]]:
    """All designs; those that no practice has tried so far come with no attempts."""
    done = designs(folder)
    practised = {step.cycle for step, _ in read_records(folder, Outcome)}
    proposed = [(step.cycle, design) for step, design in read_records(folder, Design)]
    return [*done, *((at, Outcome(design=d, attempts=0, successes=0)) for at, d in proposed if at not in practised)]


def _together(found: Sequence[tuple[int, Outcome]]) -> list[tuple[int, list[Outcome]]]:
    """The outcomes of equal designs of a cycle, in the order in which the designs came."""
    groups: dict[tuple[int, Design], list[Outcome]] = {}
    for cycle, outcome in found:
        groups.setdefault((cycle, outcome.design), []).append(outcome)
    return [(cycle, outcomes) for (cycle, _), outcomes in groups.items()]


def _fallback(design: Design, own: str) -> str:
    """Who stepped in for the run's designer, if anyone did."""
    return design.by if design.by != own and design.changed else ""


def _aim(outcomes: Sequence[Outcome]) -> str:
    times = f" ({len(outcomes)} times)" if len(outcomes) > 1 else ""
    return (outcomes[0].design.aim or "everything") + times


def moved_knobs(setting: Values, original: Mapping[str, Value]) -> str:
    """The knobs that differ from the original, in one line."""
    moved = [(name, value) for name, value in setting.items() if value != original.get(name)]
    return ", ".join(f"{name}={_short(value)}" for name, value in moved) or "as the original"


def _short(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else _cut(str(value), MOST_VALUE)


def _success(outcomes: Sequence[Outcome]) -> str:
    whole = Outcome.merge(outcomes)
    return "-" if whole.rate is None else f"{whole.successes}/{whole.attempts} ({whole.rate:.0%})"


def _cut(text: str, most: int) -> str:
    """A text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
