"""Operators between two convolutions hand channels on, so that a feature map loses some of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network

WIDTH = 16
IMAGE = (torch.randn(1, 3, 8, 8),)
Operation = Callable[["Between", Tensor], Tensor]


class Between(nn.Module):
    """16 channels on 8 x 8 places, an operation, and a convolution with two outputs."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = WIDTH
        self.first, self.output = nn.Conv2d(3, WIDTH, 1), nn.Conv2d(WIDTH, 2, 1)
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.operation(self, self.first(x)))


PADDED = {
    "zeros": lambda _, x: F.pad(x, (0, 1, 2, 0)),
    "a value": lambda _, x: F.pad(x, (1, 1, 1, 1), value=1.0),
    "cropped": lambda _, x: F.pad(x, (-1, -1, 1, 0)),
}


def prune_half(operation: Operation) -> float:
    """Prunes every other channel; returns how far that is from the zeroed network."""
    network = open_network(Between(operation).eval(), IMAGE)
    assert sum(len(one.roots) * one.width for one in network.channels.families) == WIDTH
    (family,) = network.channels.families
    return max(
        network.largest_difference(set(family.roots[::2])),
        network.largest_difference(set(family.roots[1:])),
    )


@pytest.mark.parametrize("name", PADDED)
def test_a_border_keeps_no_channels(name: str) -> None:
    assert prune_half(PADDED[name]) < 1e-9


def test_channels_that_a_pad_adds_stay_and_the_others_leave() -> None:
    class Wider(nn.Module):
        """The shortcut of a residual network without weights: zeros for the new channels."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 1)
            self.output = nn.Conv2d(12, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.output(self.second(x) + F.pad(x, (0, 0, 0, 0, 2, 2)))

    network = open_network(Wider().eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == 8
    assert network.largest_difference(set(family.roots[::2])) < 1e-9
    assert {item.channels for item in network.channels.left_alone} == {2, 4}
