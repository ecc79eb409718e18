"""Sizes that code names in other ways than as a number of a module that a layer is built with."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network
from compress.prune.prunable_network import TOLERANCE

IMAGE = (torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


class Grouped(nn.Module):
    """A GroupNorm without a module, whose groups are a number of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.groups, self.scale = 4, nn.Parameter(torch.rand(16))
        self.first, self.out = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.group_norm(self.first(x), self.groups, self.scale).relu())


class PaddedShortcut(nn.Module):
    """A shortcut that is filled up with zeros to a width that the network names."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.first = 24, nn.Conv2d(3, 16, 1)
        self.wide, self.out = nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        missing = self.width - y.shape[1]
        before = missing // 2
        return self.out(F.pad(y, (0, 0, 0, 0, before, missing - before)) + self.wide(y))


class Configured(nn.Module):
    """Attention whose number of heads is in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = {"heads": 4, "kind": "plain"}
        self.first, self.packed = nn.Conv2d(3, 24, 1), nn.Linear(24, 72)
        self.project, self.out = nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.first(x).flatten(2).mT
        packed = self.packed(tokens).unflatten(2, (3, self.settings["heads"], -1))
        attended = F.scaled_dot_product_attention(*packed.permute(2, 0, 3, 1, 4))
        return self.out(tokens + self.project(attended.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize(
    ("build", "family", "groups"),
    [
        (Grouped, "first.weight", 4),
        (PaddedShortcut, "first.weight", 16),
        (Configured, "packed.weight", 4),
    ],
)
def test_the_number_follows(build: type[nn.Module], family: str, groups: int) -> None:
    torch.manual_seed(0)
    module = build().eval()
    network = open_network(module, IMAGE)
    found = {one.name: one for one in network.channels.families}
    assert len(found[family].roots) == groups
    removed = set(found[family].roots[::3])
    assert network.largest_difference(removed) <= TOLERANCE
    narrow = network.narrow(removed)
    left = groups - len(removed)
    numbers = {
        Grouped: lambda one: (one.groups, one.first.out_channels),
        PaddedShortcut: lambda one: (one.width, one.wide.in_channels),
        Configured: lambda one: (one.settings["heads"], one.packed.out_features),
    }
    expected = {Grouped: (left, 4 * left), PaddedShortcut: (8 + left, left), Configured: (2, 36)}
    assert numbers[build](narrow) == expected[build]
    assert numbers[build](module) == numbers[build](build())
