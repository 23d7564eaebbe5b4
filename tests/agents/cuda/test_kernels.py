"""Kernels for a GPU, run by Triton's interpreter: what they compute can be tested without one, how fast they are not.

A process of their own, because Triton decides when it is loaded whether it compiles or interprets.
"""

import json
from importlib.util import find_spec

import pytest
from helpers.triton_interpreter import interpreted

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")

EVEN = """
import copy, json
import torch
from curricle.agents.cuda import fused_layers as fused

def error(z):
    # of the second norm of the first, and of its gradient, against double precision
    norms = [torch.nn.GroupNorm(1, z.shape[1]) for _ in range(2)]
    found = []
    for exact in (True, False):
        one, two = (copy.deepcopy(norm).double() if exact else norm for norm in norms)
        given = (z.double() if exact else z).clone(memory_format=torch.channels_last).requires_grad_()
        out = two(one(given)) if exact else fused.normalise_twice(given, *fused.collect_norms([one, two]))[0]
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
        found.append([out.detach().double(), given.grad.double()])
    length = torch.linalg.vector_norm
    return [float(length(a - b) / length(a)) for a, b in zip(*found, strict=True)]

torch.manual_seed(0)
spot = torch.full((1, 64, 16, 16), 2.0)
spot[0, :, 3, 3] += 0.01
print(json.dumps([error(spot), error(100 + 0.1 * torch.randn(2, 8, 15, 16)), error(torch.randn(2, 8, 15, 16))]))
"""
SCRIPT = """
import json, sys
import torch
from curricle.agents.cuda import fused_layers as fused
from curricle.agents.networks.encoders import Pixels

def distances(shape, channels, blocks, kind, count=5):
    # how far output and gradients of the fused network are from the plain one's, as shares of their length
    torch.manual_seed(0)
    net = Pixels(shape, channels, blocks, 32).to(memory_format=torch.channels_last)
    seen = torch.randint(0, 256, (count, *shape), dtype=torch.uint8)
    found = []
    fused.RESIDENT, fused.PROGRAMS = (2, 2), 2  # fewer programs than pictures, as on a GPU
    fused._compute_dtype = lambda like: getattr(torch, kind)
    for how in (net.stages, fused.image_network):
        net.zero_grad()
        if how is net.stages:
            out = net.dense(how(seen.permute(0, 3, 1, 2).float() / 255).permute(0, 2, 3, 1).flatten(1))
        else:
            out = net.dense.after_norm(how(list(net.stages), net.dense.norm, seen).float())
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
        found.append([out.detach(), *(p.grad.clone() for p in net.parameters())])
    length = torch.linalg.vector_norm
    names = ["output", *(name for name, _ in net.named_parameters())]
    return {n: float(length(a - b) / (length(a) + 1e-6)) for n, a, b in zip(names, *found, strict=True)}

print(json.dumps([distances(*case) for case in json.loads(sys.argv[1])]))
"""
LOSS = """
import json, sys
import torch
from curricle.agents.cuda import fused_ppo
from curricle.agents.networks.heads import Categorical, ValueNormaliser
from curricle.agents.ppo.agent import ppo_loss
from curricle.agents.ppo.options import PPOOptions
import gymnasium

def far(count, actions, rows):
    # how far loss, metrics and gradients of the kernel are from the plain ones
    torch.manual_seed(count)
    fused_ppo.ROWS = rows
    network = torch.nn.Module()
    network.policy, network.scale = Categorical(4, gymnasium.spaces.Discrete(actions)), ValueNormaliser(0.9)
    logits, values = torch.randn(count, actions) * 2, torch.randn(count)
    batch = {"actions": torch.randint(actions, (count,)), "advantages": torch.randn(count)}
    batch["log_probs"] = logits.log_softmax(-1)[torch.arange(count), batch["actions"]] + 0.3 * torch.randn(count)
    batch["returns"] = 3 + 2 * torch.randn(count)
    network.scale.update(batch["returns"])
    coefficients, found = (0.2, 0.5, 0.01), []
    options = PPOOptions(clip=0.2, value_coef=0.5, entropy_coef=0.01)
    for kernel in (False, True):
        given = logits.clone().requires_grad_(), values.clone().requires_grad_()
        log_probs = given[0].log_softmax(-1)
        if kernel:
            loss, metrics = fused_ppo.ppo_loss(log_probs, given[1], batch, network.scale.moments, coefficients)
        else:
            loss, metrics = ppo_loss(network, log_probs, given[1], batch, options)
        (3 * loss).backward()
        found.append([loss.detach()[None], metrics, *(g.grad for g in given)])
    return [float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found)] + found[0][1].tolist()

print(json.dumps([far(*case) for case in json.loads(sys.argv[1])]))
"""
SAMPLED = """
import json
import gymnasium, torch
from curricle.agents.cuda import fused_ppo
from curricle.agents.networks.heads import Categorical, ValueNormaliser
from curricle.agents.ppo.actors import sample_actions

def far(count, actions):
    # actions that the kernel draws differently, and how far log-probabilities and values are from the plain ones
    torch.manual_seed(count)
    network = torch.nn.Module()
    network.policy, network.scale = Categorical(4, gymnasium.spaces.Discrete(actions)), ValueNormaliser(0.9)
    network.scale.update(3 + 2 * torch.randn(50))
    log_probs, noise = (2 * torch.randn(count, actions)).log_softmax(-1), torch.rand(count, 1)
    noise[:2] = torch.tensor([[0.0], [1.0]])[:count]
    given = log_probs, torch.randn(count), noise
    plain = sample_actions(network, *given)
    quick = fused_ppo.sample_actions(*given, network.scale.moments)
    return [float((a - b).abs().max()) for a, b in zip(plain, quick)] + [len(set(plain[0].tolist()))]

print(json.dumps([far(200, 17), far(1, 2), far(65, 6)]))
"""
MOMENTS = """
import json
import torch
from curricle.agents.networks.heads import ValueNormaliser
from curricle.agents.cuda.fused_ppo import update_moments

plain, quick = ValueNormaliser(0.9), torch.zeros(3)
for count in (1, 100, 1500):
    targets = 5 + 3 * torch.randn(count)
    plain.update(targets)
    update_moments(targets, quick, 1 - 0.9)
print(json.dumps([plain.moments.tolist(), quick.tolist()]))
"""
ADAM = """
import json, math
import torch
from curricle.agents.cuda.fused_ppo import adam_step
from curricle.agents.networks.flat_parameters import FlatParameters

def far(size, longest, steps):
    # how far weights and moments are from those of torch's Adam, after some steps
    torch.manual_seed(size)
    plain, quick = (torch.nn.Linear(size, 1, bias=False) for _ in range(2))
    quick.load_state_dict(plain.state_dict())
    both = [FlatParameters(plain), FlatParameters(quick)]
    adams = [torch.optim.Adam([parameters.flat], lr=1e-2, fused=True) for parameters in both]
    for parameters, adam in zip(both, adams):
        parameters.flat.grad = torch.zeros_like(parameters.flat)
        adam.step()
        for value in adam.state[parameters.flat].values():
            value.zero_()
    bf16_copy = torch.zeros(size, dtype=torch.float16)  # the interpreter knows no bfloat16
    for step in range(steps):
        gradient = torch.randn(size) * 10 ** (step % 3 - 1)
        both[0].clip_and_step(gradient, adams[0], longest)
        state = adams[1].state[both[1].flat]
        norm = torch.linalg.vector_norm(gradient)
        adam_step(both[1].flat, gradient, norm, longest, adams[1], bf16_copy if step else None)
    pairs = [(both[0].flat.data, both[1].flat.data)]
    pairs += [(both[1].flat.data.half().float() * (steps > 1), bf16_copy.float())]
    pairs += [(adams[0].state[both[0].flat][name], state[name]) for name in ("exp_avg", "exp_avg_sq", "step")]
    far = [float((a - b).abs().max() / a.abs().max().clamp(min=1e-9)) for a, b in pairs]
    return far + [float(both[0].flat.data.std())]

print(json.dumps([far(37, 0.5, 1), far(1024, 1e9, 5), far(2500, 3.0, 40)]))
"""
ADVANTAGES = """
import json
import numpy as np
import torch
from curricle.agents.cuda.fused_ppo import fill_advantages
from curricle.agents.ppo.agent import gae

def far(steps, count):
    # how far advantages and returns are from the plain ones; rows after the rollout stay as they were
    rng = np.random.default_rng(count)
    rewards, values = (rng.normal(1, 2, (n, count)).astype(np.float32) for n in (steps, steps + 2))
    ended = rng.random((steps, count)) < 0.2
    plain = gae(rewards, values[: steps + 1], ended, 0.95, 0.65)
    room = torch.full((2, steps + 2, count), 7.0)
    fill_advantages(torch.from_numpy(rewards), torch.from_numpy(ended), torch.from_numpy(values), *room, 0.95, 0.65)
    expected = (plain - plain.mean()) / (plain.std() + 1e-8), plain + values[:steps]
    return [float(np.abs(a - b.numpy()[:steps]).max()) for a, b in zip(expected, room)] + [float(room[:, steps:].std())]

print(json.dumps([far(16, 256), far(5, 1), far(33, 70), far(4, 2100)]))
"""
COMPILED = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from curricle.agents.cuda import kernels, norm_kernels as norms

half, full, whole, byte = "*bf16", "*fp32", "*i64", "*i8"
picture = {"HEIGHT": 64, "WIDTH": 64, "PIXEL": 4}
tile = {**picture, "C": 64, "WIDE": 64, "BLOCK": 64}
rows = {"ACTIONS": 17, "WIDE": 32, "BLOCK": 64}
block = {"C": 64, "BLOCK": 4096, "WHOLE": True}
flat = {"BLOCK": 1024}
pool = {"HEIGHT": 32, "WIDTH": 32, "C": 128, "BLOCK": 1024}
CASES = [
    ("pad", [byte, half], {**picture, "COLOURS": 3, "BLOCK": 1024}),
    ("enter", [half, full, full, half, byte, "i32"], {**tile, "COLOURS": 3, "ROWS": 8}),
    ("enter_back", [half, half, byte, full, full, "i32"], tile),
    ("pool", [half, full, half, byte], pool),
    ("pool_back", [half, byte, half], pool),
    ("ppo_loss", [full, full, whole, *[full] * 4, full, full, full, "i32", *["fp32"] * 3], rows),
    ("fill_advantages", [full, "*i1", full, full, full, "i32", "i32", "fp32", "fp32"], {"BLOCK": 256}),
    ("sample_actions", [full] * 4 + [whole, full, full, "i32"], rows),
    ("update_moments", [full, full, "i32", "fp32"], flat),
    ("adam_step", [full, full, "fp32", *[full] * 4, "i32", *["fp32"] * 6, half], {**flat, "HAS_BF16_COPY": True}),
    ("twice", [half, *[full] * 4, half, half, full, full, "fp32", "fp32", "i32", "i32"], block),
    ("twice_back", [half] * 3 + [full] * 5 + [half, full, "i32", "i32", "i32"], {**block, "SKIP": True}),
]
for kind in ({"RELU": True, "ADD": False}, {"RELU": True, "ADD": True}, {"RELU": False, "ADD": False}):
    forth = [half, half, full, full, half, half, full, full, "fp32", "i32", "i32"]
    back = [half] * 4 + [full] * 3 + [half, half, full, "i32", "i32", "i32"]
    CASES += [("norm", forth, {**block, **kind}), ("norm_back", back, {**block, **kind, "SKIP": kind["ADD"]})]
CASES.append(("norm_back", back, {"C": 8192, "BLOCK": 8192, "WHOLE": True, "RELU": True, "ADD": True, "SKIP": False}))

made = set()
for name, types, fixed in CASES:
    function = getattr(kernels, name, None) or getattr(norms, name)
    given = iter(types)
    signature = {one: "constexpr" if one in fixed else next(given) for one in function.arg_names}
    constants = {(i,): fixed[one] for i, one in enumerate(function.arg_names) if one in fixed}
    assert next(given, None) is None, name
    triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", 90, 32))
    made.add(name)
known = {n for m in (kernels, norms) for n, f in vars(m).items() if isinstance(f, triton.JITFunction) and n[0] != "_"}
print(json.dumps([sorted(made), sorted(known)]))
"""
SHAPES = [((13, 10, 1), (4, 8), 2), ((9, 9, 2), (16,), 2), ((11, 12, 3), (4, 8), 0), ((16, 12, 3), (16, 32), 1)]
SHAPES += [((16, 32, 3), (4, 8), 1)]  # whose last pictures are of as many numbers as a block
OTHERS = [((8, 9, 6), (8,), 1), ((6, 7, 3), (128,), 1)]  # more colours or channels than are fused at first


def distances(cases):
    return interpreted(SCRIPT, json.dumps(cases))


def test_a_small_fused_network_computes_what_the_plain_one_does():
    (found,) = distances([[(9, 9, 2), (16,), 1, "float32"]])
    assert all(far < 1e-3 for far in found.values()), found


@pytest.mark.slow
def test_fused_layers_compute_what_the_plain_ones_do():
    cases = [[*shape, "float32"] for shape in SHAPES + OTHERS]
    cases.append([(64, 64, 3), (64,), 1, "float32", 1])  # a picture of many blocks
    for shape, found in zip(cases, distances(cases), strict=True):
        assert all(far < 1e-3 for far in found.values()), (shape, found)


@pytest.mark.slow
def test_so_they_do_in_half_precision_up_to_its_rounding():
    """The interpreter knows no products of bfloat16, so it is float16; some maxima move to their neighbours."""
    (found,) = distances([[(16, 12, 3), (16, 32), 2, "float16"]])
    assert found["output"] < 0.01 and all(far < 0.1 for far in found.values()), found


@pytest.mark.slow
def test_pictures_that_are_nearly_even_keep_their_digits():
    for output, gradient in interpreted(EVEN):
        assert output < 2e-3 and gradient < 2e-2


@pytest.mark.slow
def test_all_kernels_compile_for_a_large_gpu():
    """What the interpreter lets pass the compiler may not; it needs no GPU."""
    made, known = interpreted(COMPILED, interpret="0")
    assert made == known


@pytest.mark.slow
def test_actions_drawn_by_the_kernel_are_the_plain_ones():
    found = interpreted(SAMPLED)
    assert all(max(differences) < 1e-5 for *differences, _ in found)
    assert found[0][3] > 10, "many kinds of actions were drawn"


@pytest.mark.slow
def test_advantages_of_the_kernel_are_the_plain_ones():
    for advantages, returns, beyond in interpreted(ADVANTAGES):
        assert advantages < 1e-4 and returns < 1e-4 and beyond == 0


def test_moments_of_the_kernel_are_those_of_the_plain_normaliser():
    plain, quick = interpreted(MOMENTS)
    assert quick == pytest.approx(plain, rel=1e-5) and plain[2] == pytest.approx(1 - 0.9**3)


def test_the_loss_of_the_kernel_is_the_plain_one():
    for *far, _policy, value, entropy, kl, clipped in interpreted(
        LOSS, json.dumps([(37, 17, 256), (64, 5, 16), (1, 2, 8)])
    ):
        assert max(far) < 1e-4, far
        assert value > 0 and entropy > 0 and kl > 0 and 0 <= clipped <= 1


@pytest.mark.slow
def test_adam_of_the_kernel_is_torchs():
    for *far, spread in interpreted(ADAM):
        assert max(far) < 1e-5 and spread > 0.01, far
