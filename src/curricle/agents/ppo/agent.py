"""PPO (Schulman et al. 2017) for any world of simulators: images, symbols or numbers, discrete or continuous actions.

`PPO.train` is the algorithm; read on from there: collect a rollout, compute advantages, update, and again. The agent
practises in all designs side by side and counts outcomes from the episodes that it trains on. The default options are
those of the papers for Crafter from pixels (Moon et al. 2023, EnvGen).

Every worker runs `train` (`parallel/workers.py`): it plays a slice of the environments and computes its share of each
minibatch's gradient; the leader adds them up and takes the step. Beside a GPU there is one worker, which never waits
for the GPU where it can prepare something meanwhile. Sums are taken in a fixed order and every draw comes from the seed
of the call, so on a CPU a resumed run ends with the same bytes, however busy the machine is.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agent import Agent, Report
from curricle.agents.devices import (
    bf16_autocast,
    can_fork,
    choose_device,
    keep_freed_memory,
    single_thread,
    start_download,
    to_device,
    use_fused_kernels,
)
from curricle.agents.episodes import Tally, perform, play, share_out, vector_world
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.flat_parameters import FlatParameters
from curricle.agents.networks.heads import Categorical
from curricle.agents.networks.spaces import Arrays, check_actions, input_specs
from curricle.agents.parallel.workers import WorkerGroup, run_workers, shared_memory
from curricle.agents.ppo.actors import Actor, EnvironmentState, Evaluator, PolicyStep, estimate_values
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.ppo.rollout import (
    FinishedRollout,
    Practice,
    RolloutBuffer,
    RolloutPlan,
    Truncation,
    concatenate,
    select_rows,
)
from curricle.errors import AgentError, RunDamaged, explained
from curricle.records import Design, Outcome
from curricle.seeds import derive
from curricle.tracking import checkpoint
from curricle.world import World, WorldVector

if TYPE_CHECKING:
    from curricle.agents.cuda.graphs import CudaGraph

LOG = logging.getLogger("curricle")
MEMORY_ADVICE = "choose fewer environments, shorter rollouts (steps) or more minibatches"
LOSS_METRICS = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clipped")


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
        self.device = choose_device(self.options.device, self.id)
        self.on_gpu = self.device.type == "cuda"
        self.uses_graphs = self.on_gpu and self.options.graphs
        self.rollouts = 0
        self.environment_state: EnvironmentState | None = None
        self._buffer: RolloutBuffer | None = None
        self._policy_steps: dict[tuple[int, int], PolicyStep] = {}  # those with a CUDA graph
        self._graphs: dict[Any, CudaGraph] = {}
        if not self.on_gpu:
            keep_freed_memory()
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
        with explained(self.id, MEMORY_ADVICE, AgentError), single_thread(self.device):
            practice = Practice(
                plan=RolloutPlan(len(owners), o.workers, budget, o.steps, seed),
                settings=[designed[owner] for owner in owners],
                values=[designed_values[owner] for owner in owners],
                buffer=self._allocate_buffer(len(owners)),
                tally=tally,
                report=report,
            )
            workers = 1 if self.on_gpu else practice.plan.slices
            run_workers(workers, partial(self.train, practice), processes=can_fork(self.device))
        return tally.outcomes()

    def train(self, practice: Practice, group: WorkerGroup) -> None:
        """Collect a rollout, compute advantages, update, and again; every worker runs this."""
        o = self.options
        plan = practice.plan
        finished: FinishedRollout | None = None
        with self._open_actors(practice, group) as actors:
            for index in range(plan.rollouts):
                steps = plan.steps(index)
                for number, actor in actors.items():
                    actor.start_rollout(plan.noise(self.network.policy, index, number))
                minibatches = to_device(plan.minibatches(index, o.epochs, o.minibatches), self.device)
                if finished is not None:  # this late, so that a GPU has something to do while its metrics are fetched
                    self._report(finished, practice)
                group.wait_for_leader()  # which stops in the report if the loss broke down

                truncations = self.collect_rollout(list(actors.values()), steps)
                self.compute_advantages(practice.buffer, steps, truncations, group)
                losses = self.update(practice.buffer, minibatches, group)
                if losses is not None:
                    finished = self._finish_rollout(practice, index, losses)
                group.wait_for_leader()
            if finished is not None:
                self._report(finished, practice)
            self._keep_environment_state(practice, actors, group)

    def collect_rollout(self, actors: Sequence[Actor], steps: int) -> list[Truncation]:
        """Act in the environments and write all down in the buffer; returns the episodes that were cut short.

        The step of the policy after the last step of the environments gives the values that follow.
        """
        truncations: list[Truncation] = []
        for t in range(steps):
            for actor in actors:
                actions = actor.wait_for_actions()
                truncations += actor.step_environments(t, actions)
                actor.start_policy_step()
        return truncations

    def compute_advantages(
        self, buffer: RolloutBuffer, steps: int, truncations: list[Truncation], group: WorkerGroup
    ) -> None:
        """Generalised advantage estimation over the whole rollout, on the leader.

        A time limit does not end the future: an episode that was cut short goes on in the value of its last
        observation.
        """
        o = self.options
        gathered = group.gather(truncations)
        if gathered is not None:
            rewards = buffer.rewards[:steps].copy()
            cut = [truncation for worker in gathered for truncation in worker]
            if cut:
                at = [truncation.step for truncation in cut]
                environments = [truncation.environment for truncation in cut]
                last = {name: torch.from_numpy(concatenate(cut, name)).to(self.device) for name in self.inputs}
                values = estimate_values(self.network, last, buffer.memory[at, environments], bf16=o.bf16)
                rewards[at, environments] += o.gamma * values.cpu().numpy()
            buffer.compute_advantages(rewards, o.gamma, o.gae_lambda)
        group.wait_for_leader()

    def update(self, buffer: RolloutBuffer, minibatches: Tensor, group: WorkerGroup) -> Tensor | None:
        """Take a step of the optimiser for every minibatch; returns the means of the metrics, on the leader.

        The workers share each minibatch out. A GPU takes it whole.
        """
        data = buffer.flatten()
        if self.on_gpu:
            return self._update_on_gpu(data, minibatches)
        totals = torch.zeros(len(LOSS_METRICS))
        for rows in minibatches:
            if group.is_leader:
                self.network.scale.update(data["returns"][rows])
            group.wait_for_leader()
            share = rows.tensor_split(group.size)[group.index]
            weight = len(share) / len(rows)
            metrics: list[float] | None = None
            if len(share):
                minibatch = {name: tensor.index_select(0, share) for name, tensor in data.items()}
                loss, loss_metrics = self.loss(minibatch)
                self.parameters.gradient(loss * weight, self._worker_gradients[group.index])
                metrics = (loss_metrics * weight).tolist()
            gathered = group.gather(metrics)
            if gathered is not None:
                self.take_step(self._sum_gradients(gathered))
                totals += torch.tensor([metrics for metrics in gathered if metrics is not None]).sum(0)
        return totals / len(minibatches) if group.is_leader else None

    def loss(self, minibatch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch, and `LOSS_METRICS`."""
        o = self.options
        observations = {name: minibatch[f"observations.{name}"] for name in self.inputs}
        with bf16_autocast(self.device, o.bf16):
            features = self.network.encode(observations).float()
        # the heads are computed in single precision: ratios of policies are sensitive to rounding
        distribution, values = self.network.policy_and_value(features, minibatch["memory"])
        return ppo_loss(self.network, distribution, values, minibatch, o.clip, o.value_coef, o.entropy_coef)

    def take_step(self, gradient: Tensor, optimiser: str = "adam") -> None:
        """Clip the gradient's norm and take a step of the optimiser."""
        self.parameters.clip_and_step(gradient, self.adams[optimiser], self.options.max_grad_norm)

    def auxiliary_update(self, practice: Practice, index: int) -> dict[str, float]:
        """What an agent built on this one learns besides, after the update of a rollout; returns its metrics."""
        return {}

    def _sum_gradients(self, metrics: Sequence[list[float] | None]) -> Tensor:
        """Add up the gradients of the workers that had a share of the minibatch, in their order."""
        shares = [g for g, share in zip(self._worker_gradients, metrics, strict=False) if share is not None]
        total = shares[0]
        for gradient in shares[1:]:
            total += gradient
        return total

    def _update_on_gpu(self, data: Mapping[str, Tensor], minibatches: Tensor) -> Tensor:
        """The update on a GPU, where a whole minibatch is one CUDA graph; nothing here waits for the GPU."""

        def learn(rows: Tensor) -> Tensor:
            minibatch = {name: select_rows(tensor, rows) for name, tensor in data.items()}
            self.network.scale.update(minibatch["returns"])
            loss, metrics = self.loss(minibatch)
            self.take_step(self.parameters.gradient(loss))
            return metrics

        step: Callable[[Tensor], Tensor] = learn
        if self.uses_graphs:
            from curricle.agents.cuda.graphs import CudaGraph

            key = ("update", len(minibatches[0]))
            if key not in self._graphs:
                self._graphs[key] = CudaGraph(learn, undo=self.learnt_tensors())
            step = self._graphs[key]
        totals = torch.zeros(len(LOSS_METRICS), device=self.device)
        for rows in minibatches:
            totals += step(rows)
        return totals / len(minibatches)

    # -- around the algorithm --------------------------------------------------------------------------------------

    @contextmanager
    def _open_actors(self, practice: Practice, group: WorkerGroup) -> Iterator[dict[int, Actor]]:
        """The actors of this worker, by the numbers of their slices.

        Environments go on where the last practice left them if it was in the same settings; else they are reset.
        """
        plan = practice.plan
        before = self.environment_state
        if before is not None and not before.fits(practice):
            before = None
        if before is not None and group.is_leader:
            practice.tally.running[:] = before.arrays["running"]
        numbers = range(plan.slices) if self.on_gpu else [group.index]
        slices = [plan.slice_of(number) for number in numbers]
        policy_steps = [self._policy_step(practice.buffer, environments) for environments in slices]
        vectors = self.vectors.vectors([practice.settings[environments] for environments in slices])
        actors: dict[int, Actor] = {}
        try:
            for number, vector, policy_step in zip(numbers, vectors, policy_steps, strict=True):
                actors[number] = Actor(vector, policy_step)
            for number, actor in actors.items():
                if before is not None:
                    actor.restore(before.arrays, before.snapshot(number))
                else:
                    here = actor.environments
                    actor.reset([derive(plan.seed, "world", i) % 2**31 for i in range(here.start, here.stop)])
            yield actors
        finally:
            for actor in actors.values():
                actor.close()

    def _keep_environment_state(self, practice: Practice, actors: Mapping[int, Actor], group: WorkerGroup) -> None:
        """Keep where the environments stand, for the next practice."""
        gathered = group.gather([(actor.vector.snapshot(), actor.state()) for actor in actors.values()])
        if gathered is not None:
            slices = [each for worker in gathered for each in worker]
            self.environment_state = EnvironmentState.join(practice, slices)

    def _policy_step(self, buffer: RolloutBuffer, environments: slice) -> PolicyStep:
        """The policy's step in a slice of the environments; one that was captured as a CUDA graph is kept."""
        key = (environments.start, environments.stop)
        if key in self._policy_steps:
            return self._policy_steps[key]
        policy_step = PolicyStep(self.network, buffer, environments, bf16=self.options.bf16)
        if self.uses_graphs:
            policy_step.capture()
            self._policy_steps[key] = policy_step
        return policy_step

    def _allocate_buffer(self, environments: int) -> RolloutBuffer:
        """A buffer for rollouts of any length; it is kept, because CUDA graphs read from it."""
        if self._buffer is None or self._buffer.environments != environments:
            for policy_step in self._policy_steps.values():
                policy_step.graph = None  # it refers to the step in turn; the memory of both is needed again
            self._buffer = None
            self._graphs = {}
            self._policy_steps = {}
            skills = len(self.world.skills)
            self._buffer = RolloutBuffer(self.network, self.device, 2 * self.options.steps, environments, skills)
        return self._buffer

    def _finish_rollout(self, practice: Practice, index: int, losses: Tensor) -> FinishedRollout:
        """After an update: count the episodes, and do what has to be done before the policy acts again."""
        self.rollouts += 1
        buffer = practice.buffer
        steps = practice.plan.steps(index)
        returns = practice.tally.add_rollout(buffer.rewards[:steps], buffer.ended[:steps], buffer.skills[:steps])
        metrics = self.auxiliary_update(practice, index)
        is_finite = self.parameters.flat.isfinite().all()[None].to(losses)
        download = start_download(torch.cat([losses, is_finite]))
        self.network.update_scales({name: tensor[:steps] for name, tensor in buffer.observations.items()})
        metrics["practice/episodes"] = float(practice.tally.attempts.sum())
        if returns:
            metrics["practice/return"] = float(np.mean(returns))
        return FinishedRollout(practice.plan.budget_used(index + 1), download, metrics)

    def _report(self, finished: FinishedRollout, practice: Practice) -> None:
        """Stop if the loss broke down, else report the metrics."""
        *means, is_finite = finished.losses()
        if not np.isfinite(means).all() or not is_finite:
            raise AgentError(
                f"{self.id}: the loss is no longer a number after {self.rollouts} rollouts (policy {means[0]:g}, value "
                f"{means[1]:g}); the last checkpoint is good: set a learning_rate below "
                f"{self.options.learning_rate:g} in the run's config.toml ([agent] learning_rate) and resume"
            )
        practice.report(finished.budget_used, dict(zip(LOSS_METRICS, means, strict=True)) | finished.metrics)

    # -- test play -------------------------------------------------------------------------------------------------

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Play with the policy as it is; every seed draws its own noise."""
        with explained(self.id, MEMORY_ADVICE, AgentError), single_thread(self.device):
            player = self._evaluator(seeds)
            return play(self.vectors, designs, seeds, episodes, player.act, player.after_step)

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode, to be watched."""
        with explained(self.id, MEMORY_ADVICE, AgentError), single_thread(self.device):
            player = self._evaluator([seed])
            yield from perform(self.vectors, design, seed, player.act, player.after_step)

    def _evaluator(self, seeds: Sequence[int]) -> Evaluator:
        return Evaluator(self.network, self.device, seeds, bf16=self.options.bf16, greedy=self.options.greedy)

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
        with torch.random.fork_rng(devices=[]), single_thread(torch.device("cpu")):
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
        self.parameters = FlatParameters(self.network, bf16_copies=self.on_gpu and o.bf16)
        self.adams = {name: self.parameters.make_adam(o.learning_rate) for name in self.optimisers}
        empty = torch.zeros_like(self.parameters.flat.data)
        self._worker_gradients = [shared_memory(empty) for _ in range(o.workers)]

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


def ppo_loss(
    network: Network,
    distribution: Tensor,
    values: Tensor,
    minibatch: Mapping[str, Tensor],
    clip: float,
    value_coef: float,
    entropy_coef: float,
) -> tuple[Tensor, Tensor]:
    """PPO's loss, the clipped policy loss with value loss and entropy bonus, and `LOSS_METRICS`.

    For discrete actions a GPU computes it in one kernel, together with its gradient.
    """
    if use_fused_kernels(distribution) and isinstance(network.policy, Categorical):
        from curricle.agents.cuda import fused_ppo

        coefficients = (clip, value_coef, entropy_coef)
        return fused_ppo.ppo_loss(distribution, values, minibatch, network.scale.moments, coefficients)
    log_ratio = network.policy.log_prob(distribution, minibatch["actions"]) - minibatch["log_probs"]
    policy_loss, clipped = clipped_loss(log_ratio, minibatch["advantages"], clip)
    value_loss = (values - network.scale.normalise(minibatch["returns"])).square().mean()
    entropy = network.policy.entropy(distribution).mean()
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    detached = log_ratio.detach()
    kl = (detached.exp() - 1 - detached).mean()
    return loss, torch.stack([policy_loss, value_loss, entropy, kl, clipped]).detach()


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """PPO's policy loss, and the share of ratios outside the clip range."""
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(advantages * ratio, advantages * clipped_ratio).mean()
    return loss, (ratio != clipped_ratio).float().mean()
