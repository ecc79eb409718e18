"""Multiplications that are reported are those that the pruned network needs."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
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


class Einsum(nn.Module):
    """A sum over channels that `torch.einsum` is told to make with a matrix."""

    def __init__(self, equation: str, *shape: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.equation = equation
        self.first, self.last = nn.Conv2d(3, 16, 1), nn.Conv2d(24, 4, 1)
        self.matrix = nn.Parameter(torch.randn(*shape))

    def forward(self, x: Tensor) -> Tensor:
        operands = [F.relu(self.first(x)), self.matrix]
        if self.equation.index(",") == 2:
            operands.reverse()
        y = torch.einsum(self.equation, *operands)
        return self.last(F.relu(y if self.equation.endswith("dhw") else y.permute(0, 3, 1, 2)))


EINSUMS = {
    "bchw,cd->bdhw": (16, 24),
    "bchw,dc->bhwd": (24, 16),
    "dc,bchw->bdhw": (24, 16),
    "cd,bchw->bdhw": (16, 24),
}
NETWORKS = {
    "convolutions of one module": (OneModule, (1, 3, 8, 8)),
    **{
        equation: (partial(Einsum, equation, *shape), (1, 3, 8, 8))
        for equation, shape in EINSUMS.items()
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_multiplications_are_those_that_are_counted(name: str) -> None:
    make, shape = NETWORKS[name]
    network, inputs = make().eval(), (torch.randn(*shape),)
    result = prune_module(network, inputs, RatioGoal(0.4), FINE)
    assert result.macs[0] == count_multiplications(network, inputs)
    assert result.macs[1] == count_multiplications(result.module, inputs) < result.macs[0]


@pytest.mark.parametrize("equation", EINSUMS)
def test_what_an_einsum_makes_of_a_matrix_are_channels(equation: str) -> None:
    network = Einsum(equation, *EINSUMS[equation]).eval()
    pruning = open_network(network, (torch.randn(1, 3, 8, 8),))
    families = {family.name: family for family in pruning.channels.families}
    assert {name: family.count for name, family in families.items()} == {
        "first.weight": 16,
        "matrix": 24,
    }
    removed = {root for family in families.values() for root in family.roots[::3]}
    assert pruning.largest_difference(removed) < 1e-9


def test_a_ratio_that_saves_few_multiplications_says_so():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 64, 1)
    )
    module = nn.Sequential(module, nn.ReLU(), nn.Conv2d(64, 4, 1)).eval()
    inputs = (torch.randn(1, 3, 32, 32),)
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=8, fewest=8))
    cheap = prune_module(module, inputs, RatioGoal(0.3), settings)
    assert any("30% of the channels left with" in note for note in cheap.notes)
    plain = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 4, 1)).eval()
    dear = prune_module(plain, inputs, RatioGoal(0.5), settings)
    assert not any("channels left with" in note for note in dear.notes)
