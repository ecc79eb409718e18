"""Weights with which no network can be pruned are named."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import framefit  # noqa: E402
from artifacts.errors import InputError  # noqa: E402
from compress.prune.api import PruneSettings  # noqa: E402
from compress.prune.select import WidthLimits  # noqa: E402

FINE = PruneSettings(limits=WidthLimits(round_to=1, fewest=2))
GOAL = framefit.PruneGoal(ratio=0.3)


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 2, 1)
    ).eval()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_refused(kind: torch.dtype) -> None:
    pictures = torch.randn(6, 3, 8, 8).to(kind)
    with pytest.raises(InputError, match=str(kind).removeprefix("torch.")):
        framefit.prune(make_network().to(kind), pictures, GOAL, FINE)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_network_in_double_precision_is_pruned(kind: torch.dtype) -> None:
    result = framefit.prune(make_network().double(), torch.randn(6, 3, 8, 8).to(kind), GOAL, FINE)
    assert result.module[0].weight.dtype == torch.float64
    assert result.module[0].out_channels < 16
    assert result.differences[0] < 1e-9


@pytest.mark.parametrize("importance", ["fisher", "magnitude"])
def test_weights_that_are_nan_are_named(importance: str) -> None:
    network = make_network()
    network[3].weight.data[0, 5] = torch.nan
    settings = PruneSettings(limits=FINE.limits, importance=importance)
    with pytest.raises(InputError, match=r"NaN: 3\.weight"):
        framefit.prune(network, torch.randn(6, 3, 8, 8), GOAL, settings)


def test_outputs_that_are_nan_are_no_random_numbers() -> None:
    class Logarithm(nn.Module):
        """Takes the logarithm of what is below zero."""

        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (-1 - self.network(x).square()).log()

    with pytest.raises(InputError, match="outputs of the network are NaN"):
        framefit.prune(Logarithm().eval(), torch.randn(6, 3, 8, 8), GOAL, FINE)
