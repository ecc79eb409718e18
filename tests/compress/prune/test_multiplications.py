"""Multiplications that are reported are those that the pruned network needs."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from compress.prune.api import PruneSettings, RatioGoal, prune_module  # noqa: E402
from compress.prune.select import WidthLimits  # noqa: E402

FINE = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=2))


def count_multiplications(module: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops() / 2


class OneModule(nn.Module):
    """A depthwise and two plain convolutions that one module calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 4, 1)
        self.depthwise = nn.Parameter(torch.randn(16, 1, 3, 3))
        self.wide = nn.Parameter(torch.randn(24, 16, 3, 3))
        self.narrow = nn.Parameter(torch.randn(16, 24, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x))
        y = F.conv2d(y, self.depthwise, padding=1, groups=y.shape[1])
        y = F.relu(F.conv2d(y, self.wide, padding=1))
        return self.last(F.relu(F.conv2d(y, self.narrow, padding=1)))


NETWORKS = {"convolutions of one module": (OneModule, (1, 3, 8, 8))}


@pytest.mark.parametrize("name", NETWORKS)
def test_multiplications_are_those_that_are_counted(name: str) -> None:
    make, shape = NETWORKS[name]
    network, inputs = make().eval(), (torch.randn(*shape),)
    result = prune_module(network, inputs, RatioGoal(0.4), FINE)
    assert result.macs[0] == count_multiplications(network, inputs)
    assert result.macs[1] == count_multiplications(result.module, inputs) < result.macs[0]
