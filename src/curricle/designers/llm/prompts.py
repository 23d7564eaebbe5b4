"""The prompt of the designer `llm`: a brief in words, from the world's declaration alone.

In: a brief. Out: a conversation. It opens with the world and the task. Then comes one turn a cycle, with how the agent
did and what came of the previous designs; the designs themselves are the model's answers. If the prompt would exceed
its budget of tokens, the oldest turns are left out. The opening and the newest turn always stay.
"""

import json
from collections.abc import Sequence
from typing import Any

from curricle.llm.client import size
from curricle.records import Brief, Cycle, Design, Message, Outcome
from curricle.setting import schema_of

TASK = """## Your task

An agent learns in this world. Before each cycle you design the environments it practises in; after that it practises in
the original world and is tested there. Design environments in which it learns what it still lacks: not super easy ones,
since what is handed out teaches nothing, and not ones in which it cannot succeed. A design has

- `setting`: the knobs that differ from the original; the others stay as they are. Use names and words as given above;
  a number beyond a bound counts as that bound.
- `aim`: the one skill it is meant to teach, or null for the whole world.
- `why`: its purpose, in one short sentence.

Answer with JSON alone, in this form:

```json
{"designs": [{"setting": {"KNOB": VALUE}, "aim": "SKILL", "why": "REASON"}]}
```"""


def conversation(brief: Brief, n: int, most: int, designer: str) -> list[Message]:
    """The prompt for n designs, of at most about `most` tokens where that is possible."""
    history = []
    for i, cycle in enumerate(brief.past):
        if cycle.designed and all(outcome.design.by in ("", designer) for outcome in cycle.designed):
            history.append((request(_before(brief, i), n), answer(cycle, brief)))
    last = request(brief, n) + _examples(brief)
    while True:
        texts = [text for turn in history for text in turn]
        texts.append(last)
        texts[0] = f"{opening(brief)}\n\n{texts[0]}"
        prompt = [Message(role=("user", "assistant")[i % 2], content=text) for i, text in enumerate(texts)]
        if not history or size(prompt) <= most:
            return prompt
        history = history[1:]


def again(prompt: Sequence[Message], reply: str, problems: Sequence[str], n: int) -> list[Message]:
    """The same prompt, followed by the answer that could not be used and by what is wrong with it."""
    shown = reply.strip()[:4_000] or "(empty)"
    listed = "\n".join(f"- {problem[:400]}" for problem in problems[:10])
    designs = "the one design" if n == 1 else f"all {n} designs"
    wanted = f"Answer again with {designs}, as JSON in the form above."
    complaint = f"That answer cannot be used as it is:\n\n{listed}\n\n{wanted}"
    return [*prompt, Message(role="assistant", content=shown), Message(role="user", content=complaint)]


def opening(brief: Brief) -> str:
    """The world and the task: the same in every cycle."""
    skills = []
    for skill in brief.skills:
        needs = f" (needs {', '.join(skill.needs)})" if skill.needs else ""
        skills.append(f"- {skill.name}{needs}")
    lines = [f"# {brief.world}", "", brief.guide.strip(), "", "## Skills", "", *skills]
    lines += ["", "## Knobs", "", *(f"- {knob.line}" for knob in brief.knobs)]
    return "\n".join([*lines, "", TASK])


def request(brief: Brief, n: int) -> str:
    """The request of a cycle: what is new since the last one, and how many designs are wanted."""
    lines = [f"## Cycle {brief.cycle} of {brief.cycles}", ""]
    if brief.past:
        last = brief.past[-1]
        lines += ["The agent in the original world now (success, mean and one standard deviation):", ""]
        lines += [f"- {name}: {score.mean:.0%} +/- {score.std:.0%}" for name, score in last.scores.skills.items()]
        if last.designed:
            lines += ["", "What came of the previous designs:", ""]
            lines += [_outcome(i, outcome, brief) for i, outcome in enumerate(last.designed, start=1)]
        lines += [""]
    wanted = "one environment" if n == 1 else f"{n} different environments"
    return "\n".join([*lines, f"Design {wanted} for this cycle."])


def answer(cycle: Cycle, brief: Brief) -> str:
    """The designs of a cycle, as they were understood, in the form of the model's answer."""
    designs = [{"setting": _changes(o.design, brief), "aim": o.design.aim, "why": o.design.why} for o in cycle.designed]
    lines = ",\n  ".join(json.dumps(design, ensure_ascii=False) for design in designs)
    return f'```json\n{{"designs": [\n  {lines}\n]}}\n```'


def schema(brief: Brief, n: int) -> dict[str, Any]:
    """JSON schema of the answer, for endpoints with structured output."""
    aims = [skill.name for skill in brief.skills]
    fields = {
        "setting": schema_of(brief.knobs),
        "aim": {"type": ["string", "null"], "enum": [*aims, None]},
        "why": {"type": "string"},
    }
    design = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    designs = {"type": "array", "items": design, "minItems": n, "maxItems": n}
    return {
        "type": "object",
        "properties": {"designs": designs},
        "required": ["designs"],
        "additionalProperties": False,
    }


def _before(brief: Brief, cycles: int) -> Brief:
    """The brief as it was after this many cycles."""
    number = brief.past[cycles].number
    return brief.model_copy(update={"cycle": number, "past": brief.past[:cycles]})


def _changes(design: Design, brief: Brief) -> dict[str, Any]:
    """The knobs that a design changes, with numbers of six digits."""
    changed = {name: value for name, value in design.setting.items() if value != brief.original.get(name)}
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in changed.items()}


def _outcome(number: int, outcome: Outcome, brief: Brief) -> str:
    """One earlier design and what came of it, in a line."""
    setting = ", ".join(f"{name} = {value}" for name, value in _changes(outcome.design, brief).items())
    line = f"{number}. aim {outcome.design.aim or 'the whole world'}; {setting or 'as the original'}."
    if outcome.rate is None:
        return f"{line} No attempt was finished."
    shown = [f"{s.name} {outcome.share(s.name):.0%}" for s in brief.skills if outcome.skills.get(s.name)]
    unlocked = f" Skills unlocked: {', '.join(shown)}." if shown else " No skill was unlocked."
    return f"{line} {outcome.attempts} attempts, {outcome.rate:.0%} reached the aim.{unlocked}"


def _examples(brief: Brief) -> str:
    """Settings to vary, where the world has some."""
    if not brief.examples:
        return ""
    listed = "\n".join(f"- {json.dumps(dict(values), ensure_ascii=False)}" for values in brief.examples)
    return f"\n\nSettings to vary:\n\n{listed}"
