"""Activations that are called as functions are named, each once, and never counted twice."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from artifacts.errors import InputError
from compress.substitute.api import choose_substitutions
from compress.substitute.called import find_called

IMAGE = (torch.randn(1, 4, 8, 8),)


class Calls(nn.Module):
    """Calls what it is given between two convolutions."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(4, 2, 1)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (F.silu, "silu"),
        (lambda x: F.silu(x, inplace=True), "silu"),
        (lambda x: x * torch.sigmoid(x), "silu"),
        (lambda x: x.sigmoid().mul(x), "silu"),
        (F.hardswish, "hard-swish"),
        (lambda x: x * F.hardsigmoid(x), "hard-swish"),
        (F.gelu, "gelu"),
        (lambda x: F.gelu(x, approximate="tanh"), "gelu"),
        (lambda x: F.prelu(x, torch.tensor([0.1])), "prelu"),
    ],
)
def test_a_called_activation_is_named_with_its_place(function, kind: str) -> None:
    network = nn.Sequential(Calls(function), nn.Conv2d(2, 4, 1), Calls(function)).eval()
    assert find_called(network, IMAGE) == {kind: ("0", "2")}


@pytest.mark.parametrize(
    "function", [F.relu, torch.sigmoid, lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))]
)
def test_other_functions_and_gates_of_other_values_are_not(function) -> None:
    assert find_called(Calls(function).eval(), IMAGE) == {}


def test_what_a_module_calls_inside_is_the_modules() -> None:
    class SqueezeExcite(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(F.silu(x.mean((2, 3), keepdim=True)))

    assert find_called(Calls(nn.SiLU()), IMAGE) == {}
    assert find_called(Calls(SqueezeExcite()), IMAGE) == {}


def test_the_error_and_the_result_name_them() -> None:
    def clock(modules) -> list[float]:
        return [1.0 for _ in modules]

    with pytest.raises(InputError, match=r"1 silu in the network.*call a module"):
        choose_substitutions(Calls(F.silu).eval(), clock, inputs=IMAGE)
    mixed = nn.Sequential(Calls(F.silu), nn.PReLU(), nn.Conv2d(2, 4, 1)).eval()
    with pytest.raises(InputError, match=r"no 'silu' as a module.*1 silu in '0'"):
        choose_substitutions(mixed, clock, ["silu"], inputs=IMAGE)
    assert choose_substitutions(mixed, clock, inputs=IMAGE).called == {"silu": ("0",)}
