"""Bins of a distribution have a meaning each and stay; channels that a softmax weighs may leave."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network

IMAGE = (torch.randn(1, 3, 8, 8),)
BINS = 8


class BoxHead(nn.Module):
    """Box sides are means over bins of distance, as in Generalized Focal Loss; classes beside.

    Args:
        is_linear: whether the mean is a matrix product with a buffer, else a convolution.
    """

    def __init__(self, *, is_linear: bool) -> None:
        super().__init__()
        self.bins, self.classes = BINS, 5
        self.outputs = 4 * BINS + 5
        self.is_linear = is_linear
        self.stem = nn.Conv2d(3, 16, 3)
        self.box, self.kind = nn.Conv2d(16, 4 * BINS, 1), nn.Conv2d(16, 5, 1)
        self.mean = nn.Conv2d(BINS, 1, 1, bias=False)
        self.mean.weight.data = torch.arange(float(BINS)).view(1, BINS, 1, 1)
        self.register_buffer("distances", torch.arange(float(BINS)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        joined = torch.cat([self.box(x), self.kind(x)], 1).view(1, self.outputs, -1)
        box, kind = joined.split((self.bins * 4, self.classes), 1)
        shares = box.view(1, 4, self.bins, -1).transpose(2, 1).softmax(1)
        if self.is_linear:
            return F.linear(shares.movedim(1, -1), self.distances), kind.sigmoid()
        return self.mean(shares), kind.sigmoid()


@pytest.mark.parametrize("is_linear", [True, False])
def test_bins_of_a_distance_stay(*, is_linear: bool) -> None:
    torch.manual_seed(0)
    network = open_network(BoxHead(is_linear=is_linear).eval(), IMAGE)
    (family,) = network.channels.families
    assert family.name == "stem.weight"
    assert network.largest_difference(set(family.roots[::3])) < 1e-9
    reasons = {item.weight: item.reason for item in network.channels.left_alone}
    assert "bins of a softmax" in reasons["box.weight"]
    assert "output" in reasons["kind.weight"]


def test_channels_that_a_softmax_weighs_leave() -> None:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.gate = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1)
            self.output = nn.Conv2d(16, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            shares = self.gate(x.mean((2, 3), keepdim=True)).softmax(1)
            return self.output(x * shares)

    torch.manual_seed(0)
    network = open_network(Weighed().eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == 16
    removed = set(family.roots[::3])
    assert network.largest_difference(removed) < 1e-9
    assert any("softmax" in name for name in network.narrowed_statistics(removed))
