"""Families: the puzzles of reasoning-gym that can be trusted, with groups and levels, as `families.json` lists them.

`python -m curricle.worlds.text.reasoning.families` tests every family and writes that list again. A family is listed up
to the highest level that passes these tests over some tasks: the stored answer scores 1; junk and the question itself
score nothing; the same number gives the same task in every process; tasks differ; and all of this takes seconds.
Families whose scorer evaluates the answer as an expression are left out, because what a model writes is never run.

Some scorers accept the right answer with another one beside it. Such a family is strict: an answer of more parts
(words, numbers) than the stored one earns nothing, or, where that does not help, a longer one.
"""

import functools
import hashlib
import inspect
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from curricle.errors import UsageError

FILE = Path(__file__).with_name("families.json")
LEVELS = 5
MOST_RAISED = 3
SIZE = 2**31
"""Tasks a family has at a level, by number."""
TRIES = 12
TIME_LIMIT = 10
MIN_SCORE = 0.5
"""A lower score counts as 0: scorers give a little for the right form, or for answers that contain the right one."""
NUMBERLESS = (
    "nan",
    "-NaN",
    "nanj",
    "nan + nani",
    "n a n",
    "sNaN",
    "inf",
    "-Infinity",
    "inf+infj",
    "1e999",
    "[nan, nan]",
)
JUNK = ("junk", "I do not know", "?", "{}", "[]", "null", "[[[[", "-", "\x00\u202e", "a" * 300, *NUMBERLESS)
HEDGES = ("{0} or maybe something else entirely", "{0} or {1}", "{1} or {0}", "{0}, {1}")
"""The right answer, and that of another task."""
JOINED = ("{0}{1}", "{0}|{1}", "{0}_{1}", "{0}.{1}", "{0}:{1}")
"""The same without a separator: some scorers read the beginning only."""
HEDGED = "a hedge scores"
TOO_STRICT = "to be strict refuses a right answer"
ENDLESS = re.compile(r"s?nan|inf(?:inity)?")
PART = re.compile(r"\w+(?:[.:]\w+)*")
FRACTION = re.compile(r"\\[dt]?frac")
"""How LaTeX begins a fraction, which is no part of it."""
DECIMAL = re.compile(r"(?<![\w.:])\d+\.\d+(?![\w:]|\.\d)")
POWER = re.compile(r"\d+(?:\.\d*)?e\+?\d+")
LETTER = re.compile(r"[^\W\d_eij]")
"""A letter that stands in words and in no number: not those of 1e5 and 3j."""
RUNS_CODE = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
FAMILIES: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
"""By family: its group, its sound levels, how many attributes may be one level higher, how it is strict."""
SIZES: dict[str, Callable[[str], int]] = {
    "parts": lambda text: len(PART.findall(FRACTION.sub(" ", text))),
    "length": lambda text: len("".join(text.split())),
}
"""What a strict family measures: an answer may not have more of it than the stored one."""


@functools.lru_cache(maxsize=256)
def dataset(family: str, level: int, raised: int = 0) -> Any:
    """A family at a level of its own curriculum (level 0 where it has none), some attributes one level higher."""
    try:
        from reasoning_gym.factory import create_curriculum, create_dataset, has_curriculum
    except ImportError:
        raise UsageError("reasoning-v1 needs reasoning-gym: pip install 'curricle[text]'") from None
    options: dict[str, Any] = {}
    if has_curriculum(family):
        curriculum = create_curriculum(family)
        curriculum.set_global_level(level)
        for name in list(curriculum.attributes)[:raised]:
            highest = len(curriculum.attributes[name].levels) - 1
            curriculum.set_attr_level(name, min(level + 1, highest))
        options = {k: v for k, v in vars(curriculum.generate_configuration({})).items() if k not in ("seed", "size")}
    return create_dataset(family, seed=0, size=SIZE, **options)


@functools.lru_cache(maxsize=4096)
def puzzle(family: str, level: int, raised: int, number: int) -> Any:
    """One task of a family, with its answer."""
    with redirect_stdout(io.StringIO()):  # some print while they make one
        return dataset(family, level, raised)[number]


def score(family: str, level: int, raised: int, number: int, answer: str, strict: str | None = None) -> float:
    """The score of an answer, in [0, 1]; an answer that breaks the scorer earns nothing.

    So does one that exceeds the stored answer by the measure `strict` of `SIZES`; None: the measure that is listed.
    """
    if strict is None:
        strict = FAMILIES.get(family, {}).get("strict", "")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry = puzzle(family, level, raised, number)
            if is_not_finite(answer) and not is_not_finite(entry["answer"]):
                return 0.0  # a distance to NaN is NaN, and min(1.0, NaN) is 1
            if strict and SIZES[strict](answer) > SIZES[strict](entry["answer"]):
                return 0.0
            found = float(dataset(family, level, raised).score_answer(answer, entry=entry))
    except Exception:  # scorers parse the answer as they like, and break in as many ways
        return 0.0
    return min(1.0, found) if found >= MIN_SCORE else 0.0  # NaN compares as no


def is_not_finite(text: str) -> bool:
    """Whether a text is one or more numbers and nothing else, and some of them are NaN or infinite."""
    plain = "".join(text.split()).lower().replace("_", "")  # scorers take out spaces, and Python reads 1_0 as 10
    rest, found = ENDLESS.subn("", plain)
    found += sum(math.isinf(float(number)) for number in POWER.findall(plain))
    return bool(found) and not LETTER.search(rest)


def fault(family: str, level: int, raised: int = 0, tries: int = TRIES, strict: str | None = None) -> str:
    """Why a family is not sound at a level, in words; empty if it is."""
    try:
        puzzles = dataset(family, level, raised)
        again = dataset.__wrapped__(family, level, raised)
        numbers = [SIZE // tries * i + 17 for i in range(tries)]
        entries = [puzzle(family, level, raised, number) for number in numbers]
        same = all(again[n]["question"] == e["question"] for n, e in zip(numbers, entries, strict=True))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not same:
        return "not the same task twice"
    if len({entry["question"] for entry in entries}) < tries * 0.8:
        return "too few different tasks"
    if RUNS_CODE.search(inspect.getsource(type(puzzles).score_answer)):
        return "its scorer evaluates the answer"
    for number, entry in zip(numbers, entries, strict=True):
        gold = entry["answer"]
        if not isinstance(gold, str) or score(family, level, raised, number, gold, strict) < 1:
            return "its own answer does not score 1"
        for junk in (*JUNK, entry["question"]):
            if junk != gold and score(family, level, raised, number, junk, strict):
                return f"{junk[:20]!r} scores"
    for number, entry in zip(numbers, entries, strict=True):  # after the others: to be strict is no cure for those
        gold = entry["answer"]
        other = next((one["answer"] for one in entries if one["answer"] != gold), "something else")
        hedges = [hedge.format(gold, other) for hedge in HEDGES]
        if strict:
            others = [one["answer"] for one in entries if one["answer"] != gold]
            hedges += [joined.format(gold, one) for joined in JOINED for one in others]
        if any(score(family, level, raised, number, hedge, strict) == 1 for hedge in hedges):
            return HEDGED
        exact = DECIMAL.sub(r"\g<0>0", gold)  # a question may ask for more decimals than are stored
        if score(family, level, raised, number, exact, "") == 1 > score(family, level, raised, number, exact, strict):
            return TOO_STRICT
    return ""


def sweep() -> dict[str, dict[str, Any]]:
    """Test every family at every level; families that are left out are reported on stderr."""
    from reasoning_gym.factory import DATASETS, has_curriculum

    signal.signal(signal.SIGVTALRM, _too_slow)
    found: dict[str, dict[str, Any]] = {}
    for family in sorted(set(DATASETS) - {"composite"}):
        most = LEVELS if has_curriculum(family) else 1
        for strict in ("", *SIZES):
            levels, why = _levels(family, most, strict)
            if why not in (HEDGED, TOO_STRICT):
                break
        if why:
            print(f"{family}: out at level {levels}: {why}", file=sys.stderr)
        if levels:
            group = DATASETS[family][0].__module__.split(".")[1]
            found[family] = {"group": group, "levels": levels, "raised": _raised_attributes(family, levels, strict)}
            found[family] |= {"strict": strict} if strict else {}
    first = digests_in_another_process(found, 1)
    second = digests_in_another_process(found, 2)
    for family in [family for family in found if first[family] != second[family]]:
        print(f"{family}: out: it is another task in another process", file=sys.stderr)
        del found[family]
    return found


def digests_in_another_process(
    listed: Mapping[str, Mapping[str, Any]], seed: int, numbers: Sequence[int] = (5, 77_777)
) -> dict[str, str]:
    """A digest of some tasks of each family, made in another process with this seed of Python's hashes."""
    wanted = [(name, level, n) for name, f in listed.items() for level in (0, f["levels"] - 1) for n in numbers]
    code = "from curricle.worlds.text.reasoning.families import print_digests; print_digests()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_digests() -> None:
    """In the other process: read from stdin which tasks to make, and print a digest for each family."""
    found: dict[str, str] = {}
    for family, level, number in json.loads(sys.stdin.read()):
        made = puzzle(family, level, 0, number)
        text = f"{found.get(family)}{made['question']}{made['answer']}"
        found[family] = hashlib.sha256(text.encode()).hexdigest()
    print(f"\n{json.dumps(found)}")


def _levels(family: str, most: int, strict: str) -> tuple[int, str]:
    """How many levels are sound, and why the next one is not."""
    for level in range(most):
        if why := _in_time(family, level, 0, strict):
            return level, why
    return most, ""


def _raised_attributes(family: str, levels: int, strict: str) -> int:
    """How many attributes may be one level higher, at every level but the highest; all of them would be that level."""
    from reasoning_gym.factory import create_curriculum

    most = min(MOST_RAISED, len(create_curriculum(family).attributes) - 1) if levels > 1 else 0
    sound = itertools.takewhile(
        lambda raised: not any(_in_time(family, level, raised, strict) for level in range(levels - 1)),
        range(1, most + 1),
    )
    return len(list(sound))


def _in_time(family: str, level: int, raised: int, strict: str) -> str:
    signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT)  # of our own time, so that a busy machine does not matter
    try:
        return fault(family, level, raised, strict=strict)
    except TimeoutError as error:
        return str(error)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"no end within {TIME_LIMIT} s")


if __name__ == "__main__":
    FILE.write_text(json.dumps(sweep(), indent=1) + "\n", encoding="utf-8")
