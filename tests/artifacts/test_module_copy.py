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


class Hooked(nn.Module):
    """Reads a feature that a hook keeps: the hook is a function that closes over the network."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)
        self.features: list[torch.Tensor] = []
        self.trunk.register_forward_hook(lambda *call: self.features.append(call[-1]))

    def forward(self, x):
        self.features.clear()
        self.trunk(x)
        return self.head(self.features[-1])


def test_a_hook_that_closes_over_the_network_closes_over_its_copy() -> None:
    network = Hooked().eval()
    copy = copy_module(network)
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(copy(x), network(x))
    network.features.clear()
    copy_module(copy)(x)
    assert not network.features
