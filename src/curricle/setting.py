"""Setting: the knobs of a world, declared once as a frozen pydantic model.

    class Pond(Setting):
        depth: float = knob(2.0, "Depth of the water in metres.", ge=0.5, le=9.0, harder="up")
        fish: Literal["many", "few"] = knob("many", "How many fish live in it.", harder="up")

This one declaration gives the prompt text and the JSON schema for a language model, validation, random sampling, the
levels of a policy and the help of the command line. The defaults are the original world, in which agents are tested.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

import annotated_types
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from curricle.errors import DeclarationError, ValueRefused, nearest
from curricle.records import LOG, Brief, Design, Frozen, Knob, OldNames, Value, Values

_TRIES = 1000


def knob(
    default: Any,
    sentence: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    max_length: int | None = None,
    harder: Literal["up", "down"] | None = None,
) -> Any:
    """Declare a knob: its original value, a sentence, bounds if it is a number, and the direction that is harder."""
    if harder not in (None, "up", "down"):
        raise DeclarationError(f"knob({default!r}, {sentence!r}): harder = {harder!r}; it must be 'up' or 'down'")
    extra: Any = {"harder": harder} if harder else None
    return Field(default, description=sentence, ge=ge, le=le, max_length=max_length, json_schema_extra=extra)


class Span(BaseModel):
    """Free text inside a constrained text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    until: str
    """The character that ends it."""
    never: str = ""
    """Characters that it must not contain."""
    blank: bool = True
    """Whether it may be empty."""


class Setting(OldNames):
    """The base of every world's knobs; rules that span several knobs are `model_validator`s of the subclass.

    A knob that gets another name stays readable in old configs and run folders: declare it in `renamed`. Where its
    values change too, or several knobs take its place, declare in `replaced` what each value is today.
    """

    _noun = "knob"
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)
    _knobs: ClassVar[tuple[Knob, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Check the declaration when the class is made, before any run."""
        cls._knobs = tuple(_knob(cls, name, field) for name, field in cls.model_fields.items())
        try:
            cls()
        except ValidationError as error:
            raise DeclarationError(f"{cls.__name__}: its defaults are not a valid setting: {error}") from None

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """The knobs in the order of their declaration."""
        return cls._knobs

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Build a setting from plain values; knobs left out have their default, and the error names all bad ones."""
        try:
            return cls.model_validate(cls.updated(values, cls.__name__))
        except ValidationError as error:
            raise ValueRefused("; ".join(_refusal(cls, problem) for problem in error.errors())) from None

    @classmethod
    def _note(cls, text: str) -> None:
        """Log a note once: a run folder may hold thousands of designs with an old name."""
        _note_once(cls, text)

    @classmethod
    def follows(cls, name: str, said: str) -> Sequence[str] | Span | None:
        """What may come next in a text knob, for designers that write token by token; None: anything.

        Otherwise a `Span` of free text, or pieces of which one must come next. No piece may be the beginning of
        another. The empty piece ends the text.
        """
        return None

    @classmethod
    def essence(cls, name: str, text: str) -> str:
        """The part of a text that makes it different from others, for the check for copies; by default, all of it.

        It is also called with paragraphs of the guide. Return a text that cannot be read as it is.
        """
        return text

    @classmethod
    def sample(cls, rng: np.random.Generator, held: Mapping[str, Value] | None = None) -> Self:
        """Draw a setting uniformly from the valid ones with the `held` values; text knobs keep their default."""
        for _ in range(_TRIES):
            try:
                return cls(**{k.name: _draw(k, rng) for k in cls._knobs} | dict(held or {}))
            except ValidationError:
                continue  # a rule across knobs refused this combination
        raise DeclarationError(
            f"{cls.__name__}: {_TRIES} random settings in a row were invalid; its rules are too tight"
        )

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON schema for structured output: every knob is required, no other allowed; small ranges are enums."""
        return schema_of(cls._knobs)

    @property
    def values(self) -> Values:
        """The setting as plain data, for a record."""
        return Frozen(self.model_dump())


@functools.cache
def _note_once(setting: type[Setting], text: str) -> None:
    LOG.warning("%s", text)


def _knob(cls: type[Setting], name: str, field: FieldInfo) -> Knob:
    """Read one field's declaration into a record."""
    where = f"{cls.__name__}.{name}"
    if not field.description:
        raise DeclarationError(f"{where}: a knob needs a sentence; declare it with knob(default, 'sentence', ...)")
    if field.is_required():
        raise DeclarationError(f"{where}: a knob needs a default, its value in the original world")
    bounds = {type(m): m for m in field.metadata}
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    common: dict[str, Any] = {
        "name": name,
        "default": field.default,
        "sentence": field.description,
        "harder": extra.get("harder"),
    }
    kind = field.annotation
    if kind is bool:
        return Knob(kind="bool", **common)
    if kind in (int, float):
        if annotated_types.Ge not in bounds or annotated_types.Le not in bounds:
            raise DeclarationError(f"{where}: a number needs both bounds, ge= and le=")
        low = bounds[annotated_types.Ge].ge
        high = bounds[annotated_types.Le].le
        return Knob(kind="int" if kind is int else "float", low=low, high=high, **common)
    if get_origin(kind) is Literal and all(isinstance(choice, str) for choice in get_args(kind)):
        return Knob(kind="choice", choices=get_args(kind), **common)
    if kind is str and annotated_types.MaxLen in bounds:
        return Knob(kind="text", high=bounds[annotated_types.MaxLen].max_length, **common)
    raise DeclarationError(
        f"{where}: {kind} cannot be a knob; use bool, int, float, Literal['a', 'b'] or str with max_length"
    )


def _draw(knob: Knob, rng: np.random.Generator) -> Value:
    """Draw one knob's value uniformly."""
    if knob.kind == "int" and knob.low is not None and knob.high is not None:
        return int(rng.integers(int(knob.low), int(knob.high) + 1))
    if knob.kind == "float" and knob.low is not None and knob.high is not None:
        return float(rng.uniform(knob.low, knob.high))
    levels = knob.levels()
    return levels[int(rng.integers(len(levels)))]


def updated_design(setting: type[Setting], design: Design, what: str) -> Design:
    """A stored design, with the names that knobs have today."""
    values = setting.updated(design.setting, what)
    return design if values == design.setting else design.model_copy(update={"setting": Frozen(values)})


def schema_of(knobs: Sequence[Knob]) -> dict[str, Any]:
    """JSON schema of a setting with these knobs."""
    return {
        "type": "object",
        "properties": {k.name: _schema(k) for k in knobs},
        "required": [k.name for k in knobs],
        "additionalProperties": False,
    }


def _schema(knob: Knob) -> dict[str, Any]:
    """One knob's JSON schema. Small ranges are enums, because decoders keep to enums better than to bounds."""
    schema: dict[str, Any] = {"description": knob.sentence}
    if knob.kind == "bool":
        return schema | {"type": "boolean"}
    if knob.kind == "choice":
        return schema | {"enum": list(knob.choices)}
    if knob.kind == "text":
        return schema | {"type": "string", "maxLength": int(knob.high or 0)}
    if knob.kind == "int" and len(knob.levels()) == (knob.high or 0) - (knob.low or 0) + 1:
        return schema | {"enum": list(knob.levels())}
    return schema | {"type": "integer" if knob.kind == "int" else "number", "minimum": knob.low, "maximum": knob.high}


def written_texts(setting: type[Setting], values: Mapping[str, Any], original: Mapping[str, Any]) -> list[str]:
    """The texts that somebody wrote into a setting, each with its essence; the original's texts do not count."""
    texts = []
    for knob in setting.knobs():
        text = values.get(knob.name)
        if knob.kind == "text" and text and text != original.get(knob.name):
            texts += [str(text), setting.essence(knob.name, str(text))]
    return list(dict.fromkeys(texts))


def shown_texts(setting: type[Setting], brief: Brief) -> list[str]:
    """The texts that a prompt shows, which a designer must not copy: paragraphs of the guide, and seed tasks."""
    paragraphs = brief.guide.strip().split("\n\n")
    texts = list(paragraphs)
    for paragraph in paragraphs:
        texts += [setting.essence(knob.name, paragraph) for knob in setting.knobs() if knob.kind == "text"]
    for values in brief.examples:
        texts += written_texts(setting, values, brief.original)
    return list(dict.fromkeys(texts))


def _refusal(cls: type[Setting], problem: Any) -> str:
    """Name the knob, the value and what is allowed."""
    known = {k.name: k for k in cls.knobs()}
    if not problem["loc"]:
        return str(problem["msg"]).removeprefix("Value error, ")
    name = str(problem["loc"][0])
    if name not in known:
        return f"unknown knob {name!r}, {nearest(name, known)}"
    hint = ""
    if known[name].kind == "choice" and isinstance(problem["input"], str):
        hint = f"; {nearest(problem['input'], known[name].choices)}"
    return f"{name} = {problem['input']!r} is not allowed: {known[name].allowed}{hint}"
