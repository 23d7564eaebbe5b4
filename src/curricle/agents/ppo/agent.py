"""PPO (Schulman et al. 2017) for any vector world: discrete or continuous actions, images, symbols, numbers.

Defaults are those of the papers for Crafter from pixels (Moon et al. 2023, EnvGen). It practises in all designs side by
side and counts outcomes from the episodes it trains on. Every draw comes from the seed of the call, and the checkpoint
holds network, optimiser, normalisers and environments: on a CPU a resumed run ends with the same bytes. Environments
and minibatches are split into `lanes` that work side by side (`team.py`); gradients are added in a fixed order, so the
load of the machine and the number of its cores change nothing but the time.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curricle.agent import Agent, Report
from curricle.agents.cuda.graphs import CudaGraph
from curricle.agents.cuda.memory import PendingMetrics
from curricle.agents.devices import bf16_autocast, can_fork, choose_device, keep_freed_memory, single_thread, to_device
from curricle.agents.episodes import Tally, perform, play, share_out, vector_world
from curricle.agents.networks.encoders import Network
from curricle.agents.networks.flat_parameters import FlatParameters
from curricle.agents.networks.spaces import Arrays, check_actions, input_specs
from curricle.agents.parallel.workers import WorkerGroup, run_workers, shared_memory
from curricle.agents.ppo.actor import Actor
from curricle.agents.ppo.lane import Lane, Sight, Turns
from curricle.agents.ppo.options import PPOOptions
from curricle.agents.ppo.player import Player
from curricle.agents.ppo.practice import Course, Scene
from curricle.agents.ppo.rollout import Cut, Rollout, picked
from curricle.agents.ppo.update import FIGURES, Weights, objective
from curricle.errors import AgentError, RunDamaged, explained
from curricle.records import Design, Outcome
from curricle.seeds import derive
from curricle.tracking import checkpoint
from curricle.world import World, WorldVector

LOG = logging.getLogger("curricle")
ADVICE = "choose fewer environments, shorter rollouts (steps) or more minibatches"


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
        self.rollouts = 0
        self.scene = None
        self._rollout: Rollout | None = None
        self._graphs = dict[Any, CudaGraph]()
        self._sights = dict[Any, Sight]()
        self._captures = self.device.type == "cuda" and self.options.graphs
        if self.device.type == "cpu":
            keep_freed_memory()
        with explained(self.id, ADVICE, AgentError):
            self.network = self._network(seed)
            self._equip()
        LOG.info("%s runs on %s", self.id, self.device)

    rollouts: int
    scene: Scene | None

    def _network(self, seed: int) -> Network:
        """A new network for what the world shows and takes."""
        o = self.options
        probe = self.vectors.vector([self.world.original])
        where = f"{self.id} in {self.world.id}"
        actions = probe.single_action_space
        self.parts = input_specs(probe.single_observation_space, where)
        probe.close()
        check_actions(actions, where)
        hidden = o.hidden or (1024 if any(part.kind == "image" for part in self.parts.values()) else 256)
        with torch.random.fork_rng(devices=[]), single_thread(torch.device("cpu")):
            torch.manual_seed(derive(seed, "network"))
            made = self.Net(
                self.parts,
                actions,
                channels=o.channels,
                blocks=o.blocks,
                width=o.width,
                hidden=hidden,
                keep=o.value_norm_decay,
            )
            return made.to(self.device)

    def _equip(self) -> None:
        """All that learning needs beside the network."""
        o = self.options
        on_gpu = self.device.type == "cuda"
        self.actor = Actor(self.network, self.device, bf16=o.bf16)
        self.row = FlatParameters(self.network, bf16_copies=on_gpu and o.bf16)
        self.row.flat.grad = torch.zeros_like(self.row.flat)
        self.adams = {
            name: torch.optim.Adam([self.row.flat], lr=o.learning_rate, fused=True, capturable=on_gpu)
            for name in self.optimisers
        }
        for adam in self.adams.values():
            adam.step()  # on a zero gradient: makes the optimiser's state and moves nothing
            for value in adam.state[self.row.flat].values():
                value.zero_()
        self._slopes = [shared_memory(torch.zeros_like(self.row.flat.data)) for _ in range(o.workers)]

    # -- the contract ----------------------------------------------------------------------------------------------

    def practise(self, designs: Sequence[Design], budget: int, *, seed: int, report: Report) -> list[Outcome]:
        """Rollouts and updates in turn; the budget is shared out evenly over rollouts of at least `steps` steps."""
        owners = share_out(len(designs), self.options.environments)
        if not budget:
            return Tally(self.vectors, designs, owners).outcomes()
        each = [dict(self.vectors.setting(design.setting).values) for design in designs]
        settings = [each[owner] for owner in owners]
        course = Course(settings, self.options.workers, budget, self.options.steps, seed)
        course.tally = Tally(self.vectors, designs, owners)
        course.report = report
        if scene := course.continued(self.scene):
            course.tally.running[:] = scene.arrays["running"]
        with explained(self.id, ADVICE, AgentError), single_thread(self.device):
            course.rollout = self._room(len(owners))
            workers = 1 if self.device.type == "cuda" else course.lanes
            run_workers(workers, partial(self._work, course), processes=can_fork(self.device))
        return course.tally.outcomes()

    def measure(self, designs: Sequence[Design], seeds: Sequence[int], episodes: int) -> list[Outcome]:
        """Play with the policy as it is; every seed draws its own luck."""
        with explained(self.id, ADVICE, AgentError), single_thread(self.device):
            o = self.options
            player = Player(self.network, self.device, seeds, bf16=o.bf16, greedy=o.greedy)
            return play(self.vectors, designs, seeds, episodes, player.act, player.saw)

    def perform(self, design: Design, seed: int) -> Iterator[WorldVector]:
        """Play one episode, to be watched."""
        with explained(self.id, ADVICE, AgentError), single_thread(self.device):
            player = Player(self.network, self.device, [seed], bf16=self.options.bf16, greedy=self.options.greedy)
            yield from perform(self.vectors, design, seed, player.act, player.saw)

    def save(self, folder: Path) -> None:
        """Write network, optimiser, normalisers and environments."""
        arrays, state = self.arrays()
        checkpoint.write(folder, arrays, {"world": self.world.id, "pictures": "by pixel", **state})

    def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""
        arrays, state = checkpoint.read(folder)
        try:
            if state["world"] != self.world.id:
                raise ValueError(f"it is of {state['world']}")
            if "pictures" not in state and any(part.kind == "image" for part in self.parts.values()):
                raise ValueError("it is of before networks laid pictures out by pixel; it has to be trained anew")
            self.take(arrays, state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise RunDamaged(f"checkpoint {folder} does not fit {self.id} in {self.world.id}: {error}") from error

    # -- what a checkpoint holds; distill.py adds to it ------------------------------------------------------------

    def arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """All state as arrays and plain data."""
        found = {f"network.{name}": tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}
        found |= {name: tensor.cpu().numpy() for name, tensor in self._moments().items()}
        if self.scene:
            found |= {f"scene.{name}": array for name, array in self.scene.arrays.items()}
        scene = {"settings": self.scene.settings, "lanes": self.scene.lanes} if self.scene else None
        return found, {"rollouts": self.rollouts, "scene": scene}

    def take(self, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Take up what `arrays` gave."""
        given = {name: torch.from_numpy(arrays[f"network.{name}"].copy()) for name in self.network.state_dict()}
        self.network.load_state_dict(given)
        self.row.refresh_bf16_copy()
        for name, tensor in self._moments().items():
            tensor.copy_(torch.from_numpy(arrays[name].copy()))
        self.rollouts = state["rollouts"]
        self.scene = None
        if state["scene"] is not None:
            kept = {name.removeprefix("scene."): array for name, array in arrays.items() if name.startswith("scene.")}
            self.scene = Scene(state["scene"]["settings"], state["scene"]["lanes"], kept)

    def _moments(self) -> dict[str, Tensor]:
        """The state of the optimisers."""
        states = {name: adam.state[self.row.flat] for name, adam in self.adams.items()}
        return {f"{name}.{key}": tensor for name, state in states.items() for key, tensor in state.items()}

    def moving(self) -> list[Tensor]:
        """What a step of learning changes."""
        bf16_copy = [] if self.row.bf16_copy is None else [self.row.bf16_copy]
        return [self.row.flat.data, *bf16_copy, self.network.scale.moments, *self._moments().values()]

    # -- rollout ---------------------------------------------------------------------------------------------------

    def _work(self, course: Course, me: int, team: WorkerGroup) -> None:
        """What every worker does in a practice: play, meet, learn, meet, ...; beside a GPU one plays all lanes."""
        own = range(course.lanes) if self.device.type == "cuda" else (me,)
        lanes = list[Lane]()
        try:
            self._open(course, own, lanes)
            turns = Turns(lanes)
            turns.begin(course.draw_noise(self.network.policy, 0, own))
            batches = self._batches(course, 0)
            for index in range(course.count):
                cut = turns.play(steps := course.length(index))
                team.meet(cut, partial(self._judge, course, steps))
                self._update(course, batches, me, team)
                team.meet(None, partial(self._settle, course, index + 1))
                if index + 1 < course.count:
                    turns.begin(course.draw_noise(self.network.policy, index + 1, own))
                    batches = self._batches(course, index + 1)
                if self.device.type == "cuda":  # which goes on meanwhile
                    self._tell(course, index + 1)
            team.meet([(lane.vector.snapshot(), lane.keep()) for lane in lanes], partial(self._keep, course))
        finally:
            for lane in lanes:
                lane.close()

    def _room(self, count: int) -> Rollout:
        """Room for a rollout of any length; kept, because a GPU's graphs read from it."""
        if self._rollout is None or self._rollout.count != count:
            for sight in self._sights.values():
                sight.graph = None  # which knows it in turn: what they hold on to is needed again
            self._rollout = None
            self._graphs = {}
            self._sights = {}
            self._rollout = Rollout(self.network, self.device, 2 * self.options.steps, count, len(self.world.skills))
        return self._rollout

    def _open(self, course: Course, own: Sequence[int], lanes: list[Lane]) -> None:
        """Make lanes' environments, and go on from where the last practice left them if the settings are the same."""
        spans = [course.span(lane) for lane in own]
        scene = course.continued(self.scene)
        typed = {id(values): self.vectors.setting(values) for values in {id(v): v for v in course.settings}.values()}
        groups = [[typed[id(values)] for values in course.settings[first:last]] for first, last in spans]
        sight = partial(self.actor.sight, self._sights, course.rollout, captures=self._captures)
        sights = [sight(slice(*span)) for span in spans]
        for vector, seen in zip(self.vectors.vectors(groups), sights, strict=True):
            lanes.append(Lane(vector, seen))  # one by one: what was opened is closed, whatever happens to the next
        for number, lane, (first, last) in zip(own, lanes, spans, strict=True):
            if scene:
                lane.resume(scene.arrays, scene.world(number))
            else:
                lane.begin([derive(course.seed, "world", i) % 2**31 for i in range(first, last)])

    def _batches(self, course: Course, index: int) -> Tensor:
        """The rows of every minibatch of a rollout, (minibatches, size)."""
        return to_device(course.batches(index, self.options.epochs, self.options.minibatches), self.device)

    def _judge(self, course: Course, steps: int, cuts: Sequence[Sequence[Cut]]) -> None:
        """At the meeting after play: advantages."""
        cut = [one for worker in cuts for one in worker]
        course.rollout.judge(steps, cut, self.actor.worth, self.options.gamma, self.options.gae_lambda)

    def _settle(self, course: Course, done: int, _: Any = None) -> None:
        """At the meeting after learning: count the episodes, and do what else has to be done before the next looks.

        On a CPU say how it went, too; a GPU has not come that far yet, and need not wait until it is asked.
        """
        self.rollouts += 1
        r = course.rollout
        steps = course.length(done - 1)
        course.returns = course.tally.stretch(r.rewards[:steps], r.ended[:steps], r.shown[:steps])
        course.extra = self.also(course, done)
        means = course.figures / max(course.minibatches, 1)
        course.told = PendingMetrics(torch.cat([means, self.row.flat.isfinite().all()[None].to(means)]))
        self.network.watch({name: tensor[:steps] for name, tensor in r.seen.items()})
        if self.device.type == "cpu":
            self._tell(course, done)

    def _tell(self, course: Course, done: int) -> None:
        """Stop if the loss broke down, else say how it went."""
        *means, whole = course.told.values()
        if not np.isfinite(means).all() or not whole:
            raise AgentError(
                f"{self.id}: the loss is no longer a number after {self.rollouts} rollouts (policy {means[0]:g}, value "
                f"{means[1]:g}); the last checkpoint is good: set a learning_rate below "
                f"{self.options.learning_rate:g} in the run's config.toml ([agent] learning_rate) and resume"
            )
        figures = dict(zip(FIGURES, means, strict=True)) | course.extra
        figures |= {"practice/episodes": float(course.tally.attempts.sum())}
        figures |= {"practice/return": float(np.mean(course.returns))} if course.returns else {}
        every = sum(course.length(i) for i in range(done))
        course.report(min(course.budget, every * len(course.settings)), figures)

    def also(self, course: Course, done: int) -> dict[str, float]:
        """What else is learnt after a rollout, for agents built on this one; returns figures."""
        return {}

    def _keep(
        self, course: Course, brought: Sequence[Sequence[tuple[Mapping[str, NDArray[Any]] | None, Arrays]]]
    ) -> None:
        """At the last meeting: keep where the environments stand."""
        self.scene = Scene.of(course.settings, course.tally, [lane for worker in brought for lane in worker])

    # -- update ----------------------------------------------------------------------------------------------------

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The clipped objective of PPO over a minibatch, and figures: policy, value, entropy, KL, share clipped."""
        o = self.options
        seen = {name: batch[f"seen.{name}"] for name in self.parts}
        with bf16_autocast(self.device, o.bf16):
            latents = self.network.encode(seen).float()
        choice, values = self.network.decide(latents, batch["memory"])  # heads in full: ratios of policies are delicate
        return objective(self.network, choice, values, batch, Weights(o.clip, o.value_coef, o.entropy_coef))

    def _update(self, course: Course, batches: Tensor, me: int, team: WorkerGroup) -> None:
        """Learn from a rollout; on a CPU lanes share each minibatch out, a GPU takes it whole."""
        data = course.rollout.rows()
        if me == 0:
            course.begin(len(FIGURES), self.device)
        if self.device.type == "cuda":
            team.meet(None, lambda _: self._descend_alone(course, batches))
            return
        team.meet(None, lambda _: self.network.scale.watch(data["returns"][batches[0]]))
        for number, batch in enumerate(batches):
            share = batch.tensor_split(course.lanes)[me]
            weight = len(share) / len(batch)
            if len(share):
                loss, figures = self.loss({name: tensor.index_select(0, share) for name, tensor in data.items()})
                self.row.gradient(loss * weight, self._slopes[me])
            following = batches[number + 1] if number + 1 < len(batches) else None
            team.meet(
                (figures * weight).tolist() if len(share) else None,
                partial(self._descend, course, None if following is None else data["returns"][following]),
            )

    def _descend(self, course: Course, following: Tensor | None, brought: Sequence[list[float] | None]) -> None:
        """At the meeting after a minibatch: add up the lanes' gradients in their order, and take the step."""
        mine = [gradient for gradient, figures in zip(self._slopes, brought, strict=False) if figures is not None]
        for other in mine[1:]:
            mine[0] += other
        self._step(mine[0])
        course.figures += torch.tensor([figures for figures in brought if figures is not None]).sum(0)
        course.minibatches += 1
        if following is not None:
            self.network.scale.watch(following)

    def _descend_alone(self, course: Course, batches: Tensor) -> None:
        """Minibatches of a rollout one after the other, on a GPU each one graph."""
        data = course.rollout.rows()

        def work(batch: Tensor) -> Tensor:
            rows = {name: picked(tensor, batch) for name, tensor in data.items()}
            self.network.scale.watch(rows["returns"])
            loss, figures = self.loss(rows)
            self._step(self.row.gradient(loss))
            return figures

        run: Any = work
        if self._captures:
            key = ("update", len(batches[0]))
            run = self._graphs.setdefault(key, CudaGraph(work, undo=self.moving()))
        for batch in batches:
            course.figures += run(batch)
        course.minibatches += len(batches)

    def _step(self, gradient: Tensor, optimiser: str = "adam") -> None:
        self.row.clip_and_step(gradient, self.adams[optimiser], self.options.max_grad_norm)
