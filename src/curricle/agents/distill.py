"""Achievement Distillation (Moon et al. 2023, arXiv 2307.03486) on top of PPO.

The agent remembers what its last unlock did to its latents, and every few rollouts distils what its episodes say about
unlocks: which one comes next in an episode (contrastive prediction, FiLM on actions), and which ones are the same in
different episodes (partial optimal transport, `matching.py`). Policy and values are held where they were meanwhile.
It departs from the released code in what it computes twice: goals and the old policy are encoded once, and a row that
serves as positive and negative passes the network once. Gradients are the same.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from curricle.agents.hardware import halved
from curricle.agents.heads import Choice
from curricle.agents.matching import match
from curricle.agents.nets import Layer, Network, Seen, dense
from curricle.agents.ppo import PPO, PPOOptions
from curricle.agents.practice import Course
from curricle.seeds import derive, generator


class DistillOptions(PPOOptions):
    """Options of Achievement Distillation, beside those of PPO."""

    every: int = Field(
        8, ge=1, description="Rollouts between two distillations, about: they are spread over a practice."
    )
    passes: int = Field(6, ge=1, description="Passes over the episodes in a distillation.")
    temperature: float = Field(0.1, gt=0, description="Temperature of the contrastive losses.")
    blur: float = Field(0.05, gt=0, description="Entropy of the optimal transport.")
    likeness: float = Field(0.5, gt=0, lt=1, description="Transported mass from which two unlocks count as the same.")
    targets: int = Field(16, ge=1, description="Other episodes that each episode is matched with.")
    hold_policy: float = Field(1.0, ge=0, description="Weight that holds the policy where it was.")
    hold_value: float = Field(1.0, ge=0, description="Weight that holds the values where they were.")
    most: int = Field(512, ge=1, description="Rows of one step of distillation at most.")


class Remembering(Network):
    """PPO's network with a memory as wide as its latents, and a predictor of the next unlock."""

    def remembered(self, hidden: int) -> int:
        """As wide as a latent."""
        return hidden

    def make_heads(self, actions: gymnasium.Space[Any], width: int, keep: float) -> None:
        """Policy and value as before, and FiLM and the predictor."""
        super().make_heads(actions, width, keep)
        hidden, inward = self.hidden, self.policy.linear.out_features
        last = partial(Layer, None, gain=1.0, active=False)
        self.film = nn.Sequential(dense(inward, hidden, 1.4), last(nn.Linear(hidden, 2 * hidden)))
        self.predictor = nn.Sequential(dense(2 * hidden, hidden, 1.4), last(nn.Linear(hidden, hidden)))

    def recall(self, memory: Tensor, before: Tensor, after: Tensor, unlocked: Tensor, fresh: Tensor) -> Tensor:
        """Remember the direction that the last unlock moved the latents in."""
        moved = torch.where(unlocked, F.normalize(after - before, dim=-1), memory)
        return torch.where(fresh, torch.zeros_like(moved), moved)

    def predict(self, latents: Tensor, actions: Tensor, memory: Tensor) -> Tensor:
        """The next unlock, from what is seen, done and remembered."""
        if isinstance(self.policy, Choice):
            actions = F.one_hot(actions, self.policy.linear.out_features)
        scale, shift = self.film(actions.float()).float().chunk(2, -1)
        return F.normalize(self.predictor(torch.cat([(1 + scale) * latents + shift, memory], -1)).float(), dim=-1)


@dataclass
class Episode:
    """Rows of a finished episode in a window of rollouts, and the steps after which something was unlocked."""

    rows: Tensor
    goals: list[int]

    @property
    def following(self) -> Tensor:
        """For each row the number of the next unlock; the last stretch has none and gets the number past the last."""
        marks = torch.zeros(len(self.rows), dtype=torch.int64)
        for goal in self.goals:
            marks[goal + 1 :] += 1
        return marks


class Window:
    """The rollouts since the last distillation, as rows on the device."""

    def __init__(
        self, parts: Sequence[Mapping[str, Tensor]], ended: NDArray[np.bool_], shown: NDArray[np.bool_]
    ) -> None:
        self.data = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        self.old = torch.empty(0)
        self.episodes = [one for env in range(ended.shape[1]) for one in _episodes(ended, shown, env)]
        self.told = [one for one in self.episodes if one.goals]

    def seen(self, rows: Tensor) -> Seen:
        """Observations of some rows."""
        where = rows.to(self.data["returns"].device)
        return {n.removeprefix("seen."): t[where] for n, t in self.data.items() if n.startswith("seen.")}


def _episodes(ended: NDArray[np.bool_], shown: NDArray[np.bool_], env: int) -> Iterator[Episode]:
    """Whole episodes of one sub-environment: those that began and ended in the window."""
    ends, count = np.flatnonzero(ended[:, env]), ended.shape[1]
    for before, last in itertools.pairwise(ends):
        steps = np.arange(before + 1, last + 1)
        skills = np.concatenate([np.zeros((1, shown.shape[2]), np.bool_), shown[steps, env]])
        changed = np.flatnonzero((skills[1:] != skills[:-1]).any(1))
        yield Episode(torch.from_numpy(steps * count + env), [int(g) for g in changed if g + 1 < len(steps)])


class Distill(PPO):
    """PPO with Achievement Distillation."""

    id = "distill-v1"
    Options = DistillOptions
    options: DistillOptions
    Net = Remembering
    network: Remembering
    optimisers = ("adam", "match", "predict")

    def also(self, course: Course, done: int) -> dict[str, float]:
        """After each rollout's update: keep it, and distil when enough have come together."""
        steps = course.length(done - 1)
        rows, r = steps * course.rollout.count, course.rollout
        part = {
            name: tensor[:rows].clone() for name, tensor in r.rows().items() if name not in ("log_probs", "advantages")
        }
        course.kept.append((part, r.ended[:steps].copy(), r.shown[:steps].copy()))
        times = max(1, round(course.count / self.options.every))
        if (done * times) // course.count == ((done - 1) * times) // course.count:
            return {}
        parts, ended, shown = zip(*course.kept, strict=True)
        course.kept = []
        return self._distil(
            Window(parts, np.concatenate(ended), np.concatenate(shown)), derive(course.seed, "distil", done)
        )

    def _distil(self, window: Window, seed: int) -> dict[str, float]:
        """Match and predict in turn, several times over all episodes."""
        if not window.told:
            return {}
        with torch.no_grad():
            rows = torch.arange(len(window.data["returns"]), device=self.device).split(self.options.most)  # type: ignore[no-untyped-call]
            window.old = torch.cat([self._policy(window, some)[0] for some in rows])
        sums = {"distill/match": list[Tensor](), "distill/predict": list[Tensor]()}
        for number in range(self.options.passes):
            rng = generator(seed, "pass", number)
            for i in rng.permutation(len(window.told)):
                sums["distill/match"] += self._match(window, int(i), rng)
            for i in rng.permutation(len(window.told)):
                sums["distill/predict"] += self._predict(window, window.told[i], rng)
        return {name: float(torch.stack(losses).mean()) for name, losses in sums.items() if losses}

    def _policy(self, window: Window, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Policy, values and latents of some rows, with the memory they had."""
        with halved(self.device, self.options.bf16):
            latents = self.network.encode(window.seen(rows)).float()
        return *self.network.decide(latents, window.data["memory"][rows]), latents

    def _hold(self, window: Window, rows: Tensor, choice: Tensor, values: Tensor) -> Tensor:
        """The loss that holds policy and values where they were."""
        returns = window.data["returns"][rows]
        self.network.scale.watch(returns)
        moved = self.network.policy.divergence(choice, window.old[rows]).mean()
        off = (values - self.network.scale.inward(returns)).square().mean()
        return self.options.hold_policy * moved + self.options.hold_value * off

    def _goals(self, window: Window, episode: Episode) -> Tensor:
        """What each unlock of an episode did to the latents (unlocks, hidden)."""
        at = torch.tensor(episode.goals)
        with halved(self.device, self.options.bf16):
            latents = self.network.encode(window.seen(torch.cat([episode.rows[at], episode.rows[at + 1]]))).float()
        before, after = latents.chunk(2)
        return F.normalize(after - before, dim=-1)

    def _predict(self, window: Window, episode: Episode, rng: np.random.Generator) -> Iterator[Tensor]:
        """Tell the unlock that follows each step from the one that follows another step of the same episode."""
        with torch.no_grad():
            end = self.network.encode(window.seen(episode.rows[-1:])).float()
            anchors = torch.cat([self._goals(window, episode), F.normalize(-end, dim=-1)])
        order, other = rng.permutation(len(episode.rows)), rng.permutation(len(episode.rows))
        for chosen in torch.from_numpy(order).split(self.options.most):  # type: ignore[no-untyped-call]
            both = torch.cat([chosen, torch.from_numpy(other)[chosen]])
            unique, back = both.unique(return_inverse=True)  # type: ignore[no-untyped-call]
            rows, back = episode.rows[unique].to(self.device), back.to(self.device)
            choice, values, latents = self._policy(window, rows)
            with halved(self.device, self.options.bf16):
                guess = self.network.predict(latents, window.data["actions"][rows], window.data["memory"][rows])[back]
            anchor = anchors[episode.following[chosen].to(self.device)]
            loss = self._contrast(anchor, *guess.chunk(2))
            self._learn(loss + self._hold(window, rows[back], choice[back], values[back]), "predict")
            yield loss.detach()

    def _match(self, window: Window, source: int, rng: np.random.Generator) -> Iterator[Tensor]:
        """Bring unlocks that are the same in different episodes together, and away from others."""
        others = rng.permutation(len(window.told) - 1)[: self.options.targets]
        targets = [window.told[int(j) + (j >= source)] for j in others]
        if not targets:
            return
        episode = window.told[source]
        with torch.no_grad():
            mine, theirs = self._goals(window, episode), [self._goals(window, target) for target in targets]
            pairs = match(mine, theirs, self.options.blur, self.options.likeness)
        here, there, wrong, first = list[int](), list[int](), list[int](), 0
        for target, found in zip(targets, pairs, strict=True):
            here += [a for a, _ in found]
            there += [first + b for _, b in found]
            wrong += (first + rng.integers(len(target.goals), size=len(found))).tolist()
            first += len(target.goals)
        if not here:
            return
        known, order = torch.cat(theirs), rng.permutation(len(here))
        held = torch.from_numpy(rng.integers(len(episode.rows), size=len(here)))
        for some in torch.from_numpy(order).split(self.options.most):  # type: ignore[no-untyped-call]
            rows = episode.rows[held[some]].to(self.device)
            choice, values, _ = self._policy(window, rows)
            anchor = self._goals(window, episode)[torch.tensor(here)[some].to(self.device)]
            same, other = (known[torch.tensor(which)[some].to(self.device)] for which in (there, wrong))
            loss = self._contrast(anchor, same, other)
            self._learn(loss + self._hold(window, rows, choice, values), "match")
            yield loss.detach()

    def _contrast(self, anchor: Tensor, same: Tensor, other: Tensor) -> Tensor:
        """Cross-entropy of telling the right one of two apart."""
        logits = torch.stack([(anchor * same).sum(-1), (anchor * other).sum(-1)], dim=-1) / self.options.temperature
        return -F.log_softmax(logits, dim=-1)[:, 0].mean()

    def _learn(self, loss: Tensor, optimiser: str) -> None:
        self._step(self.row.slope(loss), optimiser)
