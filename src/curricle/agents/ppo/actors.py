"""Actors: the policy acts in environments, for practice (`Actor`) and for tests (`Evaluator`).

The environments of a practice are split into slices, each with a vector of its own and an `Actor`. A worker has one
actor or several, which take turns. Actors never look at each other, so results depend on how many there are, but not on
who runs them. An actor's `PolicyStep` is all that it computes on the device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agents.device import Backend
from curricle.agents.networks.encoders import Network, Observations
from curricle.agents.networks.spaces import Arrays, final_observation, split_observations
from curricle.agents.ppo.rollout import Practice, RolloutBuffer, TruncatedEpisode, torch_dtype
from curricle.seeds import generator
from curricle.world import WorldVector


class PolicyStep:
    """One step of the policy in a slice of the environments, which is also written into the rollout buffer.

    It reads and writes the same tensors at every step, and counts the steps on the device: so a backend can record it
    once and replay it at every step.
    """

    def __init__(self, network: Network, buffer: RolloutBuffer, environments: slice) -> None:
        self.network = network
        self.buffer = buffer
        self.backend = buffer.backend
        self.environments = environments
        n = environments.stop - environments.start
        device = buffer.device
        empty_action = network.policy.empty_action
        self.observations: dict[str, Tensor] = {}
        for name, spec in network.inputs.items():
            self.observations[name] = torch.zeros(n, *spec.shape, dtype=torch_dtype(spec), device=device)
        self.memory = torch.zeros(n, network.memory_size, device=device)
        self.features = torch.zeros(n, network.hidden if network.memory_size else 0, device=device)
        self.unlocked_and_first = torch.zeros(2, n if network.memory_size else 0, 1, dtype=torch.bool, device=device)
        self.noise = torch.zeros(buffer.max_steps + 1, n, network.policy.noise_size, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.actions = self.backend.host_memory(torch.zeros(n, *empty_action.shape, dtype=empty_action.dtype))

    def run(self) -> None:
        """Begin the step; on a CPU it is done at once."""
        key = ("policy step", self.environments.start, self.environments.stop)
        self.backend.run(key, self.compute, changes=lambda: [self.memory, self.features, self.step])

    @torch.no_grad()
    def compute(self) -> None:
        """Choose actions for the observations, and write all down in the buffer's row of this step."""
        buffer = self.buffer
        network = self.network
        noise = self.noise.index_select(0, self.step)[0]
        unlocked, first = self.unlocked_and_first
        with self.backend.autocast():
            features = network.encode(self.observations).float()
        memory = network.update_memory(self.memory, self.features, features, unlocked, first)
        distribution, values = network.policy_and_value(features, memory)
        actions, log_probs, values = self.backend.fastest(sample_actions)(network, distribution, values, noise)
        if network.memory_size:
            self.features.copy_(features)
            self.memory.copy_(memory)
            self._write(buffer.memory, memory)
        for name, tensor in self.observations.items():
            self._write(buffer.observations[name], tensor)
        self._write(buffer.actions, actions)
        self._write(buffer.log_probs, log_probs)
        self._write(buffer.values, values)
        self.actions.copy_(actions, non_blocking=True)
        self.step += 1

    def start_rollout(self, noise: NDArray[np.float32]) -> None:
        """Go back to the first step; the noise decides all samples of the rollout.

        The step after the last one is only taken for its value; it uses the noise of the first step again.
        """
        extended = self.backend.host_memory(torch.from_numpy(np.concatenate([noise, noise[:1]])))
        self.noise[: len(extended)].copy_(extended, non_blocking=True)
        self.step.zero_()

    def clear_memory(self) -> None:
        """Remember nothing."""
        self.memory.zero_()
        self.features.zero_()

    def _write(self, target: Tensor, values: Tensor) -> None:
        """Write into this step's row."""
        self.backend.fastest(write_row)(target, self.environments, self.step, values)


def write_row(target: Tensor, environments: slice, step: Tensor, values: Tensor) -> None:
    """Write into the row of one step in a buffer."""
    target[:, environments].index_copy_(0, step, values[None])


def sample_actions(
    network: Network, distribution: Tensor, values: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions sampled with some noise, their log-probabilities, and values on the world's scale."""
    actions = network.policy.sample(distribution, noise)
    log_probs = network.policy.log_prob(distribution, actions)
    return actions, log_probs, network.scale.denormalise(values)


@torch.no_grad()
def estimate_values(network: Network, backend: Backend, observations: Observations, memory: Tensor) -> Tensor:
    """Values of observations, on the world's scale."""
    with backend.autocast():
        features = network.encode(observations).float()
    _, values = network.policy_and_value(features, memory)
    return network.scale.denormalise(values)


class Actor:
    """A slice of the environments, and the policy's steps in them."""

    def __init__(self, vector: WorldVector, policy_step: PolicyStep) -> None:
        self.vector = vector
        self.policy_step = policy_step
        self.network = policy_step.network
        self.buffer = policy_step.buffer
        self.environments = policy_step.environments
        self.backend = self.buffer.backend
        vector.copies = False  # observations are copied before the next step: into `staged`, or a TruncatedEpisode
        n = vector.num_envs
        self.skills = np.zeros((n, self.buffer.skills.shape[-1]), np.bool_)  # shown so far in the running episodes
        self.unlocked_and_first = self.backend.host_memory(torch.zeros(2, n, 1, dtype=torch.bool))
        self._take_back: list[Callable[[], None]] = []
        self.staged = self._staging_buffers()
        self.actions_ready = self.backend.event()
        policy_step.clear_memory()

    def _staging_buffers(self) -> dict[str, Tensor]:
        """Where observations wait for the policy's next step: where the world draws them, if it lends the place."""
        staged: dict[str, Tensor] = {}
        lent = self.vector.observation_arrays()
        if lent is None:
            for name, tensor in self.policy_step.observations.items():
                staged[name] = self.backend.host_memory(torch.zeros_like(tensor, device="cpu"))
            return staged
        for name, array in split_observations(lent, self.network.inputs, self.vector.num_envs).items():
            staged[name] = torch.from_numpy(array)
            self._take_back.append(self.backend.lend(staged[name]))
        return staged

    def reset(self, seeds: Sequence[int]) -> None:
        """Start all episodes anew."""
        observations, _ = self.vector.reset(seed=list(seeds))
        self._stage(split_observations(observations, self.network.inputs, len(seeds)))

    def start_rollout(self, noise: NDArray[np.float32]) -> None:
        """Begin the first step of the policy in a rollout; the noise (steps, environments, ...) decides its samples."""
        self.wait_for_actions()
        self.unlocked_and_first.zero_()
        self.policy_step.start_rollout(noise)
        self.start_policy_step()

    def start_policy_step(self) -> None:
        """Begin to choose actions for the last observations; on a CPU it is done at once."""
        for name, tensor in self.policy_step.observations.items():
            tensor.copy_(self.staged[name], non_blocking=True)
        if self.network.memory_size:
            self.policy_step.unlocked_and_first.copy_(self.unlocked_and_first, non_blocking=True)
        self.policy_step.run()
        self.actions_ready.record()

    def wait_for_actions(self) -> NDArray[Any]:
        """The actions that the policy chose last; its observations may be overwritten from now on."""
        self.actions_ready.synchronize()
        return self.policy_step.actions.numpy()

    def step_environments(self, t: int, actions: NDArray[Any]) -> list[TruncatedEpisode]:
        """Step all environments of the slice and write down what came of it; returns the episodes that were cut."""
        observations, rewards, terminated, truncated, info = self.vector.step(self.network.policy.to_world(actions))
        ended = terminated | truncated
        skills = info["skills"]
        self.buffer.rewards[t, self.environments] = rewards
        self.buffer.ended[t, self.environments] = ended
        self.buffer.skills[t, self.environments] = skills
        cut_short: list[TruncatedEpisode] = []
        if truncated.any():
            for i in np.flatnonzero(truncated & ~terminated).tolist():
                observation = final_observation(info, i, self.network.inputs)
                cut_short.append(TruncatedEpisode(t, self.environments.start + i, observation))
        if self.network.memory_size:
            unlocked, first = self.unlocked_and_first.numpy()
            unlocked[:, 0] = (skills != self.skills).any(1)
            first[:, 0] = ended
        self.skills = skills & ~ended[:, None]
        self._stage(split_observations(observations, self.network.inputs, len(ended)))
        return cut_short

    def _stage(self, observations: Arrays) -> None:
        for name, array in observations.items():
            staged = self.staged[name]
            if array.ctypes.data != staged.data_ptr():  # else the world drew them there
                np.copyto(staged.numpy(), array)

    def state(self) -> Arrays:
        """What the actor knows between two rollouts; checkpoints hold it under these names."""
        arrays = {f"seen.{name}": tensor.numpy().copy() for name, tensor in self.staged.items()}
        arrays["shown"] = self.skills.copy()
        if self.network.memory_size:
            arrays["memory"] = self.policy_step.memory.cpu().numpy().copy()
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned, for all environments of the practice, and from a snapshot of the vector."""
        self.vector.restore(snapshot)
        self._stage({name: arrays[f"seen.{name}"][self.environments] for name in self.network.inputs})
        self.skills[:] = arrays["shown"][self.environments]
        if self.network.memory_size:
            self.policy_step.memory.copy_(torch.from_numpy(arrays["memory"][self.environments]))

    def close(self) -> None:
        """Close the environments."""
        self.backend.wait()  # a step of the policy may still read their memory
        for take_back in self._take_back:
            take_back()
        self.vector.close()


@dataclass
class EnvironmentState:
    """Where all environments stood when a practice ended, so that the next one in the same designs goes on there."""

    settings: list[dict[str, Any]]
    slices: int
    arrays: Arrays
    """Under `world.N/` the snapshot of a slice's vector; `running`: the returns of unfinished episodes; and what the
    actors know."""

    @classmethod
    def join(
        cls, practice: Practice, slices: Sequence[tuple[Mapping[str, NDArray[Any]] | None, Arrays]]
    ) -> "EnvironmentState | None":
        """Put together each slice's snapshot and what its actor knows; None if the world takes no snapshots."""
        arrays: Arrays = {"running": practice.tally.running.copy()}
        for number, (snapshot, _) in enumerate(slices):
            if snapshot is None:
                return None
            for name, array in snapshot.items():
                arrays[f"world.{number}/{name}"] = array
        actor_states = [state for _, state in slices]
        for name in actor_states[0]:
            arrays[name] = np.concatenate([state[name] for state in actor_states])
        return cls(practice.setting_values, len(slices), arrays)

    def fits(self, practice: Practice) -> bool:
        """Whether a practice is in the same settings, split into as many slices."""
        return self.settings == practice.setting_values and self.slices == practice.plan.slices

    def snapshot(self, number: int) -> Arrays:
        """The snapshot of a slice's vector."""
        prefix = f"world.{number}/"
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


class Evaluator:
    """Plays test episodes side by side and learns nothing.

    Each episode's noise comes from its own seed, so it does not depend on which others are played beside it.
    """

    noise_steps = 128
    """Steps for which noise is drawn at a time."""

    def __init__(self, network: Network, backend: Backend, seeds: Sequence[int], *, greedy: bool) -> None:
        self.network = network
        self.backend = backend
        self.device = backend.device
        self.greedy = greedy
        self.n = len(seeds)
        self.rngs = [generator(seed, "act") for seed in seeds]
        self.noise = np.zeros((self.n, 0, network.policy.noise_size), np.float32)
        self.step = 0
        self.memory = torch.zeros(self.n, network.memory_size, device=self.device)
        self.features = torch.zeros(self.n, network.hidden if network.memory_size else 0, device=self.device)
        self.unlocked_and_first = torch.zeros(2, self.n, 1, dtype=torch.bool, device=self.device)
        self.skills: NDArray[np.bool_] | None = None

    def act(self, observations: Any) -> NDArray[Any]:
        """Choose an action for every environment."""
        network = self.network
        arrays = split_observations(observations, network.inputs, self.n)
        tensors = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
        noise = self._next_noise()
        with torch.no_grad():
            with self.backend.autocast():
                features = network.encode(tensors).float()
            unlocked, first = self.unlocked_and_first
            self.memory = network.update_memory(self.memory, self.features, features, unlocked, first)
            distribution, _ = network.policy_and_value(features, self.memory)
            if network.memory_size:
                self.features = features
            actions = network.policy.mode(distribution) if self.greedy else network.policy.sample(distribution, noise)
        return np.asarray(network.policy.to_world(actions.cpu().numpy()))

    def after_step(self, ended: NDArray[np.bool_], skills: NDArray[np.bool_]) -> None:
        """Note what the memory needs to know of the step."""
        before = np.zeros_like(skills) if self.skills is None else self.skills
        unlocked = (skills != before).any(1)
        self.unlocked_and_first = torch.from_numpy(np.stack([unlocked, ended])[..., None]).to(self.device)
        self.skills = skills & ~ended[:, None]

    def _next_noise(self) -> Tensor:
        if self.step == self.noise.shape[1]:
            shape = (self.noise_steps,)
            self.noise = np.stack([self.network.policy.draw_noise(rng, shape) for rng in self.rngs])
            self.step = 0
        noise = torch.from_numpy(self.noise[:, self.step]).to(self.device)
        self.step += 1
        return noise
