"""Config files, overrides, and the errors that name what is wrong."""

import logging
from typing import Any

import pytest
from helpers import paths
from helpers.paths import ROOT

from curricle.config import load, override, resolve
from curricle.designer import Designer
from curricle.errors import CurricleError, UsageError
from curricle.loop import Schedule
from curricle.records import Options, ValueRefused, checked
from curricle.registry import find

VAULT = paths.VAULT


def test_a_world_alone_is_a_whole_config():
    config = resolve(load(VAULT))
    assert (config.designer.id, config.agent.id, config.seed) == ("tutor-v1", "tabular-v1", 0)
    assert config.schedule.per_cycle == 8_000, "the world's suggestion"


def test_what_is_resolved_resolves_to_itself():
    config = resolve(load(VAULT))
    assert resolve(config.to_toml()).to_toml() == config.to_toml()
    assert config.to_toml()["designer"]["id"] == "tutor-v1"
    assert set(config.to_toml()["schedule"]) == set(type(config.schedule).model_fields), "nothing is left to defaults"


def test_overrides():
    pairs = [
        "schedule.cycles=2",
        "agent.learning_rate=0.5",
        "original.dials=3",
        "designer.id=random",
        "seed=7",
        "schedule.ratio=2:1",
    ]
    config = resolve(override(load(VAULT), pairs))
    assert config.schedule.cycles == 2 and config.agent_options.learning_rate == 0.5 and config.original.dials == 3  # type: ignore[attr-defined]
    assert config.designer.id == "random-v1" and config.seed == 7 and config.schedule.ratio == "2:1"


def test_a_designer_of_another_is_kept_whole(tmp_path):
    pairs = ["designer.id=fixed", "designer.of=tutor", "designer.of_options.reach=0.5"]
    config = resolve(override(load(VAULT), pairs))
    kept = config.to_toml()["designer"]
    assert kept["of"] == "tutor-v1" and kept["of_options"]["reach"] == 0.5 and kept["of_options"]["mastered"] == 0.9
    assert resolve(config.to_toml()).to_toml() == config.to_toml()
    built = config.designer(config.world.Setting, config.designer_options)
    assert built.inner.options.reach == 0.5  # type: ignore[attr-defined]


TUTOR = {
    "world": {"id": VAULT},
    "designer": {"id": "tutor", "reach": 0.4},
    "agent": {"id": "tabular", "learning_rate": 0.3},
}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (["designer.id=none"], {"id": "none"}),
        (["designer.id=tutor-v1"], {"id": "tutor-v1", "reach": 0.4}),
        (["designer.id=fixed"], {"id": "fixed", "of": "tutor", "of_options": {"reach": 0.4}}),
        (["designer.variations=2", "designer.id=fixed", "designer.of=tutor-v1"], None),
        (["designer.id=fixed", "designer.of=random"], {"id": "fixed", "of": "random"}),
        (["designer.id=fixed", "designer.of=random", "designer.id=adversarial"], {"id": "adversarial", "of": "random"}),
    ],
)
def test_another_designer_comes_without_the_options_of_the_one_before(pairs, expected):
    """Ablations of a config by one setting: `fixed` of its own designer has that one's options."""
    if expected is None:
        expected = {"id": "fixed", "variations": 2, "of": "tutor-v1", "of_options": {"reach": 0.4}}
    changed = override(TUTOR, pairs)
    assert changed["designer"] == expected and changed["agent"] == TUTOR["agent"]
    assert resolve(changed).designer.id.startswith(expected["id"].removesuffix("-v1"))
    assert TUTOR["designer"] == {"id": "tutor", "reach": 0.4}


def test_another_agent_comes_without_the_options_of_the_one_before():
    assert override(TUTOR, ["agent.id=random"])["agent"] == {"id": "random"}


def test_another_world_comes_without_the_options_and_knobs_of_the_one_before():
    tools = {"world": {"id": "tools", "named": True}, "original": {"steps": 3}, "agent": {"id": "random"}}
    changed = override(tools, ["original.level=1", "world.threshold=0.5", "world.id=reasoning"])
    assert changed["world"] == {"id": "reasoning", "threshold": 0.5} and changed["original"] == {"level": 1}
    assert override({"world": {"id": "gone.py:Mine", "x": 1}}, ["world.id=tools"]) == {"world": {"id": "tools"}}
    assert override(tools, ["world.id=tools-v1"]) == tools | {"world": {"id": "tools-v1", "named": True}}


def test_what_a_world_suggests_for_a_designer_holds_for_its_first_proposals_too():
    sums = load(f"{ROOT}/examples/sums.py:Sums")
    kept = resolve(override(sums, ["designer.id=fixed", "designer.of=language", "designer.of_options.alpha=0.3"]))
    suggested = kept.world.suggests["designer"]
    inner = kept.designer_options.of_options  # type: ignore[attr-defined]
    for name in ("lora", "learning_rate", "aim"):
        assert inner[name] == suggested[name]
    assert inner["alpha"] == 0.3
    assert resolve(override(sums, ["designer.id=fixed"])).designer_options.of == "language-v1"  # type: ignore[attr-defined]
    assert resolve(override(sums, ["designer.id=fixed"])).designer_options.of_options["lora"] == suggested["lora"]  # type: ignore[attr-defined]
    assert resolve(override(sums, ["designer.id=policy"])).designer_options.of == "none-v1"  # type: ignore[attr-defined]


def test_what_a_world_suggests_may_depend_on_its_options():
    """Crafter from pixels is learnt as the papers do, from symbols by fewer passes at a higher learning rate."""
    world = {"id": "crafter"}
    symbols, pixels = (resolve({"world": world | of}).agent_options for of in ({}, {"observation": "pixels"}))
    assert (symbols.epochs, symbols.learning_rate) == (2, 1e-3) and (pixels.epochs, pixels.learning_rate) == (3, 3e-4)  # type: ignore[attr-defined]
    assert symbols.environments == pixels.environments == 64  # type: ignore[attr-defined]
    assert resolve({"world": world, "agent": {"epochs": 5}}).agent_options.epochs == 5  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="observation"):
        resolve({"world": world | {"observation": "smells"}})


def test_none_is_refused():
    with pytest.raises(UsageError, match="leave it out for its default"):
        resolve({"world": {"id": VAULT}, "agent": {"learning_rate": None}})


def test_suggestions_for_one_agent_do_not_reach_another():
    from curricle.registry import find
    from curricle.world import World

    Vault: Any = find(World, VAULT)

    class Fussy(Vault):
        id = "fussy-v1"
        suggests = {"agent": {"id": "tabular", "learning_rate": 0.9}}  # noqa: RUF012

    import sys

    sys.modules[__name__].Fussy = Fussy  # type: ignore[attr-defined]
    plain = {"world": {"id": f"{__name__}:Fussy"}}
    assert resolve(plain).agent_options.learning_rate == 0.9  # type: ignore[attr-defined]
    assert resolve(plain | {"agent": {"id": "random"}}).agent.id == "random-v1"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["schedule.cycels=2"], r"\[schedule\]: unknown key 'cycels', did you mean 'cycles'\?"),
        (["shedule.cycles=2"], r"config: unknown key 'shedule', did you mean 'schedule'\?"),
        (
            ["agent.learning_rat=0.5"],
            r"\[agent\] tabular-v1: unknown key 'learning_rat', did you mean 'learning_rate'\?",
        ),
        (["agent.learning_rate=fast"], r"\[agent\] tabular-v1: learning_rate = 'fast' is refused"),
        (["agent.learning_rate=7"], r"learning_rate = 7 is refused: Input should be less than or equal to 1"),
        (["original.dails=3"], r"setting of vault-v1: unknown knob 'dails', did you mean 'dials'\?"),
        (["original.dials=9"], r"dials = 9 is not allowed: whole number from 1 to 5"),
        (["designer.id=tutro"], r"there is no designer 'tutro': did you mean 'tutor'"),
        (["seed=-1"], r"seed = -1 is refused"),
        (["seed=x"], r"seed = 'x' is refused"),
        (["cycles=2"], r"'cycles=2': write section.key=value"),
        (["schedule.cycles"], r"write section.key=value"),
        (["seed.x=1"], r"'seed.x=1': write section.key=value"),
        (["schedule.cycles=true"], r"cycles = True is refused"),
        (["schedule.cycles='4'"], r"cycles = '4' is refused"),
        (["designer.id=fixed", "designer.of=nobody"], r"there is no designer 'nobody'"),
        (
            ["designer.id=fixed", "designer.of=tutor", "designer.of_options.reech=1"],
            r"of_options of tutor-v1: unknown key 'reech'",
        ),
        (["schedule.ratio=half"], r"ratio = 'half' is refused: write two whole numbers"),
        (["schedule.ratio=2"], r"ratio = 2 is refused: write two whole numbers"),
    ],
)
def test_bad_overrides_are_named(pairs, message):
    with pytest.raises(CurricleError, match=message) as caught:
        resolve(override(load(VAULT), pairs))
    assert caught.value.exit_code == 2


def test_bad_files_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"config .*none.toml: "):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("seed = = 3")
    with pytest.raises(UsageError, match=r"config .*bad.toml: "):
        load(str(tmp_path / "bad.toml"))
    with pytest.raises(UsageError, match=r"\[world\] needs an id"):
        resolve({})
    with pytest.raises(UsageError, match=r"agent = 3 must be a table"):
        resolve({"world": {"id": VAULT}, "agent": 3})


@pytest.fixture
def renamed(monkeypatch):
    """Some options get old names, as if they had been renamed."""
    names = {Schedule: {"rounds": "cycles"}, find(Designer, "tutor").Options: {"stretch": "reach"}}
    names[resolve(load(VAULT)).agent.Options] = {"speed": "learning_rate", "pace": "learning_rate"}
    for kind, table in names.items():
        monkeypatch.setattr(kind, "renamed", table, raising=False)


def of_agent(plain):
    return resolve(plain).to_toml()["agent"]


def test_old_names_of_options_are_read_with_a_note(renamed, caplog):
    plain = {"world": {"id": VAULT}, "agent": {"id": "tabular", "speed": 0.3}, "schedule": {"rounds": 2}}
    config = resolve(plain)
    assert config.agent_options.learning_rate == 0.3 and config.schedule.cycles == 2  # type: ignore[attr-defined]
    notes = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert notes == [
        "[agent] tabular: the option speed is called learning_rate now",
        "[schedule]: the option rounds is called cycles now",
    ]
    assert "speed" not in config.to_toml()["agent"] and "rounds" not in config.to_toml()["schedule"]
    caplog.clear()
    assert resolve(config.to_toml()).to_toml() == config.to_toml() and not caplog.records


def test_an_old_name_goes_before_what_is_suggested_under_the_new_one(renamed, monkeypatch):
    world = resolve(load(VAULT)).world
    monkeypatch.setattr(world, "suggests", {"agent": {"learning_rate": 0.9}, "schedule": {"cycles": 7}})
    plain = {"world": {"id": VAULT}, "agent": {"speed": 0.3}, "schedule": {"rounds": 2}}
    assert of_agent(plain)["learning_rate"] == 0.3 and resolve(plain).schedule.cycles == 2
    assert of_agent({"world": {"id": VAULT}})["learning_rate"] == 0.9
    monkeypatch.setattr(world, "suggests", {"agent": {"speed": 0.9}})
    assert of_agent({"world": {"id": VAULT}})["learning_rate"] == 0.9
    assert of_agent({"world": {"id": VAULT}, "agent": {"learning_rate": 0.3}})["learning_rate"] == 0.3


def test_both_names_of_an_option_are_an_error(renamed):
    options: dict[str, dict[str, Any]] = {
        "agent": {"speed": 0.3, "learning_rate": 0.3},
        "schedule": {"rounds": 2, "cycles": 2},
    }
    for section, given in options.items():
        old, new = given
        with pytest.raises(UsageError, match=rf"\[{section}\].*: {old} is the old name of {new}, .* keep only {new}"):
            resolve({"world": {"id": VAULT}, section: given})
    with pytest.raises(
        UsageError, match="speed and pace are both old names of learning_rate, keep one and call it learning_rate"
    ):
        resolve({"world": {"id": VAULT}, "agent": {"speed": 0.3, "pace": 0.3}})


@pytest.mark.parametrize("of", [{"of": "tutor"}, {}])
def test_old_names_are_read_in_the_options_of_a_named_designer(renamed, monkeypatch, of):
    """Also where the world suggests which designer that is."""
    monkeypatch.setattr(
        resolve(load(VAULT)).world, "suggests", {"designer": {"id": "tutor", "reach": 0.7, "mastered": 0.8}}
    )
    plain = {"world": {"id": VAULT}, "designer": {"id": "fixed", **of, "of_options": {"stretch": 0.5}}}
    kept = resolve(plain).to_toml()["designer"]["of_options"]
    assert (kept["reach"], kept["mastered"]) == (0.5, 0.8) and "stretch" not in kept


def test_an_override_takes_the_place_of_the_option_under_its_other_name(renamed):
    plain = {"world": {"id": VAULT}, "agent": {"id": "tabular", "speed": 0.3}, "schedule": {"cycles": 3}}
    assert of_agent(override(plain, ["agent.learning_rate=0.6"]))["learning_rate"] == 0.6
    assert of_agent(override(plain, ["agent.pace=0.6"]))["learning_rate"] == 0.6
    assert of_agent(override({"world": {"id": VAULT}}, ["agent.speed=0.6"]))["learning_rate"] == 0.6
    assert resolve(override(plain, ["schedule.rounds=1"])).schedule.cycles == 1
    fixed = {"designer": {"id": "fixed", "of": "tutor", "of_options": {"stretch": 0.5}}} | load(VAULT)
    changed = resolve(override(fixed, ["designer.of_options.reach=0.6"])).to_toml()
    assert changed["designer"]["of_options"]["reach"] == 0.6


class Mother(Options):
    renamed = {"old": "new"}  # noqa: RUF012
    removed = {"gone": (0.0, "leave it out")}  # noqa: RUF012
    new: int = 1


class Daughter(Mother):
    renamed = {"older": "newer"}  # noqa: RUF012
    newer: int = 2


def test_subclasses_inherit_old_names():
    assert Daughter(old=3, older=4) == Daughter(new=3, newer=4) == checked(Daughter, {"old": 3, "older": 4}, "here")  # type: ignore[call-arg]
    assert list(Daughter.updated({"older": 4, "x": 0, "old": 3}, "here")) == ["newer", "x", "new"]
    assert Daughter(gone=0.0) == Daughter(gone=False) == Daughter()  # type: ignore[call-arg]
    with pytest.raises(ValueRefused, match=r"^here: gone = 0.5 is refused, the option was removed: leave it out$"):
        checked(Daughter, {"gone": 0.5}, "here")
    with pytest.raises(ValueError, match=r"Daughter: gone = 0\.5 is refused"):
        Daughter(gone=0.5)  # type: ignore[call-arg]


def test_a_removed_option_of_ppo_is_read_where_it_changed_nothing(caplog):
    plain = {"world": {"id": VAULT}, "agent": {"id": "ppo", "ahead": 0.0}}
    assert "ahead" not in of_agent(plain)
    (note,) = caplog.messages
    assert note == "[agent] ppo: the option ahead was removed; 0.0 changes nothing, leave it out"
    with pytest.raises(UsageError, match=r"\[agent\] distill: ahead = 0.25 is refused, .* removed: leave it out, and "):
        resolve({"world": {"id": VAULT}, "agent": {"id": "distill", "ahead": 0.25}})
