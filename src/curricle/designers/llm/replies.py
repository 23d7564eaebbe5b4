"""The careful reader: designs out of whatever a language model answered.

A reply is data. What is plain is read, and each repair is put into words; what is not is a problem, also in words,
which the model is told. In: a reply and the brief it answers. Out: a `Reading`. What passes as JSON: `lenient_json.py`.
"""

import html
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from curricle.designers.llm.lenient_json import Cut, values
from curricle.designers.llm.values import fitted, meant, plain, printable
from curricle.errors import ValueRefused, nearest
from curricle.records import Brief, Design, Exchange, Frozen, Value

LOG = logging.getLogger("curricle")
LONGEST = 1_000_000
MOST = 200
WORDS = 500
"""Characters of a reply and designs in it that are looked at, and characters of a reason that are kept."""
SETTING = ("setting", "settings", "knobs", "config", "configuration", "environment", "env", "parameters", "params")
AIM = ("aim", "aims", "target", "targetskill", "goal", "skill", "skills", "objective")
WHY = ("why", "reason", "rationale", "purpose", "explanation", "description", "reasoning", "justification")
LABELS = ("name", "id", "title", "number", "index", "label", "design", "environment", "env", "type", "#")
EVERYTHING = ("", "none", "null", "all", "everything", "thewholeworld", "whole", "any")
_FENCE = re.compile(r"```[^\n`{\[]*\n?(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Reading:
    """Designs that can be used, and what is wrong with the rest; both may be empty."""

    designs: tuple[Design, ...] = ()
    problems: tuple[str, ...] = ()


Check = Callable[[Mapping[str, Value]], Mapping[str, Value]]
"""Turns the knobs a design sets into a whole setting, or raises `ValueRefused`."""


def read(exchange: Exchange, brief: Brief, n: int, check: Check) -> Reading:
    """Take up to n designs out of a reply; one that breaks the reader is a bad reply, and never ends a run.

    It is kept in the run folder and read again at every resume, so whatever it breaks would break again.
    """
    try:
        return _read(exchange, brief, n, check)
    except Exception as error:
        LOG.warning("a reply cannot be read: %s: %.200s", type(error).__name__, error)
        return Reading(problems=("the answer cannot be read",))


def _read(exchange: Exchange, brief: Brief, n: int, check: Check) -> Reading:
    found, notes = _found(exchange.reply, brief, n)
    cut = [raw for raw in found if isinstance(raw, Cut) and (raw.torn or exchange.finish == "length")]
    problems = ["the last design is cut off"] if cut else []
    designs = list[Design]()
    if not found:
        return Reading(problems=(_nothing(exchange),))
    whole = [raw for raw in found if not any(raw is other for other in cut)]
    for number, raw in enumerate(whole[:MOST], start=1):
        try:
            design = _design(raw, brief, check)
        except ValueRefused as error:
            problems.append(f"design {number}: {error}")
            continue
        if any((other.setting, other.aim) == (design.setting, design.aim) for other in designs):
            problems.append(f"design {number} repeats an earlier one")
        else:
            designs.append(design)
    if len(designs) > n:
        notes.append(f"{len(found)} designs were given, the first {n} are used")
    elif len(designs) < n:
        problems.append(f"{n} designs are needed, {len(designs)} can be used" if n > 1 else "one design is needed")
    if problems:
        notes.append("; ".join(problems)[:WORDS])
    kept = [d.model_copy(update={"changed": (*d.changed, *notes)}) for d in designs[:n]]
    return Reading(tuple(kept), tuple(problems))


def _nothing(exchange: Exchange) -> str:
    """Why a reply holds no design at all."""
    if not exchange.reply.strip():
        return "the answer is empty"
    if exchange.finish == "length":
        return "the answer was cut off before its first design was whole"
    return "the answer holds no design in JSON"


def _found(reply: str, brief: Brief, n: int) -> tuple[list[Any], list[str]]:
    """The raw designs of a reply: in its fences if they hold any, else anywhere in it."""
    text = _without_thoughts(reply[:LONGEST])
    if "&quot;" in text or "&#34;" in text:
        text = html.unescape(text)
    texts = [_FENCE.findall(text), [text]]
    if '\\"' in text:  # JSON that was written as a string
        texts.append([text.replace('\\"', '"').replace("\\n", "\n")])
    for pieces in texts:
        groups = [group for piece in pieces for value in values(piece) if (group := _designs_in(value, brief))]
        if not groups:
            continue
        if all(len(group) == 1 for group in groups):
            return [group[0] for group in groups], []
        best = max(min(len(group), n) for group in groups)
        best_groups = [group for group in groups if min(len(group), n) == best]
        notes = [f"of {len(best_groups)} answers in one, the last is used"] if len(best_groups) > 1 else []
        return best_groups[-1], notes
    return [], []


def _without_thoughts(text: str) -> str:
    """What a model says after it thought aloud."""
    after = text.rpartition("</think>")[2]
    return "" if after.lstrip().startswith("<think>") else after


def _designs_in(value: Any, brief: Brief, unwrapped: int = 0) -> list[Any]:
    """Every design in a value, however it is wrapped, once or twice in quotes included."""
    if isinstance(value, dict):
        if _setting(value, brief) is not None:
            return [value]
        value = list(value.values())
    if isinstance(value, list):
        return [design for inner in value for design in _designs_in(inner, brief, unwrapped)]
    if isinstance(value, str) and "{" in value and unwrapped < 2:
        return [design for inner in values(value) for design in _designs_in(inner, brief, unwrapped + 1)]
    return []


def _setting(raw: Mapping[str, Any], brief: Brief) -> dict[str, Any] | None:
    """The knobs of a design as it was written: under a name of their own, or beside its aim; None: it is no design."""
    for key in (key for key in raw if plain(key) in SETTING):
        inner = _pairs(raw[key], brief)
        if isinstance(inner, dict) and not _wraps(inner, brief):
            return inner
    unnamed = [v for v in raw.values() if isinstance(v, dict) and any(_knob(k, brief) for k in v)]
    if len(unnamed) == 1 and not _wraps(unnamed[0], brief) and not all(isinstance(v, dict) for v in raw.values()):
        return unnamed[0]  # under a name in another language
    if any(_knob(name, brief) for name in raw):
        return {k: v for k, v in raw.items() if _knob(k, brief) or plain(k) not in (*AIM, *WHY, *LABELS)}
    return None


def _wraps(inner: Mapping[str, Any], brief: Brief) -> bool:
    """Whether this is or holds whole designs, rather than knobs."""
    if any(plain(key) in (*SETTING, *AIM, *WHY) and not _knob(key, brief) for key in inner):
        return True
    objects = [value for value in inner.values() if isinstance(value, dict)]
    return any(plain(key) in SETTING or _knob(key, brief) for value in objects for key in value)


def _pairs(value: Any, brief: Brief) -> Any:
    """A setting written as a list of names and values, or as text, made into an object."""
    if isinstance(value, str):
        inner = next(values("{" + value + "}"), None)
        return inner if isinstance(inner, dict) and any(_knob(name, brief) for name in inner) else None
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(one, dict) and meant("value", tuple(one)) for one in value):
        names = [next((k for k in one if plain(k) in ("name", "knob", "key", "parameter")), "") for one in value]
        return {str(one[k]): one[meant("value", tuple(one)) or ""] for one, k in zip(value, names, strict=True) if k}
    if all(isinstance(one, str) and re.search("[:=]", one) for one in value):
        return next(values("{" + ",".join(value) + "}"), None)
    return value


def _knob(name: str, brief: Brief) -> str | None:
    names = tuple(knob.name for knob in brief.knobs)
    return meant(name, names) or meant(str(name).rpartition(".")[2], names)


def _design(raw: Mapping[str, Any], brief: Brief, check: Check) -> Design:
    """One design; everything that is wrong with it is named at once."""
    knobs = {knob.name: knob for knob in brief.knobs}
    found = dict[str, Value]()
    changed = list[str]()
    problems = list[str]()
    for written, value in (_setting(raw, brief) or {}).items():
        name = _knob(written, brief)
        if name is None:
            problems.append(f"unknown knob {str(written)[:60]!r}, {nearest(str(written)[:60], knobs)}")
            continue
        if name != written:
            changed.append(f"{str(written)[:60]!r} read as {name}")
        if value is None and "none" not in knobs[name].choices:
            changed.append(f"{name} = null read as the original")
            continue
        try:
            found[name], note = fitted(knobs[name], value)
        except ValueRefused as error:
            problems.append(str(error))
        else:
            changed += [note] if note else []
    aim, told = _aim(raw, brief, problems)
    if problems:
        raise ValueRefused("; ".join(problems[:8]))
    return Design(setting=Frozen(check(found)), aim=aim, why=_why(raw, aim, brief), changed=(*changed, *told))


def _called(raw: Mapping[str, Any], names: tuple[str, ...], brief: Brief) -> list[str]:
    """The keys of a design that are called one of these and are no knob of the world."""
    return [key for key in raw if plain(key) in names and not _knob(key, brief)]


def _aim(raw: Mapping[str, Any], brief: Brief, problems: list[str]) -> tuple[str | None, list[str]]:
    """The skill a design is for: under a usual name, or else wherever a skill's name stands."""
    skills = tuple(skill.name for skill in brief.skills)
    keys = [key for key in _called(raw, AIM, brief) if not isinstance(raw[key], dict)]
    if not keys:
        said = [meant(v, skills) for v in raw.values() if isinstance(v, str)]
        named = [skill for skill in said if skill]
        return (named[0], []) if len(named) == 1 else (None, ["no aim was named: the whole world"])
    value = raw[keys[0]]
    notes = list[str]()
    if isinstance(value, list):
        if len(value) > 1:
            notes.append(f"of {len(value)} aims the first is taken")
        value = value[0] if value else None
    if value is None or plain(value) in EVERYTHING:
        return None, notes
    aim = meant(value, skills) if isinstance(value, str) else None
    if aim is None and isinstance(value, str):
        inside = [skill for skill in skills if re.search(rf"(?<![\w]){re.escape(skill)}(?![\w])", value[:WORDS])]
        aim = inside[0] if len(inside) == 1 else None
    if aim is None:
        problems.append(f"aim {str(value)[:60]!r} is no skill, {nearest(str(value)[:60], skills)}")
    elif aim != value:
        notes.append(f"aim {str(value)[:60]!r} read as {aim}")
    return aim, notes


def _why(raw: Mapping[str, Any], aim: str | None, brief: Brief) -> str:
    """The reason: under a usual name, or else the longest text beside the setting."""
    texts = [str(raw[key]) for key in _called(raw, WHY, brief) if isinstance(raw[key], str | int | float)]
    others = [v for k, v in raw.items() if isinstance(v, str) and v != aim and not _knob(k, brief)]
    others = [v for v in others if not any(v == raw[key] for key in _called(raw, (*AIM, *LABELS, *SETTING), brief))]
    return printable((texts or sorted(others, key=lambda text: -len(text)) or [""])[0]).strip()[:WORDS]
