"""A mean over channels may be written as a sum that their number divides."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network
from compress.prune.prunable_network import TOLERANCE

IMAGE = (torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)
WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "size": lambda x: x.sum(1, keepdim=True) / x.shape[1],
    "in place": lambda x: x.sum(1, keepdim=True).div_(x.size(1)),
    "over all": lambda x: x.sum((1, 2, 3), keepdim=True) / x[0].numel(),
}


class Gate(nn.Module):
    """Spatial attention whose mean is written as a sum; nothing makes up for another divisor."""

    def __init__(self, average: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.average = average
        self.mix = nn.Conv2d(2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.average(x).expand(-1, 1, *x.shape[2:])
        return x * self.mix(torch.cat((mean, x.amax(1, keepdim=True)), 1)).sigmoid()


def build(average: Callable[[Tensor], Tensor]) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 12, 1), Gate(average), nn.Conv2d(12, 16, 1), Gate(average)]
    network = nn.Sequential(*layers, nn.Conv2d(16, 2, 1))
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    return network.eval()


@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_with_the_channels_that_are_left(way: str) -> None:
    network = open_network(build(WAYS[way]), IMAGE)
    first, second = network.channels.families
    assert (len(first.roots), len(second.roots)) == (12, 16)
    assert not network.rescalings
    removed = {*first.roots[::3], *second.roots[:4]}
    assert network.largest_difference(removed) <= TOLERANCE
    assert {f"sum in '{gate}'" for gate in "13"} <= set(network.narrowed_statistics(removed))
    narrow = network.narrow(removed)
    assert (narrow[0].out_channels, narrow[2].out_channels) == (8, 12)


def test_a_number_that_is_written_in_the_code_stays() -> None:
    network = open_network(build(lambda x: x.sum(1, keepdim=True) / 12), IMAGE)
    assert len(network.channels.families) == 2
    assert not network.means
