"""A network is copied whatever its forward passes leave on it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm, weight_norm

from artifacts.module_copy import copy_module


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_weights_that_a_forward_pass_computes(norm) -> None:
    network = nn.Sequential(norm(nn.Conv2d(3, 4, 1)), nn.ReLU())
    x = torch.randn(1, 3, 4, 4)
    network(x).sum().backward()
    network.eval()
    copy = copy_module(network)
    assert torch.equal(copy(x), network(x))
    with torch.no_grad():
        for weight in copy.parameters():
            weight.zero_()
    assert copy(x).abs().max() != network(x).abs().max()
    network(x).sum().backward()
