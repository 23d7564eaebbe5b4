"""Read designs out of a language model's reply.

In: a reply and the brief that it answers. Out: a `Reading`, with the designs that can be used and the problems of the
others, which the model gets as an answer. A reply is data: where its meaning is plain it is read, and every repair is
put into words (`Design.changed`). `lenient_json.py` says what passes as JSON.
"""

import html
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from curricle.errors import ValueRefused, nearest
from curricle.records import Brief, Design, Exchange, Frozen, Knob, Value
from curricle.text.lenient_json import Truncated, read_all

LOG = logging.getLogger("curricle")
MAX_REPLY = 1_000_000
"""Characters of a reply that are read."""
MAX_DESIGNS = 200
"""Designs of a reply that are read."""
MAX_NOTE = 500
"""Characters of a reason or a note that are kept."""
SETTING = ("setting", "settings", "knobs", "config", "configuration", "environment", "env", "parameters", "params")
AIM = ("aim", "aims", "target", "targetskill", "goal", "skill", "skills", "objective")
WHY = ("why", "reason", "rationale", "purpose", "explanation", "description", "reasoning", "justification")
LABELS = ("name", "id", "title", "number", "index", "label", "design", "environment", "env", "type", "#")
"""Names that models give to the fields of a design; labels are ignored."""
WHOLE_WORLD = ("", "none", "null", "all", "everything", "thewholeworld", "whole", "any")
"""Aims that mean no single skill."""
_FENCE = re.compile(r"```[^\n`{\[]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?\s*(%?)")


@dataclass(frozen=True)
class Reading:
    """The designs that can be used, and what is wrong with the rest; both may be empty."""

    designs: tuple[Design, ...] = ()
    problems: tuple[str, ...] = ()


Check = Callable[[Mapping[str, Value]], Mapping[str, Value]]
"""Turns the knobs that a design sets into a whole setting, or raises `ValueRefused`."""


def read(exchange: Exchange, brief: Brief, n: int, check: Check) -> Reading:
    """Read up to n designs. A reply that the reader cannot cope with is a bad reply and never ends a run.

    The run folder keeps the reply, and every resume reads it again: an exception would come back each time.
    """
    try:
        return _read(exchange, brief, n, check)
    except Exception as error:
        LOG.warning("a reply cannot be read: %s: %.200s", type(error).__name__, error)
        return Reading(problems=("the answer cannot be read",))


def _read(exchange: Exchange, brief: Brief, n: int, check: Check) -> Reading:
    found, notes = _raw_designs(exchange.reply, brief, n)
    if not found:
        return Reading(problems=(_no_design(exchange),))
    complete = []
    for raw in found:
        if not (isinstance(raw, Truncated) and (raw.mid_value or exchange.finish == "length")):
            complete.append(raw)
    problems = ["the last design is cut off"] if len(complete) < len(found) else []
    designs = list[Design]()
    for number, raw in enumerate(complete[:MAX_DESIGNS], start=1):
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
        notes.append("; ".join(problems)[:MAX_NOTE])
    used = [design.model_copy(update={"changed": (*design.changed, *notes)}) for design in designs[:n]]
    return Reading(tuple(used), tuple(problems))


def _no_design(exchange: Exchange) -> str:
    """Why a reply has no design at all."""
    if not exchange.reply.strip():
        return "the answer is empty"
    if exchange.finish == "length":
        return "the answer was cut off before its first design was whole"
    return "the answer holds no design in JSON"


# -- find the designs in a reply ---------------------------------------------------------------------------------------


def _raw_designs(reply: str, brief: Brief, n: int) -> tuple[list[Any], list[str]]:
    """The designs of a reply as they are written, and notes: from its code fences, or else from the whole text."""
    text = _without_thoughts(reply[:MAX_REPLY])
    if "&quot;" in text or "&#34;" in text:
        text = html.unescape(text)
    sources = [_FENCE.findall(text), [text]]
    if '\\"' in text:  # JSON that was written as a string
        sources.append([text.replace('\\"', '"').replace("\\n", "\n")])
    for pieces in sources:
        groups = []
        for piece in pieces:
            for value in read_all(piece):
                if group := _designs_in(value, brief):
                    groups.append(group)
        if groups:
            return _best_group(groups, n)
    return [], []


def _best_group(groups: list[list[Any]], n: int) -> tuple[list[Any], list[str]]:
    """One answer out of several in a reply: single designs belong together; of lists, the last of the longest."""
    if all(len(group) == 1 for group in groups):
        return [group[0] for group in groups], []
    most = max(min(len(group), n) for group in groups)
    longest = [group for group in groups if min(len(group), n) == most]
    notes = [f"of {len(longest)} answers in one, the last is used"] if len(longest) > 1 else []
    return longest[-1], notes


def _without_thoughts(text: str) -> str:
    """What a model says after it has thought aloud."""
    after = text.rpartition("</think>")[2]
    return "" if after.lstrip().startswith("<think>") else after


def _designs_in(value: Any, brief: Brief, unquoted: int = 0) -> list[Any]:
    """Every design in a value, in lists, objects, or JSON that is quoted up to twice."""
    if isinstance(value, dict):
        if _setting(value, brief) is not None:
            return [value]
        value = list(value.values())
    if isinstance(value, list):
        return [design for inner in value for design in _designs_in(inner, brief, unquoted)]
    if isinstance(value, str) and "{" in value and unquoted < 2:
        return [design for inner in read_all(value) for design in _designs_in(inner, brief, unquoted + 1)]
    return []


def _setting(raw: Mapping[str, Any], brief: Brief) -> dict[str, Any] | None:
    """The knobs of a design as they are written, under a name of their own or beside its aim; None: no design."""
    for key in raw:
        if plain(key) in SETTING:
            inner = _as_object(raw[key], brief)
            if isinstance(inner, dict) and not _holds_designs(inner, brief):
                return inner
    unnamed = [value for value in raw.values() if isinstance(value, dict) and any(_knob(k, brief) for k in value)]
    only_objects = all(isinstance(value, dict) for value in raw.values())
    if len(unnamed) == 1 and not only_objects and not _holds_designs(unnamed[0], brief):
        return unnamed[0]  # under a name in another language
    if any(_knob(name, brief) for name in raw):
        return {k: v for k, v in raw.items() if _knob(k, brief) or plain(k) not in (*AIM, *WHY, *LABELS)}
    return None


def _holds_designs(inner: Mapping[str, Any], brief: Brief) -> bool:
    """Whether this is or holds whole designs, rather than knobs."""
    if any(plain(key) in (*SETTING, *AIM, *WHY) and not _knob(key, brief) for key in inner):
        return True
    objects = [value for value in inner.values() if isinstance(value, dict)]
    return any(plain(key) in SETTING or _knob(key, brief) for value in objects for key in value)


def _as_object(value: Any, brief: Brief) -> Any:
    """A setting that is written as text, or as a list of names and values, as an object."""
    if isinstance(value, str):
        inner = next(read_all("{" + value + "}"), None)
        return inner if isinstance(inner, dict) and any(_knob(name, brief) for name in inner) else None
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(one, dict) and meant("value", tuple(one)) for one in value):
        pairs = {}
        for one in value:
            name_keys = [key for key in one if plain(key) in ("name", "knob", "key", "parameter")]
            if name_keys and name_keys[0]:
                pairs[str(one[name_keys[0]])] = one[meant("value", tuple(one)) or ""]
        return pairs
    if all(isinstance(one, str) and re.search("[:=]", one) for one in value):
        return next(read_all("{" + ",".join(value) + "}"), None)
    return value


def _knob(name: str, brief: Brief) -> str | None:
    """The knob that a name means."""
    names = tuple(knob.name for knob in brief.knobs)
    return meant(name, names) or meant(str(name).rpartition(".")[2], names)


# -- read one design ---------------------------------------------------------------------------------------------------


def _design(raw: Mapping[str, Any], brief: Brief, check: Check) -> Design:
    """Read one design; the error names everything that is wrong with it."""
    knobs = {knob.name: knob for knob in brief.knobs}
    values = dict[str, Value]()
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
            values[name], note = knob_value(knobs[name], value)
        except ValueRefused as error:
            problems.append(str(error))
        else:
            changed += [note] if note else []
    aim, aim_notes = _aim(raw, brief, problems)
    if problems:
        raise ValueRefused("; ".join(problems[:8]))
    return Design(setting=Frozen(check(values)), aim=aim, why=_why(raw, aim, brief), changed=(*changed, *aim_notes))


def _fields(raw: Mapping[str, Any], names: tuple[str, ...], brief: Brief) -> list[str]:
    """The keys of a design that have one of these names and are no knob of the world."""
    return [key for key in raw if plain(key) in names and not _knob(key, brief)]


def _aim(raw: Mapping[str, Any], brief: Brief, problems: list[str]) -> tuple[str | None, list[str]]:
    """The skill that a design is for, and notes: under a usual name, or else where a skill's name stands."""
    skills = tuple(skill.name for skill in brief.skills)
    keys = [key for key in _fields(raw, AIM, brief) if not isinstance(raw[key], dict)]
    if not keys:
        named = []
        for value in raw.values():
            if isinstance(value, str) and (skill := meant(value, skills)):
                named.append(skill)
        return (named[0], []) if len(named) == 1 else (None, ["no aim was named: the whole world"])
    value = raw[keys[0]]
    notes = list[str]()
    if isinstance(value, list):
        if len(value) > 1:
            notes.append(f"of {len(value)} aims the first is taken")
        value = value[0] if value else None
    if value is None or plain(value) in WHOLE_WORLD:
        return None, notes
    aim = meant(value, skills) if isinstance(value, str) else None
    if aim is None and isinstance(value, str):
        text = value[:MAX_NOTE]
        inside = [skill for skill in skills if re.search(rf"(?<![\w]){re.escape(skill)}(?![\w])", text)]
        aim = inside[0] if len(inside) == 1 else None
    if aim is None:
        problems.append(f"aim {str(value)[:60]!r} is no skill, {nearest(str(value)[:60], skills)}")
    elif aim != value:
        notes.append(f"aim {str(value)[:60]!r} read as {aim}")
    return aim, notes


def _why(raw: Mapping[str, Any], aim: str | None, brief: Brief) -> str:
    """The reason: under a usual name, or else the longest text beside the setting."""
    texts = [str(raw[key]) for key in _fields(raw, WHY, brief) if isinstance(raw[key], str | int | float)]
    if not texts:
        other_fields = [raw[key] for key in _fields(raw, (*AIM, *LABELS, *SETTING), brief)]
        for key, value in raw.items():
            is_free_text = isinstance(value, str) and value != aim and not _knob(key, brief)
            if is_free_text and not any(value == other for other in other_fields):
                texts.append(value)
        texts.sort(key=len, reverse=True)
    why = texts[0] if texts else ""
    return _printable(why).strip()[:MAX_NOTE]


# -- names and values --------------------------------------------------------------------------------------------------


def plain(name: object) -> str:
    """A name without what models change about names: case, underscores, spaces, hyphens, quotes."""
    return re.sub(r"[\W_]+", "", str(name).casefold())


def meant(name: object, known: tuple[str, ...]) -> str | None:
    """The known name that this is a spelling of, if there is exactly one."""
    return str(name) if name in known else _by_spelling(known).get(plain(name))


@lru_cache(64)
def _by_spelling(known: tuple[str, ...]) -> dict[str, str]:
    """Known names by their plain spelling, where no two have the same."""
    spellings = [plain(name) for name in known]
    return {key: name for key, name in zip(spellings, known, strict=True) if key and spellings.count(key) == 1}


def knob_value(knob: Knob, raw: Any) -> tuple[Value, str]:
    """The value that a knob takes for what is written, and a note of what was changed (empty: nothing)."""
    if isinstance(raw, list) and len(raw) == 1:
        return knob_value(knob, raw[0])
    if isinstance(raw, dict) and isinstance(raw.get("value"), str | int | float):
        return knob_value(knob, raw["value"])
    if isinstance(raw, dict | list):
        raise _refused(knob, raw)
    readers: dict[str, Callable[[Knob, Any], Value]] = {"bool": _bool, "choice": _choice, "text": _text}
    value = readers.get(knob.kind, _number)(knob, raw)
    same_type = type(value) is type(raw) or (knob.kind == "float" and type(raw) is int)
    if same_type and value == raw:
        return value, ""
    return value, f"{knob.name} = {_short(raw)} read as {_short(value)}"


def _bool(knob: Knob, raw: Any) -> bool:
    word = str(raw).strip().casefold()
    if isinstance(raw, bool):
        return raw
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise _refused(knob, raw)


def _choice(knob: Knob, raw: Any) -> str:
    word = "none" if raw is None else raw
    found = meant(word, knob.choices) if isinstance(word, str) else None
    if found is None:
        raise _refused(knob, raw)
    return found


def _text(knob: Knob, raw: Any) -> str:
    if raw is None or isinstance(raw, bool) or len(str(raw)) > (knob.high or 0):
        raise _refused(knob, raw)
    return _printable(str(raw))


def _number(knob: Knob, raw: Any) -> int | float:
    """Read a number; beyond a bound it counts as that bound, as the prompt says."""
    low = knob.low or 0.0
    high = knob.high or 0.0
    if isinstance(raw, bool):
        if knob.kind != "int" or (low, high) != (0, 1):
            raise _refused(knob, raw)
        return int(raw)
    number = raw
    if isinstance(raw, str):
        match = _NUMBER.fullmatch(raw.strip())
        if not match or (match[1] and high > 1):
            raise _refused(knob, raw)
        number = float(raw.strip().rstrip("% ").replace(",", ".")) / (100 if match[1] else 1)
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        raise _refused(knob, raw)
    if knob.kind == "int" and number != int(number):
        raise _refused(knob, raw)
    number = min(max(number, low), high)
    return int(number) if knob.kind == "int" else float(number)


def _refused(knob: Knob, raw: Any) -> ValueRefused:
    hint = f"; {nearest(raw, knob.choices)}" if knob.kind == "choice" and isinstance(raw, str) else ""
    return ValueRefused(f"{knob.name} = {_short(raw)} is not allowed: {knob.allowed}{hint}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _printable(text: str) -> str:
    """A text without characters that a terminal would act on."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
