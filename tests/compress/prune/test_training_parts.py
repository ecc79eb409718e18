"""Heads that only training uses are named, and a network that no longer trains is a warning."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network
from compress.prune.api import PruneSettings, RatioGoal, prune_module

IMAGE = (torch.randn(1, 3, 8, 8),)


class Supervised(nn.Module):
    """A further head reads the trunk, or its input, in training mode."""

    def __init__(self, *, reads_trunk: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Conv2d(32, 2, 1)
        self.auxiliary = nn.Conv2d(32 if reads_trunk else 3, 4, 1)
        self.reads_trunk = reads_trunk

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.trunk(x)
        outputs = [self.head(features)]
        if self.training:
            outputs.append(self.auxiliary(features if self.reads_trunk else x))
        return outputs


@pytest.mark.parametrize("reads_trunk", [True, False])
def test_a_network_that_no_longer_trains_is_named(*, reads_trunk: bool) -> None:
    network = Supervised(reads_trunk=reads_trunk).eval()
    settings = PruneSettings(importance="magnitude")
    result = prune_module(network, IMAGE, RatioGoal(0.5), settings)
    warned = [note for note in result.notes if "auxiliary.weight" in note and "--protect" in note]
    assert len(warned) == reads_trunk
    assert network.trunk[1].num_batches_tracked == 0
    if reads_trunk:
        with pytest.raises(RuntimeError):
            result.module.train()(IMAGE[0])
    else:
        assert len(result.module.train()(IMAGE[0])) == 2


def test_a_weight_that_is_not_used_says_so() -> None:
    channels = open_network(Supervised(reads_trunk=True).eval(), IMAGE).channels
    reasons = {item.weight: item.reason for item in channels.left_alone}
    assert "does not use it in evaluation mode" in reasons["auxiliary.weight"]
    assert "output 0" in reasons["head.weight"]
