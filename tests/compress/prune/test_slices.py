"""Slices of several sizes: parts of their own, or equal parts of which the code takes several."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network

IMAGE = (torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)),)
WIDTH = 8


class Lift(nn.Module):
    """Bins of a depth and features of one layer; their product is seen from above."""

    def __init__(self, bins: int, features: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bins = bins
        self.encode, self.lift = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, bins + features, 1)
        self.above = nn.Conv2d(features, 12, 3, 1, 1)
        self.drivable, self.boxes = nn.Conv2d(12, 2, 1), nn.Conv2d(12, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.lift(self.encode(x).relu())
        depth, features = y[:, : self.bins].softmax(1), y[:, self.bins :]
        above = self.above((depth[:, None] * features[:, :, None]).sum(3)).relu()
        return self.drivable(above), self.boxes(above)


@pytest.mark.parametrize(("bins", "features"), [(8, 16), (8, 8), (12, 8), (16, 24)])
def test_features_beside_the_bins_of_a_depth_lose_channels(bins: int, features: int) -> None:
    network = open_network(Lift(bins, features).eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    if bins != features:
        assert families["lift.weight"].count == features
        assert network.largest_difference(set(families["lift.weight"].roots[1:-2])) < 1e-9


class Parts(nn.Module):
    """The first third of the channels is taken apart from the two others."""

    def __init__(self, ends: Callable[["Parts", Tensor], tuple[int, int]]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width, self.ends = WIDTH, ends
        self.first, self.output = nn.Conv2d(3, 3 * WIDTH, 1), nn.Conv2d(WIDTH, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        third, end = self.ends(self, y)
        one, two = y[:, :third], y[:, third:end]
        return self.output(one + two[:, : two.shape[1] // 2] * two[:, two.shape[1] // 2 :])


class Passing(Parts):
    """The two other thirds are never seen apart, so that nothing but their size ties them."""

    def __init__(self, ends: Callable[[Parts, Tensor], tuple[int, int]]) -> None:
        super().__init__(ends)
        self.output = nn.Conv2d(3 * WIDTH, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        third, end = self.ends(self, y)
        return self.output(torch.cat([y[:, third:end].sigmoid(), y[:, :third]], 1))


SHARES = {
    "of the whole": lambda _, y: (y.shape[1] // 3, y.shape[1]),
    "of a number": lambda network, _: (network.width, 3 * network.width),
}


@pytest.mark.parametrize("kind", [Parts, Passing])
@pytest.mark.parametrize("name", SHARES)
def test_parts_of_a_fixed_share_still_lose_as_many_each(name: str, kind: type[Parts]) -> None:
    network = open_network(kind(SHARES[name]).eval(), IMAGE)
    (family,) = network.channels.families
    assert (family.count, family.width) == (WIDTH, 3)
    assert network.largest_difference(set(family.roots[1:-2])) < 1e-9
