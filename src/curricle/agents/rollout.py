"""Rollouts: a network plays in a vector of sub-environments and keeps what it saw, did and got.

Sub-environments are split into lanes, each with a `WorldVector` of its own, so that two lanes keep two cores busy
(`team.py`), and beside a GPU one lane's worlds step while the network thinks for the other (`Turns`). Lanes
never look at each other: results depend on how many there are, not on who works them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agents.hardware import TRITON, Lent, sent
from curricle.agents.nets import Network
from curricle.agents.spaces import Arrays, Part, final, split
from curricle.agents.team import shared
from curricle.world import WorldVector

Look = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
"""(seen, memory, before, unlocked, fresh, noise) -> latents, memory, actions, log-probabilities, values."""


class Rollout:
    """What happened in `steps` steps of `count` sub-environments; time comes first in every array."""

    def __init__(self, network: Network, device: torch.device, steps: int, count: int, skills: int) -> None:
        self.steps, self.count, self.device = steps, count, device

        def room(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device = device) -> Tensor:
            return shared(torch.zeros(steps + 1, count, *shape, dtype=dtype, device=device))

        self.seen = {name: room(*part.shape, dtype=_dtype(part)) for name, part in network.parts.items()}
        self.memory, self.actions = (
            room(network.memory),
            room(*network.policy.blank.shape, dtype=network.policy.blank.dtype),
        )
        self.log_probs, self.values, self.advantages, self.returns = room(), room(), room(), room()
        host, flag = torch.device("cpu"), torch.bool
        self.rewards: NDArray[np.float32] = room(device=host).numpy()
        self.ended: NDArray[np.bool_] = room(dtype=flag, device=host).numpy()
        self.shown: NDArray[np.bool_] = room(skills, dtype=flag, device=host).numpy()

    def rows(self) -> dict[str, Tensor]:
        """All steps of all sub-environments as rows; views, not copies."""
        whole = {f"seen.{name}": tensor for name, tensor in self.seen.items()}
        whole |= {name: getattr(self, name) for name in ("memory", "actions", "log_probs", "advantages", "returns")}
        return {name: tensor[: self.steps].flatten(0, 1) for name, tensor in whole.items()}

    def copy(self, other: "Rollout", steps: int) -> None:
        """Take over `steps` steps of another one, and what follows them."""
        for name, mine in vars(self).items():
            its = getattr(other, name)
            for one, from_ in zip(mine.values(), its.values(), strict=True) if name == "seen" else ((mine, its),):
                if isinstance(one, Tensor):
                    one[: steps + 1].copy_(from_[: steps + 1])
                elif isinstance(one, np.ndarray):
                    np.copyto(one[: steps + 1], from_[: steps + 1])

    def judge(
        self, steps: int, cut: Sequence["Cut"], look_on: Callable[..., Tensor], gamma: float, trace: float
    ) -> None:
        """Fill in advantages and returns; an episode cut short goes on in the value of its last observation."""
        rewards = self.rewards[:steps].copy()
        if cut:
            seen = {name: np.concatenate([one.seen[name] for one in cut]) for name in self.seen}
            at, who = [one.at for one in cut], [one.who for one in cut]
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in seen.items()}
            rewards[at, who] += gamma * look_on(tensors, self.memory[at, who]).cpu().numpy()
        if self.device.type == "cuda" and TRITON:  # a GPU is still at the last looks, and need not be waited for
            got, ended = (sent(torch.from_numpy(some), self.device) for some in (rewards, self.ended[:steps].copy()))
            judged(got, ended, self.values, self.advantages, self.returns, gamma, trace)
            return
        values = self.values[: steps + 1].cpu().numpy()
        advantages = gae(rewards, values, self.ended[:steps], gamma, trace)
        self.returns[:steps] = torch.from_numpy(advantages + values[:-1]).to(self.device)
        spread = advantages.std() + 1e-8
        self.advantages[:steps] = torch.from_numpy((advantages - advantages.mean()) / spread).to(self.device)


class Cut:
    """An episode that a time limit ended: when, where, and what was seen last."""

    def __init__(self, at: int, who: int, seen: Arrays) -> None:
        self.at, self.who, self.seen = at, who, {name: array.copy() for name, array in seen.items()}


def gae(
    rewards: NDArray[Any], values: NDArray[Any], ended: NDArray[np.bool_], gamma: float, trace: float
) -> NDArray[np.float32]:
    """Generalised advantages (Schulman et al. 2016); `values` has one row more, for what follows the last step."""
    goes_on = np.float32(1) - ended
    deltas = rewards + np.float32(gamma) * values[1:] * goes_on - values[:-1]
    fade, advantages = np.float32(gamma * trace) * goes_on, np.empty_like(deltas)
    later = np.zeros(deltas.shape[1], np.float32)
    for t in range(len(deltas) - 1, -1, -1):
        later = advantages[t] = deltas[t] + fade[t] * later
    return np.asarray(advantages, np.float32)


def judged(
    rewards: Tensor, ended: Tensor, values: Tensor, advantages: Tensor, returns: Tensor, gamma: float, trace: float
) -> None:
    """The same on a GPU, in one kernel, with advantages brought to one scale; the last two are filled in."""
    from curricle.agents.kernels import judge

    steps, count = rewards.shape
    shape = {"BLOCK": min(1024, max(32, 1 << (count - 1).bit_length())), "num_warps": 8}
    judge[(1,)](rewards, ended, values, advantages, returns, steps, count, gamma, gamma * trace, **shape)


class Lane:
    """Some neighbouring sub-environments of a rollout, from `first` on."""

    def __init__(self, vector: WorldVector, first: int, rollout: Rollout, network: Network) -> None:
        self.vector, self.first, self.rollout, self.network = vector, first, rollout, network
        vector.copies = False  # they go straight to the stage, or into a Cut
        self.here = slice(first, first + vector.num_envs)
        self.device = rollout.device
        n, skills = vector.num_envs, rollout.shown.shape[-1]
        self.shown = np.zeros((n, skills), np.bool_)
        self.marks = _host(torch.zeros(2, n, 1, dtype=torch.bool), self.device)  # unlocked something, began an episode
        self.still = torch.zeros(2, 0, 1, dtype=torch.bool, device=self.device)  # for networks without memory
        rooms = [rollout.actions, rollout.log_probs, rollout.values]
        self.places = [[room[t, self.here] for room in rooms] for t in range(rollout.steps + 1)]
        arrays = vector.lent()
        lent = {} if arrays is None else split(arrays, network.parts, n)
        self.lent = {name: Lent(torch.from_numpy(array), self.device) for name, array in lent.items()}
        self.stage = {
            name: self.lent[name].tensor
            if lent
            else _host(torch.zeros(n, *part.shape, dtype=_dtype(part)), self.device)
            for name, part in network.parts.items()
        }
        blank = network.policy.blank
        self.chosen = _host(torch.zeros(n, *blank.shape, dtype=blank.dtype), self.device)
        self.ready = torch.cuda.Event() if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.memory = torch.zeros(n, network.memory, device=self.device)
        self.before = torch.zeros(n, network.hidden if network.memory else 0, device=self.device)

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
            self.memory.copy_(torch.from_numpy(scene["memory"][self.here]))

    def keep(self) -> Arrays:
        """What the lane has in mind between two rollouts."""
        kept = {f"seen.{name}": tensor.numpy().copy() for name, tensor in self.stage.items()}
        kept["shown"] = self.shown.copy()
        return kept | ({"memory": self.memory.cpu().numpy().copy()} if self.network.memory else {})

    def step(self, t: int) -> list[Cut]:
        """Wait for the actions, and move the worlds; returns the episodes that were cut short."""
        return self._move(t, self.network.policy.outward(self.wait()))

    def wait(self) -> NDArray[Any]:
        """The actions that were chosen last; what they were chosen by has been read."""
        if self.ready:
            self.ready.synchronize()
        return self.chosen.numpy()

    def look(self, look: Look, t: int, noise: Tensor) -> None:
        """See, remember and choose; on a GPU this is only begun."""
        r, here = self.rollout, self.here
        seen = {name: buffer[t, here] for name, buffer in r.seen.items()}
        for name, tensor in seen.items():
            tensor.copy_(self.stage[name], non_blocking=True)
        unlocked, fresh = self.marks.to(self.device, non_blocking=True) if self.network.memory else self.still
        latents, memory, actions, log_probs, values = look(seen, self.memory, self.before, unlocked, fresh, noise)
        if self.network.memory:
            self.before.copy_(latents)
            self.memory.copy_(memory)
            r.memory[t, here] = memory
        self.chosen.copy_(actions, non_blocking=True)
        if self.ready:
            self.ready.record()
        for place, found in zip(self.places[t], (actions, log_probs, values), strict=True):
            place.copy_(found)

    def _move(self, t: int, actions: NDArray[Any]) -> list[Cut]:
        r, here = self.rollout, self.here
        observations, rewards, terminated, truncated, info = self.vector.step(actions)
        ended, shown = terminated | truncated, info["skills"]
        r.rewards[t, here], r.ended[t, here], r.shown[t, here] = rewards, ended, shown
        cut = list[Cut]()
        if truncated.any():
            for i in np.flatnonzero(truncated & ~terminated):
                cut.append(Cut(t, self.first + int(i), final(info, int(i), self.network.parts)))
        if self.network.memory:
            marks = self.marks.numpy()
            marks[0, :, 0], marks[1, :, 0] = (shown != self.shown).any(1), ended
        self.shown = shown & ~ended[:, None]
        self._show(split(observations, self.network.parts, len(ended)))
        return cut

    def _show(self, seen: Arrays) -> None:
        for name, array in seen.items():
            if array.ctypes.data != self.stage[name].data_ptr():  # else the world drew it there
                np.copyto(self.stage[name].numpy(), array)

    def close(self) -> None:
        """Let worlds and memory go."""
        self.wait()  # a look may still be under way that reads them
        for memory in self.lent.values():
            memory.close()
        self.vector.close()


class Turns:
    """Lanes that one worker plays by turns, each with its way to look.

    A lane's network is only begun before it is the next one's turn, so that a GPU thinks while worlds step. All queue
    on one stream: two networks at once gain nothing there, and graphs that overlap would share workspaces.
    """

    def __init__(self, lanes: Sequence[Lane], looks: Sequence[Look]) -> None:
        self.lanes, self.looks, self.lucks = lanes, looks, list[Tensor]()

    @torch.no_grad()
    def begin(self, noise: Sequence[NDArray[np.float32]]) -> None:
        """Have the first look of a rollout begun in each lane; the noise decides all draws of it."""
        self.lucks = [sent(torch.from_numpy(some), lane.device) for lane, some in zip(self.lanes, noise, strict=True)]
        for lane, look, luck in zip(self.lanes, self.looks, self.lucks, strict=True):
            lane.wait()
            lane.marks.zero_()
            lane.look(look, 0, luck[0])

    @torch.no_grad()
    def play(self) -> list[Cut]:
        """Play the rollout that was begun; returns the episodes that were cut short."""
        cut, steps = list[Cut](), len(self.lucks[0])
        for t in range(steps):
            for lane, look, luck in zip(self.lanes, self.looks, self.lucks, strict=True):
                cut += lane.step(t)
                lane.look(look, t + 1, luck[(t + 1) % steps])  # the last one for the value and the memory that follow
        return cut


def picked(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor; bytes are fetched eight at a time, which a GPU does several times faster."""
    wide = tensor.flatten(1) if tensor.ndim > 1 else tensor
    if tensor.dtype != torch.uint8 or tensor.ndim < 2 or wide.shape[1] % 8:
        return tensor[rows]
    return wide.view(torch.int64)[rows].view(torch.uint8).view(len(rows), *tensor.shape[1:])


def _host(tensor: Tensor, device: torch.device) -> Tensor:
    """Memory that a GPU can read by itself."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def _dtype(part: Part) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, part.dtype)).dtype
