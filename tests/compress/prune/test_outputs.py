"""Every tensor that a network returns is an output, however it is nested."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from compress.prune.adapt import open_network
from compress.prune.prunable_network import PrunableNetwork

IMAGE = (torch.randn(1, 3, 8, 8),)


@dataclass
class Extra:
    depth: Tensor
    labels: Tensor


class Opaque:
    def __init__(self, value: Tensor) -> None:
        self.value = value


class Returns(nn.Module):
    """Two heads on a trunk, returned as `wrap` says."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 8, 3)
        self.first, self.second = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 6, 1)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        x = self.trunk(x)
        return self.wrap(self.first(x), self.second(x))


@pytest.mark.parametrize(
    "wrap",
    [
        Extra,
        lambda a, b: {"main": a, "extra": Extra(b, b)},
        lambda a, b: [a, {"more": (b, None, 3, "text")}],
    ],
)
def test_every_output_keeps_its_channels(wrap: Any) -> None:
    network = open_network(Returns(wrap).eval(), IMAGE)
    assert [family.name for family in network.channels.families] == ["trunk.weight"]
    alone = {item.weight for item in network.channels.left_alone}
    assert alone == {"first.weight", "second.weight"}


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda a, _: None, "no tensor but a NoneType"),
        (lambda a, _: [], "no tensor but a list"),
        (lambda a, b: {"main": a, "box": Opaque(b)}, "output 'box' .* is a Opaque"),
        (lambda a, b: [a, b.numpy()], "output 'output_1' .* is a ndarray"),
    ],
)
def test_what_cannot_be_followed_is_refused(wrap: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_network(Returns(wrap).eval(), IMAGE)


def test_a_later_output_that_is_no_number_is_no_proof() -> None:
    known = open_network(Returns(lambda a, b: (a, b)).eval(), IMAGE)
    with torch.no_grad():
        known.module.second.bias.fill_(np.nan)
    network = PrunableNetwork(known.module, known.inputs, known.channels, known.adjustments)
    assert np.isnan(network.largest_difference({network.channels.families[0].roots[0]}))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("boom"), "the forward pass failed: ValueError: boom"),
        (KeyError(), "the forward pass failed: KeyError: KeyError"),
        (RuntimeError("another dtype\nat line 3"), "another dtype; pruning runs it in float64"),
        (RuntimeError("wrong size"), "with inputs of [[1, 3, 8, 8]]: RuntimeError: wrong"),
    ],
)
def test_a_failing_forward_pass_is_one_line(error: Exception, message: str) -> None:
    def fail(*_: Tensor) -> None:
        raise error

    with pytest.raises(InputError, match=re.escape(message)) as raised:
        open_network(Returns(fail).eval(), IMAGE)
    assert ("--input-shape" in str(raised.value)) == ("size" in str(error))


def test_a_network_that_answers_otherwise_each_time_is_refused() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.output = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.output(x + torch.rand_like(x[:, :1]))

    with pytest.raises(InputError, match="the same input otherwise each time"):
        open_network(Noisy().eval(), (torch.randn(1, 3, 8, 8),))
