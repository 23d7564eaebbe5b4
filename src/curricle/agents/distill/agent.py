"""Achievement Distillation (Moon et al. 2023, arXiv 2307.03486) on top of PPO.

The agent remembers what its last unlock did to its latents, and every few rollouts distils what its episodes say about
unlocks: which one comes next in an episode (contrastive prediction, FiLM on actions), and which ones are the same in
different episodes (partial optimal transport, `matching.py`). Policy and values are held where they were meanwhile.
It departs from the released code in what it computes twice: goals and the old policy are encoded once, and a row that
serves as anchor, positive and negative passes the network once. Gradients are the same. A window of rollouts
(`window.py`) is too large for a checkpoint, so none outlives a call of `practise`: distillations are spread evenly over
the call, about every 8 rollouts. On a GPU all that a step does there is one CUDA graph of one of a few sizes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from curricle.agents.cuda.graphs import CudaGraph, GraphPool
from curricle.agents.devices import bf16_autocast
from curricle.agents.distill.matching import match
from curricle.agents.distill.window import Episode, Rows, Size, Window, capacity, matching, prediction, roomy
from curricle.agents.networks.encoders import Layer, Network, dense
from curricle.agents.networks.heads import Categorical, mean
from curricle.agents.ppo.agent import PPO
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.ppo.practice import Course
from curricle.seeds import derive, generator
from curricle.world import World


class DistillOptions(PPOOptions):
    """Options of Achievement Distillation, in addition to those of PPO."""

    renamed: ClassVar[Mapping[str, str]] = {
        "every": "distill_every",
        "passes": "distill_epochs",
        "blur": "transport_entropy",
        "likeness": "match_threshold",
        "targets": "match_episodes",
        "hold_policy": "policy_kl_coef",
        "hold_value": "value_mse_coef",
        "most": "distill_batch_size",
    }

    distill_every: int = Field(
        8, ge=1, description="Approximate number of rollouts between distillations; they are spread evenly over a call."
    )
    distill_epochs: int = Field(6, ge=1, description="Passes over the collected episodes in each distillation.")
    temperature: float = Field(0.1, gt=0, description="Temperature of the contrastive losses.")
    transport_entropy: float = Field(0.05, gt=0, description="Entropic regularisation of the optimal transport.")
    match_threshold: float = Field(
        0.5, gt=0, lt=1, description="Two unlocks match if the transport plan moves more than this mass between them."
    )
    match_episodes: int = Field(16, ge=1, description="Number of other episodes that each episode is matched with.")
    policy_kl_coef: float = Field(1.0, ge=0, description="Weight of the KL divergence from the policy before.")
    value_mse_coef: float = Field(1.0, ge=0, description="Weight of the squared error of the values.")
    distill_batch_size: int = Field(512, ge=1, description="Maximum number of observations in one distillation step.")


class Remembering(Network):
    """PPO's network with a memory as wide as its latents, and a predictor of the next unlock."""

    def remembered(self, hidden: int) -> int:
        """As wide as a latent."""
        return hidden

    def make_heads(self, actions: gymnasium.Space[Any], width: int, keep: float) -> None:
        """Policy and value as before, and FiLM and the predictor."""
        super().make_heads(actions, width, keep)
        hidden = self.hidden
        inward = self.policy.linear.out_features
        last = partial(Layer, None, gain=1.0, active=False)
        self.film = nn.Sequential(dense(inward, hidden, 1.4), last(nn.Linear(hidden, 2 * hidden)))
        self.predictor = nn.Sequential(dense(2 * hidden, hidden, 1.4), last(nn.Linear(hidden, hidden)))

    def recall(self, memory: Tensor, before: Tensor, after: Tensor, unlocked: Tensor, fresh: Tensor) -> Tensor:
        """Remember the direction that the last unlock moved the latents in."""
        moved = torch.where(unlocked, F.normalize(after - before, dim=-1), memory)
        return torch.where(fresh, torch.zeros_like(moved), moved)

    def predict(self, latents: Tensor, actions: Tensor, memory: Tensor) -> Tensor:
        """The next unlock, from what is seen, done and remembered."""
        if isinstance(self.policy, Categorical):
            actions = F.one_hot(actions, self.policy.linear.out_features)
        scale, shift = self.film(actions.float()).float().chunk(2, -1)
        return F.normalize(self.predictor(torch.cat([(1 + scale) * latents + shift, memory], -1)).float(), dim=-1)


class Distill(PPO):
    """PPO with Achievement Distillation."""

    id = "distill-v1"
    Options = DistillOptions
    options: DistillOptions
    Net = Remembering
    network: Remembering
    optimisers = ("adam", "match", "predict")

    def __init__(self, world: World, options: DistillOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self._window: Window | None = None
        self._size: Size = roomy if self.device.type == "cuda" else int
        self._pool = GraphPool() if self.device.type == "cuda" and self.options.graphs else None

    def also(self, course: Course, done: int) -> dict[str, float]:
        """After each rollout's update: keep it, and distil when enough have come together."""
        window = self._window
        o = self.options
        if window is None or window.rollout is not course.rollout:  # new room has come with new graphs, too
            nothing = torch.zeros(1, self.network.hidden, device=self.device)
            choice = self.network.decide(nothing, nothing)[0].shape[1]
            most = capacity(o.distill_every, o.steps, course.rollout.count)
            before = o.distill_every * o.steps
            window = Window(course.rollout, most, before, choice)
            self._window = window
        if done == 1:
            window.clear()
        window.add(course.length(done - 1))
        times = max(1, round(course.count / o.distill_every))
        if (done * times) // course.count == ((done - 1) * times) // course.count:
            return {}
        figures = self._distil(window, derive(course.seed, "distil", done))
        window.turn()
        return figures

    def _distil(self, window: Window, seed: int) -> dict[str, float]:
        """Match and predict in turn, several times over all episodes."""
        told = window.told()
        if not told:
            return {}
        rows = np.concatenate([one.rows for one in told])
        for some in np.array_split(rows, -(-len(rows) // self.options.distill_batch_size)):  # of one size: one graph
            self._run("old", partial(self._note, window), self._sent(_filled(some, self._size(len(some)))))
        sums = {"distill/match": list[Tensor](), "distill/predict": list[Tensor]()}
        for number in range(self.options.distill_epochs):
            rng = generator(seed, "pass", number)
            for i in rng.permutation(len(told)):
                sums["distill/match"] += self._match(window, told, int(i), rng)
            for i in rng.permutation(len(told)):
                sums["distill/predict"] += self._predict(window, told[i], rng)
        means = {name: float(torch.stack(losses).mean()) for name, losses in sums.items() if losses}
        return means | {"distill/episodes": float(len(told))}

    def _match(
        self, window: Window, told: Sequence[Episode], source: int, rng: np.random.Generator
    ) -> Iterator[Tensor]:
        """Bring unlocks that are the same in different episodes together, and away from others."""
        others = rng.permutation(len(told) - 1)[: self.options.match_episodes]
        episode = told[source]
        targets = [told[int(j) + (j >= source)] for j in others]
        if not targets:
            return
        known = self._goals(window, np.concatenate([one.ends for one in (episode, *targets)], axis=1))
        mine = len(episode.goals)
        sizes = [len(target.goals) for target in targets]
        likeness = (known[:mine] @ known[mine:].T).cpu().numpy()
        here = list[Rows]()
        right = list[Rows]()
        wrong = list[Rows]()
        first = mine
        for size, (a, b) in zip(
            sizes, match(likeness, sizes, self.options.transport_entropy, self.options.match_threshold), strict=True
        ):
            here.append(a)
            right.append(first + b)
            wrong.append(first + rng.integers(size, size=len(a)))
            first += size
        pairs = np.stack([np.concatenate(here), np.concatenate(right), np.concatenate(wrong)])
        if not pairs.size:
            return
        order = rng.permutation(pairs.shape[1])
        held = rng.integers(len(episode.rows), size=len(order))
        for some in _pieces(order, self.options.distill_batch_size):
            lesson = self._sent(matching(episode, held[some], *pairs[:, some], size=self._size))
            answers = known.index_select(0, lesson[4:6].flatten())
            yield self._run("match", partial(self._teach, window), lesson, answers).clone()

    def _predict(self, window: Window, episode: Episode, rng: np.random.Generator) -> Iterator[Tensor]:
        """Tell the unlock that follows each step from the one that follows another step of the same episode."""
        order = rng.permutation(len(episode.rows))
        other = rng.permutation(len(episode.rows))
        for chosen in _pieces(order, self.options.distill_batch_size):
            lesson = self._sent(prediction(episode, chosen, other[chosen], size=self._size))
            yield self._run("predict", partial(self._teach, window), lesson).clone()

    def _goals(self, window: Window, ends: Rows) -> Tensor:
        """What unlocks did to the latents (unlocks, hidden), given the rows before and after each."""
        found = []
        for some in _pieces(np.arange(ends.shape[1]), max(1, self.options.distill_batch_size // 2)):
            filled = _filled(ends[:, some], self._size(2 * len(some)) // 2)
            found.append(self._run("goals", partial(self._moved, window), self._sent(filled))[: len(some)].clone())
        return torch.cat(found)

    # -- on the device: fixed shapes, nothing that waits ------------------------------------------------------------

    def _run(self, name: str, work: Callable[..., Any], *inputs: Tensor) -> Any:
        """Do something of a fixed shape: on a GPU as a graph, whose result holds until the next one."""
        if self._pool is None:
            return work(*inputs)
        key = (name, *inputs[0].shape)
        if key not in self._graphs:
            self._graphs[key] = CudaGraph(work, self.moving(), self._pool)
        return self._graphs[key](*inputs)

    def _sent(self, array: Rows) -> Tensor:
        """Whole numbers on the device; a GPU fetches them by itself while the host goes on."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def _latents(self, window: Window, rows: Tensor) -> Tensor:
        with bf16_autocast(self.device, self.options.bf16):
            return self.network.encode(window.seen(rows)).float()

    @torch.no_grad()
    def _note(self, window: Window, rows: Tensor) -> None:
        """Write down the policy as it is."""
        choice, _ = self.network.decide(self._latents(window, rows), window.data["memory"][rows])
        window.data["old"].index_copy_(0, rows, choice)

    @torch.no_grad()
    def _moved(self, window: Window, ends: Tensor) -> Tensor:
        """How latents differ between two rows each (2, n), as unit vectors."""
        before, after = self._latents(window, ends.flatten()).chunk(2)
        return F.normalize(after - before, dim=-1)

    def _teach(self, window: Window, lesson: Tensor, answers: Tensor | None = None) -> Tensor:
        """Take one step of learning from a lesson; returns its loss.

        Given `answers`, right ones and then wrong ones, the unlocks move towards them (matching); else the network
        predicts the answers from the rows (prediction). Policy and values are held where they were.
        """
        o = self.options
        (rows, times, before, after, right, wrong, counts) = lesson
        data = {name: tensor[rows] for name, tensor in window.data.items() if not name.startswith("seen.")}
        latents = self._latents(window, rows)
        places = torch.cat([latents.new_zeros(1, latents.shape[1]), latents])
        anchor = F.normalize(places.index_select(0, after) - places.index_select(0, before), dim=-1)
        predicts = answers is None
        if answers is None:
            with bf16_autocast(self.device, o.bf16):
                guess = self.network.predict(latents, data["actions"], data["memory"])
            anchor = anchor.detach()
            answers = guess.index_select(0, torch.cat([right, wrong]))
        loss = mean(contrast(anchor, answers, o.temperature), counts)
        choice, values = self.network.decide(latents, data["memory"])
        self.network.scale.watch(data["returns"], times)
        moved = mean(self.network.policy.divergence(choice, data["old"]), times)
        off = mean((values - self.network.scale.inward(data["returns"])).square(), times)
        whole = loss + o.policy_kl_coef * moved + o.value_mse_coef * off
        self._step(self.row.gradient(whole), "predict" if predicts else "match")
        return loss.detach()


def contrast(anchor: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of telling the right answers, which come first, from the wrong ones (batch,)."""
    right, wrong = answers.chunk(2)
    logits = torch.stack([(anchor * right).sum(-1), (anchor * wrong).sum(-1)], dim=-1) / temperature
    return -F.log_softmax(logits, dim=-1)[:, 0]


def _pieces(rows: Rows, most: int) -> list[Rows]:
    """Neighbours together, at most so many."""
    return np.split(rows, range(most, len(rows), most))


def _filled(rows: Rows, size: int) -> Rows:
    """Rows (..., n) to (..., size), filled up with row 0."""
    made = np.zeros((*rows.shape[:-1], size), np.int64)
    made[..., : rows.shape[-1]] = rows
    return made
