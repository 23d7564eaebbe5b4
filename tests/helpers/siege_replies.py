"""One bad reply, met as a designer meets it, and all that must hold whatever it is."""

import time

from helpers import endpoint_server as lo
from helpers import paths
from helpers.bad_replies import Act
from helpers.bench import Bench

from curricle.designers.llm.designer import LLM, LLMOptions
from curricle.records import Exchange, checked
from curricle.registry import find
from curricle.text.terminal import clean
from curricle.world import World

KEY = "sk-SENTINEL/0123+4567"
CORE = "SENTINEL"
"""A part of the key that nothing else has."""
KEY_ENV = "SIEGE_KEY"
SECONDS = 1.0
"""Time that a call may take."""


def faults(act: Act, seconds: float = SECONDS) -> list[str]:
    """What one reply brought about that must not be; the key is in the environment."""
    world = find(World, paths.VAULT)()
    brief = world.brief(1, 2)
    bench = Bench(world)
    with lo.Loopback([act]) as server:
        given = {"model": "m", "base_url": server.url, "key_env": KEY_ENV, "timeout": seconds}
        options = checked(LLMOptions, {**given, "retries": 0, "max_reprompts": 0}, "siege")
        started = time.monotonic()
        try:
            designs = LLM(world.Setting, options).propose(brief, 1, bench)
        except Exception as error:
            return [f"the designer broke down: {type(error).__name__}: {error}"]
        took = time.monotonic() - started
        asked = len(server.requests)
        try:
            again = LLM(world.Setting, options).propose(brief, 1, bench)
        except Exception as error:
            return [f"a stored reply breaks the designer: {type(error).__name__}: {error}"]
        found = [] if asked == len(server.requests) else ["a stored reply was asked for again"]
    found += [] if again == designs else ["a stored reply gives other designs"]
    found += [] if len(designs) == 1 else [f"{len(designs)} designs"]
    found += [] if took < 4 * seconds + 2 else [f"it took {took:.1f} s"]
    for one in designs:
        world.setting(one.setting)
        shown = [one.why, one.aim or "", *one.changed]
        found += [f"it acts on a terminal: {text!a:.80}" for text in shown if clean(text) != text]
    return found + [fault for exchange in bench.exchanges for fault in _faults_of(exchange)] + _none_kept(bench)


def _none_kept(bench: Bench) -> list[str]:
    return [] if bench.exchanges else ["no exchange was kept"]


def _faults_of(exchange: Exchange) -> list[str]:
    text = exchange.to_json()
    found = [] if Exchange.from_json(text.encode()) == exchange else ["an exchange changes on the disk"]
    if CORE in text or any(form in text for form in ("U0VOVElORUw", "NFTlRJTkVM", "TRU5USU5FT")):
        found.append("the key is in an exchange")
    if clean(exchange.error) != exchange.error or len(exchange.error) > 1_000:
        found.append(f"an error acts on a terminal or is too long: {exchange.error!a:.80}")
    return found
