"""The command that tries a world out before anything is trained in it."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from curricle.agent import Agent
from curricle.cli.shell import WorldName, app, print_result
from curricle.cli.tried import naming, tried
from curricle.config import AUTO, DEFAULTS, SECTIONS
from curricle.designer import Designer, NamingOptions
from curricle.errors import CurricleError, DeclarationError, PluginError, WorldError, nearest
from curricle.loop import Schedule
from curricle.records import Message, Options, Task, Verdict, checked
from curricle.registry import find
from curricle.seeds import for_test, generator, is_for_test
from curricle.setting import Setting
from curricle.tracking.watcher import Log
from curricle.world import TaskWorld, VectorWorld, World, check_skills

Steps = Annotated[int, typer.Option(min=1, help="Steps played by chance in each setting of simulators.")]
Tasks = Annotated[int, typer.Option(min=1, help="Tasks drawn of each setting of text tasks.")]
Count = Annotated[int, typer.Option("--random", min=0, help="Random settings to try.")]
JUNK = ("", "?", "I do not know.", "[]", "{}", "0", "yes")
"""Answers that should earn nothing, beside the task's own words; some may be right by chance, and are counted."""
ECHO = "the prompt itself"
MUCH = 0.5
"""Junk that earns this much of every task is a fault of the verifier."""
DRAWING = 60.0
"""Seconds for one call of tasks(): twenty games of TextWorld take nearly twenty."""
LOOKING = 30.0
"""Seconds after which no more tasks are drawn to see whether those of tests come up in practice."""
AGAIN = 0.5
"""Seconds to the next alarm: Python 3.11 loses what an alarm raises while a loop goes on from an `except` block."""


@app.command()
def check(world: WorldName, steps: Steps = 300, tasks: Tasks = 8, count: Count = 20) -> None:
    """Try a world before anything is trained in it: the original, what eases each skill, and random settings.

    Simulators are played by chance; text tasks are drawn, and given their solutions and junk as answers.
    """
    made = find(World, world)()
    check_skills(made)  # a world may set them when it is made
    notes = _advice_on_suggestions(made)
    rng = generator(0, "check")
    settings = {"the original": made.original}
    settings |= {f"eased for {s.name}": made.setting(s.eased_by) for s in made.skills if s.eased_by}
    settings |= {f"random setting {i + 1}": made.Setting.sample(rng) for i in range(count)}
    if isinstance(made, VectorWorld):
        notes += tried(made, settings, steps)
    elif isinstance(made, TaskWorld):
        trial = _Trial(made)
        for name, setting in settings.items():
            with naming(name, setting, made.original):
                print_result(f"{name}: {trial.answered(setting, tasks)}")
        with naming("the original", made.original, made.original):
            notes += trial.notes()
    for line in [*notes, *_advice(made)]:
        print_result(f"note: {line}")
    print_result(f"{made.id}: {len(settings)} settings tried")


def _advice_on_suggestions(world: World) -> list[str]:
    """Refuse suggestions that no run could follow; what is only not installed here is worth a note."""
    known = [name for name in SECTIONS if name != "world"]
    notes = list[str]()
    for section, table in world.suggested(world.options).items():
        if section not in known:
            raise DeclarationError(f"{world.id}.suggests: unknown section {section!r}, {nearest(str(section), known)}")
        try:
            _check_suggestion(world, section, table)
        except CurricleError as error:
            if isinstance(error, PluginError) and isinstance(error.__cause__, ImportError):
                notes.append(f"suggests[{section!r}] was not tried: {error}")
            else:
                raise DeclarationError(f"{world.id}.suggests[{section!r}]: {error}") from error
    return notes


def _check_suggestion(world: World, section: str, table: Mapping[str, Any]) -> None:
    """Check one section as a run would."""
    options = {name: value for name, value in table.items() if name != "id"}
    if section == "original":
        world.setting(table)
    elif section in ("schedule", "log"):
        checked(Schedule if section == "schedule" else Log, table, f"[{section}]")
    else:
        name = str(table.get("id", DEFAULTS[section]["id"]))
        part = find(Agent, name) if section == "agent" else find(Designer, "llm" if name == AUTO else name)
        _check_options(part.Options, options, f"[{section}] {part.id}")


def _check_options(kind: type[Options], given: Mapping[str, Any], what: str) -> None:
    """Check options, and those of the designers that they name."""
    options = checked(kind, given, what)
    for name in options.naming if isinstance(options, NamingOptions) else ():
        other = find(Designer, getattr(options, name))
        _check_options(other.Options, getattr(options, f"{name}_options"), f"{what}, {name}_options of {other.id}")


class _TooLong(BaseException):
    """Time is up. No Exception: a world that catches those would go on for ever."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` after a while; only the main thread has alarms, and not on every platform."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Trial:
    """A world of tasks while it is tried; tasks are kept by their ids, and junk that was paid is counted."""

    def __init__(self, world: TaskWorld) -> None:
        self.world = world
        self.seen = dict[str, Task]()
        self.paid = Counter[str]()
        self.asked = 0

    def answered(self, setting: Setting, count: int) -> str:
        """What solutions and junk earn in a setting; drawn twice from one seed, which must give the same tasks."""
        tasks = self._in_time(setting, count, 1)
        if [task.to_json() for task in self._in_time(setting, count, 1)] != [task.to_json() for task in tasks]:
            what = f"gave different tasks for the same seed in {setting!r}"
            raise WorldError(f"{self.world.id} {what}: draw all random numbers from the seed")
        self._keep(tasks)
        known = sum(self._solved(task) for task in tasks)
        solved = f"{known} solved by their solutions" if known else "no solution is known"
        return f"{count} tasks, {solved}; junk earns {self._earned_by_junk(setting, tasks)}"

    def notes(self) -> list[str]:
        """What a world of tasks can do without, but agents learn and are tested better with."""
        notes = []
        home = self.world.original
        tests = self._many(home, map(for_test, range(5)))
        practised = {str(task.prompt) for task in self._many(home, range(20))}
        tested = [str(task.prompt) for task in tests]
        if self.paid:
            most = ", ".join(f"{name} {times} times" for name, times in self.paid.most_common(3))
            what = "fine where a guess may be right or form alone earns a little"
            notes.append(f"score() pays for {self.paid.total()} of {self.asked} junk answers ({most}); {what}")
        if missing := sorted({skill.name for skill in self.world.skills} - {task.skill for task in tests}):
            notes.append(f"no test task of {len(tests)} is about {', '.join(missing)}: what is not tested counts as 0")
        if seen := sum(prompt in practised for prompt in tested):
            notes.append(
                f"{seen} of {len(tested)} test tasks come up in practice too; hold some out (seeds.is_for_test)"
            )
        if not any(self._solution(task) for task in self._drawn(home, 4, 1)):
            notes.append(
                "no solution(): whether right answers are paid was not tried, so agents cannot imitate it "
                "(`imitation_updates`, `imitation_passes`)"
            )
        return notes

    def _many(self, setting: Setting, seeds: Iterable[int]) -> list[Task]:
        """Twenty tasks a seed, of as many seeds as there is time for."""
        found = list[Task]()
        end = time.monotonic() + LOOKING
        for seed in seeds:
            found += self._drawn(setting, 20, seed)
            if time.monotonic() > end:
                break
        return found

    def _drawn(self, setting: Setting, count: int, seed: int) -> list[Task]:
        tasks = self._in_time(setting, count, seed)
        self._keep(tasks)
        return tasks

    def _in_time(self, setting: Setting, count: int, seed: int) -> list[Task]:
        """Draw tasks; a loop that never finds enough of them is named instead of waited for."""
        try:
            with _limited(DRAWING):
                return self.world.draw(setting, count, seed)
        except _TooLong:
            side = "test" if is_for_test(seed) else "practice"
            raise WorldError(
                f"{self.world.id}: tasks(setting, n={count}, seed={seed}) was not done after {DRAWING:g} s in "
                f"{setting!r}. The seed is for {side}: most likely this setting has no {side} tasks, and a loop looks "
                "for them for ever"
            ) from None

    def _keep(self, tasks: Sequence[Task]) -> None:
        """Refuse tasks that share an id and are not the same, whatever setting or seed they came from."""
        for task in tasks:
            other = self.seen.setdefault(task.id, task)
            if differ := [name for name in Task.model_fields if getattr(task, name) != getattr(other, name)]:
                pair = f"{getattr(other, differ[0])!r:.120} and {getattr(task, differ[0])!r:.120}"
                raise WorldError(
                    f"{self.world.id}: two tasks with the id {task.id!r:.60} differ in {differ[0]}, {pair}: equal ids "
                    "mean equal tasks; put all that tells tasks apart into the id"
                )

    def _solution(self, task: Task) -> list[str]:
        """What the world itself would say, turn by turn."""
        said = self.world.solution(task)
        turns = [] if isinstance(said, str) or not isinstance(said, Sequence) else list(said)
        if said and not (turns and all(isinstance(line, str) for line in turns)):
            wanted = f"a list of turns, as in {[said] if isinstance(said, str) else ['28']!r:.100}"
            raise DeclarationError(f"{self.world.id}: solution(task) gave {said!r:.100}; it must return {wanted}")
        return turns

    def _solved(self, task: Task) -> bool:
        """Whether a solution is known; one that is not paid in full is a fault."""
        words = self._solution(task)
        verdict = self._verdict(task, words) if words else None
        if verdict and (verdict.reward < 1 or task.skill not in verdict.skills):
            why = f"; {verdict.why}" if verdict.why else ""
            raise WorldError(
                f"{self.world.id}: its own solution {words!r:.200} of task {task.id} earns {verdict.reward:g} and "
                f"shows {list(verdict.skills)} instead of {task.skill!r}{why}"
            )
        return verdict is not None

    def _junk(self, task: Task) -> dict[str, str]:
        """Answers that should earn nothing, by what to call them; what the world itself would say is none."""
        named = {repr(words): words for words in JUNK} | {ECHO: task.prompt[-1].content}
        return {name: words for name, words in named.items() if [words] != self._solution(task)}

    def _earned_by_junk(self, setting: Setting, tasks: Sequence[Task]) -> str:
        """How often junk is paid; junk that is paid whatever the task is a fault."""
        verdicts = self._verdicts_on_junk(tasks)
        paid = Counter[str]()
        asked = 0
        for name, given in verdicts.items():
            asked += len(given)
            times_paid = sum(verdict.reward > 0 for verdict in given)
            if times_paid:
                paid[name] = times_paid
        if paid.total() == asked:
            first, second, *_ = verdicts
            raise WorldError(f"{self.world.id}: score() pays for all junk, even {first} and {second}, in {setting!r}")
        for name, given in verdicts.items():
            always_good = all(_is_much(verdict) for verdict in given)
            if always_good and self._pays_always(setting, name, len(tasks)):
                what = f"score() pays for {name} as an answer to every task"
                raise WorldError(f"{self.world.id}: {what}, whatever is right, in {setting!r}")
        self.paid += paid
        self.asked += asked
        return f"something {paid.total()} of {asked} times" if paid else "nothing"

    def _verdicts_on_junk(self, tasks: Sequence[Task]) -> dict[str, list[Verdict]]:
        """What each junk answer earns, task by task."""
        verdicts = dict[str, list[Verdict]]()
        for task in tasks:
            for name, words in self._junk(task).items():
                verdicts.setdefault(name, []).append(self._verdict(task, [words]))
        return verdicts

    def _pays_always(self, setting: Setting, name: str, count: int) -> bool:
        """Whether more tasks pay for this junk too, and not because one answer is right for all of them."""
        right_answers = set[str]()
        tasks = 0
        for task in self._drawn(setting, 4 * count, 2):
            junk = self._junk(task)
            if name not in junk:
                continue
            if not _is_much(self._verdict(task, [junk[name]])):
                return False
            tasks += 1
            right_answers.add(self._right_answer(task))
        if name == ECHO:
            return tasks > 0  # prompts differ, so no prompt is the right answer to all tasks
        return len(right_answers) > 1

    def _right_answer(self, task: Task) -> str:
        """Something that is equal for tasks with the same right answer."""
        solution = self._solution(task)
        if solution:
            return repr(solution)
        return repr(task.prompt if task.gold is None else task.gold)

    def _verdict(self, task: Task, words: Sequence[str]) -> Verdict:
        """What an agent that says these words, turn by turn, would earn."""
        transcript = list[Message]()
        try:
            for line in words:
                transcript.append(Message(role="assistant", content=line))
                if (said := self.world.reply(task, transcript)) is None:
                    break
                transcript.append(said)
            return self.world.verify(task, transcript)
        except DeclarationError:
            raise
        except Exception as error:
            what = f"{self.world.id} broke down on the words {list(words)!r:.200} in task {task.id}"
            raise WorldError(f"{what}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _is_much(verdict: Verdict) -> bool:
    """Whether an attempt counts as good; a little may be credit for form."""
    return verdict.reward >= MUCH or bool(verdict.skills)


def _advice(world: World) -> list[str]:
    """What a world can do without, but designers do better with."""
    bare = [skill.name for skill in world.skills if not skill.eased_by]
    open_ended = [knob.name for knob in world.Setting.knobs() if not knob.harder]
    notes = []
    if bare:
        notes.append(f"no eased_by: {', '.join(bare)}; the tutor and the policy begin from what eases a skill")
    if open_ended:
        notes.append(f"no harder: {', '.join(open_ended)}; right where a knob is neither easier nor harder")
    return notes
