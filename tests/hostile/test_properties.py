"""Whatever settings, replies, journals, records and TOML hold: they are read, or refused in words, and nothing else."""

import json
import string

import pytest
import tomli_w
from helpers import paths
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curricle import config
from curricle.designers.llm.replies import read
from curricle.errors import CurricleError, RunDamaged, UsageError
from curricle.llm.clients.secrets import without_key
from curricle.records import Design, Exchange, Outcome, Scores, refuse_unbearable
from curricle.registry import find
from curricle.run import read_config, read_metrics, read_records, read_steps, verify
from curricle.text.lenient_json import read_all as values
from curricle.text.terminal import clean
from curricle.world import World

WORLD = find(World, paths.VAULT)()
BRIEF = WORLD.brief(1, 2)
numbers = st.integers() | st.integers(10**300, 10**310) | st.floats(allow_nan=True)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20) | st.sampled_from(["open_1", "setting", "\x1b[31m"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
knobs = st.dictionaries(st.sampled_from(["dials", "open_doors", "alarm", "Dials ", "x"]), plain, max_size=4)
designs = st.fixed_dictionaries({}, optional={"setting": knobs | plain, "aim": plain, "why": plain, "design": plain})
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(given_values):
    return WORLD.setting(given_values).values


def reading(text):
    found = read(Exchange(prompt=(), reply=text), BRIEF, 3, check)
    assert len(found.designs) <= 3
    for design in found.designs:
        assert Design.from_json(design.to_json()) == design
        assert WORLD.setting(design.setting).values == design.setting
        assert clean(design.why) == design.why
    assert "the answer cannot be read" not in found.problems, "the reader itself broke down"


@many
@given(st.lists(designs | plain, max_size=4))
def test_replies_that_are_json(found):
    reading(json.dumps({"designs": found}))


@many
@given(st.text(alphabet=string.printable + "{}[]\"':,\\\u201c\u202e", max_size=200))
def test_replies_that_are_anything(text):
    list(values(text))
    reading(text)


@many
@given(st.lists(designs, min_size=1, max_size=2), st.data())
def test_replies_that_are_spoiled(found, data):
    text = json.dumps({"designs": found})
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 20))
    reading(text[:at] + data.draw(st.text(max_size=5)) + text[at + length :])


@many
@given(st.dictionaries(st.sampled_from(["seed", "world", "agent", "designer", "schedule", "original", "log"]), plain))
def test_configs_are_resolved_or_refused(table):
    try:
        resolved = config.resolve({"world": {"id": paths.VAULT}, **table})
    except CurricleError as error:
        assert "\n" not in str(error) and len(str(error)) < 5_000
    else:
        assert config.resolve(resolved.to_toml()).to_toml() == resolved.to_toml()


@many
@given(st.sampled_from(["schedule", "agent", "original"]), st.text(max_size=12), st.text(max_size=40))
def test_pairs_are_read_or_refused(section, name, value):
    try:
        config.resolve(config.override({"world": {"id": paths.VAULT}}, [f"{section}.{name}={value}"]))
    except CurricleError as error:
        assert str(error)


@many
@given(plain)
def test_only_bearable_data_passes(data):
    try:
        refuse_unbearable({"x": data})
    except UsageError:
        return
    if "null" not in json.dumps(data):
        tomli_w.dumps({"x": data})


@pytest.mark.parametrize("name", ["journal.jsonl", "designs.jsonl", "outcomes.jsonl", "scores.jsonl", "metrics.jsonl"])
@many
@given(lines=st.lists(plain.map(json.dumps) | st.text(max_size=30), max_size=3), torn=st.binary(max_size=10))
def test_lines_are_read_or_named(name, lines, torn, tmp_path):
    (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "replace") + torn)
    readers = {
        "journal.jsonl": read_steps,
        "designs.jsonl": lambda folder: read_records(folder, Design),
        "outcomes.jsonl": lambda folder: read_records(folder, Outcome),
        "scores.jsonl": lambda folder: read_records(folder, Scores),
        "metrics.jsonl": read_metrics,
    }
    try:
        readers[name](tmp_path)
    except RunDamaged as error:
        assert name in str(error) and "line" in str(error) and "\n" not in str(error)


@many
@given(text=st.text(max_size=100), more=st.binary(max_size=60))
def test_toml_is_read_or_named(text, more, tmp_path):
    (tmp_path / "config.toml").write_bytes(text.encode("utf-8", "replace") + more)
    for reader in (read_config, verify):
        try:
            reader(tmp_path)
        except CurricleError as error:
            assert "config.toml" in str(error) and "\n" not in str(error)


@many
@given(st.text(), st.text(alphabet=string.ascii_letters + string.digits + "-_+/=.", min_size=8, max_size=40))
def test_no_key_is_left(text, key):
    assert key not in without_key(f"{text}{key}{text}", key)


@many
@given(st.text())
def test_clean_text_stays_clean(text):
    assert clean(clean(text)) == clean(text) and len(clean(text)) == len(text)
