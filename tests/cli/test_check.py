"""`curricle check` names what is wrong with a world, of simulators or of tasks, before anything is trained in it."""

import itertools
import re
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from typer.testing import CliRunner

from curricle import GymWorld, Setting, Skill, knob
from curricle.cli import app
from curricle.cli import check as command
from curricle.errors import DeclarationError, WorldError
from curricle.records import Message, Task, Verdict
from curricle.registry import find
from curricle.seeds import generator, is_for_test
from curricle.world import TaskWorld, VectorWorld, WorldVector

NAN, ROW = float("nan"), spaces.Box(-1, 1, (2,), np.float32)


class Knobs(Setting):
    size: int = knob(3, "A knob.", ge=1, le=9, harder="up")


class Env(gymnasium.Env):
    """Ends after `length` steps; the test says what it shows first and later."""

    action_space = spaces.Discrete(2)

    def __init__(self, first, later, space, length=5):
        self.observation_space, self.first, self.later, self.length = space, first, later, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.first() if callable(self.first) else self.first, {}

    def step(self, action):
        self.clock += 1
        seen = self.later() if callable(self.later) else self.later
        return seen, float(self.clock == 1), False, self.clock >= self.length, {"clock": self.clock}


class Small(GymWorld):
    """A world that shows what it is told to."""

    id, Setting, guide = "small-v1", Knobs, "A world."
    skills = (Skill(name="begin", eased_by={"size": 1}),)
    first = later = np.zeros(2, np.float32)
    space, length = ROW, 5

    def make(self, setting):
        return Env(self.first, self.later, self.space, self.length)

    def shown(self, info):
        return ["begin"] if info["clock"] == 1 else []


@pytest.fixture
def check(monkeypatch):
    """What `check` says of a world that differs in this from a good one; faults are raised."""

    def run(base=Small, *, steps=12, count=0, **changes):
        world = type("World", (base,), changes)
        monkeypatch.setattr(command, "find", lambda kind, name: world if name == "it" else find(kind, name))
        done = CliRunner().invoke(app, ["check", "it", "--steps", str(steps), "--random", str(count)])
        if done.exception:
            raise done.exception
        return done.output

    return run


def floats(*values):
    return np.array(values, np.float32)


def test_a_good_world_gets_no_note(check):
    text = check(count=2)
    assert "note" not in text and "small-v1: 4 settings tried" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": floats(0, NAN)}, r"^the original: small-v1 shows nan in its observation at \[1\]; .* \(at reset\)"),
        ({"later": floats(np.inf, 0)}, r"shows inf in its observation at \[0\]; it must be finite \(in step 1\)"),
        ({"later": floats(NAN, 0), "space": spaces.Box(-np.inf, np.inf, (2,))}, "nan .* it must be finite"),
        ({"later": np.array([1e300, 0]), "space": spaces.Box(-np.inf, np.inf, (2,))}, "shows inf"),
        ({"later": floats(0, 7)}, r"shows 7.0 in its observation at \[1\], but declares it as -1.0 to 1.0"),
        ({"first": floats(0, 0, 0)}, r"shows the shape \(3,\) in its observation, but declares \(2,\): Box"),
        ({"later": floats(0.5, 0), "space": spaces.Box(0, 9, (2,), np.uint8)}, "values of float32 .* declares uint8"),
        ({"first": np.array([0, 300]), "space": spaces.Box(0, 255, (2,), np.uint8)}, "300 .* as 0 to 255"),
        ({"first": 4, "space": spaces.Discrete(4)}, "shows 4 in its observation, but declares it as 0 to 3"),
        ({"first": {"a": 1}, "space": spaces.Dict(b=spaces.Discrete(2))}, r"the parts \['a'\] .* declares \['b'\]"),
        (
            {"first": {"a": floats(0, 2)}, "space": spaces.Dict(a=ROW)},
            r"shows 2.0 in part 'a' of its observation at \[1",
        ),
    ],
)
def test_observations_that_are_not_as_declared_are_named(check, changes, message):
    # with a space of another kind, what is shown at other times must fit it too: the same is shown throughout
    same = {"first": changes.get("later"), "later": changes.get("first")} if len(changes) == 2 else {}
    with pytest.raises(WorldError, match=message):
        check(**{name: value for name, value in same.items() if value is not None} | changes)


def test_rounding_may_cross_a_bound(check):
    assert "note" not in check(later=floats(np.nextafter(np.float32(1), np.float32(2)), 0))


def test_whole_numbers_in_a_box_of_floats_get_a_note(check):
    assert "note: its observation has values of int64, but is declared as float32" in check(later=np.array([1, 0]))


def test_the_last_observation_of_an_episode_is_looked_at(check):
    class Last(Env):
        def step(self, action):
            seen, *rest = super().step(action)
            return (floats(NAN, 0) if self.clock == 5 else seen), *rest

    with pytest.raises(WorldError, match=r"shows nan .* \(in step 5\)"):
        check(make=lambda self, setting: Last(self.first, self.later, ROW))


class Batch(WorldVector):
    """A vector that is not made of Gymnasium's environments; the test says what its last observations are."""

    last = floats(0, 0)

    def __init__(self, count):
        self.num_envs, self.single_observation_space, self.single_action_space = count, ROW, spaces.Discrete(2)
        self.observation_space, self.action_space = batch_space(ROW, count), batch_space(spaces.Discrete(2), count)

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        yes, info = np.ones(self.num_envs, bool), {"skills": np.ones((self.num_envs, 1), bool)}
        return self.reset()[0], yes * 1.0, yes, ~yes, info | {"final_obs": np.stack([self.last] * self.num_envs)}

    def assign(self, index, setting):
        pass


class Own(VectorWorld):
    """A world with a vector of its own."""

    id, Setting, guide, skills = "own-v1", Knobs, "A world.", (Skill(name="begin", eased_by={"size": 1}),)

    def vector(self, settings):
        return Batch(len(settings))


def test_vectors_of_other_kinds_are_looked_at_too(check, monkeypatch):
    assert "12 episodes ended in 12 steps; reward 12, skills shown: begin 12" in check(Own)
    monkeypatch.setattr(Batch, "last", floats(NAN, 0))
    with pytest.raises(WorldError, match=r"own-v1 shows nan in its observation at \[0\].* \(in step 1\)"):
        check(Own)


SKILLS = (Skill(name="begin"), Skill(name="finish", needs=("beginn",)))


def test_skills_that_do_not_fit_together_are_refused_where_they_are_declared():
    with pytest.raises(
        DeclarationError, match=r"'finish' needs 'beginn', which is not a skill .*; did you mean 'begin'\?"
    ):
        type("Heir", (Small,), {"skills": SKILLS})  # no id of its own
    with pytest.raises(DeclarationError, match="two skills share the name 'begin'; give each"):
        type("Heir", (Small,), {"skills": SKILLS[:1] * 2})


def test_skills_that_are_set_when_a_world_is_made_are_held_to_it_too(check):
    def before(self, *args):
        self.skills = SKILLS
        Small.__init__(self, *args)

    def after(self, *args):
        Small.__init__(self, *args)
        self.skills = SKILLS

    with pytest.raises(DeclarationError, match="needs 'beginn'"):
        type("Heir", (Small,), {"__init__": before})()
    with pytest.raises(DeclarationError, match="needs 'beginn'"):
        check(__init__=after)


def test_episodes_that_never_end_get_a_note(check):
    text = check(length=10**9, steps=7)
    assert "note: no episode ended in 2 settings of 7 steps each" in text and "max_steps" in text
    assert "no episode ended" not in check(steps=7)


def test_noise_in_observations_alone_is_found(check):
    count = itertools.count()
    with pytest.raises(WorldError, match=r"different observations in Knobs.*, first at reset: draw all random numbers"):
        check(first=lambda self: floats(0, next(count) / 1000), make=_drawing)


def _drawing(self, setting):
    return Env(self.first, self.later, self.space)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"w": 0}, r"small-v1.keys\['w'\] = 0: keys are one character each, with an action and its name, as in"),
        ({"up": (0, "north")}, r"keys\['up'\] = .*one character"),
        ({"w": ("north", 0)}, "one character each"),
        ({"w": (2, "north")}, r"2 is not an action of Discrete\(2\)"),
        ([("w", 0)], "small-v1.keys = "),
    ],
)
def test_keys_of_another_form_are_refused(check, keys, message):
    with pytest.raises(DeclarationError, match=message):
        check(keys=keys)


def test_keys_of_the_right_form_are_taken(check):
    assert "note" not in check(keys={"w": (0, "north")})
    assert "note: the key 'q' ends the game" in check(keys={"q": (0, "north")})


@pytest.mark.parametrize(
    ("suggests", "message"),
    [
        ({"agent": {"id": "tabullar"}}, r"small-v1.suggests\['agent'\]: there is no agent .*did you mean 'tabular'"),
        ({"agent": {"id": "tabular", "learning_rat": 1}}, "unknown key 'learning_rat', did you mean 'learning_rate'"),
        ({"designer": {"id": "tuttor"}}, "there is no designer 'tuttor'.*'tutor'"),
        ({"designer": {"id": "policy", "of": "randm"}}, "there is no designer 'randm'"),
        ({"designer": {"zzz": 1}}, "unknown key 'zzz'"),
        ({"schedule": {"cycels": 1}}, "unknown key 'cycels', did you mean 'cycles'"),
        ({"original": {"sise": 1}}, "unknown knob 'sise'"),
        ({"agnet": {}}, "unknown section 'agnet', did you mean 'agent'"),
        ({"agent": "ppo"}, "must be a dict of options by section"),
        ("ppo", r"suggests = 'ppo' must be a dict of options by section"),
    ],
)
def test_suggestions_that_no_run_could_follow_are_refused(check, suggests, message):
    with pytest.raises(DeclarationError, match=message):
        check(suggests=suggests)


def test_reward_and_skills_count_the_same_steps(check):
    assert "the original: 0 episodes ended in 3 steps, one was still open; reward 1, skills shown: begin 1" in check(
        steps=3
    )
    assert "the original: 1 episodes ended in 5 steps; reward 1, skills shown: begin 1" in check(steps=5)


def test_a_random_setting_is_named_by_what_is_special_about_it(check):
    def make(self, setting):
        return Env(floats(0, NAN if setting.size > 3 else 0), self.later, ROW)

    with pytest.raises(WorldError, match=r"^random setting \d+ \(size=[4-9]\): small-v1 shows nan"):
        check(count=20, make=make)


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 9)])
def test_what_a_step_returns_is_said(wrap):
    class Old(Env):
        def step(self, action):
            return floats(0, 0), 0.0, True, {}

    world = type("World", (Small,), {"make": lambda self, setting: wrap(Old(floats(0, 0), None, ROW))})()
    vector = world.vector([world.original])
    vector.reset(seed=[0])
    with pytest.raises(WorldError, match=r"step\(\) returns observation, reward, terminated, truncated, info"):
        vector.step(np.array([0]))


def test_the_shape_that_does_not_fit_is_said():
    world = type("World", (Small,), {"first": floats(0, 0, 0)})()
    with pytest.raises(WorldError, match=r"of the shape \(3,\) in Knobs\(size=3\), which does not fit Box.* \(2,\)"):
        world.vector([world.original]).reset(seed=[0])


class Doubles(TaskWorld):
    """Twice a number: a good world of tasks."""

    id, Setting, guide = "doubles-v1", Knobs, "Twice a number."
    skills = (Skill(name="double", eased_by={"size": 1}),)

    def tasks(self, setting, n, seed):
        rng, side = generator(seed, "doubles"), "even" if is_for_test(seed) else "odd"
        numbers = [2 * int(rng.integers(1, 10**setting.size)) + (side == "odd") for _ in range(n)]
        return [self.task(number, at) for at, number in enumerate(numbers)]

    def task(self, number, at):
        prompt = (Message(role="user", content=f"Twice {number}?"),)
        return Task(id=str(number), prompt=prompt, gold=2 * number, skill="double")

    def solution(self, task):
        return [str(task.gold)]

    def score(self, task, transcript):
        right = self.right(task, transcript[-1].content)
        return Verdict(reward=float(right), skills=("double",) if right == 1 else ())

    def right(self, task, said):
        return said == str(task.gold)


def test_a_good_world_of_tasks_gets_no_note(check):
    text = check(Doubles, count=2)
    assert "note" not in text and text.count("8 tasks, 8 solved by their solutions; junk earns nothing") == 4
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "nobody is interrupted later"


@pytest.mark.parametrize("side", ["test", "practice"])
def test_tasks_that_never_come_are_not_waited_for(check, monkeypatch, side):
    def tasks(self, setting, n, seed):
        while is_for_test(seed) == (side == "test"):
            try:
                int("none")
            except Exception:  # worlds do that, and the first alarm may be lost in it
                continue
        return Doubles.tasks(self, setting, n, seed)

    monkeypatch.setattr(command, "DRAWING", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    what = rf"was not done after 0.2 s in Knobs\(size=3\)\. The seed is for {side}: .* has no {side} tasks"
    with pytest.raises(WorldError, match=rf"^the original: doubles-v1: tasks\(.*\) {what}"):
        check(Doubles, tasks=tasks)
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("pays", "name"),
    [
        (lambda task, said: said == task.prompt[-1].content, "the prompt itself"),
        (lambda task, said: said == "0", "'0'"),
        (lambda task, said: said == "yes" and 0.6, "'yes'"),
    ],
)
@pytest.mark.parametrize("has_solution", [True, False])
def test_junk_that_is_paid_whatever_the_task_is_a_fault(check, pays, name, has_solution):
    more: dict[str, Any] = {} if has_solution else {"solution": lambda self, task: ()}
    more |= {"right": lambda self, task, said: Doubles.right(self, task, said) or pays(task, said)}
    with pytest.raises(
        WorldError, match=rf"^the original: doubles-v1: score\(\) pays for {name} as an answer to every"
    ):
        check(Doubles, **more)


def yes_or_no(self, number, at):
    """A guess is right half of the time, and always in the easiest setting."""
    said, prompt = "yes" if number < 20 or number % 4 == 1 else "no", f"Is {number} one?"
    return Task(id=str(number), prompt=(Message(role="user", content=prompt),), gold=said, skill="double")


@pytest.mark.parametrize("words", [[], ["I say {}"]])
def test_junk_that_may_be_right_is_noted_once_and_briefly(check, words):
    changes = {"solution": lambda self, task: [line.format(task.gold) for line in words], "task": yes_or_no}
    text = check(Doubles, right=lambda self, task, said: said.split()[-1:] == [task.gold], **changes)
    (note,) = [line for line in text.splitlines() if "note: score()" in line]
    assert "eased for double: 8 tasks" in text and "junk earns something 8 of 64 times" in text
    assert re.search(r"score\(\) pays for \d+ of 128 junk answers \('yes' \d+ times\); fine where a guess", note)


def test_what_the_world_itself_would_say_is_no_junk(check):
    text = check(Doubles, task=yes_or_no, right=lambda self, task, said: said == task.gold)
    assert "note" not in text and text.count("junk earns nothing") == 2


def test_a_little_for_the_form_is_no_fault(check):
    text = check(Doubles, right=lambda self, task, said: max(said == str(task.gold), 0.1 * said.isdigit()))
    assert "junk earns something 8 of 64 times" in text and "pays for 16 of 128 junk answers ('0' 16 times)" in text


def test_a_solution_is_a_list_of_turns(check):
    wanted = (
        r"^the original: doubles-v1: solution\(task\) gave '(\d+)'; it must return a list of turns, as in \['\1'\]$"
    )
    with pytest.raises(DeclarationError, match=wanted):
        check(Doubles, solution=lambda self, task: str(task.gold))
    with pytest.raises(DeclarationError, match=r"gave \d+; it must return a list of turns, as in \['28'\]"):
        check(Doubles, solution=lambda self, task: task.gold)


@pytest.mark.parametrize(("why", "end"), [("", ""), ("too long", "; too long")])
def test_a_solution_that_is_not_paid_is_reported_with_the_reason_there_is(check, why, end):
    with pytest.raises(WorldError, match=rf"of task \d+ earns 0 and shows \[\] instead of 'double'{end}$"):
        check(Doubles, score=lambda self, task, transcript: Verdict(reward=0.0, why=why))


@pytest.mark.parametrize("ids", [1, 7, 8])  # of one draw, the last: other draws have the same
def test_equal_ids_mean_equal_tasks(check, ids):
    def task(self, number, at):
        return Doubles.task(self, number, at).model_copy(update={"id": str(at % ids)})

    with pytest.raises(WorldError, match=r"doubles-v1: two tasks with the id '\d' differ in prompt, .* equal ids mean"):
        check(Doubles, task=task)
