"""What the pages about language models say is what happens."""

import re
import shlex
import tomllib

import pytest
from helpers import endpoint_server as lo
from helpers.llm_runs import SCHEDULE, curricle, plain, results, start
from helpers.pages import blocks
from helpers.paths import ROOT

from curricle import config
from curricle.designers.llm.designer import LLMOptions
from curricle.llm.clients.choose import ADDRESS, KEY, VARIABLE
from curricle.records import Exchange
from curricle.run import read_exchanges

ENVGEN, DESIGNERS = ((ROOT / "docs" / name).read_text() for name in ("envgen.md", "designers.md"))
COMMANDS = [line for block in blocks(ENVGEN, "sh") for line in block.strip().splitlines()]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_ablation_is_a_setting(line, at_root):
    done = curricle(*shlex.split(line, comments=True)[1:], "--dry-run")
    assert done.returncode == 0, done.stderr
    resolved = tomllib.loads(done.stdout)
    schedule, designer = resolved["schedule"], resolved["designer"]
    assert schedule["cycles"] * schedule["per_cycle"] + schedule["final"] == 1_960_000, "all have the same total"
    assert (resolved["world"]["observation"], schedule["test_seeds"]) == ("pixels", 12)
    asked = re.search("--llm ([^@ ]+)", line)
    model = designer.get("of_options", designer).get("model")
    assert model == (asked[1] if asked else None)
    assert config.resolve(resolved).to_toml() == resolved


def test_the_papers_run_is_the_default(at_root):
    resolved = config.resolve(config.load("configs/envgen-crafter.toml"))
    schedule = resolved.schedule
    assert (schedule.cycles, schedule.designs, schedule.designed, schedule.original) == (4, 4, 120_000, 120_000)
    assert (resolved.agent.id, resolved.designer.id, schedule.final) == ("ppo-v1", "tutor-v1", 1_000_000)
    assert "auto" in resolved.why


def test_every_ablation_of_the_paper_has_its_command():
    said = "\n".join(COMMANDS)
    for words in ("fixed", "easy_to_hard", "adversarial", "random", "cycles=40", "cycles=8", "obfuscate=true"):
        assert words in said
    for words in ("designs=1", "designs=2", "designs=8", "ratio=5:1", "ratio=2:1"):
        assert words in said


def test_the_config_of_the_page_resolves():
    (text,) = blocks(DESIGNERS, "toml")
    table = config.resolve(tomllib.loads(text)).to_toml()["designer"]
    assert table.items() >= {"model": "qwen3", "key_env": "MY_ENDPOINTS_KEY", "dollars": 0.5}.items()


def test_the_page_names_what_exists():
    for name in re.findall(r"`designer\.(\w+)`", DESIGNERS + ENVGEN):
        assert name in LLMOptions.model_fields, name
    for name in (VARIABLE, ADDRESS, KEY, "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        assert f"`{name}`" in DESIGNERS
    for name in re.findall(r"`(tests/[\w./]+)`", DESIGNERS):
        assert (ROOT / name).exists()


def test_the_commands_of_the_page_run(tmp_path):
    hand, replay = (shlex.split(block)[1:] for block in blocks(DESIGNERS, "sh"))
    assert 'model = "hand"' in curricle(*hand, "--dry-run").stdout
    with lo.Loopback([lo.designer]) as server:
        folder = start(tmp_path / "run", plain(server) | {"schedule": SCHEDULE | {"cycles": 1}})
    words = [word.replace("RUN", str(folder)) for word in replay]
    done = curricle(*words, "--out", tmp_path / "again")
    assert done.returncode == 0 and results(tmp_path / "again") == results(folder), done.stderr
    assert Exchange.total(exchange for _, exchange in read_exchanges(tmp_path / "again"))["calls"] == 1
