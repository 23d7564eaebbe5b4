"""The table of a run: success per skill over the cycles, out of its folder alone."""

from pathlib import Path

from rich.console import Group
from rich.table import Table

from curricle.records import Design, Outcome, Score, Scores
from curricle.registry import find
from curricle.run import read_config, read_records
from curricle.world import World


def table(folder: Path | str) -> Group:
    """Success of each skill in the original world, tested after every cycle and at the end, in percent."""
    folder = Path(folder)
    config = read_config(folder)
    cycles = config["schedule"]["cycles"]
    world = find(World, config["world"]["id"])()
    scores = [(step.cycle, record) for step, record in read_records(folder, Scores)]
    aims: dict[str, set[int]] = {}
    for step, design in read_records(folder, Design):
        aims.setdefault(design.aim or "", set()).add(step.cycle)
    title = f"{world.id}, {config['designer']['id']}, {config['agent']['id']}, seed {config['seed']}"
    shown = Table(title=title, caption="success in %, mean ± one std over test seeds; * aimed at in that cycle")
    shown.add_column("skill")
    for cycle, _ in scores:
        shown.add_column("final" if cycle > cycles else f"cycle {cycle}", justify="right")
    for skill in world.skills:
        cells = [_percent(s.skills[skill.name]) + (" *" if c in aims.get(skill.name, ()) else "  ") for c, s in scores]
        shown.add_row(skill.name, *cells)
    shown.add_section()
    rates = [{name: score.mean for name, score in record.skills.items()} for _, record in scores]
    shown.add_row("headline", *(f"{world.headline(rate):.1f}  " for rate in rates), style="bold")
    shown.add_row("reward", *(f"{record.reward.mean:.2f}  " for _, record in scores))
    return Group(shown, *_training_rates(folder, cycles + 1, world))


def _percent(score: Score) -> str:
    return f"{100 * score.mean:.0f} ± {100 * score.std:.0f}"


def _training_rates(folder: Path, cycle: int, world: World) -> list[str]:
    """The papers' protocol: success over the training episodes of the last stretch, never mixed with tests."""
    parts = [o for step, o in read_records(folder, Outcome) if (step.cycle, step.phase) == (cycle, "original")]
    if not parts or not sum(part.attempts for part in parts):
        return []
    whole = Outcome.merge(parts)
    headline = world.headline({skill.name: whole.share(skill.name) for skill in world.skills})
    figures = f"headline {headline:.1f}, reward {whole.reward / whole.attempts:.2f}"
    return [f"over the {whole.attempts} training episodes of the final stretch: {figures}"]
