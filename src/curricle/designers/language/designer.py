"""Language: an environment policy that writes practice and is trained to write what teaches (GenEnv, arXiv 2512.19682).

    propose   requests (`conditioning.py`) -> replies held to a form (`form.py`) -> designs, or a reason to drop them
    learn     the agent's success in each design -> reward -> filter and weights (`reward.py`) -> weighted regression
              (`llm/models/regression.py`)

Any Hugging Face causal model, all its weights or a LoRA adapter on the agent's base. What cannot be used is counted and
dropped with its reason; a fallback fills the gap and says so. With the agent's success p in a design, the reward is
R_env = exp(-beta (p - alpha)^2). Designs outside the band |p - alpha| <= k_min are filtered out. The others train the
policy with weights exp(strength R_env). All it ever wrote is in the pool `D_env`.

The ablations are settings: `learn = false` leaves the environment frozen (GenEnv's "random"); `fixed` of this designer
writes once (static); `fixed` of `llm` is an offline teacher; `none` is the agent alone.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue

from curricle.designer import Context, Designer
from curricle.designers import reward
from curricle.designers.language.conditioning import Request, requests
from curricle.designers.language.form import Form, Writer, write
from curricle.designers.language.options import LanguageOptions
from curricle.errors import RunDamaged, ValueRefused
from curricle.llm import pools
from curricle.llm.generate.sampling import Sampler
from curricle.llm.models.model import CausalModel
from curricle.llm.models.regression import Example, update
from curricle.records import Brief, Design, Message, Outcome, Scores
from curricle.seeds import derive, generator
from curricle.setting import Setting, shown_texts, written_texts
from curricle.text.similarity import Copies, distinct
from curricle.tracking import checkpoint

LOG = logging.getLogger("curricle")
FAULTS = ("malformed", "endless", "empty", "hostile", "too_long", "refused", "duplicate", "spare")
COMPLETE = ("", "spare", "refused", "duplicate")
"""Faults of replies that were written to their end."""
REQUESTS_PER_EXAMPLE = 3
"""Requests that each seed task answers in a pass of imitation."""
MIN_SHARE = 0.05
"""A design with less than this share of the largest weight is dropped: a one-in-a-million chance teaches nothing."""
FALLBACK = -1
"""Stands for the row of a design that the policy did not write."""
Counts = list[tuple[int, int]]


class Language(Designer):
    """Writes designs, and learns to write those that the agent solves as often as it should."""

    id = "language-v1"
    Options = LanguageOptions
    options: LanguageOptions

    def __init__(self, setting: type[Setting], options: LanguageOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        o = self.options
        self.causal = CausalModel(o, self.id, seed)
        self.sampler = Sampler(self.causal, batch=o.sample_batch)
        o.check(setting)
        writable = [k for k in setting.knobs() if k.name not in o.leave and (o.text != "off" or k.kind != "text")]
        optional = o.text == "allowed"
        self.form = Form(writable, self.causal.tokenizer, self.causal.ends, optional, setting.follows)
        self.rows: list[pools.Row] = []  # the pool
        self.pending: list[int] = []  # the row of each design that waits for its outcome, or FALLBACK
        self.history: list[reward.Point] = []
        self.stuck = 0  # cycles that taught nothing since the policy itself last wrote something that did
        self.shown: dict[str, None] = {}  # texts that requests have shown so far, in order
        self._warned = False

    # -- step 1: propose -----------------------------------------------------------------------------------------------

    def prompts(self, brief: Brief, n: int) -> list[tuple[Message, ...]]:
        """Return the prompts of the first round, one a candidate."""
        return [request.prompt for request in self._requests(brief, n, 0)]

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Write candidates until n can be used, for a few rounds at most; the fallback fills what is missing."""
        o = self.options
        if o.imitation_passes and o.text != "off" and brief.cycle == 1:
            if len(brief.examples) > 1:
                self._imitate(brief, context)
            else:
                LOG.warning(
                    "%s: imitation_passes = %d, but %s has %d seed tasks and it takes two; the policy writes as it is",
                    *(self.id, o.imitation_passes, brief.world, len(brief.examples)),
                )
        first_row = len(self.rows)
        copies = self._earlier_texts(brief)
        self.pending = []
        designs = list[Design]()
        for round in range(o.max_rounds):
            if len(designs) == n:
                break
            designs += self._write_round(brief, round, n - len(designs), copies)
        written = len(designs)
        while len(designs) < n:
            designs.append(self._fallback(brief, len(designs)))
            self.pending.append(FALLBACK)
        rows = self.rows[first_row:]
        context.report(self._writing_metrics(rows, written, n))
        if not written:
            faults = Counter(str(row.info["fault"]) for row in rows)
            dropped = ", ".join(f"{count} {fault}" for fault, count in faults.most_common())
            LOG.warning("%s: none of %d candidates could be used: %s", self.id, len(rows), dropped)
        return designs

    def _requests(self, brief: Brief, n: int, round: int) -> list[Request]:
        """Ask for n designs and some more."""
        o = self.options
        rng = generator(self.seed, "ask", brief.cycle, round)
        if o.text == "off":  # seed tasks are texts, so there is nothing to vary
            brief = brief.model_copy(update={"examples": ()})
        candidates = int(np.ceil(n * o.oversample))
        return self._conditioned(brief, candidates, rng)

    def _conditioned(self, brief: Brief, n: int, rng: np.random.Generator) -> list[Request]:
        """Make n requests as the options say."""
        o = self.options
        stuck = bool(self.stuck)
        return requests(brief, n, self.form, o.alpha, o.aim == "skill", rng, stuck, short=o.requests == "short")

    def _write_round(self, brief: Brief, round: int, wanted: int, copies: Copies) -> list[Design]:
        """Write one round of candidates, each of which becomes a row; returns those that can be used."""
        made = self._requests(brief, wanted, round)
        writers = self._write(made, derive(self.seed, "write", brief.cycle, round))
        designs = list[Design]()
        for number, (request, writer) in enumerate(zip(made, writers, strict=True)):
            design, fault, why = self._to_design(request, writer, brief, copies)
            if not fault and len(designs) == wanted:
                fault = "spare"
                why = "one more than was wanted"
            info = {"fault": fault, "why": why, "wider": self._exploration(number)}
            self.rows.append(self._row(request, writer, brief, info))
            if not fault and design:
                designs.append(design)
                self.pending.append(len(self.rows) - 1)
        return designs

    def _write(self, made: Sequence[Request], seed: int) -> list[Writer]:
        """Write a reply to each request; the initial model writes some of them."""
        o = self.options
        prompts = [self.causal.render_prompt(request.prompt) for request in made]
        factors = [self._exploration(number) for number in range(len(made))]
        if not any(factors):
            self.sampler.refresh()
            return write(self.sampler, self.form, prompts, o.max_text_tokens, o.temperature, seed)
        writers = dict[int, Writer]()
        for by_initial in (False, True):
            numbers = [number for number, factor in enumerate(factors) if bool(factor) == by_initial]
            self.sampler.refresh(initial=by_initial)
            temperature = o.temperature * (max(factors) if by_initial else 1.0)
            own_seed = derive(seed, "half", int(by_initial))
            own_prompts = [prompts[number] for number in numbers]
            written = write(self.sampler, self.form, own_prompts, o.max_text_tokens, temperature, own_seed)
            writers |= dict(zip(numbers, written, strict=True))
        return [writers[number] for number in range(len(made))]

    def _exploration(self, number: int) -> float:
        """Return the factor on the temperature where the initial model writes a candidate; 0: the policy writes it.

        While nothing teaches, it writes every second one: a policy that always writes the same goes on to do so at any
        temperature that leaves texts readable. Otherwise it writes its share, so that what the agent could not do
        lately is tried again.
        """
        o = self.options
        factor = min(float(self.stuck), o.explore)
        share = 0.5 if factor else o.initial_share
        is_explored = int((number + 1) * share) > int(number * share)
        return (factor or 1.0) if is_explored else 0.0

    def _to_design(
        self, request: Request, writer: Writer, brief: Brief, copies: Copies
    ) -> tuple[Design | None, str, str]:
        """Return a design, or the fault and the reason why a reply cannot be used."""
        if writer.fault:
            return None, writer.fault, f"{writer.fault}: see the completion"
        try:
            values = self.setting.of({**brief.original, **writer.values}).values
        except ValueRefused as error:
            return None, "refused", str(error)[:300]
        texts = written_texts(self.setting, values, brief.original)
        for text in texts:
            why = copies.refusal(text)
            if why:
                return None, "duplicate", why
        for text in texts:
            copies.add(text)
        return Design(setting=values, aim=request.aim, why=f"written for {request.group}"), "", ""

    def _earlier_texts(self, brief: Brief) -> Copies:
        """Return what a new text may not copy: texts that any request has shown, and those of earlier designs."""
        self.shown |= dict.fromkeys(shown_texts(self.setting, brief))
        texts = list(self.shown)
        cycles = self.options.copy_cycles
        for row in self.rows:
            is_recent = not cycles or row.info["cycle"] >= brief.cycle - cycles
            if is_recent and not row.info["fault"] and isinstance(row.truth, dict):
                texts += written_texts(self.setting, row.truth, brief.original)
        return Copies(self.options.copy_threshold, texts=texts)

    def _fallback(self, brief: Brief, number: int) -> Design:
        """Return a seed task as it is, where the world has some; else a setting drawn at random."""
        rng = generator(self.seed, "fallback", brief.cycle, number)
        aim = brief.skills[int(rng.integers(len(brief.skills)))].name if self.options.aim == "skill" else None
        examples = brief.examples if self.options.text != "off" else ()
        if examples:
            order = generator(self.seed, "fallbacks", brief.cycle).permutation(len(examples))  # each in turn
            example = examples[int(order[number % len(examples)])]
            values = self.setting.of({**brief.original, **example}).values
            what = "a seed task as it is"
        else:
            values = self.setting.sample(rng, self.options.held(brief.original)).values
            what = "a setting drawn at random"
        changed = (f"nothing usable was written in its place: {what}",)
        return Design(setting=values, aim=aim, why="fallback", by=f"{self.id} fallback", changed=changed)

    def _row(self, request: Request, writer: Writer, brief: Brief, info: Mapping[str, Any]) -> pools.Row:
        """Return the pool's row of a candidate, used or not."""
        values: dict[str, JsonValue] = dict(writer.values)
        if writer.fault:
            completion = json.dumps(values, ensure_ascii=False) + writer.unfinished
        else:
            completion = self.form.write({**brief.original, **writer.values})
        return pools.Row(
            source=brief.world,
            prompt=request.prompt,
            completion=completion,
            skill=request.aim or "",
            truth=values,
            weight=0.0,
            info={"cycle": brief.cycle, "group": request.group, **info},
        )

    def _writing_metrics(self, rows: Sequence[pools.Row], written: int, n: int) -> dict[str, float]:
        """Return metrics of the candidates of a cycle."""
        faults = [str(row.info["fault"]) for row in rows]
        counts = {f"design/{fault}": float(faults.count(fault)) for fault in FAULTS}
        texts = [row.completion for row in rows]
        return counts | {
            "design/candidates": float(len(rows)),
            "design/total": float(len(self.rows)),
            "design/fallback": float(n - written),
            "design/distinct_2": distinct(texts),
            "design/near_duplicates": self._count_near_duplicates(rows) / max(len(rows), 1),
            "design/wider": float(sum(row.info["wider"] > 0 for row in rows)),
            "design/length": sum(map(len, texts)) / max(len(rows), 1),
        }

    def _count_near_duplicates(self, rows: Sequence[pools.Row]) -> int:
        """Count candidates refused as copies, or nearly equal to an earlier one, knobs and all."""
        copies = Copies(self.options.copy_threshold)
        count = 0
        for row in rows:
            if row.info["fault"] in COMPLETE:
                count += row.info["fault"] == "duplicate" or bool(copies.refusal(row.completion))
                copies.add(row.completion)
        return count

    # -- imitation of the seed tasks -----------------------------------------------------------------------------------

    def _imitate(self, brief: Brief, context: Context) -> None:
        """Learn what seed tasks look like: in each pass, every one is the answer to requests that show others.

        This is part of the starting point and not of the learning: a frozen environment gets it too.
        """
        o = self.options
        rng = generator(self.seed, "warm")
        replies = [self._reply({**brief.original, **example}) for example in brief.examples]
        for number in range(1, o.imitation_passes + 1):
            drawn = list[Example]()
            for own, (reply, mask) in enumerate(replies):
                for prompt in self._prompts_of_others(brief, own, rng):
                    drawn.append(Example(self.causal.render_prompt(prompt), reply, 1.0, mask))
            losses = list[float]()
            order = rng.permutation(len(drawn))
            for start in range(0, len(order), o.batch_size):
                batch = [drawn[int(i)] for i in order[start : start + o.batch_size]]
                losses.append(update(self.causal, batch, 0.0, np.inf, o.microbatch_size)["loss"])
            loss = float(np.mean(losses))
            context.report({"design/imitation_passes": float(number), "design/imitation_loss": loss})
            LOG.info("%s: pass %d of %d over the seed tasks, loss %.3g", self.id, number, o.imitation_passes, loss)
        self.causal.make_initial()

    def _prompts_of_others(self, brief: Brief, own: int, rng: np.random.Generator) -> list[tuple[Message, ...]]:
        """Return prompts of a few requests that show another seed task than the one with the number `own`."""
        others = [int(i) for i in rng.permutation(len(brief.examples)) if brief.examples[int(i)] != brief.examples[own]]
        prompts = list[tuple[Message, ...]]()
        for other in others[:REQUESTS_PER_EXAMPLE]:
            shown = brief.model_copy(update={"examples": (brief.examples[other],)})
            (request,) = self._conditioned(shown, 1, rng)
            prompts.append(request.prompt)
        return prompts

    # -- step 4: learn -------------------------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Weigh what was written by what came of it, and train on it."""
        o = self.options
        mine = [(row, one) for row, one in zip(self.pending, outcomes, strict=False) if row != FALLBACK]
        keys = self._keys(mine)
        counts = pooled(keys, [outcome for _, outcome in mine])
        rates = np.array([k / n if n else 0.0 for k, n in counts])
        rewards = reward.alpha_reward(o.alpha, o.beta)(rates)
        weights = self._weights(counts, rewards, keys)
        designs = [(outcome.design.aim, outcome.design.setting) for _, outcome in mine]
        shared = weights / [designs.count(design) for design in designs]  # equal designs share one weight
        self._note_outcomes(mine, counts, rewards, shared)
        attempts = [n for _, n in counts]
        self._reweigh([row for (row, _), n in zip(mine, attempts, strict=True) if n >= o.n])
        kept = [row for (row, _), weight in zip(mine, shared, strict=True) if weight > 0]
        metrics = self._train(kept, len(mine), context.cycle)
        self._warn_few_attempts(attempts)
        if any(n >= o.n for n in attempts):
            self._count_stuck(mine, weights, bool(kept))
        success = [outcome.successes / outcome.attempts for _, outcome in mine if outcome.attempts]
        if success:
            self.history.append((sum(success) / len(success), scores.headline))
            metrics |= reward.band(success, o.alpha, o.k_min)
            metrics["reward"] = float(np.mean(rewards[np.array(attempts) > 0]))
        metrics |= {
            "kept": float(len(kept)),
            "stuck": float(self.stuck),
            "oscillation": reward.oscillation(self.history),
            "alarm": float(reward.alarm(self.history)),
        }
        reward.warn(self.history, context.cycle)
        context.report({f"design/{name}": value for name, value in metrics.items()})
        self.pending = []

    def _keys(self, mine: Sequence[tuple[int, Outcome]]) -> list[Any]:
        """Return what each design's success is counted over, as `p_over` says.

        Equal designs count as one: otherwise the luckiest of many that are too easy would pass the filter by chance.
        """
        if self.options.p_over == "task":
            return [(outcome.design.aim, outcome.design.setting) for _, outcome in mine]
        if self.options.p_over == "group":
            return [self.rows[row].info["group"] for row, _ in mine]
        return [None for _ in mine]

    def _weights(self, counts: Counts, rewards: reward.Floats, keys: Sequence[Any]) -> reward.Floats:
        """Return exp(strength R_env) of each design, through the filter."""
        o = self.options
        passed = np.array([n >= o.n for _, n in counts], np.float64)
        if o.band != "off" and counts:
            in_band = np.array([reward.passes(k, n, o.alpha, o.k_min) for k, n in counts], np.float64)
            soft = o.band == "soft"
            if not soft and o.cold_start and not (in_band * passed).any():
                different = dict(zip(keys, counts, strict=True)).values()  # equal designs are one
                tried = [count for count in different if count[1] >= o.n]
                soft = reward.shows_direction(tried, o.alpha, o.k_min)
            passed *= reward.admitted(counts, o.alpha, o.k_min) if soft else in_band
        weights = np.exp(o.strength * rewards) * passed
        return np.where(weights < MIN_SHARE * weights.max(initial=0.0), 0.0, weights)

    def _note_outcomes(
        self, mine: Sequence[tuple[int, Outcome]], counts: Counts, rewards: reward.Floats, weights: reward.Floats
    ) -> None:
        """Write into the pool what came of each design."""
        for (at, outcome), (k, n), value, weight in zip(mine, counts, rewards, weights, strict=True):
            row = self.rows[at]
            info = dict[str, Any](row.info)
            info["successes"] = outcome.successes
            info["attempts"] = outcome.attempts
            info["p"] = k / n if n else None
            info["reward"] = float(value) if n else None
            self.rows[at] = row.model_copy(update={"weight": float(weight), "info": info})

    def _reweigh(self, tried: Sequence[int]) -> None:
        """Give earlier rows with the same text as one tried now its weight: they would teach what once was right."""
        newest = {(row.skill, row.completion): row.weight for row in (self.rows[at] for at in tried)}
        for at, row in enumerate(self.rows):
            weight = newest.get((row.skill, row.completion), row.weight)
            if weight != row.weight and not row.info["fault"]:
                self.rows[at] = row.model_copy(update={"weight": weight})

    def _train(self, kept: Sequence[int], tried: int, cycle: int) -> dict[str, float]:
        """Pass over the kept records and some old ones; where none is kept, over old ones alone."""
        o = self.options
        rng = generator(self.seed, "train", cycle)
        old = list[int]()
        candidates = [i for i, row in enumerate(self.rows) if row.weight > 0 and i not in set(kept)]
        if candidates:
            old = rng.permutation(candidates)[: int(o.replay_ratio * (len(kept) or tried))].tolist()
        if not o.learn or not (kept or old):
            return {"updates": 0.0}
        updates: list[dict[str, float]] = []
        mean = float(np.mean([self.rows[i].weight for i in [*kept, *old]]))
        for _ in range(o.epochs):
            order = rng.permutation([*kept, *old])
            for start in range(0, len(order), o.batch_size):
                rows = [self.rows[int(i)] for i in order[start : start + o.batch_size]]
                examples = [self._example(row.prompt, row.truth, row.weight) for row in rows]
                total_weight = mean * len(rows)
                updates.append(update(self.causal, examples, o.kl_coef, o.max_kl, o.microbatch_size, total_weight))
        means = {name: sum(one[name] for one in updates) / len(updates) for name in updates[0]}
        return means | {"updates": float(len(updates))}

    def _example(self, prompt: Sequence[Message], values: Any, weight: float) -> Example:
        reply, mask = self._reply(values)
        return Example(self.causal.render_prompt(prompt), reply, weight, mask)

    def _reply(self, values: Any) -> tuple[list[int], list[int]]:
        """Return a setting as the reply that would have said it, and which of its tokens the policy chose."""
        reply = self.form.tokens(values)
        return reply, self.form.choice_mask(reply)

    def _count_stuck(self, mine: Sequence[tuple[int, Outcome]], weights: reward.Floats, any_kept: bool) -> None:
        """Count a cycle that taught nothing; begin anew where the policy itself wrote one of the best designs."""
        best = max(weights)
        good = [row for (row, _), weight in zip(mine, weights, strict=True) if weight > 0 and weight >= best / 2]
        if not self.options.learn or any(not self.rows[row].info["wider"] for row in good):
            self.stuck = 0
        elif not any_kept:
            self.stuck += 1

    def _warn_few_attempts(self, attempts: Sequence[int]) -> None:
        """Warn once if no design has enough attempts to be learnt from."""
        n = self.options.n
        most = max(attempts, default=n)
        if most < n and not self._warned and self.options.learn:
            self._warned = True
            LOG.warning(
                "%s: no design had n = %d attempts, but %d at the most, so nothing is learnt from them; lower n, or "
                "raise [schedule] per_cycle",
                self.id,
                n,
                most,
            )

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
        """Read what `save` wrote."""
        arrays, state = checkpoint.read(folder)
        self.causal.restore(arrays, folder)
        self.rows = pools.read(folder / pools.ENV)
        try:
            self.pending = [int(row) for row in state["pending"]]
            self.history = [(float(p), float(score)) for p, score in state["history"]]
            self.stuck = int(state["stuck"])
            self.shown = dict.fromkeys(map(str, state.get("shown", ())))
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} of {self.id} cannot be read: {error}") from error


def pooled(keys: Sequence[Any], outcomes: Sequence[Outcome]) -> Counts:
    """Return the successes and attempts of each design: those of all designs that have its key."""
    sums = Counter[Any]()
    for key, outcome in zip(keys, outcomes, strict=True):
        sums[key, 0] += outcome.successes
        sums[key, 1] += outcome.attempts
    return [(sums[key, 0], sums[key, 1]) for key in keys]
