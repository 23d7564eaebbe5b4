"""Records: what passes between worlds, designers, agents and the run folder.

All are frozen and survive JSON unchanged: `Kind.from_json(record.to_json()) == record`. A record never holds behaviour
of a world: a setting travels as plain values, and only its world can turn them into a typed `Setting` again.
"""

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from curricle.errors import ValueRefused, nearest

LOG = logging.getLogger("curricle")
K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)


class Frozen(dict[K, V]):
    """A dict that cannot be changed: frozen records need frozen mappings."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("records are frozen; make a changed copy instead")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type, tuple[dict[K, V]]]:
        return (Frozen, (dict(self),))


FrozenMap = Annotated[Mapping[K, V], AfterValidator(Frozen), PlainSerializer(dict)]
Value = bool | int | float | str
"""What one knob can be set to."""
Values = FrozenMap[str, Value]
"""A whole setting as plain data."""
Count = Annotated[int, Field(ge=0)]


def _speakable(text: object) -> object:
    """Half characters, which models do produce, cannot be written to a file: show them as replaced."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Prose = Annotated[str, BeforeValidator(_speakable)]
"""Text written by a model."""


class Record(BaseModel):
    """The base of all records: frozen, no unknown fields, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """Return one line of JSON; equal records give equal bytes."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, separators=(", ", ": "))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote."""
        return cls.model_validate_json(text)


class OldNames(BaseModel):
    """A declaration whose fields may get other names or go away.

    Configs and run folders that still have an old name stay readable: declare it in `renamed`, `removed` or `replaced`.
    Subclasses inherit the declarations and may add their own.
    """

    _noun: ClassVar[str]
    """What a field is called in messages."""
    renamed: ClassVar[Mapping[str, str]] = Frozen()
    """Old name of a field -> its name now."""
    removed: ClassVar[Mapping[str, tuple[Any, str]]] = Frozen()
    """Name of a field that is gone -> the value that changes nothing, and what to do about any other value."""
    replaced: ClassVar[Mapping[str, Mapping[Any, Mapping[str, Any]]]] = Frozen()
    """Name of a field that is gone -> each value that it had, with the fields of today that say the same."""

    @classmethod
    def every_renamed(cls) -> dict[str, str]:
        """Old names with the new ones, those of base classes included."""
        return cls._every("renamed")

    @classmethod
    def _every(cls, declaration: str) -> dict[str, Any]:
        """What this class and its base classes declare."""
        return {name: how for kind in reversed(cls.__mro__) for name, how in vars(kind).get(declaration, {}).items()}

    @classmethod
    def updated(cls, table: Mapping[str, Any], what: str) -> dict[str, Any]:
        """A table under the names of today, in the same order; logs a note for each old name."""
        renamed = cls.every_renamed()
        removed = cls._every("removed")
        replaced = cls._every("replaced")
        found: dict[str, Any] = {}
        for name, value in table.items():
            if name in removed:
                harmless, advice = removed[name]
                if value != harmless:
                    raise ValueRefused(f"{what}: {name} = {value!r} is refused, the {cls._noun} was removed: {advice}")
                cls._note(f"{what}: the {cls._noun} {name} was removed; {value!r} changes nothing, leave it out")
            elif name in renamed:
                new = renamed[name]
                if new in table:
                    raise ValueRefused(f"{what}: {name} is the old name of {new}, and both are given; keep only {new}")
                if new in found:
                    other = next(old for old in table if old != name and renamed.get(old) == new)
                    raise ValueRefused(
                        f"{what}: {other} and {name} are both old names of {new}, keep one and call it {new}"
                    )
                cls._note(f"{what}: the {cls._noun} {name} is called {new} now")
                found[new] = value
            elif name in replaced:
                today = _said_today(replaced[name], value)
                names = " and ".join(today)
                if both := [new for new in today if new in table or new in found]:
                    raise ValueRefused(f"{what}: {name} is {names} now, and {both[0]} is given too; leave {name} out")
                cls._note(f"{what}: the {cls._noun} {name} is {names} now")
                found |= today
            else:
                found[name] = value
        return found

    @classmethod
    def _note(cls, text: str) -> None:
        """Log that an old name was read."""
        LOG.warning("%s", text)


def _said_today(values: Mapping[Any, Mapping[str, Any]], value: object) -> dict[str, Any]:
    """The fields that say what a value of a replaced one said; a value it never had is left for them to refuse."""
    for old, fields in values.items():
        if type(old) is type(value) and old == value:
            return dict(fields)
    return {name: value for fields in values.values() for name in fields}


class Options(OldNames, Record):
    """How a world, designer, agent or run is set up; every field has a description, which is its help text."""

    model_config = ConfigDict(strict=True)
    _noun = "option"

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, values: Any) -> Any:
        return cls.updated(values, cls.__name__) if isinstance(values, Mapping) else values


class Knob(Record):
    """One field of a setting, as data: from it come prompt lines, samples, a policy's choices and help texts."""

    name: str
    kind: str
    """bool, int, float, choice or text."""
    default: Value
    sentence: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    harder: str | None = None
    """The direction that makes the world harder: up or down (for a choice: along the listed order)."""

    @property
    def allowed(self) -> str:
        """The values it may take, in words."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "choice":
            return " | ".join(self.choices)
        if self.kind == "text":
            return f"text of at most {self.high:g} characters"
        return f"{'whole number' if self.kind == 'int' else 'number'} from {self.low:g} to {self.high:g}"

    @property
    def line(self) -> str:
        """One line for a prompt or a help page."""
        hint = f" Harder: {self.harder}." if self.harder else ""
        default = str(self.default).lower() if self.kind == "bool" else self.default
        return f"{self.name} ({self.allowed}; original {default}): {self.sentence}{hint}"

    def levels(self, most: int = 10) -> tuple[Value, ...]:
        """The values in order, at most `most` of them where the range is wide: the choices of a policy's head."""
        if self.kind == "bool":
            return (False, True)
        if self.kind == "choice":
            return self.choices
        if self.low is None or self.high is None or self.kind == "text":
            return (self.default,)
        if self.kind == "int" and self.high - self.low < most:
            return tuple(range(int(self.low), int(self.high) + 1))
        steps = [self.low + (self.high - self.low) * i / (most - 1) for i in range(most)]
        return tuple(round(s) for s in steps) if self.kind == "int" else tuple(steps)


class Skill(Record):
    """Something an episode can show, such as `collect_wood`; a world's skills and their `needs` form its skill tree."""

    name: str
    needs: tuple[str, ...] = ()
    """Skills that must be shown earlier in the same episode when nothing is handed out."""
    eased_by: Values = Frozen()
    """Knob values that hand out what the skill needs: the tutor's knowledge of this world."""


class Design(Record):
    """A setting proposed by a designer, the skill it is meant to teach, and why."""

    setting: Values
    aim: str | None = None
    """A skill of the world; None stands for the whole of it."""
    why: Prose = ""
    by: str = ""
    """Which designer made it; differs from the run's designer where a stated fallback stepped in."""
    changed: tuple[str, ...] = ()
    """What was repaired or replaced in the designer's answer, in words."""


class Outcome(Record):
    """What happened when an agent spent time in a design; `attempts` are finished episodes or answered tasks."""

    design: Design
    attempts: Count
    successes: Count
    """Attempts that showed the design's aim (every skill of the world, where there is no aim)."""
    skills: FrozenMap[str, Count] = Frozen()
    """Attempts in which each skill was shown; a skill never shown may be left out."""
    tried: FrozenMap[str, Count] = Frozen()
    """Attempts that could show each skill, where they differ: a text task is about one skill. Empty: all could."""
    reward: float = 0.0
    """Sum of the attempts' returns."""
    spent: Count = 0
    """Budget used, in the agent's unit; unfinished attempts count too."""

    @property
    def rate(self) -> float | None:
        """Share of attempts that succeeded: the p of GenEnv; None before the first attempt."""
        return self.successes / self.attempts if self.attempts else None

    def chances(self, skill: str) -> int:
        """Attempts that could show a skill."""
        return self.tried.get(skill, 0) if self.tried else self.attempts

    def share(self, skill: str) -> float:
        """Share of those attempts that did show it."""
        return self.skills.get(skill, 0) / self.chances(skill) if self.chances(skill) else 0.0

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.successes > self.attempts or any(self.skills[name] > self.chances(name) for name in self.skills):
            raise ValueError(f"more successes than attempts: {self.successes} of {self.attempts}, {dict(self.skills)}")
        return self

    @staticmethod
    def merge(parts: Sequence["Outcome"]) -> "Outcome":
        """Add up the outcomes of one design over several stretches of practice."""
        first = parts[0]
        if any(part.design != first.design for part in parts):
            raise ValueError("outcomes of different designs cannot be merged")

        def total(counts: Sequence[Mapping[str, int]]) -> Frozen[str, int]:
            return Frozen(
                {name: sum(c.get(name, 0) for c in counts) for name in sorted({n for c in counts for n in c})}
            )

        return Outcome(
            design=first.design,
            attempts=sum(p.attempts for p in parts),
            successes=sum(p.successes for p in parts),
            skills=total([p.skills for p in parts]),
            tried=total([p.tried for p in parts]),
            reward=math.fsum(p.reward for p in parts),
            spent=sum(p.spent for p in parts),
        )


class Score(Record):
    """Mean and standard deviation of a quantity over n test seeds."""

    mean: float
    std: float
    n: Count

    @staticmethod
    def over(values: Sequence[float]) -> "Score":
        """Summarise one value a seed; the deviation is the sample's (n - 1), 0 for a single seed."""
        if not values:
            return Score(mean=0.0, std=0.0, n=0)
        mean = math.fsum(values) / len(values)
        spread = math.fsum((v - mean) ** 2 for v in values)
        return Score(mean=mean, std=math.sqrt(spread / (len(values) - 1)) if len(values) > 1 else 0.0, n=len(values))


class Trained(Record):
    """Success over the training attempts of one stretch in the original: the papers' protocol, beside the tests'."""

    skills: FrozenMap[str, float]
    headline: float
    reward: float
    attempts: Count


class Scores(Record):
    """How the agent did in the original world, tested without updates: success rate per skill, and reward."""

    skills: FrozenMap[str, Score]
    reward: Score
    headline: float = 0.0
    """The world's one figure, in percent; see `World.headline`."""
    trained: Trained | None = None
    """The stretch of practice just before the test, if any of its attempts ended."""

    @staticmethod
    def over(outcomes: Sequence[Outcome], skills: Iterable[str]) -> "Scores":
        """Summarise one outcome a test seed; each seed weighs the same, however many episodes it ran."""
        seen = [o for o in outcomes if o.attempts]
        return Scores(
            skills=Frozen({n: Score.over([o.share(n) for o in seen if o.chances(n)]) for n in skills}),
            reward=Score.over([o.reward / o.attempts for o in seen]),
        )


class Cycle(Record):
    """One finished cycle, as a designer is told about it: what each design did, and the scores that followed."""

    number: int
    designed: tuple[Outcome, ...]
    scores: Scores


class Brief(Record):
    """All that a designer is told: what the world offers, and how the agent did so far."""

    world: str
    guide: str
    skills: tuple[Skill, ...]
    knobs: tuple[Knob, ...]
    original: Values
    cycle: int
    cycles: int
    past: tuple[Cycle, ...] = ()
    examples: tuple[Values, ...] = ()
    """Settings to vary, where the world has some that no ranges can span: seed tasks, written out."""

    @property
    def rates(self) -> dict[str, float]:
        """Success rate of each skill at the last test; empty before the first."""
        return {name: score.mean for name, score in self.past[-1].scores.skills.items()} if self.past else {}


class Message(Record):
    """One turn of a conversation with a language model."""

    role: str
    content: Prose


class Exchange(Record):
    """One call of a language model: kept in the run folder the moment it is over, and never paid for twice."""

    prompt: tuple[Message, ...]
    reply: Prose
    model: Prose = ""
    finish: Prose = ""
    """Why the reply ended, in the endpoint's words."""
    error: Prose = ""
    """What went wrong, where there is no reply."""
    again: Annotated[float, Field(ge=0)] | None = None
    """Where the same call may succeed later: the seconds that the endpoint asks to wait first (0: it says nothing)."""
    usage: FrozenMap[str, float] = Frozen()
    """What it cost: calls, tokens_in, tokens_out, and dollars where prices are known."""

    @staticmethod
    def total(exchanges: Iterable["Exchange"]) -> dict[str, float]:
        """The ledger: what exchanges cost together, figure by figure."""
        total: dict[str, float] = {}
        for exchange in exchanges:
            for name, amount in exchange.usage.items():
                total[name] = total.get(name, 0.0) + amount
        return total


class Task(Record):
    """One text task of a world: what the agent reads, and what only the verifier sees."""

    id: str
    prompt: tuple[Message, ...]
    gold: JsonValue = None
    skill: str


class Verdict(Record):
    """The verifier's judgement of one attempt at a task."""

    reward: Annotated[float, Field(ge=0, le=1)]
    skills: tuple[str, ...] = ()
    """Skills the attempt showed."""
    why: str = ""
    valid: bool = True
    """Whether it kept to the form that was asked for, right or wrong. The pool takes no other attempts."""


DEEPEST = 16
LONGEST_NAME = 200
LARGEST = 2**63 - 1
"""Levels of tables in a config, characters of a name and whole numbers that are read."""


def refuse_unbearable(values: object, where: str = "config", level: int = 0) -> None:
    """Refuse plain data that no config needs and that would break what prints, writes or looks it up."""
    if level > DEEPEST:
        raise ValueRefused(f"{where:.100} is nested more than {DEEPEST} levels deep")
    if isinstance(values, Mapping):
        for name, value in values.items():
            if not isinstance(name, str) or not _is_bearable(name):
                raise ValueRefused(f"{where:.100}: {name!r:.60} is not a name")
            refuse_unbearable(value, f"{where}.{name}" if level else name, level + 1)
    elif isinstance(values, list | tuple):
        for value in values:
            refuse_unbearable(value, where, level + 1)
    elif isinstance(values, int) and abs(values) > LARGEST:
        raise ValueRefused(f"{where:.100} is a number of {values.bit_length()} bits; at most 63 are read")
    elif isinstance(values, str) and ("\0" in values or values != _speakable(values)):
        raise ValueRefused(f"{where:.100} = {values!r:.60} holds a character that no file can hold")


ID_KEYS = ("id", "of", "fallback")
"""Keys of a config whose value may name code."""


def refuse_odd_names(config: Mapping[str, Any], where: str = "config") -> None:
    """Refuse a name of a world, designer or agent that is not text: converted to text, it could name a file."""
    for key, value in config.items():
        if key in ID_KEYS and not isinstance(value, str):
            raise ValueRefused(f"{where:.200}: {key} = {value!r:.60} is not a name; write it as text")
        if isinstance(value, Mapping) and (key in ("world", "designer", "agent") or key.endswith("_options")):
            refuse_odd_names(value, f"{where}: [{key}]")


def _is_bearable(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def checked(model: type[M], values: Mapping[str, Any], what: str) -> M:
    """Build a model from untrusted values; every bad one is named with what would be allowed."""
    given = model.updated(values, what) if issubclass(model, Options) else dict(values)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(_problem(model, problem) for problem in error.errors())
        raise ValueRefused(f"{what}: {problems}") from None


def _problem(model: type[BaseModel], problem: Any) -> str:
    """Put one of pydantic's findings into words a user can act on."""
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {path!r}, {nearest(path.split('.')[-1], model.model_fields)}"
    if problem["type"] == "missing":
        return f"{path!r} is missing"
    if not path:
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"{path} = {_short(problem['input'])} is refused: {problem['msg'].removeprefix('Value error, ')}"


def _short(value: object, longest: int = 200) -> str:
    """A value in a message; whole numbers of thousands of digits cannot even be written."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= longest else f"{text[:longest]}..."


def leaves(table: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    """All values of nested tables by their dotted keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value
