"""Networks whose forward pass writes buffers and attributes: pruning runs copies."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.analysis.api import find_channels
from compress.prune.api import PruneData, PruneResult, PruneSettings, RatioGoal, prune_module
from compress.prune.importance import IMPORTANCES, ImportanceData
from compress.prune.importance.gradient import output_distance
from compress.prune.select import WidthLimits

FINE = WidthLimits(round_to=1, fewest=1)
INPUTS = (torch.zeros(1, 3, 8, 8),)


class Remembering(nn.Module):
    """Counts its frames, and keeps a mean, the last features and a table by size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 4, 3, padding=1)
        self.position = nn.Parameter(torch.randn(1, 16, 4, 4))
        self.register_buffer("frames", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(16))
        self.last: Tensor | None = None
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x))
        self.frames += 1
        self.mean.mul_(0.9).add_(0.1 * y.detach().mean((0, 2, 3)))
        if self.table is None:
            self.table = nn.functional.interpolate(self.position, size=y.shape[-2:])
        y = y + self.table if self.last is None else y + self.last
        self.last = y.detach()
        return self.second(y.relu() - self.mean.view(1, -1, 1, 1))


def prune(network: nn.Module, importance: str) -> PruneResult:
    images = [(torch.randn(1, 3, 8, 8) * 3,) for _ in range(4)]
    data = PruneData(
        importance=ImportanceData(images, output_distance(samples=images), images),
        calibration=images,
        held_out=images,
    )
    settings = PruneSettings(importance=importance, limits=FINE)
    return prune_module(network, INPUTS, RatioGoal(0.5), settings, data)


@pytest.mark.parametrize("importance", IMPORTANCES)
def test_neither_the_original_nor_the_result_remembers_samples(importance: str) -> None:
    network = Remembering().eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    result = prune(network, importance)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    for module in (network, result.module):
        assert int(module.frames) == 0
        assert not module.mean.any()
        assert module.last is None
        assert module.table is None
        assert all(value.grad is None for value in module.parameters())
    assert result.module.mean.shape == (8,)
    assert result.module(*INPUTS).shape == (1, 4, 8, 8)


def test_following_a_network_leaves_nothing_on_it() -> None:
    network = Remembering().eval()
    first, again = (find_channels(network, INPUTS) for _ in range(2))
    assert first.families == again.families
    assert first.left_alone == again.left_alone
    assert int(network.frames) == 0
    assert network.last is None
