"""PPO (Schulman et al. 2017) for any world of simulators: images, symbols or numbers, discrete or continuous actions.

`PPO.train` is the algorithm; read on from there: collect a rollout, compute advantages, update, and again. The agent
practises in all designs side by side and counts outcomes from the episodes that it trains on. The default options are
those of the papers for Crafter from pixels (Moon et al. 2023, EnvGen).

Every worker runs `train` (`parallel/workers.py`): it plays a slice of the environments and computes its share of each
minibatch's gradient; the leader adds them up and takes the step. Sums are taken in a fixed order and every draw comes
from the seed of the call, so on a CPU a resumed run ends with the same bytes, however busy the machine is.

What depends on the device stands behind `self.backend` (`agents/device.py`), which does nothing special on a CPU.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agent import Agent, Report
from curricle.agents.device import can_fork, choose_backend, single_thread
from curricle.agents.episodes import Tally, perform, play, share_out, vector_world
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.flat_parameters import FlatParameters
from curricle.agents.networks.spaces import Arrays, check_actions, input_specs
from curricle.agents.parallel.workers import WorkerGroup, run_workers, shared_memory
from curricle.agents.ppo.actors import Actor, EnvironmentState, Evaluator, PolicyStep, estimate_values
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.ppo.rollout import (
    FinishedRollout,
    Practice,
    RolloutBuffer,
    RolloutPlan,
    TruncatedEpisode,
    concatenate,
    select_rows,
)
from curricle.errors import AgentError, RunDamaged, explained
from curricle.records import Design, Outcome
from curricle.seeds import derive
from curricle.tracking import checkpoint
from curricle.world import World, WorldVector

LOG = logging.getLogger("curricle")
MEMORY_ADVICE = "choose fewer environments, shorter rollouts (steps) or more minibatches"
LOSS_METRICS = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clipped")


def gae(
    rewards: NDArray[Any], values: NDArray[Any], ended: NDArray[np.bool_], gamma: float, gae_lambda: float
) -> NDArray[np.float32]:
    """Generalised advantages (Schulman et al. 2016); `values` has a row more, for what follows the last step."""
    not_ended = np.float32(1) - ended
    deltas = rewards + np.float32(gamma) * values[1:] * not_ended - values[:-1]
    decay = np.float32(gamma * gae_lambda) * not_ended
    advantages = np.empty_like(deltas)
    advantage = np.zeros(deltas.shape[1], np.float32)
    for t in reversed(range(len(deltas))):
        advantage = deltas[t] + decay[t] * advantage
        advantages[t] = advantage
    return np.asarray(advantages, np.float32)


def fill_advantages(buffer: RolloutBuffer, rewards: NDArray[np.float32], gamma: float, gae_lambda: float) -> None:
    """Write normalised advantages, and returns, into the buffer, for the steps that have these rewards."""
    steps = len(rewards)
    values = buffer.values[: steps + 1].cpu().numpy()
    advantages = gae(rewards, values, buffer.ended[:steps], gamma, gae_lambda)
    normalised = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    buffer.advantages[:steps] = torch.from_numpy(normalised)
    buffer.returns[:steps] = torch.from_numpy(advantages + values[:-1])


def ppo_loss(
    network: Network, distribution: Tensor, values: Tensor, minibatch: Mapping[str, Tensor], options: PPOOptions
) -> tuple[Tensor, Tensor]:
    """PPO's loss, the clipped policy loss with value loss and entropy bonus, and `LOSS_METRICS`."""
    log_ratio = network.policy.log_prob(distribution, minibatch["actions"]) - minibatch["log_probs"]
    policy_loss, clipped = clipped_loss(log_ratio, minibatch["advantages"], options.clip)
    value_loss = (values - network.scale.normalise(minibatch["returns"])).square().mean()
    entropy = network.policy.entropy(distribution).mean()
    loss = policy_loss + options.value_coef * value_loss - options.entropy_coef * entropy
    detached = log_ratio.detach()
    kl = (detached.exp() - 1 - detached).mean()
    return loss, torch.stack([policy_loss, value_loss, entropy, kl, clipped]).detach()


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """PPO's policy loss, and the share of ratios outside the clip range."""
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(advantages * ratio, advantages * clipped_ratio).mean()
    return loss, (ratio != clipped_ratio).float().mean()


class PPO(Agent):
    """Proximal policy optimisation."""

    id = "ppo-v1"
    Options = PPOOptions
    options: PPOOptions
    Net: ClassVar[type[Network]] = Network
    optimisers: ClassVar[tuple[str, ...]] = ("adam",)

    def __init__(self, world: World, options: PPOOptions | None = None, seed: int = 0) -> None:
        super().__init__(world, options, seed)
        self.vectors = vector_world(world, self.id)
        o = self.options
        self.backend = choose_backend(o.device, self.id, bf16=o.bf16, graphs=o.graphs)
        self.device = self.backend.device
        self.rollouts = 0
        self.environment_state: EnvironmentState | None = None
        self._buffer: RolloutBuffer | None = None
        self._policy_steps: dict[tuple[int, int], PolicyStep] = {}
        with explained(self.id, MEMORY_ADVICE, AgentError):
            self.network = self._make_network(seed)
            self._make_optimisers()
        LOG.info("%s runs on %s", self.id, self.device)

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Train for `budget` steps, in rollouts of at least `steps` steps of each environment."""
        o = self.options
        owners = share_out(len(designs), o.environments)
        tally = Tally(self.vectors, designs, owners)
        if not budget:
            return tally.outcomes()
        designed = [self.vectors.setting(design.setting) for design in designs]
        designed_values = [dict(setting.values) for setting in designed]
        with explained(self.id, MEMORY_ADVICE, AgentError), self.backend.session():
            practice = Practice(
                plan=RolloutPlan(len(owners), o.workers, budget, o.steps, seed),
                settings=[designed[owner] for owner in owners],
                setting_values=[designed_values[owner] for owner in owners],
                buffer=self._allocate_buffer(len(owners)),
                tally=tally,
                report=report,
            )
            workers = self.backend.workers(practice.plan.slices)
            run_workers(workers, partial(self.train, practice), processes=can_fork(self.device))
        return tally.outcomes()

    def train(self, practice: Practice, group: WorkerGroup) -> None:
        """Collect a rollout, compute advantages, update, and again; every worker runs this."""
        plan = practice.plan
        finished: FinishedRollout | None = None
        with self._open_actors(practice, group) as actors:
            for index in range(plan.rollouts):
                minibatches = self._start_rollout(plan, index, actors)
                # One rollout late: a GPU acts already while the metrics of its last update are fetched.
                self._report(finished, practice, group)

                cut_short = self.collect_rollout(list(actors.values()), plan.steps(index))
                self.compute_advantages(practice.buffer, plan.steps(index), cut_short, group)
                losses = self.update(practice.buffer, minibatches, group)
                finished = self._finish_rollout(practice, index, losses, group)
            self._report(finished, practice, group)
            self._keep_environment_state(practice, actors, group)

    def collect_rollout(self, actors: Sequence[Actor], steps: int) -> list[TruncatedEpisode]:
        """Act in the environments and write all down in the buffer; returns the episodes that were cut short.

        The step of the policy after the last step of the environments gives the values that follow.
        """
        cut_short: list[TruncatedEpisode] = []
        for t in range(steps):
            for actor in actors:
                actions = actor.wait_for_actions()
                cut_short += actor.step_environments(t, actions)
                actor.start_policy_step()
        return cut_short

    def compute_advantages(
        self, buffer: RolloutBuffer, steps: int, cut_short: list[TruncatedEpisode], group: WorkerGroup
    ) -> None:
        """Generalised advantage estimation over the whole rollout, on the leader.

        A time limit does not end the future: an episode that was cut short goes on in the value of its last
        observation.
        """
        o = self.options
        gathered = group.gather(cut_short)
        if gathered is not None:
            rewards = buffer.rewards[:steps].copy()
            episodes = [episode for worker in gathered for episode in worker]
            if episodes:
                at = [episode.step for episode in episodes]
                environments = [episode.environment for episode in episodes]
                last = {name: torch.from_numpy(concatenate(episodes, name)).to(self.device) for name in self.inputs}
                memory = buffer.memory[at, environments]
                values = self.backend.fastest(estimate_values)(self.network, self.backend, last, memory)
                rewards[at, environments] += o.gamma * values.cpu().numpy()
            self.backend.fastest(fill_advantages)(buffer, rewards, o.gamma, o.gae_lambda)
        group.wait_for_leader()

    def update(self, buffer: RolloutBuffer, minibatches: Tensor, group: WorkerGroup) -> Tensor:
        """Take a step of the optimiser for every minibatch; returns the means of the metrics, for the leader."""
        step = partial(self.update_step, buffer.flatten(), group)
        totals = torch.zeros(len(LOSS_METRICS), device=self.device)
        for rows in minibatches:
            totals += self.backend.run(("update", len(rows)), step, rows, changes=self.learnt_tensors)
        return totals / len(minibatches)

    def update_step(self, data: Mapping[str, Tensor], group: WorkerGroup, rows: Tensor) -> Tensor:
        """Take a step of the optimiser from one minibatch, which the workers share out; returns its metrics."""
        select = self.backend.fastest(select_rows)
        if group.is_leader:
            self.network.scale.update(select(data["returns"], rows))
        group.wait_for_leader()
        shares = rows.tensor_split(min(group.size, len(rows)))
        if group.index < len(shares):
            share = shares[group.index]
            weight = len(share) / len(rows)
            loss, metrics = self.loss({name: select(tensor, share) for name, tensor in data.items()})
            self.parameters.gradient(loss * weight, self._worker_gradients[group.index])
            self._worker_metrics[group.index] = metrics * weight
        group.wait_for_all()
        if group.is_leader:
            gradient = self._worker_gradients[0]
            for other in self._worker_gradients[1 : len(shares)]:
                gradient += other
            self.take_step(gradient)
        return self._worker_metrics[: len(shares)].sum(0)

    def loss(self, minibatch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch, and `LOSS_METRICS`."""
        observations = {name: minibatch[f"observations.{name}"] for name in self.inputs}
        with self.backend.autocast():
            features = self.network.encode(observations).float()
        # the heads are computed in single precision: ratios of policies are sensitive to rounding
        distribution, values = self.network.policy_and_value(features, minibatch["memory"])
        return self.backend.fastest(ppo_loss)(self.network, distribution, values, minibatch, self.options)

    def take_step(self, gradient: Tensor, optimiser: str = "adam") -> None:
        """Clip the gradient's norm and take a step of the optimiser."""
        self.parameters.clip_and_step(gradient, self.adams[optimiser], self.options.max_grad_norm)

    def auxiliary_update(self, practice: Practice, index: int) -> dict[str, float]:
        """What an agent built on this one learns besides, after the update of a rollout; returns its metrics."""
        return {}

    # -- around the algorithm --------------------------------------------------------------------------------------

    @contextmanager
    def _open_actors(self, practice: Practice, group: WorkerGroup) -> Iterator[dict[int, Actor]]:
        """The actors of this worker, by the numbers of their slices; their environments are closed afterwards."""
        plan = practice.plan
        numbers = range(group.index, plan.slices, group.size)
        slices = [plan.slice_of(number) for number in numbers]
        policy_steps = [self._policy_step(practice.buffer, environments) for environments in slices]
        vectors = self.vectors.vectors([practice.settings[environments] for environments in slices])
        actors: dict[int, Actor] = {}
        try:
            for number, vector, policy_step in zip(numbers, vectors, policy_steps, strict=True):
                actors[number] = Actor(vector, policy_step)
            self._restore_or_reset(practice, actors, group)
            yield actors
        finally:
            for actor in actors.values():
                actor.close()

    def _restore_or_reset(self, practice: Practice, actors: Mapping[int, Actor], group: WorkerGroup) -> None:
        """Go on where the last practice stopped if it was in the same settings; else reset the environments."""
        state = self.environment_state
        if state is not None and state.fits(practice):
            if group.is_leader:
                practice.tally.running[:] = state.arrays["running"]
            for number, actor in actors.items():
                actor.restore(state.arrays, state.snapshot(number))
            return
        for actor in actors.values():
            here = range(actor.environments.start, actor.environments.stop)
            actor.reset([derive(practice.plan.seed, "world", i) % 2**31 for i in here])

    def _start_rollout(self, plan: RolloutPlan, index: int, actors: Mapping[int, Actor]) -> Tensor:
        """Begin the first step of the policy; returns the rows of the minibatches that will be learnt from."""
        o = self.options
        for number, actor in actors.items():
            actor.start_rollout(plan.noise(self.network.policy, index, number))
        return self.backend.upload(plan.minibatches(index, o.epochs, o.minibatches))

    def _keep_environment_state(self, practice: Practice, actors: Mapping[int, Actor], group: WorkerGroup) -> None:
        """Keep where the environments stand, for the next practice."""
        gathered = group.gather([(actor.vector.snapshot(), actor.state()) for actor in actors.values()])
        if gathered is not None:
            slices = [each for worker in gathered for each in worker]
            self.environment_state = EnvironmentState.join(practice, slices)

    def _policy_step(self, buffer: RolloutBuffer, environments: slice) -> PolicyStep:
        """The policy's step in a slice of the environments."""
        key = (environments.start, environments.stop)
        if key not in self._policy_steps:
            self._policy_steps[key] = PolicyStep(self.network, buffer, environments)
        return self._policy_steps[key]

    def _allocate_buffer(self, environments: int) -> RolloutBuffer:
        """A buffer for rollouts of any length; it is kept as long as the number of environments stays the same."""
        if self._buffer is None or self._buffer.environments != environments:
            self.backend.forget_recordings()  # first, because they hold the memory of the old buffer
            self._policy_steps = {}
            self._buffer = None
            skills = len(self.world.skills)
            self._buffer = RolloutBuffer(self.network, self.backend, 2 * self.options.steps, environments, skills)
        return self._buffer

    def _finish_rollout(
        self, practice: Practice, index: int, losses: Tensor, group: WorkerGroup
    ) -> FinishedRollout | None:
        """On the leader: count the episodes, and do what has to be done before the policy acts again."""
        finished: FinishedRollout | None = None
        if group.is_leader:
            self.rollouts += 1
            buffer = practice.buffer
            steps = practice.plan.steps(index)
            returns = practice.tally.add_rollout(buffer.rewards[:steps], buffer.ended[:steps], buffer.skills[:steps])
            metrics = self.auxiliary_update(practice, index)
            is_finite = self.parameters.flat.isfinite().all()[None].to(losses)
            download = self.backend.download(torch.cat([losses, is_finite]))
            self.network.update_scales({name: tensor[:steps] for name, tensor in buffer.observations.items()})
            metrics["practice/episodes"] = float(practice.tally.attempts.sum())
            if returns:
                metrics["practice/return"] = float(np.mean(returns))
            finished = FinishedRollout(practice.plan.budget_used(index + 1), download, metrics)
        group.wait_for_leader()
        return finished

    def _report(self, finished: FinishedRollout | None, practice: Practice, group: WorkerGroup) -> None:
        """On the leader: stop if the loss broke down, else report the metrics."""
        if finished is not None:
            *means, is_finite = finished.losses()
            if not np.isfinite(means).all() or not is_finite:
                raise AgentError(
                    f"{self.id}: the loss is no longer a number after {self.rollouts} rollouts (policy {means[0]:g}, "
                    f"value {means[1]:g}); the last checkpoint is good: set a learning_rate below "
                    f"{self.options.learning_rate:g} in the run's config.toml ([agent] learning_rate) and resume"
                )
            practice.report(finished.budget_used, dict(zip(LOSS_METRICS, means, strict=True)) | finished.metrics)
        group.wait_for_leader()

    # -- test play -------------------------------------------------------------------------------------------------

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Play with the policy as it is; every seed draws its own noise."""
        with explained(self.id, MEMORY_ADVICE, AgentError), self.backend.session():
            player = self._evaluator(seeds)
            return play(self.vectors, designs, seeds, episodes, player.act, player.after_step)

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode, to be watched."""
        with explained(self.id, MEMORY_ADVICE, AgentError), self.backend.session():
            player = self._evaluator([seed])
            yield from perform(self.vectors, design, seed, player.act, player.after_step)

    def _evaluator(self, seeds: Sequence[int]) -> Evaluator:
        return Evaluator(self.network, self.backend, seeds, greedy=self.options.greedy)

    # -- network, optimisers and checkpoints -----------------------------------------------------------------------

    def _make_network(self, seed: int) -> Network:
        """A new network for the observations and actions of the world."""
        o = self.options
        probe = self.vectors.vector([self.world.original])
        where = f"{self.id} in {self.world.id}"
        actions = probe.single_action_space
        self.inputs = input_specs(probe.single_observation_space, where)
        probe.close()
        check_actions(actions, where)
        hidden = o.hidden or (1024 if any(spec.kind == "image" for spec in self.inputs.values()) else 256)
        with torch.random.fork_rng(devices=[]), single_thread():
            torch.manual_seed(derive(seed, "network"))
            network = self.Net(
                self.inputs,
                actions,
                channels=o.channels,
                blocks=o.blocks,
                width=o.width,
                hidden=hidden,
                value_norm_decay=o.value_norm_decay,
            )
            return network.to(self.device)

    def _make_optimisers(self) -> None:
        """Flat parameters, the optimisers over them, and a gradient for each worker."""
        o = self.options
        self.parameters = FlatParameters(self.network, bf16_copies=self.backend.bf16)
        self.adams = {name: self.parameters.make_adam(o.learning_rate) for name in self.optimisers}
        empty = torch.zeros_like(self.parameters.flat.data)
        self._worker_gradients = [shared_memory(empty) for _ in range(o.workers)]
        self._worker_metrics = shared_memory(torch.zeros(o.workers, len(LOSS_METRICS), device=self.device))

    def learnt_tensors(self) -> list[Tensor]:
        """All tensors that a step of learning changes; a graph restores them after its capture."""
        tensors = [self.parameters.flat.data]
        if self.parameters.bf16_copy is not None:
            tensors.append(self.parameters.bf16_copy)
        return [*tensors, self.network.scale.moments, *self._optimiser_state().values()]

    def _optimiser_state(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, adam in self.adams.items():
            for key, tensor in adam.state[self.parameters.flat].items():
                tensors[f"{name}.{key}"] = tensor
        return tensors

    def save(self, folder: Path) -> None:
        """Write network, optimisers, normalisers and environments."""
        arrays = {f"network.{name}": tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}
        for name, tensor in self._optimiser_state().items():
            arrays[name] = tensor.cpu().numpy()
        state: dict[str, Any] = {
            "world": self.world.id,
            "pictures": "by pixel",
            "rollouts": self.rollouts,
            "scene": None,
        }
        # "scene" and "lanes" are what environments and slices were called first; runs of that time can still be resumed
        environments = self.environment_state
        if environments is not None:
            for name, array in environments.arrays.items():
                arrays[f"scene.{name}"] = array
            state["scene"] = {"settings": environments.settings, "lanes": environments.slices}
        checkpoint.write(folder, arrays, state)

    def load(self, folder: Path) -> None:
        """Load what `save` wrote."""
        arrays, state = checkpoint.read(folder)
        try:
            if state["world"] != self.world.id:
                raise ValueError(f"it is of {state['world']}")
            if "pictures" not in state and any(spec.kind == "image" for spec in self.inputs.values()):
                raise ValueError("it is of before networks laid pictures out by pixel; it has to be trained anew")
            self._load(arrays, state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} does not fit {self.id} in {self.world.id}: {error}") from error

    def _load(self, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> None:
        names = self.network.state_dict()
        self.network.load_state_dict({name: torch.from_numpy(arrays[f"network.{name}"].copy()) for name in names})
        self.parameters.refresh_bf16_copy()
        for name, tensor in self._optimiser_state().items():
            tensor.copy_(torch.from_numpy(arrays[name].copy()))
        self.rollouts = state["rollouts"]
        self.environment_state = None
        saved = state["scene"]
        if saved is not None:
            prefix = "scene."
            kept: Arrays = {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
            self.environment_state = EnvironmentState(saved["settings"], saved["lanes"], kept)
