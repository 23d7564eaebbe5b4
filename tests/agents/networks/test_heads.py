"""Heads: distributions against those of torch, and the value normaliser against values worked out by hand."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from curricle.agents.networks.heads import Categorical, Gaussian, ValueNormaliser


def test_the_value_normaliser_forgets_as_it_should():
    normaliser = ValueNormaliser(0.99)
    for _ in range(3):
        normaliser.update(torch.tensor([1.0, 3.0]))
    mean, deviation = normaliser.mean_and_deviation()
    assert (mean.item(), deviation.item()) == pytest.approx((2, 1), rel=1e-4)
    assert normaliser.denormalise(normaliser.normalise(torch.tensor([7.0]))).item() == pytest.approx(7)
    normaliser.update(torch.full((2,), 102.0))
    assert normaliser.mean_and_deviation()[0].item() == pytest.approx(2 + 100 * 0.01 / (1 - 0.99**4), rel=1e-3)


@pytest.mark.parametrize("discrete", [True, False])
def test_heads_agree_with_torch(discrete):
    torch.manual_seed(0)
    x, noise = torch.randn(20_000, 5), torch.rand(20_000, 1) if discrete else torch.randn(20_000, 2)
    head: Any
    theirs: Any
    other: Any
    if discrete:
        head = Categorical(5, gymnasium.spaces.Discrete(3))
        torch.nn.init.normal_(head.linear.weight)
        choice = head(x)
        theirs, other = (torch.distributions.Categorical(logits=c) for c in (choice, choice.flip(0)))
    else:
        head = Gaussian(5, gymnasium.spaces.Box(-2, 2, (2,), np.float32))
        choice = head(x)
        theirs, other = (
            torch.distributions.Independent(torch.distributions.Normal(c[:, :2], c[:, 2:].exp()), 1)
            for c in (choice, choice.flip(0))
        )
    actions = head.sample(choice, noise)
    assert torch.allclose(head.log_prob(choice, actions), theirs.log_prob(actions), atol=1e-4)
    assert torch.allclose(head.entropy(choice), theirs.entropy(), atol=1e-4)
    kl = torch.distributions.kl_divergence(theirs, other)
    assert torch.allclose(head.kl(choice, choice.flip(0)), kl, atol=1e-3)
    if discrete:
        shares = torch.bincount(actions, minlength=3) / len(actions)
        assert torch.allclose(shares, choice.exp().mean(0), atol=0.02)
    else:
        assert np.abs(head.to_world(actions.detach().numpy())).max() == 2  # cut off at the bounds
