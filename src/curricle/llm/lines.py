"""A design on one line: the most a very small language model can say well, and Python turns into a setting.

    biome mountain; iron very common; start_stone_pickaxe 1

A line names the knobs that differ from the original, in the order of their declaration; `original` alone changes none.
`write` and `read` are each other's inverse for every setting of every world. `read` also makes the best of what a model
wrote instead and says what it did; `grammar` holds a model to the format while it writes; `prompt` asks for a line.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from curricle.errors import ValueRefused
from curricle.records import Brief, Frozen, Knob, Message, Skill, Value, Values
from curricle.setting import Setting

ORIGINAL = "original"
LONGEST, MOST_NOTES = 4_000, 12
"""Characters of a reply that are read, and remarks on it that are kept: a model may write without end."""
_PLAIN = re.compile(r"\w(?:[\w .+-]*\w)?|-?[\d.][\w.+-]*")
_PIECE = re.compile(r'(?:[^;\n"]|"(?:\\.|[^"\\\n])*"|")+')
_EDGES = " \t\r\n.,*#`'\""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Reading:
    """What a line means: a whole setting, or None where it says nothing; and what was repaired or ignored."""

    values: Values | None
    notes: tuple[str, ...]


def write(values: Mapping[str, Value], knobs: Sequence[Knob], original: Mapping[str, Value]) -> str:
    """Put a setting on a line."""
    pairs = [
        f"{k.name} {_said(k, values[k.name])}"
        for k in knobs
        if values.get(k.name, original[k.name]) != original[k.name]
    ]
    return "; ".join(pairs) or ORIGINAL


def read(text: str, setting: type[Setting], original: Mapping[str, Value]) -> Reading:
    """Turn what a model wrote into a setting; takes anything, never raises."""
    notes: list[str] = []
    if len(text) > LONGEST:
        notes.append(f"only the first {LONGEST} characters were read")
    pieces = [piece.strip() for piece in _PIECE.findall(text[:LONGEST])]
    found: dict[str, Value] = {}
    for piece in filter(None, pieces):
        if _bare(piece) == ORIGINAL:
            continue
        pair, note = _pair(piece, setting.knobs())
        if pair and pair[0] in found:
            note = f"ignored {_short(piece)}: {pair[0]} was set before"
        elif pair:
            found[pair[0]] = pair[1]
        if note:
            notes.append(note)
    kept = _agreeing(found, setting, original, notes)
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES - 1 :] = [f"and {len(notes) - MOST_NOTES + 1} more such remarks"]
    unchanged = any(_bare(piece) == ORIGINAL for piece in pieces)
    return Reading(Frozen({**original, **kept}) if kept or unchanged else None, tuple(notes))


def grammar(setting: type[Setting]) -> str:
    """The lines of a world as a grammar in GBNF: each knob at most once, in order, so that no line is unreadable."""
    knobs = setting.knobs()
    last = len(knobs)
    starts = [f"k{i} r{i + 1}" for i in range(last)] + [json.dumps(ORIGINAL)]
    rules = [f"root ::= {' | '.join(starts)}", f'r{last} ::= ""']
    for i, knob in enumerate(knobs):
        rules.append(f"k{i} ::= {json.dumps(knob.name + ' ')} ({_spellings(knob)})")
        rules.append(f'r{i} ::= ("; " k{i})? r{i + 1}')
    return "\n".join(rules) + "\n"


def prompt(brief: Brief, aim: Skill, *, taught: bool) -> tuple[Message, ...]:
    """Ask for one line; a model that was not taught the format is told of it, and of the world's knobs."""
    rates = brief.rates
    told = [f"{brief.world}. Aim: {aim.name}, success {rates.get(aim.name, 0.0):.0%}."]
    if aim.needs:
        told.append("Needs: " + ", ".join(f"{need} {rates.get(need, 0.0):.0%}" for need in aim.needs) + ".")
    tried = [outcome for cycle in brief.past for outcome in cycle.designed if outcome.design.aim == aim.name]
    if tried and tried[-1].rate is not None:
        line = write(tried[-1].design.setting, brief.knobs, brief.original)
        told.append(f"Last: {line} -> {tried[-1].rate:.0%}.")
    system = "Design a world on one line." if taught else _lesson(brief)
    return (Message(role="system", content=system), Message(role="user", content="\n".join(told)))


def _lesson(brief: Brief) -> str:
    knobs = "\n".join(f"{k.name}: {k.allowed}" for k in brief.knobs)
    example = "; ".join(f"{k.name} {_said(k, k.levels()[-1])}" for k in brief.knobs[:2])
    return (
        "You choose the setting of a world in which an agent can practise a skill it is weak at. Answer with one line: "
        "the knobs that make this skill easier to practise, each with its value, separated by semicolons, for example\n"
        f"{example}\nThe knobs:\n{knobs}"
    )


def _said(knob: Knob, value: Value) -> str:
    """A value as it stands on a line: words and numbers as they are, all else quoted."""
    if knob.kind == "bool":
        return str(value).lower()
    if knob.kind in ("int", "float"):
        return repr(value)
    return str(value) if knob.kind == "choice" and _PLAIN.fullmatch(str(value)) else json.dumps(value)


def _spellings(knob: Knob) -> str:
    """The values of a knob, in GBNF."""
    if knob.kind == "text":
        return r'"\"" [^"\\\n\x00-\x1f]* "\""'
    low, high = int(knob.low or 0), int(knob.high or 0)
    digits = f"{{1,{max(len(str(abs(low))), len(str(abs(high))))}}}"  # bounded, or a model may count on for ever
    number = ('"-"? ' if (knob.low or 0) < 0 else "") + f"[0-9]{digits}"
    if knob.kind == "float":
        return f'{number} ("." [0-9]{{1,4}})?'
    if knob.kind == "int" and high - low >= 64:
        return number
    levels: Sequence[Value] = range(low, high + 1) if knob.kind == "int" else knob.levels()
    return " | ".join(json.dumps(_said(knob, level)) for level in levels)


def _pair(piece: str, knobs: Sequence[Knob]) -> tuple[tuple[str, Value] | None, str]:
    """The knob and value that a piece of a line stands for, and a remark where it was not written as it should be."""
    if named := _named(piece, knobs):
        knob, rest, remark = named
        value, note = _value(knob, rest)
        return (None, note) if value is None else ((knob.name, value), note or remark)
    wanted = _bare(piece)
    owners = [k for k in knobs if k.kind == "choice" and wanted in map(_bare, k.choices)]
    if len(owners) == 1:
        value = next(choice for choice in owners[0].choices if _bare(choice) == wanted)
        return (owners[0].name, value), f"took {_short(piece)} for {owners[0].name} {value}"
    return None, f"ignored {_short(piece)}: it names no knob"


def _named(piece: str, knobs: Sequence[Knob]) -> tuple[Knob, str, str] | None:
    """The knob that a piece names - as it is spelt, nearly so, or at its end - with the rest of the piece."""
    exact = [k for k in knobs if re.match(re.escape(k.name) + r"(\s|$)", piece)]
    if exact:
        knob = max(exact, key=lambda k: len(k.name))
        return knob, piece[len(knob.name) :].strip(), ""
    piece = piece.strip(_EDGES)
    words = list(re.finditer(r"[^\s_=:-]+", piece))
    spelt = {_bare(k.name): k for k in knobs}
    for cutoff in (1.0, 0.75):
        for count in range(min(len(words), 8), 0, -1):
            first, last = words[count - 1].end(), words[-count].start()
            for name, rest in (
                (piece[:first], re.sub(r"^[\s_=:]+(-\s)?", "", piece[first:])),
                (piece[last:], piece[:last]),
            ):
                close = get_close_matches(_bare(name)[:60], spelt, n=1, cutoff=cutoff)
                if close and not (cutoff < 1 and re.search(r"\d", name)):  # a number is no part of a misspelt name
                    return spelt[close[0]], rest.strip(), f"took {_short(piece)} for {spelt[close[0]].name}"
    return None


def _value(knob: Knob, text: str) -> tuple[Value | None, str]:
    """The value that a text stands for, if any, and a remark where it had to be changed."""
    wrong = f"ignored {knob.name} {_short(text)}: {knob.allowed}"
    if knob.kind == "text" or text.startswith('"'):
        try:
            text = str(json.loads(text))
        except ValueError:
            text = text.strip('"')
    if knob.kind == "text":
        cut = text[: int(knob.high or 0)]
        return cut, f"cut {knob.name} to {knob.high:g} characters" if cut != text else ""
    if knob.kind == "bool":
        meant = _WORDS.get(_bare(text)) if text else True  # a switch that is only named is meant to be on
        return (meant, "") if meant is not None else (None, wrong)
    if knob.kind == "choice":
        return _choice(knob, text, wrong)
    return _number(knob, text, wrong)


def _choice(knob: Knob, text: str, wrong: str) -> tuple[Value | None, str]:
    if text in knob.choices:
        return text, ""
    spelt = {_bare(choice): choice for choice in knob.choices}
    close = get_close_matches(_bare(text), spelt, n=1, cutoff=0.8) if len(text) < 60 else []
    return (spelt[close[0]], f"took {_short(text)} for {knob.name} {spelt[close[0]]}") if close else (None, wrong)


def _number(knob: Knob, text: str, wrong: str) -> tuple[Value | None, str]:
    match = re.match(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?(?![\w])", text.strip(), re.IGNORECASE)
    number = float(match[0]) if match and len(match[0]) < 40 else math.nan
    if not math.isfinite(number) or knob.low is None or knob.high is None:
        return None, wrong
    allowed = min(max(number, knob.low), knob.high)
    value: Value = round(allowed) if knob.kind == "int" else allowed
    said = (
        "" if value == number and match and match[0] == text.strip() else f"took {knob.name} {_short(text)} for {value}"
    )
    return value, said


def _agreeing(
    found: Mapping[str, Value], setting: type[Setting], original: Mapping[str, Value], notes: list[str]
) -> dict[str, Value]:
    """The pairs that the world's rules allow together: all, or all but one, or as many as fit in their order."""
    refusal = _refusal(found, setting, original)
    if not refusal:
        return dict(found)
    for name in reversed(list(found)):
        rest = {k: v for k, v in found.items() if k != name}
        if not _refusal(rest, setting, original):
            notes.append(f"left out {name} {_short(str(found[name]))}: {refusal}")
            return rest
    kept: dict[str, Value] = {}
    for name, value in found.items():
        if refusal := _refusal({**kept, name: value}, setting, original):
            notes.append(f"left out {name} {_short(str(value))}: {refusal}")
        else:
            kept[name] = value
    return kept


def _refusal(values: Mapping[str, Value], setting: type[Setting], original: Mapping[str, Value]) -> str:
    try:
        setting.of({**original, **values})
        return ""
    except ValueRefused as error:
        return str(error)


def _bare(text: str) -> str:
    """A word without the accidents of its spelling."""
    return re.sub(r"[\s_-]+", " ", text.strip(_EDGES)).lower()


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
