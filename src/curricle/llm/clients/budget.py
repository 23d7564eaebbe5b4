"""Budget: makes calls within the limits of the run, keeps each one the moment it is over, and makes none twice.

The ledger is the run's exchanges themselves, so it survives whatever the run survives. What a step does is a function
of its exchanges alone: resumed after a kill, or replayed, it takes the same decisions and ends with the same bytes.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from curricle.designer import Context
from curricle.errors import ModelError
from curricle.llm.client import Model, size
from curricle.llm.clients.options import ModelOptions
from curricle.records import Exchange, Message
from curricle.seeds import generator

log = logging.getLogger("curricle")
LONGEST_WAIT = 60.0


class Caller:
    """Puts prompts to a model for one step of a run."""

    def __init__(self, model: Model, options: ModelOptions, context: Context, seed: int) -> None:
        self.model = model
        self.options = options
        self.context = context
        self.seed = seed
        self.earlier = list(context.kept())  # paid for in an earlier sitting and still to be used
        self.heard: list[Exchange] = []

    def ask(self, prompt: Sequence[Message], schema: Mapping[str, Any]) -> Exchange:
        """Ask until there is an answer, a failure that waiting cannot mend, or no retry or budget left."""
        for attempt in range(self.options.retries + 1):
            self.heard.append(self._earlier(prompt) or self._call(prompt, schema, attempt))
            if not self.heard[-1].error or self.heard[-1].again is None:
                break
        return self.heard[-1]

    def _earlier(self, prompt: Sequence[Message]) -> Exchange | None:
        for index, exchange in enumerate(self.earlier):
            if exchange.prompt == tuple(prompt):
                return self.earlier.pop(index)
        return None

    def _call(self, prompt: Sequence[Message], schema: Mapping[str, Any], attempt: int) -> Exchange:
        self._afford(prompt)
        if attempt:
            self._wait(attempt)
        exchange = self.model.reply(prompt, schema=schema, seed=self.seed)
        self.context.keep(exchange)
        return exchange

    def _afford(self, prompt: Sequence[Message]) -> None:
        """Refuse a call that could break the budget, at its longest."""
        o = self.options
        spent = self.context.spent()
        used = spent.get("tokens_in", 0.0) + spent.get("tokens_out", 0.0)
        dollars = spent.get("dollars", 0.0) + (size(prompt) * o.price_in + o.max_tokens * o.price_out) / 1e6
        if spent.get("calls", 0.0) + 1 > o.calls:
            raise ModelError(f"the budget of {o.calls} calls is spent")
        if used + size(prompt) + o.max_tokens > o.tokens:
            raise ModelError(f"the budget of {o.tokens:,} tokens has no room for another call ({used:,.0f} are spent)")
        if o.dollars and dollars > o.dollars:
            raise ModelError(f"the budget of ${o.dollars:g} has no room for a call that may bring it to ${dollars:.4f}")

    def _wait(self, attempt: int) -> None:
        """Wait as long as the endpoint asked, or twice as long each time.

        Chance takes a part of it away, so that runs which failed together do not come back together.
        """
        failed = self.heard[-1]
        chance = 0.5 + 0.5 * float(generator(self.seed, "wait", attempt, os.getpid()).random())
        seconds = max(failed.again or 0.0, chance * min(self.options.backoff * 2.0 ** (attempt - 1), LONGEST_WAIT))
        log.info("%s: %s; try %d of %d", self.model.name, failed.error, attempt + 1, self.options.retries + 1)
        if self.model.live:
            time.sleep(seconds)
