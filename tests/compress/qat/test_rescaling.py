"""Factors of channels are found from rounded weights alone."""

import pytest
import torch

from compress.qat.rescaling import rescale_alike


@pytest.mark.parametrize("groups", [1, 4])
def test_factors_of_both_axes_are_found(groups: int) -> None:
    torch.manual_seed(0)
    weights = 4 * torch.randn(32, 24, 3, 3)
    outputs = torch.exp(0.5 * torch.randn(32, 1, 1, 1))
    inputs = torch.exp(0.5 * torch.randn(groups, 1, 24, 1, 1))
    apart = (weights * outputs).reshape(groups, -1, 24, 3, 3) * inputs
    changed = apart.reshape(weights.shape)
    found = rescale_alike(weights, torch.round(changed), groups)
    assert (weights - changed).abs().median() > 0.5
    assert (found - changed).abs().median() < 0.1


def test_few_weights_of_a_channel_do_not_hide_their_rounding() -> None:
    torch.manual_seed(0)
    weights = 4 * torch.randn(1, 40, 1, 1)
    factors = rescale_alike(weights, torch.round(weights)) / weights
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))


def test_dead_channels_stay_dead() -> None:
    weights = torch.randn(32, 24, 3, 3)
    weights[3], weights[:, 5] = 0.0, 0.0
    found = rescale_alike(weights, torch.round(2 * weights))
    assert torch.isfinite(found).all()
    assert not found[3].any()
    assert not found[:, 5].any()
