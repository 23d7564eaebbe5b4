"""Encoders: the papers' network for pixels, and summed embeddings with their gradients."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from helpers.ppo_worlds import count

from curricle.agents.networks.encoders import Network, Symbols, sum_embeddings
from curricle.agents.networks.spaces import input_specs


def network(space, actions=None, **changes):
    shape: dict[str, Any] = {"channels": (64, 128, 128), "blocks": 2, "width": 256, "hidden": 1024}
    given = shape | {"value_norm_decay": 0.99} | changes
    return Network(input_specs(space, "test"), actions or gymnasium.spaces.Discrete(17), **given)


def test_the_network_for_pixels_is_the_papers():
    pixels = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert count(network(pixels)) == pytest.approx(3.95e6, rel=0.01)
    small = network(pixels, channels=(4, 8), blocks=1, hidden=32)
    features = small.encode({"all": torch.zeros(2, 64, 64, 3, dtype=torch.uint8)})
    distribution, values = small.policy_and_value(features, torch.zeros(2, 0))
    assert distribution.shape == (2, 17) and values.shape == (2,)
    assert distribution.exp().sum(1).tolist() == pytest.approx([1, 1])
    assert distribution.exp().max().item() == pytest.approx(1 / 17, abs=0.01)  # begins near chance


def test_summed_embeddings_are_sums_of_rows_and_so_are_their_gradients():
    torch.manual_seed(0)
    encoder = Symbols([3, 200, 5, 1], 8)
    seen = torch.randint(0, 2, (6, 4), dtype=torch.uint8)
    codes, tables = seen[:, [0, 2, 3]], torch.randn(12, 8, requires_grad=True)
    by_hand: Any = sum(tables[encoder.first_row[c] + codes[:, c].long()] * (codes[:, [c]] > 0) for c in range(3))
    out = sum_embeddings(codes, encoder.first_row, tables)
    assert torch.allclose(out, by_hand, atol=1e-6)
    weight = torch.randn(6, 8)
    mine, theirs = (torch.autograd.grad((x * weight).sum(), tables)[0] for x in (out, by_hand))
    assert torch.allclose(mine, theirs, atol=1e-6)
    assert encoder(seen).shape == (6, 8)
