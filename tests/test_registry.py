"""Names, versions, entry points of third parties, and plug-ins that do not load."""

import subprocess
import sys

import pytest
from helpers import paths

from curricle import config
from curricle.agent import Agent
from curricle.designer import Designer
from curricle.errors import PluginError, UsageError
from curricle.registry import BUILT_IN, find, installed
from curricle.world import World

PLUGIN = '''
from curricle import Designer
class Old(Designer):
    """An old one."""
    id = "mine-v2"
    def propose(self, brief, n, context): return []
class New(Old):
    """A new one."""
    id = "mine-v10"
class Misnamed(Old):
    id = "other-v1"
class Half(Designer):
    id = "half-v1"
not_a_class = 3
'''
ENTRIES = """
[curricle.designers]
mine-v2 = my_plugin:Old
mine-v10 = my_plugin:New
torn-v1 = my_plugin_torn:Torn
leaving-v1 = my_plugin_leaving:X
half-v1 = my_plugin:Half
lost-v1 = my_plugin:Lost
three-v1 = my_plugin:not_a_class
misnamed-v1 = my_plugin:Misnamed
tutor-v1 = my_plugin:Old
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A package as pip would install it."""
    (tmp_path / "my_plugin.py").write_text(PLUGIN)
    (tmp_path / "my_plugin_torn.py").write_text("raise RuntimeError('no licence')")
    (tmp_path / "my_plugin_leaving.py").write_text("import sys; sys.exit(4)")
    info = tmp_path / "my_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", [World, Designer, Agent])
def test_everything_built_in_loads_and_agrees_with_its_id(kind):
    for id, part in installed(kind):
        assert not isinstance(part, PluginError), part
        assert part.id == id and find(kind, id) is part and find(kind, id.rpartition("-v")[0]).id == id
        assert part.__doc__ and "\n" not in part.__doc__.strip().splitlines()[0]
        assert all(field.description for field in part.Options.model_fields.values()), f"{id}: an option lacks its help"


def test_a_plugin_is_found_and_the_newest_version_wins(plugin):
    assert find(Designer, "mine-v2").__name__ == "Old"
    assert find(Designer, "mine").__name__ == "New", "v10 is newer than v2"
    assert find(Designer, "tutor").__module__.startswith("curricle."), "a built-in's id cannot be taken"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torn", r"designer 'torn-v1' \(my_plugin_torn:Torn\) cannot be loaded: RuntimeError: no licence"),
        ("leaving", r"designer 'leaving-v1' \(my_plugin_leaving:X\) cannot be loaded: SystemExit: 4"),
        ("half", r"designer 'half-v1' \(my_plugin:Half\) lacks propose\(\)"),
        ("lost", r"designer 'lost-v1' \(my_plugin:Lost\) cannot be loaded: AttributeError"),
        ("three", r"designer 'three-v1' \(my_plugin:not_a_class\) is not a Designer class but 3"),
        ("misnamed", r"'misnamed-v1' .* calls itself 'other-v1'"),
        ("nowhere.module:X", r"designer 'nowhere.module:X' cannot be loaded: ModuleNotFoundError"),
        ("nowhere/file.py:X", r"cannot be loaded: FileNotFoundError: no such file"),
        ("curricle.world:World", r"is not a Designer class"),
    ],
)
def test_a_bad_plugin_is_named(plugin, name, message):
    with pytest.raises(PluginError, match=message):
        find(Designer, name)


@pytest.mark.parametrize(
    ("kind", "method", "message"),
    [
        (Designer, "def learn(self, outcomes, scores): ...", r"learn\(self, outcomes, scores\) is called as learn\("),
        (Designer, "def propose(self, brief, n): ...", r"is called as propose\(brief, n, context\)"),
        (Agent, "def practise(self, designs, budget, seed): ...", r"designs, budget, seed=..., report=...\)"),
        (Agent, "def practise(self, *given, **named): ...", ""),
        (Designer, "def learn(self, outcomes, scores, context, more=1): ...", ""),
    ],
)
def test_a_method_that_cannot_be_called_as_the_loop_does_is_named_at_once(kind, method, message, tmp_path):
    base = {Designer: "curricle.designers.baselines import Random", Agent: "curricle.agents.random import RandomAgent"}
    source = f"from {base[kind]} as Base\nclass Mine(Base):\n    id = 'mine-v1'\n    {method}\n"
    (tmp_path / "mine.py").write_text(source)
    if message:
        with pytest.raises(PluginError, match=message):
            find(kind, f"{tmp_path}/mine.py:Mine")
    else:
        assert find(kind, f"{tmp_path}/mine.py:Mine").id == "mine-v1"


def test_the_list_shows_broken_plugins_and_goes_on(plugin):
    found = dict(installed(Designer))
    assert isinstance(found["torn-v1"], PluginError) and found["mine-v2"].__name__ == "Old"
    claims = [part for id, part in installed(Designer) if id == "tutor-v1" and isinstance(part, PluginError)]
    assert "my_plugin:Old is ignored: curricle.designers.tutor:Tutor has the id 'tutor-v1' already" in str(claims[0])


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (Designer, "tuter", "there is no designer 'tuter': did you mean 'tutor'"),
        (Agent, "tabular-v9", "there is no agent 'tabular-v9': did you mean 'tabular-v1'"),
        (World, "zzzzzz", "there is no world 'zzzzzz': "),
        (World, "examples/vault.py", r"is a file: name the world in it, as in examples/vault.py:Class"),
    ],
)
def test_unknown_names_suggest_the_nearest(kind, name, message):
    with pytest.raises(UsageError, match=message):
        find(kind, name)


@pytest.mark.parametrize("name", ["local", "local-v1"])
def test_a_designer_that_was_removed_says_what_to_use_instead(name, tmp_path):
    message = f"the designer '{name}' was removed; use --designer tutor, .* or --llm local"
    with pytest.raises(UsageError, match=message):
        find(Designer, name)
    (tmp_path / "config.toml").write_text(f'[world]\nid = "crafter-v1"\n[designer]\nid = "{name}"\nmodel = ""\n')
    with pytest.raises(UsageError, match=message):
        config.resume(tmp_path)


def test_nothing_is_imported_before_it_is_asked_for():
    parts = ("curricle.worlds", "curricle.agents", "curricle.designers")
    code = f"import sys, curricle.registry; print([m for m in sys.modules if m.startswith({parts})])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_file_may_import_what_lies_beside_it_and_names_in_it_are_suggested(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_mine.py").write_text("from curricle.designers.baselines import Random\n")
    (tmp_path / "mine.py").write_text("from neighbour_of_mine import Random\nclass Mine(Random):\n    id = 'mine-v1'\n")
    assert find(Designer, f"{tmp_path}/mine.py:Mine").id == "mine-v1"
    with pytest.raises(PluginError, match=r"there is no 'Mien' in .*mine.py: did you mean 'Mine'"):
        find(Designer, f"{tmp_path}/mine.py:Mien")


def test_a_run_folder_is_no_world(tmp_path):
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(UsageError, match=r"is a run folder, no world: curricle resume"):
        find(World, str(tmp_path))


def test_a_file_is_imported_once():
    place = paths.VAULT
    assert find(World, place) is find(World, place)


def test_built_in_places_exist():
    assert all(ids for group, ids in BUILT_IN.items() if group != "worlds")
