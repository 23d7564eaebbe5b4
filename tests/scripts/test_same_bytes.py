"""What `same_bytes.py` says of two run folders, on folders made by hand."""

import importlib

import pytest
from helpers.paths import ROOT

CONFIG = """seed = 1
world = {{ id = "{tree}/examples/vault.py:Vault" }}
designer = {{ id = "random" }}
agent = {{ id = "tabular", {rate} = 0.2 }}
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("same_bytes")


@pytest.fixture
def sides(script, tmp_path):
    """An old and a new tree, each with a folder that holds the same run."""
    made = []
    for name in ("old", "new"):
        tree = tmp_path / "old_tree" if name == "old" else ROOT
        folder = tmp_path / name
        run = folder / "one"
        (run / "agent").mkdir(parents=True)
        (folder / "one.log").touch()
        (run / "config.toml").write_text(CONFIG.format(tree=tree, rate="learning_rate"))
        (run / "outcomes.jsonl").write_text('{"attempts": 1}\n{"attempts": 2}\n')
        (run / "agent" / "weights.safetensors").write_bytes(bytes(range(16)))
        (run / "timings.jsonl").write_text(f'{{"machine": "{name}"}}\n')
        made.append(script.Side(tree, folder, {"model": "/no/model"}))
    return made


def compare(script, sides):
    return script._differences("one", "one", *sides)


def test_equal_folders_are_equal_whatever_the_clock_said(script, sides):
    assert compare(script, sides) == []
    assert script.renamed("one", "one", *sides) == []


def test_one_byte_that_differs_is_found(script, sides):
    weights = sides[1].folder / "one" / "agent" / "weights.safetensors"
    weights.write_bytes(bytes([*range(7), 99, *range(8, 16)]))
    (problem,) = compare(script, sides)
    assert problem == "agent/weights.safetensors differs at byte 7 (line 1; 16 and 16 bytes)"
    outcomes = sides[1].folder / "one" / "outcomes.jsonl"
    outcomes.write_text('{"attempts": 1}\n{"attempts": 3}\n')
    assert any(problem.startswith("outcomes.jsonl differs at byte 29 (line 2;") for problem in compare(script, sides))


@pytest.mark.parametrize(("side", "words"), [(0, "is new"), (1, "is missing")])
def test_a_file_that_one_side_lacks_is_found(script, sides, side, words):
    (sides[side].folder / "one" / "outcomes.jsonl").unlink()
    assert compare(script, sides) == [f"outcomes.jsonl {words}"]


def test_a_run_that_failed_or_was_never_made_is_no_equal_run(script, sides):
    (sides[1].folder / "one.log").write_text("Traceback\nValueError: no\n")
    assert compare(script, sides) == [f"failed in {ROOT.name}: ValueError: no"]
    (sides[1].folder / "one.log").unlink()
    assert compare(script, sides) == [f"failed in {ROOT.name}: it was never run"]


def test_a_renamed_key_is_equal_and_another_value_is_not(script, sides):
    config = sides[0].folder / "one" / "config.toml"
    config.write_text(CONFIG.format(tree=sides[0].tree, rate="rate"))
    assert compare(script, sides) == []
    assert script.renamed("one", "one", *sides) == ["agent.learning_rate", "agent.rate"]
    config.write_text(config.read_text().replace("0.2", "0.3"))
    assert compare(script, sides) == [
        "config.toml: agent.learning_rate = 0.2",
        "config.toml: agent.learning_rate = 0.3",
    ]


def test_a_config_that_the_new_tree_refuses_is_no_equal_config(script, sides):
    for number, side in enumerate(sides):
        text = CONFIG.format(tree=side.tree, rate="no_such_option")
        (side.folder / "one" / "config.toml").write_text(f"{text}# {number}\n")
    (problem,) = compare(script, sides)
    assert problem.startswith("config.toml is not read: ") and "no_such_option" in problem


def test_hashes_in_the_journal_are_left_out_and_the_rest_is_compared(script, sides):
    old, new = (side.folder / "one" / "journal.jsonl" for side in sides)
    old.write_text('{"step": 1, "saved": {"agent": "a"}}\n')
    new.write_text('{"step": 1, "saved": {"agent": "a"}, "files": {"a.jsonl": {"hash": {"x": 1}}}}\n')
    assert compare(script, sides) == []
    new.write_text('{"step": 2, "saved": {"agent": "a"}, "files": {"a.jsonl": {"hash": {"x": 1}}}}\n')
    assert [problem.split(" differs")[0] for problem in compare(script, sides)] == ["journal.jsonl"]
