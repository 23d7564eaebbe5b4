"""The table of a run: success per skill over the cycles, out of its folder alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from curricle.records import Design, Exchange, Score, Scores
from curricle.run import Step, read_config, read_exchanges, read_records
from curricle.views.diagnostics import watched


def table(folder: Path | str) -> Group:
    """Success of each skill in the original world, tested after every cycle and at the end, in percent."""
    folder = Path(folder)
    config = read_config(folder)
    cycles = config["schedule"]["cycles"]
    scores = read_records(folder, Scores)
    done = finished(config, scores)
    aims = {(step.cycle, design.aim) for step, design in read_records(folder, Design)}
    names = [config[part]["id"].rpartition("/")[2] for part in ("world", "designer", "agent")]
    title = Text(", ".join([*names, f"seed {config['seed']}"]))
    shown = Table(
        title=title,
        min_width=min(len(title) + 2, 100),
        caption="success in %, mean ± one std over test seeds; * aimed at in that cycle",
    )
    shown.add_column("skill")
    for step, _ in scores:
        shown.add_column("final" if step.cycle > cycles else f"cycle {step.cycle}", justify="right")
    for name in scores[0][1].skills if scores else ():
        cells = [
            _percent(s.skills[name]) + (" *" if (step.cycle, name) in aims else "  ") if name in s.skills else "-"
            for step, s in scores
        ]
        shown.add_row(Text(name), *cells)
    shown.add_section()
    shown.add_row("headline", *(f"{record.headline:.1f}  " for _, record in scores), style="bold")
    shown.add_row("reward", *(f"{record.reward.mean:.2f}  " for _, record in scores))
    return Group(
        shown,
        *([] if done else [_unfinished(folder, cycles, scores)]),
        *_trained(scores[-1][1] if scores else None),
        *watched(folder),
        *_spent(folder),
        *_replaced(folder),
    )


def finished(config: Mapping[str, Any], scores: Sequence[tuple[Step, Scores]]) -> bool:
    """Whether a run's last test is there: after the final stretch, or after the last cycle where there is none."""
    schedule = config["schedule"]
    last = schedule["cycles"] + (schedule["final"] > 0 or not schedule["cycles"])
    return bool(scores) and scores[-1][0].cycle >= last


def _unfinished(folder: Path, cycles: int, scores: Sequence[tuple[Step, Scores]]) -> Text:
    """There is more to come, which the table does not show."""
    done = f"cycle {scores[-1][0].cycle} of {cycles} is tested" if scores else "nothing is tested yet"
    return Text(f"not finished: {done}; if it was stopped, curricle resume {folder}", style="yellow")


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
    """In words for people; what was never tested has no success."""
    return "-" if not score.n else f"{100 * score.mean:.0f} ± {100 * score.std:.0f}"


def _spent(folder: Path) -> list[Text]:
    """The ledger: what the run's language model cost."""
    exchanges = [exchange for _, exchange in read_exchanges(folder)]
    if not exchanges:
        return []
    total = Exchange.total(exchanges)
    failed = sum(bool(exchange.error) for exchange in exchanges)
    calls = total.get("calls", 0)
    parts = [f"{calls:,.0f} {'call' if calls == 1 else 'calls'}" + (f", {failed} of them failed" if failed else "")]
    parts += [f"{total['cached']:,.0f} from the cache"] if "cached" in total else []
    parts += [f"{total.get('tokens_in', 0):,.0f} tokens read, {total.get('tokens_out', 0):,.0f} written"]
    parts += [f"${total['dollars']:.4f}"] if "dollars" in total else []
    designer = read_config(folder)["designer"]
    if str(designer.get("of_options", designer).get("model", "")).startswith("replay:"):
        parts += ["all of it replayed, and paid for before"]
    return [Text(f"language model: {'; '.join(parts)}")]


def _replaced(folder: Path) -> list[Text]:
    """Cycles in which a stated fallback designed, or a part of them."""
    own = read_config(folder)["designer"]["id"]
    designs = read_records(folder, Design)
    whole = Counter(step.cycle for step, _ in designs)
    others = Counter((step.cycle, d.by) for step, d in designs if d.by != own and d.changed)
    return [
        Text(
            f"cycle {cycle} was designed by {by} instead of {own}"
            if count == whole[cycle]
            else f"{count} of {whole[cycle]} designs of cycle {cycle} are by {by} instead of {own}"
        )
        for (cycle, by), count in sorted(others.items())
    ]


def _trained(scores: Scores | None) -> list[str]:
    """The papers' protocol: success over the training attempts of the last stretch, never mixed with tests."""
    if scores is None or scores.trained is None:
        return []
    trained = scores.trained
    summary = f"headline {trained.headline:.1f}, reward {trained.reward:.2f}"
    return [f"over the {trained.attempts} training attempts of the last stretch: {summary}"]
