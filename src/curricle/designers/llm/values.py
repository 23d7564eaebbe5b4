"""One value as a model wrote it, made into one that a knob takes, where its meaning is plain."""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from curricle.errors import ValueRefused, nearest
from curricle.records import Brief, Knob, Value
from curricle.setting import Setting

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?\s*(%?)")


def plain(name: object) -> str:
    """A name without what models change about names: case, underscores, spaces, hyphens, quotes."""
    return re.sub(r"[\W_]+", "", str(name).casefold())


def printable(text: str) -> str:
    """A text without what would act on a terminal that shows it."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def meant(name: object, known: tuple[str, ...]) -> str | None:
    """The known name that this is a spelling of, if there is just one."""
    return str(name) if name in known else _spelt(known).get(plain(name))


@lru_cache(64)
def _spelt(known: tuple[str, ...]) -> dict[str, str]:
    """Known names by their plain spelling, where that tells them apart."""
    spelt = [plain(name) for name in known]
    return {key: name for key, name in zip(spelt, known, strict=True) if key and spelt.count(key) == 1}


def fitted(knob: Knob, raw: Any) -> tuple[Value, str]:
    """The value a knob takes for what was written, and what had to be changed about it (empty: nothing)."""
    if isinstance(raw, dict | list):
        if isinstance(raw, list) and len(raw) == 1:
            return fitted(knob, raw[0])
        if isinstance(raw, dict) and isinstance(raw.get("value"), str | int | float):
            return fitted(knob, raw["value"])
        raise _refused(knob, raw)
    kinds: dict[str, Callable[[Knob, Any], Value]] = {"bool": _bool, "choice": _choice, "text": _text}
    value = kinds.get(knob.kind, _number)(knob, raw)
    same = (type(value) is type(raw) and value == raw) or (knob.kind == "float" and type(raw) is int and value == raw)
    return value, "" if same else f"{knob.name} = {_short(raw)} read as {_short(value)}"


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
    return printable(str(raw))


def _number(knob: Knob, raw: Any) -> int | float:
    """A number; beyond a bound it counts as that bound, which the prompt says."""
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


def shown_texts(setting: type[Setting], brief: Brief) -> list[str]:
    """Texts that a request may show, so that to write them again is no writing: the guide's parts, and seed tasks."""
    seeds = [text for values in brief.examples for text in written_out(setting, values, brief.original)]
    parts = brief.guide.strip().split("\n\n")
    names = [k.name for k in setting.knobs() if k.kind == "text"]
    return [*dict.fromkeys([*parts, *(setting.essence(name, part) for part in parts for name in names), *seeds])]


def written_out(setting: type[Setting], values: Mapping[str, Any], original: Mapping[str, Any]) -> list[str]:
    """The texts of a setting, and what is essential in each; one that the original has is nobody's writing."""
    texts = [(k.name, values.get(k.name)) for k in setting.knobs() if k.kind == "text"]
    mine = [(name, str(text)) for name, text in texts if text and text != original.get(name)]
    return [*dict.fromkeys(form for name, text in mine for form in (text, setting.essence(name, text)))]
