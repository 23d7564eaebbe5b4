"""Conditioning: what the environment policy is asked, one request a candidate (GenEnv's conditioning -> task).

A request holds what the world is about, and either a seed task to vary (`Brief.examples`) or the knobs. It says how
often the agent succeeded lately, which way that should change, and whether the last texts taught nothing. Requests with
the same seed task are a group: success can be counted over it (`p_over = "group"`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curricle.designers.language.form import Form
from curricle.records import Brief, Message, Outcome, Values

GUIDE_CHARACTERS = 2400
"""Most characters of the world's guide that a request quotes: small models get lost in more."""
CLOSE_TO_ALPHA = 0.05
"""With success this close to alpha, tasks are as hard as they should be."""


@dataclass(frozen=True)
class Request:
    """One request: its prompt, its group, the skill it aims at, and its seed task."""

    prompt: tuple[Message, ...]
    group: str
    aim: str | None
    seed_task: Values | None


def requests(
    brief: Brief,
    n: int,
    form: Form,
    alpha: float,
    aims: bool,
    rng: np.random.Generator,
    stuck: bool = False,
    short: bool = False,
) -> list[Request]:
    """Make n requests: seed tasks and aims take turns, in an order drawn anew each cycle.

    With `stuck` they say that the last texts taught nothing, so that the next ones may differ. `short` ones are for
    models that read letter by letter: they have the seed task and the numbers, and no sentences.
    """
    skills: list[str | None] = [None]
    if aims:
        skills = [brief.skills[int(i)].name for i in rng.permutation(len(brief.skills))]
    order_of_examples = [int(i) for i in rng.permutation(len(brief.examples))]
    made = list[Request]()
    for number in range(n):
        aim = skills[number % len(skills)]
        seed_task = None
        group = f"{brief.cycle}/{aim or 'any'}"
        if order_of_examples:
            example = order_of_examples[number % len(order_of_examples)]
            seed_task = brief.examples[example]
            group = f"{brief.cycle}/{example}"
        if short:
            text = _short_text(brief, form, aim, seed_task, alpha)
        else:
            text = _text(brief, form, aim, seed_task, alpha, stuck)
        made.append(Request((Message(role="user", content=text),), group, aim, seed_task))
    return made


def success(brief: Brief, aim: str | None) -> float | None:
    """Return the agent's success in the last cycle's designs, in those with the aim where there are any."""
    last = brief.past[-1].designed if brief.past else ()
    tried = [outcome for outcome in last if outcome.attempts]
    with_aim = [outcome for outcome in tried if aim is None or outcome.design.aim == aim]
    counted: Sequence[Outcome] = with_aim or tried
    if not counted:
        return None
    return sum(outcome.successes for outcome in counted) / sum(outcome.attempts for outcome in counted)


def _text(brief: Brief, form: Form, aim: str | None, seed_task: Values | None, alpha: float, stuck: bool) -> str:
    lines = [f"Write practice for an agent in {brief.world}.", _shortened(brief.guide.strip()), ""]
    if seed_task is None:
        lines += ["Knobs:", *(k.line for k in brief.knobs if k.name in form.names), ""]
    else:
        lines += ["An example:", form.write({**brief.original, **seed_task})]
    if aim is not None:
        lines.append(f"It should teach {aim}.")
    rate = success(brief, aim)
    if rate is None:
        lines.append(f"The agent should succeed {alpha:.0%} of the time.")
    else:
        change = _wanted_change(rate, alpha)
        lines.append(f"The agent succeeded {rate:.0%} of the time and should {alpha:.0%}: write something {change}.")
    if stuck:
        lines.append("What was written last was of no use to it: write something quite different.")
    if seed_task is None:
        lines.append("Write one line a knob.")
    else:
        lines.append("Write a variation of the example, in its form.")
    return "\n".join(lines)


def _wanted_change(rate: float, alpha: float) -> str:
    if abs(rate - alpha) <= CLOSE_TO_ALPHA:
        return "about as hard"
    return "harder" if rate > alpha else "easier"


def _short_text(brief: Brief, form: Form, aim: str | None, seed_task: Values | None, alpha: float) -> str:
    """Return the seed task, the aim, and how often the agent succeeded and should."""
    lines = list[str]()
    if seed_task is not None:
        lines.append(form.write({**brief.original, **seed_task}).strip())
    if aim is not None:
        lines.append(aim)
    rate = success(brief, aim)
    now = "" if rate is None else f"{rate:.0%} "
    lines.append(f"{now}> {alpha:.0%}")
    return "\n".join(lines)


def _shortened(guide: str) -> str:
    """Return as many whole lines of the guide as a request quotes."""
    return guide if len(guide) <= GUIDE_CHARACTERS else guide[:GUIDE_CHARACTERS].rpartition("\n")[0]
