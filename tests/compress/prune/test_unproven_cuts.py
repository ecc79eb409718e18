"""Code that does something else below a width that no trial reaches."""

import pytest
import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from compress.prune.api import MacsGoal, PruneSettings, RatioGoal, prune_module
from compress.prune.prunable_network import TOLERANCE
from compress.prune.select import WidthLimits

IMAGE = (torch.randn(1, 3, 8, 8),)
SETTINGS = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=1))


class Doubling(nn.Module):
    """Doubles a map that has lost many channels.

    Args:
        has_other: whether a second map may be pruned.
    """

    def __init__(self, *, has_other: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 24, 1), nn.Conv2d(24, 32, 1)
        self.out = nn.Conv2d(32 if has_other else 24, 4, 1)
        self.has_other = has_other

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        if y.shape[1] < 18:
            y = 2 * y
        return self.out(self.second(y).relu() if self.has_other else y)


@pytest.mark.parametrize("goal", [RatioGoal(0.5), MacsGoal(0.5)])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_family_with_which_the_cut_is_not_proven_is_left_alone(goal, steps):
    settings = PruneSettings(importance="magnitude", limits=SETTINGS.limits, steps=steps)
    result = prune_module(Doubling(), IMAGE, goal, settings)
    assert max(result.differences) <= TOLERANCE
    assert result.module.first.out_channels >= 18
    assert result.module.second.out_channels < 32
    assert result.macs[1] < 0.7 * result.macs[0]


def test_the_reason_is_named():
    result = prune_module(Doubling(), IMAGE, RatioGoal(0.5), SETTINGS)
    (alone,) = (item for item in result.left_alone if item.weight == "first.weight")
    assert "computes something else" in alone.reason
    assert result.module.first.out_channels == 24
    assert result.module.second.out_channels == 16


def test_where_nothing_else_can_be_pruned_the_network_is_refused():
    with pytest.raises(
        InputError, match=r"no channel of the network can be removed: .*first\.weight"
    ):
        prune_module(Doubling(has_other=False), IMAGE, RatioGoal(0.5), SETTINGS)
