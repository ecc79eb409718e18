"""Feature maps that the code takes to be equally wide lose as many channels, together."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import TOLERANCE, open_network
from compress.prune.api import PruneSettings, RatioGoal, apply_edits, prune_module
from compress.prune.select import WidthLimits

IMAGE = (torch.randn(1, 3, 8, 8),)


class ByTensor(nn.Module):
    """A non-local block that views two maps with the size of the first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Conv2d(3, 8, 1)
        self.key, self.value = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 6, 1)
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.trunk(x)
        keys, values = self.key(x), self.value(x)
        first = keys.view(keys.size(0), keys.size(1), -1)
        second = values.view(keys.size(0), keys.size(1), -1)
        weights = (first.transpose(1, 2) @ first).softmax(-1)
        return self.out((second @ weights).view(keys.size(0), keys.size(1), *x.shape[2:]))


class ByNumber(nn.Module):
    """One number of a module is the width of two streams."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = 8
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 1)
        self.outs = nn.ModuleList([nn.Linear(8, 2), nn.Linear(8, 3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = [one(x).relu().flatten(2) for one in (self.first, self.second)]
        return [
            out(one.view(x.shape[0], self.width, -1).mean(2))
            for out, one in zip(self.outs, maps, strict=True)
        ]


@pytest.mark.parametrize(
    ("build", "names"),
    [(ByTensor, {"key.weight", "value.weight"}), (ByNumber, {"first.weight", "second.weight"})],
)
def test_they_are_one_family(build: type[nn.Module], names: set[str]) -> None:
    network = open_network(build().eval(), IMAGE)
    (joined,) = [one for one in network.channels.families if one.name in names]
    assert {place[0] for place, _ in joined.places} >= names
    assert not names & {item.weight for item in network.channels.left_alone}
    for removed in (set(joined.roots[:1]), set(joined.roots[1::2])):
        assert network.largest_difference(removed) <= TOLERANCE


@pytest.mark.parametrize("build", [ByTensor, ByNumber])
def test_the_narrower_network_loads(build: type[nn.Module]) -> None:
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=2))
    result = prune_module(build().eval(), IMAGE, RatioGoal(0.4), settings)
    again = apply_edits(build().eval(), result.edits)
    again.load_state_dict(result.module.state_dict())
    for one, other in zip(again(*IMAGE), result.module(*IMAGE), strict=True):
        assert torch.equal(one, other)
