"""Whole runs with language models: over HTTP, by hand, recorded, cached; killed, resumed, and no key in sight."""

import multiprocessing
import os
import pty
import random
import subprocess
import sys
import time
from typing import Any

import pytest
from helpers import endpoint_server as lo
from helpers import toys
from helpers.killing import WARM, contents, work
from helpers.llm_runs import KEY, LADDER, QUICK, SCHEDULE, curricle, plain, results, start

from curricle import config
from curricle.errors import Waiting
from curricle.llm.client import as_text
from curricle.llm.clients.replay import Recorded
from curricle.records import Design, Exchange
from curricle.run import read_config, read_exchanges, read_metrics, read_records, read_steps


def test_a_run_asks_once_a_cycle_and_tells_what_happened(tmp_path):
    with lo.Loopback([lo.designer]) as server:
        folder = start(tmp_path / "run", plain(server))
    assert [len(request["messages"]) for request in server.requests] == [1, 3, 5, 7], "the chat is kept"
    assert {d.by for _, d in read_records(folder, Design)} == {"llm-v1"}
    exchanges = [exchange for _, exchange in read_exchanges(folder)]
    assert Exchange.total(exchanges) == {"calls": 4, "tokens_in": 400, "tokens_out": 80}
    told = exchanges[-1].prompt[-1].content
    assert "- sums: " in told and " +/- " in told and "attempts, " in told


def test_the_exact_prompt_can_be_printed(tmp_path):
    with lo.Loopback([lo.by_schema]) as server:
        folder = start(tmp_path / "run", plain(server, obfuscate=True, max_prompt_tokens=900))
    printed = curricle("design", LADDER, "--run", folder).stdout
    (*_, (_, last)) = read_exchanges(folder)
    assert 1 < len(last.prompt) < 7, "some of three turns were left out"
    assert printed == "\n\n".join(f"=== {m.role} ===\n\n{m.content}" for m in last.prompt) + "\n"


def trouble(handler, body):
    """A model on a bad day: by what it was asked, and how often."""
    seen = handler.server.seen = getattr(handler.server, "seen", 0) + 1
    text = body["messages"][-1]["content"]
    if "Cycle 1" in text and seen == 1:
        handler.say(429, "{}", Retry_After="0")
    elif "Cycle 2" in text:
        handler.say(200, lo.chat("I would rather not."))
    elif "Cycle 3" in text:
        lo.drops(handler, body)
    elif "cannot be used" in text and "rather not" not in str(body["messages"][-2]):
        lo.designer(handler, body)
    elif "cannot be used" in text:
        handler.say(200, lo.chat("Still no."))
    elif "Cycle 4" in text:
        handler.say(200, lo.chat('{"designs": [{"setting": {"difficulty": "o.5"}}]}', "length"))
    else:
        lo.designer(handler, body)


def test_a_replay_repeats_a_run_byte_for_byte(tmp_path):
    with lo.Loopback([trouble]) as server:
        folder = start(tmp_path / "run", plain(server, retries=2, max_reprompts=1, price_in=1.0, price_out=2.0))
    by = {step.cycle: d.by for step, d in read_records(folder, Design)}
    assert by == {1: "llm-v1", 2: "tutor-v1", 3: "tutor-v1", 4: "llm-v1"}
    errors = [bool(exchange.error) for _, exchange in read_exchanges(folder)]
    assert errors == [True, False, False, False, True, True, True, False, False]
    again = config.with_llm(read_config(folder), f"replay:{folder}")
    start(tmp_path / "again", again)
    assert results(tmp_path / "again") == results(folder) and "exchanges.jsonl" in results(folder)
    shown = curricle("show", tmp_path / "again").stdout
    assert "language model: 9 calls, 4 of them failed; " in shown and "$0.00" in shown and "all of it replayed" in shown
    assert "cycle 2 was designed by tutor-v1 instead of llm-v1" in shown
    figures = [line for line in read_metrics(folder) if "designer/fallback" in line]
    assert [line["designer/fallback"] for line in figures] == [0, 1, 1, 0]


def test_a_replay_of_another_run_says_that_it_has_no_answer(tmp_path):
    with lo.Loopback([lo.designer]) as server:
        folder = start(tmp_path / "run", plain(server))
    other = plain() | {"original": {"difficulty": 0.5}}
    start(tmp_path / "other", config.with_llm(other, f"replay:{folder}"))
    designs = [design for _, design in read_records(tmp_path / "other", Design)]
    assert {d.by for d in designs} == {"tutor-v1"} and "no answer to this prompt" in designs[0].changed[0]


@pytest.fixture(scope="module")
def forks():
    """Children forked from a process that has everything imported; there is one such process, whoever asks first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.mark.parametrize("kills", [1, 3])
def test_killed_while_it_asks_no_answer_is_paid_for_twice(kills, forks, tmp_path):
    """The first answer is bad, so that a second call follows; the kill comes while that one is under way."""
    stalled = []

    def act(handler, body):
        text = body["messages"][-1]["content"]
        if "cannot be used" not in text:
            handler.say(200, lo.chat("Let me think."))
        elif len(stalled) < kills:
            stalled.append(text)
            time.sleep(20)
        else:
            lo.designer(handler, body)

    folder, phase = tmp_path / "run", toys.board(forks)
    with lo.Loopback([act]) as endpoint:
        chosen = plain(endpoint, timeout=60.0) | {"schedule": SCHEDULE | {"cycles": 2}}
        for number in range(1, kills + 1):
            child = forks.Process(target=work, args=(folder, chosen, phase))
            child.start()
            while len(stalled) < number:
                assert child.is_alive()
                time.sleep(0.005)
            child.kill()
            child.join()
        work(folder, chosen, phase)
        asked = len(endpoint.requests)
        start(tmp_path / "whole", chosen)
    assert asked == 4 + kills, "two for each of two cycles, and the calls that were killed"
    assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["endpoint", "replay"])
def test_killed_at_any_moment_it_ends_with_the_same_bytes(source, forks, tmp_path):
    """Failed calls and bad replies included: what a step does follows from its exchanges alone."""

    def act(handler, body):
        text = body["messages"][-1]["content"]
        handler.say(200, lo.chat("Hm.")) if "cannot be used" not in text else lo.designer(handler, body)

    rng, phase, broken = random.Random(source), toys.board(forks), tmp_path / "broken"
    with lo.Loopback([act]) as endpoint:
        chosen = plain(endpoint, max_reprompts=1) | {"schedule": SCHEDULE | {"cycles": 2}}
        whole = start(tmp_path / "whole", chosen)
        if source == "replay":
            chosen = config.with_llm(chosen, f"replay:{whole}")
        for _ in range(12):
            child = forks.Process(target=work, args=(broken, chosen, phase))
            child.start()
            child.join(rng.uniform(0.0, 0.5))
            child.kill()
            child.join()
        work(broken, chosen, phase)
    assert results(broken) == results(whole)


def test_a_replay_goes_on_where_it_was_killed(tmp_path):
    """An answer that came after failures is not given again where those were heard before the kill."""
    with lo.Loopback([lo.answers(500, "down"), lo.answers(500, "down"), lo.designer]) as server:
        folder = start(tmp_path / "run", plain(server) | {"schedule": SCHEDULE | {"cycles": 1}})
    heard = [exchange for _, exchange in read_exchanges(folder)]
    replies = [Recorded(folder, heard[:used]).reply(heard[0].prompt).error for used in range(4)]
    assert replies[:3] == ["500: down", "500: down", ""] and "no answer to this prompt" in replies[3]


def test_the_budget_counts_all_sittings(tmp_path):
    with lo.Loopback([lo.designer]) as server:
        folder = start(tmp_path / "run", plain(server, calls=3))
        assert len(server.requests) == 3
    by = {step.cycle: d.by for step, d in read_records(folder, Design)}
    assert by == {1: "llm-v1", 2: "llm-v1", 3: "llm-v1", 4: "tutor-v1"}


def test_a_cache_serves_repeated_seeds(tmp_path):
    short = {"schedule": SCHEDULE | {"cycles": 2}}
    with lo.Loopback([lo.designer]) as server:
        given = plain(server, cache=str(tmp_path / "cache")) | short
        start(tmp_path / "a", given)
        start(tmp_path / "b", given)
        assert len(server.requests) == 2, "the same run again is free"
        start(tmp_path / "c", given | {"seed": 1})
        assert len(server.requests) == 3, "another seed shares its first prompt"
        start(tmp_path / "d", plain(server, cache=str(tmp_path / "cache"), temperature=1.0) | short)
        assert len(server.requests) == 5, "another temperature shares nothing"
        start(tmp_path / "longer", plain(server, cache=str(tmp_path / "cache"), max_tokens=99) | short)
        assert len(server.requests) == 7, "a reply that was cut off is no answer where a longer one is allowed"
        for path in (tmp_path / "cache").iterdir():
            path.write_text("junk")
        start(tmp_path / "e", given)
        assert len(server.requests) == 9, "what is damaged is asked anew"
    for name in ("designs.jsonl", "outcomes.jsonl", "scores.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert "2 from the cache" in curricle("show", tmp_path / "b").stdout


def test_four_pastes_make_a_run(tmp_path):
    """Nobody is at the terminal: the run stops for each answer, and goes on when it is resumed."""
    folder = tmp_path / "run"
    done = curricle("run", LADDER, "--llm", "hand", "--out", folder, *QUICK)
    for cycle in range(1, 5):
        assert done.returncode == 3 and "Traceback" not in done.stderr
        assert f"waiting: The prompt above is in {folder}/by_hand/{cycle:02}-prompt-" in done.stderr
        assert f"then: curricle resume {folder}" in done.stderr and f"## Cycle {cycle} of 4" in done.stderr
        (prompt,) = (folder / "by_hand").glob(f"{cycle:02}-prompt-*.md")
        assert f"## Cycle {cycle} of 4" in prompt.read_text()
        again = curricle("resume", folder)
        assert again.returncode == 3 and len(list((folder / "by_hand").iterdir())) == 2 * cycle - 1, "asked once"
        answer = prompt.with_name(prompt.name.replace("prompt", "answer"))
        answer.write_text(f"Here you are!\n\n```json\n{lo.ladder(0.1 * cycle, 0.2 * cycle)}\n```\n")
        done = curricle("resume", folder)
    assert done.returncode == 0, done.stderr
    difficulties = [round(d.setting["difficulty"], 6) for _, d in read_records(folder, Design)]  # type: ignore[arg-type]
    assert difficulties == [0.1, 0.2, 0.2, 0.4, 0.3, 0.6, 0.4, 0.8]
    assert {d.by for _, d in read_records(folder, Design)} == {"llm-v1"} and "language model: 4 calls" in done.stdout
    start(tmp_path / "again", config.with_llm(read_config(folder), f"replay:{folder}"))
    names = ("designs.jsonl", "outcomes.jsonl", "scores.jsonl", "exchanges.jsonl")
    assert all((tmp_path / "again" / n).read_bytes() == (folder / n).read_bytes() for n in names)


def test_a_paste_that_cannot_be_used_is_asked_for_again(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Waiting):
        start(folder, plain(model="hand"))
    (prompt,) = (folder / "by_hand").iterdir()
    (folder / "by_hand" / prompt.name.replace("prompt", "answer")).write_text("I think frogs are nice.")
    with pytest.raises(Waiting, match="02-prompt-"):
        config.resume(folder)
    (second,) = (folder / "by_hand").glob("02-prompt-*")
    assert "the answer holds no design in JSON" in second.read_text() and "frogs are nice" in second.read_text()
    assert read_steps(folder) == [] and len(read_exchanges(folder)) == 1


def test_the_same_bad_paste_again_does_not_answer_the_next_prompt(tmp_path):
    """The third prompt has the words of the second, but is a question of its own."""
    folder, run = tmp_path / "run", config.resolve(plain(model="hand"))
    with pytest.raises(Waiting):
        config.start(run, folder)
    for number in (1, 2, 3):
        (prompt,) = (folder / "by_hand").glob(f"{number:02}-prompt-*")
        prompt.with_name(prompt.name.replace("prompt", "answer")).write_text(
            "frogs" if number < 3 else lo.ladder(0.1, 0.2)
        )
        with pytest.raises(Waiting, match=f"{number + 1:02}-prompt-"):
            config.resume(folder)
    assert {d.by for _, d in read_records(folder, Design)} == {"llm-v1"} and len(read_exchanges(folder)) == 3


def test_at_a_terminal_the_run_waits(tmp_path):
    folder, (reader, writer) = tmp_path / "run", pty.openpty()
    quick = [*QUICK, "--set", "schedule.cycles=2"]
    command = [sys.executable, "-m", "curricle", "run", LADDER, "--llm", "hand", "--out", str(folder), *quick]
    with open(tmp_path / "stderr", "w") as stderr:
        child = subprocess.Popen(command, stdin=writer, stdout=subprocess.DEVNULL, stderr=stderr)
    for cycle in (1, 2):
        while not (found := list((folder / "by_hand").glob(f"{cycle:02}-prompt-*.md"))):
            assert child.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.02)
        answer = found[0].with_name(found[0].name.replace("prompt", "answer"))
        answer.write_text("")
        answer.write_text(lo.ladder(0.1, 0.2))
    assert child.wait(timeout=60) == 0
    os.close(reader)
    os.close(writer)
    assert "and save it: the run waits" in (tmp_path / "stderr").read_text()
    assert len(read_records(folder, Design)) == 4


def test_no_key_reaches_a_file_or_the_terminal(tmp_path):
    """The server repeats the key in errors of all kinds, and at last in its answer."""
    parrot = lo.says(f'{{"designs": [{{"setting": {{"difficulty": 0.1}}, "why": "your key is {KEY}"}}]}}')
    acts = [lo.echoes(429), lo.echoes(500), lo.echoes(400), parrot, lo.echoes(401), lo.echoes(403)]
    with lo.Loopback(acts) as server:
        llm = ["--llm", f"m@{server.url}", "--set", "designer.backoff=0.001", "--set", "designer.key_env=MY_KEY"]
        cache = ["--set", f"designer.cache={tmp_path / 'cache'}"]
        env = {"MY_KEY": KEY}
        done = curricle("run", LADDER, *llm, *cache, "--out", tmp_path / "run", *QUICK, env=env)
        assert done.returncode == 0, done.stderr
        assert f"Bearer {KEY}" in {headers["authorization"] for headers in server.headers}, "it was used"
    said = done.stdout + done.stderr + curricle("show", tmp_path / "run", env=env).stdout
    said += curricle("design", LADDER, "--run", tmp_path / "run", env=env).stdout
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "SENTINEL" not in said and b"SENTINEL" not in written and b"MY_KEY" in written
    assert "[key]" in said and written.count(b"[key]") >= 5 and list((tmp_path / "cache").iterdir())


ABLATIONS: dict[str, Any] = {
    "fixed": ({"id": "fixed"}, {}),
    "easy-to-hard": ({"id": "easy_to_hard", "candidates": 4, "validation_practice": 20}, {}),
    "adversarial": ({"id": "adversarial", "candidates": 4}, {}),
    "cycles": ({"id": "llm"}, {"cycles": 2, "per_cycle": 160}),
    "designs": ({"id": "llm"}, {"designs": 1}),
    "ratio": ({"id": "llm"}, {"ratio": "3:1"}),
    "obfuscated": ({"id": "llm", "obfuscate": True}, {}),
}


def test_an_endpoint_without_structured_output_is_asked_for_it_once_a_run(tmp_path):
    with lo.Loopback([lo.refuses("response_format", then=lo.designer)]) as server:
        start(tmp_path / "run", plain(server))
    assert ["response_format" in request for request in server.requests] == [True, *[False] * 4]


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_the_papers_ablations_run(name, tmp_path):
    designer, schedule = ABLATIONS[name]
    with lo.Loopback([lo.by_schema]) as server:
        chosen = {"world": {"id": LADDER}, "designer": designer, "schedule": SCHEDULE | schedule}
        start(tmp_path / "run", config.with_llm(chosen, f"m@{server.url}"))
    once = name in ("fixed", "easy-to-hard", "adversarial")
    (*_, (_, last)) = read_exchanges(tmp_path / "run")
    assert curricle("design", LADDER, "--run", tmp_path / "run").stdout == as_text(last.prompt) + "\n"
    assert len(server.requests) == (1 if once else schedule.get("cycles", 4))
    designs = read_records(tmp_path / "run", Design)
    assert len(designs) == schedule.get("cycles", 4) * schedule.get("designs", 2)
    assert not any(design.changed for _, design in designs)
    assert ("difficulty" in str(server.requests)) == (name != "obfuscated")


def test_what_only_a_person_can_mend_leaves_no_folder(tmp_path):
    for llm, code, words in (
        ("gpt-4o", 2, "OPENAI_API_KEY is not set"),
        (f"replay:{tmp_path}/nowhere", 1, "is not a run folder"),
    ):
        for designer in ("llm", "fixed"):
            done = curricle("run", LADDER, "--designer", designer, "--llm", llm, "--out", tmp_path / "run", *QUICK)
            assert done.returncode == code and words in done.stderr and not (tmp_path / "run").exists()
