"""The table of a run: success per skill over the cycles, out of its folder alone."""

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from curricle.records import Design, Score, Scores
from curricle.run import read_config, read_records


def table(folder: Path | str) -> Group:
    """Success of each skill in the original world, tested after every cycle and at the end, in percent."""
    folder = Path(folder)
    config = read_config(folder)
    cycles, scores = config["schedule"]["cycles"], read_records(folder, Scores)
    aims = {(step.cycle, design.aim) for step, design in read_records(folder, Design)}
    names = [config[part]["id"].rpartition("/")[2] for part in ("world", "designer", "agent")]
    shown = Table(
        title=Text(", ".join([*names, f"seed {config['seed']}"])),
        caption="success in %, mean ± one std over test seeds; * aimed at in that cycle",
    )
    shown.add_column("skill")
    for step, _ in scores:
        shown.add_column("final" if step.cycle > cycles else f"cycle {step.cycle}", justify="right")
    for name in scores[0][1].skills if scores else ():
        cells = [_percent(s.skills[name]) + (" *" if (step.cycle, name) in aims else "  ") for step, s in scores]
        shown.add_row(Text(name), *cells)
    shown.add_section()
    shown.add_row("headline", *(f"{record.headline:.1f}  " for _, record in scores), style="bold")
    shown.add_row("reward", *(f"{record.reward.mean:.2f}  " for _, record in scores))
    return Group(shown, *_trained(scores[-1][1] if scores else None))


def scores_table(scores: Scores, title: str) -> Table:
    """One test of an agent."""
    shown = Table(title=Text(title), caption="success in %, mean ± one std over test seeds")
    shown.add_column("skill")
    shown.add_column("test", justify="right")
    for name, score in scores.skills.items():
        shown.add_row(Text(name), _percent(score))
    shown.add_section()
    shown.add_row("headline", f"{scores.headline:.1f}", style="bold")
    shown.add_row("reward", f"{scores.reward.mean:.2f} ± {scores.reward.std:.2f}")
    return shown


def _percent(score: Score) -> str:
    return f"{100 * score.mean:.0f} ± {100 * score.std:.0f}"


def _trained(scores: Scores | None) -> list[str]:
    """The papers' protocol: success over the training attempts of the last stretch, never mixed with tests."""
    if scores is None or scores.trained is None:
        return []
    trained = scores.trained
    figures = f"headline {trained.headline:.1f}, reward {trained.reward:.2f}"
    return [f"over the {trained.attempts} training attempts of the last stretch: {figures}"]
