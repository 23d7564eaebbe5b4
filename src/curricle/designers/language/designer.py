"""Language: an environment policy that writes practice and is trained to write what teaches (GenEnv, arXiv 2512.19682).

Any Hugging Face causal model, its own weights or its own LoRA adapter on the agent's base. It answers requests
(`conditioning.py`) in a form that fits any world's knobs (`form.py`). What cannot be used is counted and dropped with
its reason; a stated fallback fills the gap. After the agent practised, success p of each design decides: R_env =
exp(-beta (p - alpha)^2), designs outside the band |p - alpha| <= k_min are filtered out, the rest train the policy by
weighted regression (`llm/regression.py`) with weights exp(strength R_env). All it ever wrote is in the pool `D_env`.

The ablations are settings: `learn = false` leaves the environment frozen (GenEnv's "random"); `fixed` of this designer
writes once (static); `fixed` of `llm` is an offline teacher; `none` is the agent alone.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue

from curricle.designer import Context, Designer
from curricle.designers import diagnostics as watch
from curricle.designers import reward
from curricle.designers.language.conditioning import Request, requests
from curricle.designers.language.form import Form, Writer
from curricle.designers.language.options import LanguageOptions
from curricle.designers.language.writing import write
from curricle.errors import RunDamaged, ValueRefused
from curricle.llm import pools
from curricle.llm.generate.sampling import Sampler
from curricle.llm.models.chat import rendered
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, step
from curricle.records import Brief, Design, Message, Outcome, Scores
from curricle.seeds import derive, generator
from curricle.setting import Setting, shown_texts, written_texts
from curricle.text.similarity import Copies, distinct
from curricle.tracking import checkpoint

LOG = logging.getLogger("curricle")
FAULTS = ("malformed", "endless", "empty", "hostile", "too_long", "refused", "duplicate", "spare")
SHOWN = 3
"""Requests that a pass over the seed tasks has each of them answer."""
LITTLE = 0.05
"""A design that weighs less than this share of the best is not kept: a chance in a million is no reason to learn it."""
Counts = list[tuple[int, int]]


class Language(Designer):
    """Writes designs, and learns to write those the agent solves as often as it should."""

    id = "language-v1"
    Options = LanguageOptions
    options: LanguageOptions

    def __init__(self, setting: type[Setting], options: LanguageOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        o = self.options
        self.causal = CausalModel(o, self.id, seed)
        self.sampler = Sampler(self.causal, batch=o.sample_batch)
        o.check(setting)
        shown = [k for k in setting.knobs() if k.name not in o.leave and (o.text != "off" or k.kind != "text")]
        optional = o.text == "allowed"
        self.form = Form(shown, self.causal.tokenizer, self.causal.ends, optional, setting.follows)
        self.rows: list[pools.Row] = []
        self.pending: list[int] = []  # for each design proposed, its row; -1: the fallback's
        self.history: list[watch.Point] = []
        self.stuck = 0  # cycles that taught nothing since the policy itself last wrote something that did
        self.remarked = False
        self.shown: dict[str, None] = {}  # texts that requests have shown so far, in order

    # -- step 1 --------------------------------------------------------------------------------------------------------

    def prompts(self, brief: Brief, n: int) -> list[tuple[Message, ...]]:
        """One call a candidate; those of the first round."""
        return [request.prompt for request in self._requests(brief, n, 0)]

    def _requests(self, brief: Brief, n: int, round: int) -> list[Request]:
        o = self.options
        rng = generator(self.seed, "ask", brief.cycle, round)
        if o.text == "off":  # seed tasks are texts, so there is nothing to vary
            brief = brief.model_copy(update={"examples": ()})
        wanted = int(np.ceil(n * o.oversample))
        return requests(brief, wanted, self.form, o.alpha, o.aim == "skill", rng, stuck=bool(self.stuck))

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Write candidates until n can be used, a few rounds at most; the fallback fills what is missing."""
        o = self.options
        designs = list[Design]()
        first = len(self.rows)
        self.pending = []
        if o.imitation_passes and o.text != "off" and brief.cycle == 1 and len(brief.examples) > 1:
            self._warm(brief, context)
        copies = self._known(brief)
        for round in range(o.max_rounds):
            if len(designs) == n:
                break
            asked = self._requests(brief, n - len(designs), round)
            replies = self._write(asked, derive(self.seed, "write", brief.cycle, round))
            for number, (request, writer) in enumerate(zip(asked, replies, strict=True)):
                design, fault, why = self._read(request, writer, brief, copies)
                if not fault and len(designs) == n:
                    fault = "spare"
                    why = "one more than was wanted"
                info = {"fault": fault, "why": why, "wider": self._wider(number)}
                self.rows.append(self._row(request, writer, brief, info))
                if not fault and design:
                    designs.append(design)
                    self.pending.append(len(self.rows) - 1)
        written = len(designs)
        while len(designs) < n:
            designs.append(self._fallback(brief, len(designs)))
            self.pending.append(-1)
        context.report(self._figures(self.rows[first:], written, n))
        if not written:
            faults = Counter(str(row.info["fault"]) for row in self.rows[first:])
            dropped = ", ".join(f"{count} {fault}" for fault, count in faults.most_common())
            LOG.warning("%s: none of %d candidates could be used: %s", self.id, len(self.rows) - first, dropped)
        return designs

    def _warm(self, brief: Brief, context: Context) -> None:
        """Learn what seed tasks look like: in each pass, each as the answer to requests that show others.

        Part of the starting point, not of the learning: a frozen environment gets it too, and only the first cycle's.
        """
        o = self.options
        rng = generator(self.seed, "warm")
        among = len(brief.examples)
        asked = requests(brief, among**2, self.form, o.alpha, o.aim == "skill", rng)
        answers = [self._example(asked[0].prompt, {**brief.original, **example}, 1.0) for example in brief.examples]
        pairs = [
            [(answer, r.prompt) for r in asked[at * among : (at + 1) * among] if r.seed != example]
            for at, (example, answer) in enumerate(zip(brief.examples, answers, strict=True))
        ]
        for number in range(1, o.imitation_passes + 1):
            some = [shown[i] for shown in pairs for i in rng.permutation(len(shown))[:SHOWN]]
            drawn = [replace(answer, prompt=rendered(self.causal.tokenizer, prompt)) for answer, prompt in some]
            losses = list[float]()
            order = rng.permutation(len(drawn))
            for start in range(0, len(order), o.batch_size):
                batch = [drawn[int(i)] for i in order[start : start + o.batch_size]]
                losses.append(step(self.causal, batch, 0.0, np.inf, o.microbatch_size)["loss"])
            context.report({"design/warmed": float(number), "design/warm_loss": float(np.mean(losses))})
            LOG.info(
                "%s: pass %d of %d over the seed tasks, loss %.3g", self.id, number, o.imitation_passes, np.mean(losses)
            )
        self.causal.begin()

    def _write(self, asked: Sequence[Request], seed: int) -> list[Writer]:
        """A reply a request; while nothing teaches, every second one by the model that the policy began as."""
        o = self.options
        prompts = [rendered(self.causal.tokenizer, request.prompt) for request in asked]
        if not self._wider(1):
            self.sampler.refresh()
            return write(self.sampler, self.form, prompts, o.max_text_tokens, o.temperature, seed)
        found = dict[int, Writer]()
        for half in (0, 1):
            self.sampler.refresh(began=bool(half))
            heat = o.temperature * (self._wider(half) or 1.0)
            drawn = derive(seed, "half", half)
            written = write(self.sampler, self.form, prompts[half::2], o.max_text_tokens, heat, drawn)
            found |= dict(zip(range(half, len(asked), 2), written, strict=True))
        return [found[number] for number in range(len(asked))]

    def _wider(self, number: int) -> float:
        """By how much the temperature is raised for a candidate that the first model writes; 0: the policy does.

        A policy that writes one thing only goes on to do so at any temperature that leaves texts readable.
        """
        return min(float(self.stuck), self.options.explore) if number % 2 else 0.0

    def _read(self, request: Request, writer: Writer, brief: Brief, copies: Copies) -> tuple[Design | None, str, str]:
        """A design, or why it cannot be used."""
        if writer.fault:
            return None, writer.fault, f"{writer.fault}: see the completion"
        try:
            values = self.setting.of({**brief.original, **writer.values}).values
        except ValueRefused as error:
            return None, "refused", str(error)[:300]
        texts = written_texts(self.setting, values, brief.original)
        for text in texts:
            if why := copies.refusal(text):
                return None, "duplicate", why
        for text in texts:
            copies.add(text)
        return Design(setting=values, aim=request.aim, why=f"written for {request.group}"), "", ""

    def _known(self, brief: Brief) -> Copies:
        """What a new text may not copy: texts that any request has shown, and those of all earlier designs."""
        self.shown |= dict.fromkeys(shown_texts(self.setting, brief))
        used = [row.truth for row in self.rows if not row.info["fault"] and isinstance(row.truth, dict)]
        texts = [text for values in used for text in written_texts(self.setting, values, brief.original)]
        return Copies(self.options.copy_threshold, texts=[*self.shown, *texts])

    def _fallback(self, brief: Brief, number: int) -> Design:
        """A seed task as it is, where the world has some; else a setting drawn at random."""
        rng = generator(self.seed, "fallback", brief.cycle, number)
        aim = brief.skills[int(rng.integers(len(brief.skills)))].name if self.options.aim == "skill" else None
        if among := len(brief.examples) if self.options.text != "off" else 0:
            order = generator(self.seed, "fallbacks", brief.cycle).permutation(among)  # each in turn
            values = self.setting.of({**brief.original, **brief.examples[int(order[number % among])]}).values
            what = "a seed task as it is"
        else:
            values = self.setting.sample(rng, self.options.held(brief.original)).values
            what = "a setting drawn at random"
        changed = (f"nothing usable was written in its place: {what}",)
        return Design(setting=values, aim=aim, why="fallback", by=f"{self.id} fallback", changed=changed)

    def _row(self, request: Request, writer: Writer, brief: Brief, told: Mapping[str, Any]) -> pools.Row:
        values: dict[str, JsonValue] = dict(writer.values)
        if writer.fault:
            said = json.dumps(values, ensure_ascii=False) + writer.unfinished
        else:
            said = self.form.write({**brief.original, **writer.values})
        info: dict[str, Any] = {"cycle": brief.cycle, "group": request.group, **told}
        return pools.Row(
            source=brief.world,
            prompt=request.prompt,
            completion=said,
            skill=request.aim or "",
            truth=values,
            weight=0.0,
            info=info,
        )

    def _figures(self, rows: Sequence[pools.Row], written: int, n: int) -> dict[str, float]:
        """How the writing went."""
        faults = [str(row.info["fault"]) for row in rows]
        counted = {f"design/{fault}": float(faults.count(fault)) for fault in FAULTS}
        texts = [row.completion for row in rows]
        return counted | {
            "design/candidates": float(len(rows)),
            "design/total": float(len(self.rows)),
            "design/fallback": float(n - written),
            "design/distinct_2": distinct(texts),
            "design/near_duplicates": self._repeated(rows) / max(len(rows), 1),
            "design/wider": float(sum(row.info["wider"] > 0 for row in rows)),
            "design/length": sum(map(len, texts)) / max(len(rows), 1),
        }

    def _repeated(self, rows: Sequence[pools.Row]) -> int:
        """Candidates refused as copies, or nearly equal to an earlier one, knobs and all."""
        copies = Copies(self.options.copy_threshold)
        found = 0
        for row in rows:
            if row.info["fault"] in ("", "spare", "refused", "duplicate"):  # others were not written to their end
                found += row.info["fault"] == "duplicate" or bool(copies.refusal(row.completion))
                copies.add(row.completion)
        return found

    # -- step 4 --------------------------------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Weigh what was written by what came of it, and train on it."""
        o = self.options
        mine = [(row, outcome) for row, outcome in zip(self.pending, outcomes, strict=False) if row >= 0]
        keys = self._keys(mine)
        counts = pooled(keys, [outcome for _, outcome in mine])
        values = reward.bell(o.alpha, o.beta)(np.array([k / n if n else 0.0 for k, n in counts]))
        worth = self._weights(counts, values, keys)
        equal = [(one.design.aim, one.design.setting) for _, one in mine]
        weights = worth / [equal.count(one) for one in equal]
        for (at, outcome), (k, n), value, weight in zip(mine, counts, values, weights, strict=True):
            told: dict[str, float | None] = {"successes": outcome.successes, "attempts": outcome.attempts}
            told |= {"p": k / n, "reward": float(value)} if n else {"p": None, "reward": None}
            row = self.rows[at]
            self.rows[at] = row.model_copy(update={"weight": float(weight), "info": {**row.info, **told}})
        tried = [n for _, n in counts]
        self._reweigh([at for (at, _), n in zip(mine, tried, strict=True) if n >= o.n])
        kept = [at for (at, _), weight in zip(mine, weights, strict=True) if weight > 0]
        figures = self._train(kept, len(mine), context.cycle)
        self._remark_few(tried)
        if any(n >= o.n for n in tried):
            good = [at for (at, _), one in zip(mine, worth, strict=True) if one > 0 and one >= max(worth) / 2]
            own = any(not self.rows[at].info["wider"] for at in good)
            self.stuck = 0 if own or not o.learn else self.stuck + (not kept)
        rates = [outcome.successes / outcome.attempts for _, outcome in mine if outcome.attempts]
        if rates:
            self.history.append((sum(rates) / len(rates), scores.headline))
            figures |= watch.band(rates, o.alpha, o.k_min) | {"reward": float(np.mean(values[np.array(tried) > 0]))}
        figures |= {
            "kept": float(len(kept)),
            "stuck": float(self.stuck),
            "oscillation": watch.oscillation(self.history),
            "alarm": float(watch.alarm(self.history)),
        }
        watch.warn(self.history, context.cycle)
        context.report({f"design/{name}": value for name, value in figures.items()})
        self.pending = []

    def _remark_few(self, tried: Sequence[int]) -> None:
        """Say once if no design has enough attempts to be learnt from."""
        o = self.options
        most = max(tried, default=self.options.n)
        if most < o.n and not self.remarked and o.learn:
            self.remarked = True
            few = "%s: no design had n = %d attempts, but %d at the most, so nothing is learnt from them; lower n, "
            LOG.warning(few + "or raise [schedule] per_cycle", self.id, o.n, most)

    def _reweigh(self, again: Sequence[int]) -> None:
        """What was written before and tried again counts as it does now: else it would be taught for what it was."""
        newest = {(row.skill, row.completion): row.weight for row in (self.rows[at] for at in again)}
        for at, row in enumerate(self.rows):
            weight = newest.get((row.skill, row.completion), row.weight)
            if weight != row.weight and not row.info["fault"]:
                self.rows[at] = row.model_copy(update={"weight": weight})

    def _keys(self, mine: Sequence[tuple[int, Outcome]]) -> list[Any]:
        """What each design's p is counted over, at the granularity that is set.

        Designs that are equal are one: else the luckiest of many that are too easy would pass the filter by chance.
        """
        over = self.options.p_over
        if over == "task":
            return [(outcome.design.aim, outcome.design.setting) for _, outcome in mine]
        return [self.rows[at].info["group"] if over == "group" else None for at, _ in mine]

    def _weights(self, counts: Counts, values: reward.Floats, keys: Sequence[Any]) -> reward.Floats:
        """exp(strength R_env), through the filter."""
        o = self.options
        tried = np.array([n >= o.n for _, n in counts], np.float64)
        share = tried.copy()
        if o.band != "off" and counts:
            strict = np.array([reward.passes(k, n, o.alpha, o.k_min) for k, n in counts], np.float64)
            cold = o.cold_start and not (strict * tried).any()
            each = [c for c in dict(zip(keys, counts, strict=True)).values() if c[1] >= o.n]  # equal designs are one
            soft = o.band == "soft" or (cold and reward.shows_direction(each, o.alpha, o.k_min))
            share *= reward.admitted(counts, o.alpha, o.k_min) if soft else strict
        weights = np.exp(o.strength * values) * share
        return np.where(weights < LITTLE * weights.max(initial=0.0), 0.0, weights)

    def _train(self, kept: Sequence[int], tried: int, cycle: int) -> dict[str, float]:
        """Passes over the kept records and some old ones; where none is kept, over old ones alone."""
        o = self.options
        rng = generator(self.seed, "train", cycle)
        known = [i for i, row in enumerate(self.rows) if row.weight > 0 and i not in set(kept)]
        old = rng.permutation(known)[: int(o.replay_ratio * (len(kept) or tried))].tolist() if known else []
        if not o.learn or not (kept or old):
            return {"updates": 0.0}
        told: list[dict[str, float]] = []
        mean = float(np.mean([self.rows[i].weight for i in [*kept, *old]]))
        for _ in range(o.epochs):
            order = rng.permutation([*kept, *old])
            for start in range(0, len(order), o.batch_size):
                rows = [self.rows[int(i)] for i in order[start : start + o.batch_size]]
                examples = [self._example(row.prompt, row.truth, row.weight) for row in rows]
                told.append(step(self.causal, examples, o.kl_coef, o.max_kl, o.microbatch_size, mean * len(rows)))
        means = {name: sum(t[name] for t in told) / len(told) for name in told[0]}
        return means | {"updates": float(len(told))}

    def _example(self, prompt: Sequence[Message], values: Any, weight: float) -> Example:
        reply = self.form.tokens(values)
        return Example(rendered(self.causal.tokenizer, prompt), reply, weight, self.form.chosen(reply))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write what is trained, its optimiser, the pool, and what waits for an outcome."""
        state: dict[str, JsonValue] = {
            "pending": list(self.pending),
            "history": [list(point) for point in self.history],
            "stuck": self.stuck,
            "shown": list(self.shown),
        }
        checkpoint.write(folder, self.causal.arrays(), state)
        pools.write(folder / pools.ENV, self.rows)

    def load(self, folder: Path) -> None:
        """Read them."""
        arrays, state = checkpoint.read(folder)
        self.causal.restore(arrays, folder)
        self.rows = pools.read(folder / pools.ENV)
        try:
            self.pending = [int(at) for at in state["pending"]]
            self.history = [(float(p), float(score)) for p, score in state["history"]]
            self.stuck = int(state["stuck"])
            self.shown = dict.fromkeys(map(str, state.get("shown", ())))
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error


def pooled(keys: Sequence[Any], outcomes: Sequence[Outcome]) -> Counts:
    """Successes and attempts behind each design's p: those of all designs that have its key."""
    sums = Counter[Any]()
    for key, outcome in zip(keys, outcomes, strict=True):
        sums[key, 0] += outcome.successes
        sums[key, 1] += outcome.attempts
    return [(sums[key, 0], sums[key, 1]) for key in keys]
