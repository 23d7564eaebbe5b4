"""The endpoint against a real server that misbehaves: every failure is an exchange, and none holds the key."""

import threading
import time

import pytest
from helpers import endpoint_server as lo
from helpers.sweep import LADDER, Bench

from curricle.errors import ModelError, UsageError, ValueRefused
from curricle.llm.clients.budget import Caller
from curricle.llm.clients.endpoint import Endpoint
from curricle.llm.clients.options import ModelOptions
from curricle.records import Message, checked

PROMPT = (Message(role="user", content="Design, please."),)
SCHEMA = {"type": "object", "properties": {}}
KEY = "sk-SENTINEL-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def options(server, **more):
    given = {
        "model": "m",
        "base_url": server.url,
        "key_env": "OPENAI_API_KEY",
        "backoff": 0.001,
        "timeout": 30.0,
        "retries": 4,
    } | more
    return checked(ModelOptions, given, "options")


def call(acts, **more):
    """One call, without retries."""
    with lo.Loopback(acts) as server:
        return Endpoint(options(server, **more)).reply(PROMPT, schema=SCHEMA, seed=3), server


def ask(acts, **more):
    """As a designer asks: with retries, inside the budget."""
    with lo.Loopback(acts) as server:
        settled, bench = options(server, **more), Bench(LADDER())
        return Caller(Endpoint(settled), settled, bench, 3).ask(PROMPT, SCHEMA), server, bench


def test_a_good_answer():
    exchange, server = call([lo.says("hello")])
    assert (exchange.reply, exchange.finish, exchange.error) == ("hello", "stop", "")
    assert exchange.usage == {"calls": 1, "tokens_in": 100, "tokens_out": 20}
    assert exchange.model == f"m at 127.0.0.1:{server.server.server_port}"
    (request,) = server.requests
    assert request["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (request["temperature"], request["seed"], request["max_tokens"]) == (0.0, 3, 8192)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_prices():
    exchange, _ = call([lo.says("hello")], price_in=10.0, price_out=30.0)
    assert exchange.usage["dollars"] == pytest.approx((100 * 10 + 20 * 30) / 1e6)


@pytest.mark.parametrize(
    ("act", "reply", "finish"),
    [
        (lo.says(None), "", "stop"),
        (lo.says(None, refusal="I cannot help with that."), "I cannot help with that.", "refusal"),
        (lo.says("half", "length"), "half", "length"),
        (lo.says("", "content_filter"), "", "content_filter"),
        (lo.says([{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]), "in parts", "stop"),
        (lo.says("\ud83d half a character"), "? half a character", "stop"),
        (lo.slowly("slow but sure " * 40), "slow but sure " * 40, "stop"),
        (lo.answers(200, '{"choices": [{"message": {"content": "bare"}}]}'), "bare", ""),
    ],
    ids=["nothing", "refusal", "length", "filter", "parts", "surrogate", "slow", "bare"],
)
def test_odd_answers_are_answers(act, reply, finish):
    exchange, _ = call([act])
    assert (exchange.reply, exchange.finish, exchange.error) == (reply, finish, "")
    assert exchange.usage["tokens_in"] > 0


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lo.drops, "the connection failed"),
        (lo.breaks_off, "the connection failed"),
        (lo.answers(429, '{"error": {"message": "slow down"}}'), "429: "),
        (lo.answers(500, "<html><script>alert(1)</script><h1>Oops</h1></html>", "text/html"), "500: Oops"),
        (lo.answers(503, ""), "503: (empty)"),
        (lo.answers(502, "<h1>Bad gateway</h1>" * 9999, "text/html"), "502: Bad gateway"),
        (lo.answers(200, "<html><body>Sign in</body></html>", "text/html"), "no chat completion: Sign in"),
        (lo.answers(200, '{"choices": []}'), "no chat completion"),
        (lo.answers(200, '{"choices": [{"message": "'), "no chat completion"),
        (lo.answers(200, "[" * 100_000), "no chat completion"),
        (lo.answers(200, '"hello"'), "no chat completion"),
        (lo.answers(200, ""), "no chat completion: (empty)"),
    ],
    ids=[
        *("drops", "breaks-off", "429", "500", "503", "502", "html", "no-choices", "torn", "deep", "string", "empty"),
    ],
)
def test_failures_that_may_pass_are_tried_again(act, words):
    exchange, _ = call([act])
    assert words in exchange.error and exchange.again is not None and exchange.reply == ""
    assert "\n" not in exchange.error and len(exchange.error) < 400 and "alert" not in exchange.error
    exchange, server, bench = ask([act, act, lo.says("at last")])
    assert exchange.reply == "at last" and len(server.requests) == 3
    assert [bool(kept.error) for kept in bench.exchanges] == [True, True, False], "each is kept"
    assert bench.spent()["calls"] == 3


@pytest.mark.parametrize("act", [lo.stalls, lo.drips], ids=["stalls", "drips"])
def test_no_call_takes_longer_than_it_may(act):
    exchange, _ = call([act], timeout=0.3)
    assert exchange.error == "no answer within 0.3 s" and exchange.again == 0.0
    assert exchange.usage["tokens_in"] > 0, "it may have been paid for"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_failures_that_will_not_pass_are_not_tried_again(status):
    exchange, server, _ = ask([lo.answers(status, '{"error": {"message": "no such model"}}')])
    assert exchange.error == f'{status}: {{"error": {{"message": "no such model"}}}}' and len(server.requests) == 1


def test_the_server_says_how_long_to_wait():
    exchange, _ = call([lo.answers(429, "{}", Retry_After="7")])
    assert exchange.again == 7
    exchange, _ = call([lo.answers(429, "{}", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")])
    assert exchange.again == 0
    exchange, _ = call([lo.answers(429, "{}", Retry_After="-3")])
    assert exchange.again == 0


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("curricle.llm.clients.bounded.LONGEST", 1000)
    exchange, _ = call([lo.says("x" * 1_000_000)])
    assert "no chat completion" in exchange.error


@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        (["response_format"], 2),
        (["temperature"], 2),
        (["max_tokens"], 2),
        (["response_format", "temperature", "seed", "max_tokens"], 5),
    ],
)
def test_what_an_endpoint_does_not_know_is_left_out(fields, requests):
    exchange, server, _ = ask([lo.refuses(*fields, then=lo.says("fine"))])
    assert exchange.reply == "fine" and len(server.requests) == requests
    assert not set(fields) & set(server.requests[-1])
    if "max_tokens" in fields:
        assert server.requests[-1]["max_completion_tokens"] == 8192


def test_a_server_that_breaks_on_a_schema_is_asked_without_one():
    def act(handler, body):
        if "response_format" in body:
            handler.say(500, '{"error": "failed to parse grammar"}')
        else:
            handler.say(200, lo.chat("fine"))

    exchange, server, _ = ask([act])
    assert exchange.reply == "fine" and len(server.requests) == 2


def test_what_a_server_sends_cannot_act_on_a_terminal():
    exchange, _ = call([lo.answers(500, "red \x1b[31m alert \x07\r\n\x9b2J")])
    assert exchange.error.isprintable()


def test_a_400_about_something_else_is_final():
    said = '{"error": {"message": "context length exceeded"}}'
    exchange, server, _ = ask([lo.answers(400, said)])
    assert exchange.error.startswith("400: ") and len(server.requests) == 2, "once more without structured output"


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_key_that_is_sent_back_is_taken_out(status):
    exchange, _, bench = ask([lo.echoes(status)], retries=1)
    assert exchange.error and "[key]" in exchange.error
    assert all("SENTINEL" not in kept.to_json() for kept in bench.exchanges)


@pytest.mark.parametrize("before", range(262, 300, 4))
def test_no_part_of_a_key_is_left_where_a_message_is_cut(before):
    exchange, _ = call([lo.echoes(500, before)])
    assert "SENT" not in exchange.error and "sk-" not in exchange.error


def test_a_key_in_other_clothes_is_taken_out(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", 'a/b"SENTINEL+c')
    for form in ('a/b\\"SENTINEL+c', 'a\\/b"SENTINEL+c', "a%2Fb%22SENTINEL%2Bc"):
        exchange, _ = call([lo.answers(500, f"bad: {form}!")])
        assert exchange.error == "500: bad: [key]!"


def test_waits_are_as_asked_or_twice_as_long_each_time(monkeypatch):
    waits = []
    sleep = time.sleep

    def wait(seconds):
        if threading.current_thread() is threading.main_thread():
            waits.append(seconds)
        else:  # a server of an earlier test may still be waiting
            sleep(seconds)

    monkeypatch.setattr("curricle.llm.clients.budget.time.sleep", wait)
    ask([lo.answers(429, "{}", Retry_After="7"), *[lo.answers(500, "{}")] * 3, lo.says("x")], backoff=1.0)
    assert waits[0] == 7 and all(low / 2 <= w <= low for w, low in zip(waits[1:], (2, 4, 8), strict=True)), waits
    waits.clear()
    ask([lo.answers(500, "{}")], backoff=1000.0, retries=1)
    assert 30 <= waits[0] <= 60


def test_a_key_in_a_reply_is_taken_out():
    exchange, _ = call([lo.says(f"your key is {KEY}")])
    assert exchange.reply == "your key is [key]"


def test_nobody_is_there():
    with lo.Loopback([lo.says("x")]) as server:
        pass
    settled, bench = options(server, retries=1, timeout=0.5), Bench(LADDER())
    exchange = Caller(Endpoint(settled), settled, bench, 0).ask(PROMPT, SCHEMA)
    assert "the connection failed" in exchange.error and len(bench.exchanges) == 2


def test_a_missing_key_is_named(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        Endpoint(ModelOptions(model="gpt-4o"))
    with lo.Loopback([lo.says("no key needed")]) as server:
        own = options(server, key_env="")
        assert Endpoint(own).reply(PROMPT).reply == "no key needed", "a server of one's own needs none"
        with pytest.raises(UsageError, match="MY_KEY is not set"):
            Endpoint(options(server, key_env="MY_KEY"))
    assert len(server.requests) == 1, "nothing was sent without the key that was named"


def test_openais_key_goes_to_nobody_else():
    with lo.Loopback([lo.says("x")]) as server:
        Endpoint(options(server, key_env="")).reply(PROMPT)
    assert KEY not in str(server.headers)


def test_what_may_hold_a_key_is_refused_without_repeating_it():
    for bad in (
        {"base_url": f"http://me:{KEY}@host/v1"},
        {"base_url": f"http://host/v1?key={KEY}"},
        {"base_url": "localhost:8000"},
        {"base_url": "http://[/"},
        {"key_env": KEY},
    ):
        with pytest.raises(ValueRefused, match=next(iter(bad))) as caught:
            checked(ModelOptions, bad, "[designer]")
        assert "SENTINEL" not in str(caught.value)
    with pytest.raises(ValueRefused, match="needs price_in"):
        checked(ModelOptions, {"dollars": 1.0}, "[designer]")


@pytest.mark.parametrize(
    ("budget", "message", "requests"),
    [
        ({"calls": 2}, "the budget of 2 calls is spent", 2),
        ({"calls": 0}, "the budget of 0 calls is spent", 0),
        ({"tokens": 8192}, "the budget of 8,192 tokens has no room for another call", 0),
        ({"tokens": 8320}, r"has no room for another call \(120 are spent\)", 1),
        ({"dollars": 0.255, "price_out": 30.0, "price_in": 100.0}, r"the budget of \$0.255 has no room", 1),
    ],
)
def test_the_budget_is_hard(budget, message, requests):
    with lo.Loopback([lo.says("one more")]) as server:
        settled, bench = options(server, **budget), Bench(LADDER())
        caller = Caller(Endpoint(settled), settled, bench, 0)
        with pytest.raises(ModelError, match=message):
            for _ in range(5):
                caller.ask(PROMPT, SCHEMA)
        assert len(server.requests) == requests
