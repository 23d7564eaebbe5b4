"""Tuning the embedded model to write designs: pairs of a prompt and the line that answers it, and the training on them.

The pairs come from a teacher - any designer, asked about imagined agents (`from_teacher`) - and from a run's own
successes: designs in which the agent neither failed nor had it easy (`from_run`). All weights but the embeddings are
trained; the loss is on the line alone.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curricle.designer import Designer
from curricle.errors import ModelError, UsageError, nearest
from curricle.llm import convert
from curricle.llm.embedded import TAUGHT
from curricle.llm.lines import prompt, write
from curricle.records import Brief, Cycle, Design, Exchange, Frozen, Message, Outcome, Score, Scores, Skill
from curricle.seeds import derive, generator
from curricle.world import World

Teacher = Callable[[int], Designer]
"""Makes a designer from a seed."""
LONGEST_COURSE, DESIGNS = 3, 4
BAND = (0.2, 0.8)
"""Success at the aim between which a design of a run counts as one: worth imitating."""


@dataclass(frozen=True)
class Pair:
    """What the model is asked, and what it should answer."""

    prompt: tuple[Message, ...]
    line: str
    aim: str


def from_teacher(
    teacher: Teacher, world: World, count: int, *, seed: int = 0, without: Collection[str] = ()
) -> list[Pair]:
    """Ask a designer about imagined agents, each weakest at another skill; some skills may be left out, to be tested.

    The teacher lives through a few imagined cycles first, so that one that adapts shows how.
    """
    known = [skill.name for skill in world.skills]
    for name in without:
        if name not in known:
            raise UsageError(f"{world.id} has no skill {name!r}: {nearest(name, known)}")
    wanted = [skill for skill in world.skills if skill.name not in without]
    pairs: list[Pair] = []
    for index in range(2 * count):  # a teacher may aim elsewhere, or at nothing
        pair = _lesson(teacher, world, wanted[index % len(wanted)], derive(seed, "lesson", index)) if wanted else None
        if pair and pair.aim not in without:
            pairs.append(pair)
        if len(pairs) == count:
            break
    return pairs


def from_run(world: World, cycles: int, past: Sequence[Cycle], band: tuple[float, float] = BAND) -> list[Pair]:
    """A run's designs in which success at the aim fell within the band, with what was known when they were made."""
    pairs = []
    for index, cycle in enumerate(past):
        brief = world.brief(cycle.number, cycles, past[:index])
        for outcome in cycle.designed:
            if outcome.design.aim and outcome.rate is not None and band[0] <= outcome.rate <= band[1]:
                pairs.append(_pair(brief, outcome.design))
    return pairs


def tune(
    pairs: Sequence[Pair],
    source: Path,
    path: Path,
    *,
    world: str,
    steps: int,
    batch: int,
    rate: float = 2e-4,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train the model of one file on pairs and write it to another, which then knows the world it was taught."""
    if not pairs:
        raise UsageError("there are no pairs to learn from: the teacher proposed nothing, and no design of a run fits")
    model, tokenizer = convert.load(source)
    import torch

    torch.manual_seed(derive(seed, "tune") % 2**32)
    model.to(device).train().requires_grad_(True)
    model.get_input_embeddings().requires_grad_(False)
    examples = [_tokens(tokenizer, pair) for pair in pairs]
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _pace(step, steps))
    for step, chosen in enumerate(_batches([len(asked) + len(told) for asked, told in examples], steps, batch, seed)):
        loss = _loss(model, [examples[i] for i in chosen], device)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        if not math.isfinite(value := float(loss.detach())):
            raise ModelError(f"tuning broke down at step {step + 1}: the loss is {value}; nothing was written")
        report(step + 1, value)
    convert.save(model, source, path, {TAUGHT: world})


def _batches(lengths: Sequence[int], steps: int, batch: int, seed: int) -> list[list[int]]:
    """Which examples make up each batch: all in turn, in a random order, beside others of about their length."""
    found: list[list[int]] = []
    while len(found) < steps:
        rng = generator(seed, "batches", len(found))
        order = rng.permutation(max(len(lengths), batch)) % len(lengths)
        near = sorted(order.tolist(), key=lambda index: lengths[index])
        rows = [near[start : start + batch] for start in range(0, len(near) - batch + 1, batch)]
        found += [rows[i] for i in rng.permutation(len(rows))]
    return found[:steps]


def _pace(step: int, steps: int) -> float:
    """The learning rate over time: up within a tenth of the steps, then down along a cosine."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _tokens(tokenizer: Any, pair: Pair) -> tuple[list[int], list[int]]:
    """The prompt, and the answer with the sign that ends it."""
    turns = [{"role": message.role, "content": message.content} for message in pair.prompt]
    asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    told = tokenizer(pair.line, add_special_tokens=False)["input_ids"]
    return tokenizer(asked, add_special_tokens=False)["input_ids"], [*told, tokenizer.eos_token_id]


def _loss(model: Any, examples: Sequence[tuple[list[int], list[int]]], device: str) -> Any:
    """Cross-entropy of the answers alone; the wide last layer is computed at their places only."""
    import torch

    width = max(len(asked) + len(told) for asked, told in examples)
    tokens = torch.zeros(len(examples), width, dtype=torch.long)
    filled = torch.zeros_like(tokens)
    wanted = torch.full_like(tokens, -1)  # (examples, width): the token that should come next
    for row, (asked, told) in enumerate(examples):
        whole = torch.tensor([*asked, *told])
        tokens[row, : len(whole)], filled[row, : len(whole)] = whole, 1
        wanted[row, len(asked) - 1 : len(whole) - 1] = torch.tensor(told)
    tokens, filled, wanted = tokens.to(device), filled.to(device), wanted.to(device)
    hidden = model.model(input_ids=tokens, attention_mask=filled, use_cache=False).last_hidden_state
    places = wanted >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[places]), wanted[places])


def _lesson(teacher: Teacher, world: World, skill: Skill, seed: int) -> Pair | None:
    """What the teacher proposes after some imagined cycles, if anything; what is for this skill comes first."""
    rng, designer, alone = generator(seed, "course"), teacher(derive(seed, "teacher")), Alone()
    past = [Cycle(number=1, designed=(), scores=profile(world, skill, rng))]
    cycles = int(rng.integers(2, LONGEST_COURSE + 2))
    while True:
        brief = world.brief(len(past) + 1, cycles, past)
        designs = sorted(designer.propose(brief, DESIGNS, alone), key=lambda design: design.aim != skill.name)
        if len(past) + 1 == cycles:
            return _pair(brief, designs[0]) if designs and designs[0].aim else None
        tried = [Outcome(design=d, attempts=20, successes=int(rng.integers(21))) for d in designs]
        scores = profile(world, skill, rng)
        designer.learn(tried, scores, alone)
        past.append(Cycle(number=len(past) + 1, designed=tuple(tried), scores=scores))


def profile(world: World, skill: Skill, rng: np.random.Generator) -> Scores:
    """Scores of an imagined agent that can do all that a skill needs, and is weakest at the skill itself."""
    tree = {s.name: s for s in world.skills}
    before, waiting = set[str](), list(skill.needs)
    while waiting:
        before.add(name := waiting.pop())
        waiting += tree[name].needs
    weakest = 0.8 * float(rng.random()) ** 2 if rng.random() < 0.7 else 0.0
    rates = {skill.name: weakest} | {s: float(rng.uniform(max(weakest, 0.15), 1)) for s in sorted(before)}
    for name in tree:  # other skills, as far as they are in reach too; a need that comes later in the list is not
        ready = all(rates.get(need, 0.0) >= 0.15 for need in tree[name].needs)
        rates.setdefault(name, float(rng.uniform(weakest, 1)) if ready and skill.name not in tree[name].needs else 0.0)
    found = {name: Score(mean=round(rates[name], 2), std=0.0, n=12) for name in tree}
    return Scores(skills=Frozen(found), reward=Score(mean=0.0, std=0.0, n=12))


def _pair(brief: Brief, design: Design) -> Pair:
    aim = next(skill for skill in brief.skills if skill.name == design.aim)
    values = {**brief.original, **design.setting}
    return Pair(prompt(brief, aim, taught=True), write(values, brief.knobs, brief.original), aim.name)


class Alone:
    """The workshop of a designer that is asked outside of a run; see `designer.Workshop`."""

    cycle, folder = 1, Path()

    def trial(self, designs: Sequence[Design], *, episodes: int = 12, practised: int | None = None) -> list[Outcome]:
        """Refuse: there is no agent."""
        raise UsageError("this designer tries its designs on an agent; a teacher has none")

    def report(self, figures: Mapping[str, float]) -> None:
        """Nobody reads them."""

    def keep(self, exchange: Exchange) -> None:
        """There is no run to keep it in."""

    def kept(self) -> Sequence[Exchange]:
        """Nothing was kept."""
        return ()

    def spent(self) -> Mapping[str, float]:
        """Nothing is counted."""
        return {}
