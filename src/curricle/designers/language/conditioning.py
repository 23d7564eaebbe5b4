"""Conditioning: what the environment policy is asked, one request a candidate (GenEnv's conditioning -> task).

A request holds what the world is about, either a seed task to vary (`Brief.examples`) or the knobs there are, how often
the agent succeeded of late, which way that should move, and whether what was written last taught nothing. Requests that
share their seed are a group: success can be counted over it (`p_over = "group"`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curricle.designers.language.form import Form
from curricle.records import Brief, Message, Outcome, Values

GUIDE = 2400
"""Characters of the world's guide that a request quotes: small models drown in more."""
NEAR = 0.05
"""Success this close to alpha is as it should be."""


@dataclass(frozen=True)
class Request:
    """One request: its words, its group, the skill it is about, and the seed it holds."""

    prompt: tuple[Message, ...]
    group: str
    aim: str | None
    seed: Values | None


def requests(
    brief: Brief, n: int, form: Form, alpha: float, aims: bool, rng: np.random.Generator, stuck: bool = False
) -> list[Request]:
    """Ask for n candidates: seeds and aims in turn, from a place drawn anew each cycle.

    With `stuck` they are told that the last ones taught nothing, so that they may be unlike them.
    """
    skills = [brief.skills[int(i)].name for i in rng.permutation(len(brief.skills))] if aims else [None]
    seeds = [int(i) for i in rng.permutation(len(brief.examples))] or [-1]
    found = []
    for number in range(n):
        at = seeds[number % len(seeds)]
        aim = skills[number % len(skills)]
        seed = brief.examples[at] if at >= 0 else None
        words = _words(brief, form, aim, seed, success(brief, aim), alpha, stuck)
        group = f"{brief.cycle}/{at if seed is not None else aim or 'any'}"
        found.append(Request((Message(role="user", content=words),), group, aim, seed))
    return found


def success(brief: Brief, aim: str | None) -> float | None:
    """How often the agent succeeded in the last cycle's designs, those of an aim where there is one."""
    last = brief.past[-1].designed if brief.past else ()
    mine: Sequence[Outcome] = [o for o in last if o.attempts and (aim is None or o.design.aim == aim)]
    mine = mine or [o for o in last if o.attempts]
    return sum(o.successes for o in mine) / sum(o.attempts for o in mine) if mine else None


def _beginning(guide: str) -> str:
    """As many whole lines as a request quotes."""
    return guide if len(guide) <= GUIDE else guide[:GUIDE].rpartition("\n")[0]


def _words(
    brief: Brief, form: Form, aim: str | None, seed: Values | None, rate: float | None, alpha: float, stuck: bool
) -> str:
    lines = [f"Write practice for an agent in {brief.world}.", _beginning(brief.guide.strip()), ""]
    if seed is None:
        lines += ["Knobs:", *(k.line for k in brief.knobs if k.name in form.names), ""]
    else:
        lines += ["An example:", form.write({**brief.original, **seed})]
    if aim is not None:
        lines.append(f"It should teach {aim}.")
    if rate is None:
        lines.append(f"The agent should succeed {alpha:.0%} of the time.")
    else:
        way = "about as hard" if abs(rate - alpha) <= NEAR else "harder" if rate > alpha else "easier"
        lines.append(f"The agent succeeded {rate:.0%} of the time and should {alpha:.0%}: write something {way}.")
    if stuck:
        lines.append("What was written last was of no use to it: write something quite different.")
    lines.append("Write a variation of the example, in its form." if seed is not None else "Write one line a knob.")
    return "\n".join(lines)
