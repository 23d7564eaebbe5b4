"""Achievement Distillation (Moon et al. 2023, arXiv 2307.03486) on top of PPO.

The network remembers in which direction the last unlocked skill moved its features. Every few rollouts the agent also
learns from what its episodes say about unlocks; `Distill.distil` is the algorithm:

1. collect the episodes that have ended since the last time (`window.py`), and write down the policy as it is;
2. match: the same unlocks of different episodes are pulled together (partial optimal transport, `matching.py`);
3. predict: the network learns which unlock comes next in an episode (contrastive, with FiLM on actions);
4. meanwhile policy and values are held where they were.

The released code computes some things twice. Here unlocks and the old policy are encoded once, and a row that serves
as anchor, positive and negative passes the network once; gradients are the same. A window of rollouts is too large for
a checkpoint, so none outlives a call of `practise`: distillations are spread evenly over the call, about every 8
rollouts. On a GPU all that a step computes is one CUDA graph of one of a few sizes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from curricle.agents.devices import bf16_autocast, to_device
from curricle.agents.distill.matching import match
from curricle.agents.distill.window import (
    POSITIVES_AND_NEGATIVES,
    Episode,
    Indices,
    PadSize,
    Window,
    capacity,
    chunks,
    matching_batch,
    next_graph_size,
    pad,
    prediction_batch,
)
from curricle.agents.networks.encoders import Layer, Network, dense
from curricle.agents.networks.heads import Categorical, weighted_mean
from curricle.agents.ppo.agent import PPO
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.ppo.rollout import Practice, RolloutBuffer
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


class MemoryNetwork(Network):
    """PPO's network with a memory as wide as its features, and a predictor of the next unlock."""

    def choose_memory_size(self, hidden: int) -> int:
        """As wide as the features."""
        return hidden

    def make_heads(self, actions: gymnasium.Space[Any], in_features: int, value_norm_decay: float) -> None:
        """Policy and value as in PPO, and FiLM and the predictor."""
        super().make_heads(actions, in_features, value_norm_decay)
        hidden = self.hidden
        action_size = self.policy.linear.out_features
        self.film = nn.Sequential(
            dense(action_size, hidden, 1.4),
            Layer(None, nn.Linear(hidden, 2 * hidden), gain=1.0, relu=False),
        )
        self.predictor = nn.Sequential(
            dense(2 * hidden, hidden, 1.4),
            Layer(None, nn.Linear(hidden, hidden), gain=1.0, relu=False),
        )

    def update_memory(self, memory: Tensor, before: Tensor, after: Tensor, unlocked: Tensor, first: Tensor) -> Tensor:
        """Remember the direction in which the last unlock moved the features."""
        direction = torch.where(unlocked, F.normalize(after - before, dim=-1), memory)
        return torch.where(first, torch.zeros_like(direction), direction)

    def predict(self, features: Tensor, actions: Tensor, memory: Tensor) -> Tensor:
        """The next unlock, from features, action and memory."""
        if isinstance(self.policy, Categorical):
            actions = F.one_hot(actions, self.policy.linear.out_features)
        scale, shift = self.film(actions.float()).float().chunk(2, -1)
        x = torch.cat([(1 + scale) * features + shift, memory], -1)
        return F.normalize(self.predictor(x).float(), dim=-1)


class Distill(PPO):
    """PPO with Achievement Distillation."""

    id = "distill-v1"
    Options = DistillOptions
    options: DistillOptions
    Net = MemoryNetwork
    network: MemoryNetwork
    optimisers = ("adam", "match", "predict")

    def __init__(self, world: World, options: DistillOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self._window: Window | None = None
        self._pad_size: PadSize = next_graph_size if self.on_gpu else int
        self._graph_pool: Any = None
        if self.uses_graphs:
            from curricle.agents.cuda.graphs import GraphPool

            self._graph_pool = GraphPool()

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def auxiliary_update(self, practice: Practice, index: int) -> dict[str, float]:
        """Add a rollout to the window, and distil when enough have come together."""
        plan = practice.plan
        window = self._window_of(practice.buffer)
        if index == 0:
            window.clear()
        window.add(plan.steps(index))
        if not is_due(index, plan.rollouts, self.options.distill_every):
            return {}
        metrics = self.distil(window, derive(plan.seed, "distil", index + 1))
        window.start_next()
        return metrics

    def distil(self, window: Window, seed: int) -> dict[str, float]:
        """Match and predict in turn, several times over all new episodes."""
        episodes = window.new_episodes()
        if not episodes:
            return {}
        self._write_old_policy(window, episodes)
        match_losses: list[Tensor] = []
        predict_losses: list[Tensor] = []
        for epoch in range(self.options.distill_epochs):
            rng = generator(seed, "pass", epoch)
            for i in rng.permutation(len(episodes)):
                match_losses += self.match_episode(window, episodes, int(i), rng)
            for i in rng.permutation(len(episodes)):
                predict_losses += self.predict_unlocks(window, episodes[i], rng)
        metrics: dict[str, float] = {}
        if match_losses:
            metrics["distill/match"] = float(torch.stack(match_losses).mean())
        if predict_losses:
            metrics["distill/predict"] = float(torch.stack(predict_losses).mean())
        metrics["distill/episodes"] = float(len(episodes))
        return metrics

    def match_episode(
        self, window: Window, episodes: Sequence[Episode], source: int, rng: np.random.Generator
    ) -> list[Tensor]:
        """Pull unlocks of an episode towards the same ones of other episodes, and away from others; returns losses."""
        o = self.options
        others = rng.permutation(len(episodes) - 1)[: o.match_episodes]
        episode = episodes[source]
        targets = [episodes[int(j) + (j >= source)] for j in others]
        if not targets:
            return []
        # all unlocks, those of this episode first, by how they moved the features
        unlocks = self._encode_unlocks(window, np.concatenate([e.unlock_rows for e in (episode, *targets)], axis=1))
        count = len(episode.unlocks)
        sizes = [len(target.unlocks) for target in targets]
        similarity = (unlocks[:count] @ unlocks[count:].T).cpu().numpy()
        pairs = []
        first = count
        matches = match(similarity, sizes, o.transport_entropy, o.match_threshold)
        for size, (mine, theirs) in zip(sizes, matches, strict=True):
            others_of_theirs = rng.integers(size, size=len(mine))
            pairs.append(np.stack([mine, first + theirs, first + others_of_theirs]))
            first += size
        anchors, positives, negatives = np.concatenate(pairs, axis=1)
        if not len(anchors):
            return []
        order = rng.permutation(len(anchors))
        held = rng.integers(len(episode.rows), size=len(order))
        losses: list[Tensor] = []
        for i in chunks(order, o.distill_batch_size):
            indices = matching_batch(episode, held[i], anchors[i], positives[i], negatives[i], self._pad_size)
            batch = self._send(indices)
            answers = unlocks.index_select(0, batch[POSITIVES_AND_NEGATIVES].flatten())
            losses.append(self._run("match", partial(self._learn, window), batch, answers).clone())
        return losses

    def predict_unlocks(self, window: Window, episode: Episode, rng: np.random.Generator) -> list[Tensor]:
        """Tell the unlock that follows a step from the one that follows another step of the episode; returns losses."""
        order = rng.permutation(len(episode.rows))
        others = rng.permutation(len(episode.rows))
        losses: list[Tensor] = []
        for steps in chunks(order, self.options.distill_batch_size):
            batch = self._send(prediction_batch(episode, steps, others[steps], self._pad_size))
            losses.append(self._run("predict", partial(self._learn, window), batch).clone())
        return losses

    def _learn(self, window: Window, batch: Tensor, answers: Tensor | None = None) -> Tensor:
        """Take one step of learning from a batch of indices (`window.join_batch`); returns the contrastive loss.

        Given `answers`, positives and then negatives, the unlocks move towards them (matching). Without, the network
        predicts the unlocks from the rows (prediction). Policy and values are held where they were.
        """
        o = self.options
        rows, weights, before, after, positives, negatives, pair_weights = batch
        features = self._encode(window, rows)
        memory = window.data["memory"][rows]
        with_zeros = torch.cat([features.new_zeros(1, features.shape[1]), features])
        anchors = F.normalize(with_zeros.index_select(0, after) - with_zeros.index_select(0, before), dim=-1)
        optimiser = "match"
        if answers is None:
            optimiser = "predict"
            with bf16_autocast(self.device, o.bf16):
                predictions = self.network.predict(features, window.data["actions"][rows], memory)
            anchors = anchors.detach()
            answers = predictions.index_select(0, torch.cat([positives, negatives]))
        loss = weighted_mean(contrastive_loss(anchors, answers, o.temperature), pair_weights)

        distribution, values = self.network.policy_and_value(features, memory)
        returns = window.data["returns"][rows]
        self.network.scale.update(returns, weights)
        kl = weighted_mean(self.network.policy.kl(distribution, window.data["old_policy"][rows]), weights)
        value_error = weighted_mean((values - self.network.scale.normalise(returns)).square(), weights)
        total = loss + o.policy_kl_coef * kl + o.value_mse_coef * value_error
        self.take_step(self.parameters.gradient(total), optimiser)
        return loss.detach()

    # -- around the algorithm --------------------------------------------------------------------------------------

    def _window_of(self, buffer: RolloutBuffer) -> Window:
        """The window over a buffer; CUDA graphs read from it, so it is kept as long as the buffer is."""
        if self._window is None or self._window.buffer is not buffer:
            o = self.options
            empty = torch.zeros(1, self.network.hidden, device=self.device)
            distribution, _ = self.network.policy_and_value(empty, empty)
            new_rows = capacity(o.distill_every, o.steps, buffer.environments)
            self._window = Window(buffer, new_rows, o.distill_every * o.steps, distribution.shape[1])
        return self._window

    def _write_old_policy(self, window: Window, episodes: Sequence[Episode]) -> None:
        """Write down the policy as it is at all rows of some episodes."""
        rows = np.concatenate([episode.rows for episode in episodes])
        count = -(-len(rows) // self.options.distill_batch_size)
        for some in np.array_split(rows, count):  # pieces of one size need one graph only
            padded = self._send(pad(some, self._pad_size(len(some))))
            self._run("old_policy", partial(self._copy_policy, window), padded)

    def _encode_unlocks(self, window: Window, unlock_rows: Indices) -> Tensor:
        """How unlocks moved the features (unlocks, hidden), given the rows before and after each (2, unlocks)."""
        directions: list[Tensor] = []
        for some in chunks(np.arange(unlock_rows.shape[1]), max(1, self.options.distill_batch_size // 2)):
            padded = self._send(pad(unlock_rows[:, some], self._pad_size(2 * len(some)) // 2))
            found = self._run("unlocks", partial(self._directions, window), padded)
            directions.append(found[: len(some)].clone())
        return torch.cat(directions)

    def _run(self, name: str, work: Callable[..., Any], *inputs: Tensor) -> Any:
        """Compute something of a fixed shape. On a GPU this replays a graph, whose result holds until the next one."""
        if self._graph_pool is None:
            return work(*inputs)
        from curricle.agents.cuda.graphs import CudaGraph

        key = (name, *inputs[0].shape)
        if key not in self._graphs:
            self._graphs[key] = CudaGraph(work, self.learnt_tensors(), self._graph_pool)
        return self._graphs[key](*inputs)

    def _send(self, indices: Indices) -> Tensor:
        return to_device(torch.from_numpy(indices), self.device)

    # -- on the device: fixed shapes, nothing that waits -------------------------------------------------------------

    def _encode(self, window: Window, rows: Tensor) -> Tensor:
        with bf16_autocast(self.device, self.options.bf16):
            return self.network.encode(window.observations(rows)).float()

    @torch.no_grad()
    def _copy_policy(self, window: Window, rows: Tensor) -> None:
        distribution, _ = self.network.policy_and_value(self._encode(window, rows), window.data["memory"][rows])
        window.data["old_policy"].index_copy_(0, rows, distribution)

    @torch.no_grad()
    def _directions(self, window: Window, rows: Tensor) -> Tensor:
        """How features differ between two rows each (2, n), as unit vectors."""
        before, after = self._encode(window, rows.flatten()).chunk(2)
        return F.normalize(after - before, dim=-1)


def is_due(index: int, rollouts: int, distill_every: int) -> bool:
    """Whether a distillation follows a rollout: they are spread evenly over the rollouts, and one follows the last."""
    times = max(1, round(rollouts / distill_every))
    return ((index + 1) * times) // rollouts != (index * times) // rollouts


def contrastive_loss(anchors: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of telling the positives, the first half of the answers, from the negatives (batch,)."""
    positives, negatives = answers.chunk(2)
    similarities = [(anchors * positives).sum(-1), (anchors * negatives).sum(-1)]
    logits = torch.stack(similarities, dim=-1) / temperature
    return -F.log_softmax(logits, dim=-1)[:, 0]
