"""The local designer, with a tiny random model: valid in every world, same after a crash, honest about fallbacks."""

import shlex
import subprocess
import sys
from io import StringIO

import pytest
import tiny
import torch
from pages import blocks, part
from parts import LADDER, ROOT, VAULT, WORLDS, Bench
from rich.console import Console
from test_designers import course, scores
from test_kill import contents
from typer.testing import CliRunner

from curricle import config
from curricle.cli import app, models
from curricle.designers.local import Local, LocalOptions
from curricle.errors import ModelError, UsageError
from curricle.llm import weights
from curricle.llm.embedded import Embedded
from curricle.llm.model import as_text
from curricle.records import Cycle, Design
from curricle.run import read_exchanges, read_records
from curricle.views.table import table

PAGE = (ROOT / "docs" / "embedded.md").read_text()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


def local(world, path, seed=3, **options):
    return Local(world.Setting, LocalOptions(model=str(path), **options), seed)


@pytest.mark.parametrize("kind", WORLDS, ids=lambda cls: cls.id)
def test_proposals_fit_every_world(kind, path):
    world = kind()
    for designs in course(local(world, path), world, cycles=2):
        assert len(designs) == 4
        for design in designs:
            world.setting(design.setting)
            assert design.aim in {skill.name for skill in world.skills} and not design.by


def test_aims_are_the_weakest_in_reach(path):
    world = VAULT()
    past = [Cycle(number=1, designed=(), scores=scores(world, open_1=0.6, open_2=0.3))]
    designs = local(world, path).propose(world.brief(2, 4, past), 2, Bench(world))
    assert [design.aim for design in designs] == ["open_3", "open_2"]
    assert designs[1].why.startswith("success 30% in the original; tiny.gguf (")


def test_answers_from_before_a_crash_are_used(path, monkeypatch):
    world, bench = LADDER(), Bench(LADDER())
    whole = local(world, path).propose(world.brief(1, 2), 4, bench)
    assert len(bench.exchanges) == 4
    cut, asked, reply = Bench(world), [], Embedded.reply
    cut.exchanges = bench.exchanges[:3]

    def counted(self, *args, **kwargs):
        asked.append(args)
        return reply(self, *args, **kwargs)

    monkeypatch.setattr(Embedded, "reply", counted)
    assert local(world, path).propose(world.brief(1, 2), 4, cut) == whole
    assert len(asked) == 1 and cut.exchanges == bench.exchanges


def test_lines_that_say_nothing_are_asked_again_then_replaced(path):
    world, bench = VAULT(), Bench(VAULT())
    designer = local(world, path, grammar=False, temperature=0.0)  # a random model without a grammar is never readable
    first, second = designer.propose(world.brief(1, 4), 2, bench)
    assert len(bench.exchanges) == 4, "each line was asked for twice"
    for design in (first, second):
        assert design.by == "tutor-v1" and design.aim == "open_1"
        assert len(design.changed) == 4 and design.changed[0].startswith("not used: no setting in ")
        assert design.changed[-2].endswith("wrote no usable line")
        assert design.changed[-1] == "tutor-v1 made this design"
    nobody = local(world, path, grammar=False, temperature=0.0, fallback="none", tries=1)
    assert nobody.propose(world.brief(1, 4), 2, bench) == []


def test_the_fallback_learns_and_is_saved(path, tmp_path):
    world = VAULT()
    designer, again = (local(world, path, grammar=False, temperature=0.0, tries=1) for _ in range(2))
    course(designer, world, cycles=2)
    designer.fallback.ease["open_1"] = 0.25
    designer.save(tmp_path)
    again.load(tmp_path)
    assert again.fallback.ease == designer.fallback.ease


def test_what_is_missing_is_said_before_a_run_begins(path, tmp_path, monkeypatch):
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path))
    resolved = config.resolve({"world": {"id": "crafter"}, "designer": {"id": "local"}})
    with pytest.raises(ModelError, match="get it once with: curricle model"):
        config.start(resolved, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="cannot step in for itself"):
        local(VAULT(), path, fallback="local")


def test_a_run_and_the_tuning_on_it(path, tmp_path):
    """The whole way by the command line: a run, the model tuned on its successes, a run with the tuned one."""
    world, out = f"{ROOT}/examples/vault.py:Vault", tmp_path / "tuned.gguf"
    small = ["schedule.cycles=1", "schedule.per_cycle=600", "schedule.final=0", "schedule.test_seeds=1"]
    sets = [word for pair in small for word in ("--set", pair)]

    def run(name, model):
        words = ["run", world, "--designer", "local", "--out", str(tmp_path / name), *sets, "--set"]
        return CliRunner().invoke(app, [*words, f"designer.model={model}"])

    assert run("first", path).exit_code == 0
    designs = [design for _, design in read_records(tmp_path / "first", Design)]
    assert len(designs) == len(read_exchanges(tmp_path / "first")) == 3 and all(d.by == "local-v1" for d in designs)
    asked = [as_text(exchange.prompt) for _, exchange in read_exchanges(tmp_path / "first")]
    printed = CliRunner().invoke(app, ["design", world, "--run", str(tmp_path / "first")])
    assert printed.stdout == "\n\n".join(asked) + "\n", "the exact prompts, one a design"
    words = ["tune-designer", world, "--from", str(tmp_path / "first"), "--model", str(path), "--out", str(out)]
    done = CliRunner().invoke(app, [*words, "--steps", "2", "--batch", "2", "--threads", "1"])
    assert done.exit_code == 0, done.output
    assert (
        done.stdout.strip() == str(out)
        and "step 2 of 2: loss" in done.stderr
        and "2 updates took" in done.stderr
        and "designs of" in done.stderr
    )
    assert Embedded(out).taught == "vault-v1"
    assert run("second", out).exit_code == 0
    (_, exchange), *_ = read_exchanges(tmp_path / "second")
    assert exchange.prompt[0].content == "Design a world on one line.", "a taught model needs no lesson"


def test_the_designer_of_a_run_is_a_teacher_too(tmp_path):
    """With what it learnt there; a run in another world is refused."""
    world, run = VAULT(), tmp_path / "run"
    plain = {"world": {"id": f"{ROOT}/examples/vault.py:Vault"}, "designer": {"id": "tutor"}}
    config.start(config.resolve({**plain, "schedule": {"cycles": 1, "per_cycle": 400, "final": 0}}), run)
    teacher = models._teacher(str(run), world)(0)
    assert teacher.id == "tutor-v1" and teacher.ease and teacher.ease == models._teacher(str(run), world)(1).ease
    assert models._teacher("random", world)(0).id == "random-v1"
    with pytest.raises(UsageError, match="is a run in vault-v1, not in ladder-v1"):
        models._own(run, LADDER())


def test_a_run_broken_off_between_two_lines_ends_with_the_same_bytes(path, tmp_path, monkeypatch):
    whole, broken, asked, reply = tmp_path / "whole", tmp_path / "broken", [], Embedded.reply
    plain = {"world": {"id": f"{ROOT}/examples/vault.py:Vault"}, "designer": {"id": "local", "model": str(path)}}
    plain["schedule"] = {"cycles": 2, "per_cycle": 400, "final": 0, "test_seeds": 1}

    def fifth(self, *args, **kwargs):
        asked.append(args)
        if len(asked) == 5:  # within the second cycle's proposal
            raise KeyboardInterrupt
        return reply(self, *args, **kwargs)

    config.start(config.resolve(plain), whole)
    monkeypatch.setattr(Embedded, "reply", fifth)
    with pytest.raises(KeyboardInterrupt):
        config.start(config.resolve(plain), broken)
    assert len(read_exchanges(broken)) == 4
    config.resume(broken)
    assert len(asked) == 7, "six lines, one of them asked for twice"
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize("grammar", [True, False], ids=["lines", "fallback"])
def test_a_replay_repeats_a_run_byte_for_byte_without_the_model(grammar, path, tmp_path):
    chosen = {"id": "local", "model": str(path), "grammar": grammar, "temperature": 0.8 if grammar else 0.0}
    plain = {"world": {"id": f"{ROOT}/examples/vault.py:Vault"}, "designer": chosen, "log": {"tensorboard": False}}
    plain["schedule"] = {"cycles": 3, "per_cycle": 400, "final": 0, "test_seeds": 1}
    config.start(config.resolve(plain), tmp_path / "run")
    prompts = [exchange.prompt for _, exchange in read_exchanges(tmp_path / "run")]
    assert len(set(prompts)) < len(prompts), "a prompt comes again, and not with the same answer"
    again = config.with_llm(config.resolve(plain).to_toml(), f"replay:{tmp_path / 'run'}")
    config.start(config.resolve(again), tmp_path / "again")
    one, other = contents(tmp_path / "run"), contents(tmp_path / "again")
    assert one.pop("config.toml") != other.pop("config.toml") and one == other
    by = {design.by for _, design in read_records(tmp_path / "again", Design)}
    assert by == ({"local-v1"} if grammar else {"tutor-v1"})


def test_a_language_model_is_no_teacher(tmp_path):
    """It would be asked for every lesson, with no ledger."""
    for name in ("llm", "llm-v1"):
        with pytest.raises(UsageError, match="a language model is no teacher"):
            models._teacher(name, VAULT())


def test_a_part_of_a_cycle_by_the_fallback_is_said(tmp_path):
    plain = {"world": {"id": f"{ROOT}/examples/vault.py:Vault"}, "designer": {"id": "tutor"}}
    schedule = {"cycles": 1, "designs": 3, "per_cycle": 300, "final": 0, "test_seeds": 1}
    config.start(config.resolve({**plain, "schedule": schedule}), tmp_path / "run")
    file = tmp_path / "run" / "designs.jsonl"
    first, *others = file.read_text().splitlines()
    file.write_text(
        "\n".join([first.replace('"by": "tutor-v1", "changed": []', '"by": "x", "changed": ["y"]'), *others, ""])
    )
    console = Console(width=200, file=StringIO())
    console.print(table(tmp_path / "run"))
    assert "1 of 3 designs of cycle 1 are by x instead of tutor-v1" in console.file.getvalue()


def test_the_page_shows_the_data_there_is():
    done = subprocess.run(
        [sys.executable, "benchmarks/designs.py", "table", "experiments/embedded-designer/designs.jsonl"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert part(PAGE, "designs") == done.stdout.strip().splitlines()


def test_the_pages_commands_run(path, tmp_path, monkeypatch):
    """As they stand there; a tiny model lies where the real one would."""
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    assert weights.get(str(path)).new
    monkeypatch.setattr(weights, "SHA256", weights.sha256(path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    (text,) = blocks(PAGE, "sh")
    for line in text.strip().splitlines():
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0 and done.stdout, (line, done.output, done.exception)
    assert Embedded(tmp_path / "tuned.gguf").taught == "vault-v1"
