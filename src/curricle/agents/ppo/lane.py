"""Lanes: a network plays in a vector of sub-environments, and writes down what it saw and did (`rollout.py`).

Sub-environments are split into lanes, each with a `WorldVector` of its own, so that two lanes keep two cores busy
(`team.py`), and beside a GPU one lane's worlds step while the network thinks for the other (`Turns`). Lanes never look
at each other: results depend on how many there are, not on who works them. A lane's `Sight` is all that happens on its
behalf on the device: there one CUDA graph, so that a step asks next to nothing of the caller.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agents.cuda.memory import PinnedMemory
from curricle.agents.networks.encoders import Network, Observations
from curricle.agents.networks.spaces import Arrays, final, split
from curricle.agents.ppo.rollout import Cut, Rollout, dtype_of
from curricle.world import WorldVector

Think = Callable[[Observations, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
"""(seen, memory, before, unlocked, fresh, noise) -> latents, memory, actions, log-probabilities, values."""


class Sight:
    """See, remember, choose, and write it down: a step of some neighbouring sub-environments on the device.

    It reads and writes the same memory at every step, and counts steps by itself, so that it can be a graph.
    """

    graph: Callable[[], Any] | None = None

    def __init__(self, think: Think, network: Network, rollout: Rollout, here: slice) -> None:
        self.think = think
        self.network = network
        self.rollout = rollout
        self.here = here
        n = here.stop - here.start
        device = rollout.device
        blank = network.policy.blank
        self.seen = {
            name: torch.zeros(n, *part.shape, dtype=dtype_of(part), device=device)
            for name, part in network.parts.items()
        }
        self.memory = torch.zeros(n, network.memory, device=device)
        self.before = torch.zeros(n, network.hidden if network.memory else 0, device=device)
        self.marks = torch.zeros(2, n if network.memory else 0, 1, dtype=torch.bool, device=device)
        self.luck = torch.zeros(rollout.steps + 1, n, network.policy.noisy, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)
        self.chosen = host(torch.zeros(n, *blank.shape, dtype=blank.dtype), device)

    @torch.no_grad()
    def work(self) -> None:
        """One step; on a GPU it is only begun."""
        r = self.rollout
        noise = self.luck.index_select(0, self.clock)[0]
        latents, memory, actions, log_probs, values = self.think(
            self.seen, self.memory, self.before, self.marks[0], self.marks[1], noise
        )
        if self.network.memory:
            self.before.copy_(latents)
            self.memory.copy_(memory)
            self._note(r.memory, memory)
        for name, tensor in self.seen.items():
            self._note(r.seen[name], tensor)
        for room, found in ((r.actions, actions), (r.log_probs, log_probs), (r.values, values)):
            self._note(room, found)
        self.chosen.copy_(actions, non_blocking=True)
        self.clock += 1

    def begin(self, noise: NDArray[np.float32]) -> None:
        """Go back to the first step; the noise decides all draws. What follows the last step is drawn by the first."""
        luck = host(torch.from_numpy(np.concatenate([noise, noise[:1]])), self.clock.device)
        self.luck[: len(luck)].copy_(luck, non_blocking=True)
        self.clock.zero_()

    def forget(self) -> None:
        """Remember nothing."""
        for tensor in (self.memory, self.before):
            tensor.zero_()

    def changing(self) -> list[Tensor]:
        """What a step changes and the next one needs."""
        return [self.memory, self.before, self.clock]

    def _note(self, room: Tensor, found: Tensor) -> None:
        """Write into the row of this step; bytes eight at a time, which a GPU does several times faster."""
        place = room[:, self.here]
        found = found[None]
        if found.dtype == torch.uint8 and found[0, 0].numel() % 8 == 0:
            place, found = (tensor.flatten(2).view(torch.int64) for tensor in (place, found))
        place.index_copy_(0, self.clock, found)


class Lane:
    """Some neighbouring sub-environments of a rollout, and the sight of them."""

    def __init__(self, vector: WorldVector, sight: Sight) -> None:
        self.vector = vector
        self.sight = sight
        self.network = sight.network
        self.here = sight.here
        vector.copies = False  # they go straight to the stage, or into a Cut
        n = vector.num_envs
        device = sight.rollout.device
        self.shown = np.zeros((n, sight.rollout.shown.shape[-1]), np.bool_)
        self.marks = host(torch.zeros(2, n, 1, dtype=torch.bool), device)  # unlocked something, began an episode
        arrays = vector.observation_arrays()
        lent = {} if arrays is None else split(arrays, self.network.parts, n)
        self.lent = {name: PinnedMemory(torch.from_numpy(array), device) for name, array in lent.items()}
        self.stage = {
            name: self.lent[name].tensor if lent else host(torch.zeros_like(tensor, device="cpu"), device)
            for name, tensor in sight.seen.items()
        }
        self.ready = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        sight.forget()

    def begin(self, seeds: Sequence[int]) -> None:
        """Start every episode anew."""
        observations, _ = self.vector.reset(seed=list(seeds))
        self._show(split(observations, self.network.parts, len(seeds)))

    def resume(self, scene: Mapping[str, NDArray[Any]], world: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `keep` left off."""
        self.vector.restore(world)
        self._show({name: scene[f"seen.{name}"][self.here] for name in self.network.parts})
        self.shown[:] = scene["shown"][self.here]
        if self.network.memory:
            self.sight.memory.copy_(torch.from_numpy(scene["memory"][self.here]))

    def keep(self) -> Arrays:
        """What the lane has in mind between two rollouts."""
        kept = {f"seen.{name}": tensor.numpy().copy() for name, tensor in self.stage.items()}
        kept["shown"] = self.shown.copy()
        return kept | ({"memory": self.sight.memory.cpu().numpy().copy()} if self.network.memory else {})

    def look(self) -> None:
        """See, remember and choose; on a GPU this is only begun."""
        for name, tensor in self.sight.seen.items():
            tensor.copy_(self.stage[name], non_blocking=True)
        if self.network.memory:
            self.sight.marks.copy_(self.marks, non_blocking=True)
        (self.sight.graph or self.sight.work)()
        if self.ready:
            self.ready.record()

    def wait(self) -> NDArray[Any]:
        """The actions that were chosen last; what they were chosen by has been read."""
        if self.ready:
            self.ready.synchronize()
        return self.sight.chosen.numpy()

    def step(self, t: int) -> list[Cut]:
        """Wait for the actions, and move the worlds; returns the episodes that were cut short."""
        return self._move(t, self.network.policy.outward(self.wait()))

    def _move(self, t: int, actions: NDArray[Any]) -> list[Cut]:
        r = self.sight.rollout
        here = self.here
        observations, rewards, terminated, truncated, info = self.vector.step(actions)
        ended = terminated | truncated
        shown = info["skills"]
        r.rewards[t, here] = rewards
        r.ended[t, here] = ended
        r.shown[t, here] = shown
        cut = list[Cut]()
        if truncated.any():
            for i in np.flatnonzero(truncated & ~terminated):
                cut.append(Cut(t, here.start + int(i), final(info, int(i), self.network.parts)))
        if self.network.memory:
            marks = self.marks.numpy()
            marks[0, :, 0] = (shown != self.shown).any(1)
            marks[1, :, 0] = ended
        self.shown = shown & ~ended[:, None]
        self._show(split(observations, self.network.parts, len(ended)))
        return cut

    def _show(self, seen: Arrays) -> None:
        for name, array in seen.items():
            if array.ctypes.data != self.stage[name].data_ptr():  # else the world drew it there
                np.copyto(self.stage[name].numpy(), array)

    def close(self) -> None:
        """Let worlds and memory go."""
        if self.ready:
            torch.cuda.synchronize()  # a look may still be under way that reads them
        for memory in self.lent.values():
            memory.close()
        self.vector.close()


class Turns:
    """Lanes that one worker plays by turns.

    A lane's network is only begun before it is the next one's turn, so that a GPU thinks while worlds step. All queue
    on one stream: two networks at once gain nothing there, and graphs that overlap would share workspaces.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes

    def begin(self, noise: Sequence[NDArray[np.float32]]) -> None:
        """Have the first look of a rollout begun in each lane."""
        for lane, some in zip(self.lanes, noise, strict=True):
            lane.wait()
            lane.marks.zero_()
            lane.sight.begin(some)
            lane.look()

    def play(self, steps: int) -> list[Cut]:
        """Play the rollout that was begun; returns the episodes that were cut short."""
        cut = list[Cut]()
        for t in range(steps):
            for lane in self.lanes:
                cut += lane.step(t)
                lane.look()  # the last one for the value and the memory that follow
        return cut


def host(tensor: Tensor, device: torch.device) -> Tensor:
    """Memory that a GPU can read by itself."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
