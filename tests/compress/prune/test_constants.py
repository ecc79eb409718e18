"""Constants made in forward: channels leave where their size follows, else the reason is given."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network

IMAGE = (torch.randn(1, 3, 8, 8),)
WIDTH = 16


class WithConstant(nn.Module):
    """A feature map of 16 channels and a constant that meets it."""

    def __init__(self, combine: Callable[["WithConstant", Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = WIDTH
        self.first, self.output = nn.Conv2d(3, WIDTH, 1), nn.Conv2d(WIDTH, 2, 1)
        self.combine = combine

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.combine(self, self.first(x)))


def write_halves(network: WithConstant, x: Tensor) -> Tensor:
    """Fills memory of the features' shape part by part."""
    del network
    out = x.new_empty(x.shape)
    half = x.shape[1] // 2
    out[:, :half] = x[:, half:]
    out[:, half:] = x[:, :half] * 2
    return out


FOLLOWING = {
    "new_full": lambda _, x: x * x.new_full((x.shape[1],), 0.5)[:, None, None],
    "zeros": lambda _, x: torch.maximum(x, torch.zeros(*x.shape, dtype=x.dtype)),
    "ones": lambda _, x: x + torch.ones(x.shape[1], 1, 1, dtype=x.dtype),
    "attribute": lambda self, x: x + torch.full((1, self.width, 1, 1), 0.3, dtype=x.dtype),
    "written": write_halves,
}
LITERAL = {
    "ones": lambda _, x: x + torch.ones(1, WIDTH, 1, 1, dtype=x.dtype),
    "new_zeros": lambda _, x: torch.maximum(x, x.new_zeros(WIDTH, 1, 1)),
    "tensor": lambda _, x: x + torch.tensor([0.5] * WIDTH, dtype=x.dtype)[:, None, None],
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_constant_of_a_size_that_follows_lets_channels_leave(name: str) -> None:
    network = open_network(WithConstant(FOLLOWING[name]).eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) * family.width == WIDTH
    assert network.largest_difference(set(family.roots[::2])) < 1e-9
    assert network.largest_difference(set(family.roots[1:])) < 1e-9


@pytest.mark.parametrize("name", LITERAL)
def test_a_constant_of_a_literal_size_keeps_them_and_says_so(name: str) -> None:
    channels = open_network(WithConstant(LITERAL[name]).eval(), IMAGE).channels
    assert not channels.families
    (reason,) = {item.reason for item in channels.left_alone if item.weight == "first.weight"}
    assert "names a size that cannot follow" in reason or "no layer makes" in reason


def test_a_ramp_over_channels_keeps_them() -> None:
    def weigh(_: WithConstant, x: Tensor) -> Tensor:
        return x * torch.arange(x.shape[1], dtype=x.dtype)[:, None, None]

    assert not open_network(WithConstant(weigh).eval(), IMAGE).channels.families


@pytest.mark.parametrize("end", [4, 5])
def test_a_mask_with_an_edge_written_in_the_code_moves_no_edge(end: int) -> None:
    def mask(_: WithConstant, x: Tensor) -> Tensor:
        chosen = torch.ones(x.shape[1], 1, 1, dtype=x.dtype)
        chosen[:end] = 0.5
        return x * chosen

    network = open_network(WithConstant(mask).eval(), IMAGE)
    removed = {root for family in network.channels.families for root in family.roots[1:]}
    assert network.largest_difference(removed) < 1e-9


class Recurrent(nn.Module):
    """Features remembered over two steps, from a first state of zeros."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = 8
        self.first, self.step = nn.Conv2d(3, 6, 1), nn.Conv2d(14, 8, 1)
        self.output = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        state = x.new_zeros(x.shape[0], self.hidden, *x.shape[2:])
        for _ in range(2):
            state = torch.tanh(self.step(torch.cat([x, state], 1)))
        return self.output(state)


def test_a_first_state_of_zeros_follows() -> None:
    network = open_network(Recurrent().eval(), IMAGE)
    widths = {family.name: len(family.roots) for family in network.channels.families}
    assert widths == {"first.weight": 6, "step.weight": 8}
    removed = {root for family in network.channels.families for root in family.roots[::2]}
    assert network.largest_difference(removed) < 1e-9


class WithoutTokens(nn.Module):
    """A learned table of no rows in front of the tokens, as DINOv3's registers by default."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, WIDTH, 1)
        self.registers = nn.Parameter(torch.empty(1, 0, WIDTH))
        self.hidden, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.first(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.registers.expand(len(x), -1, -1), tokens], dim=1)
        return self.last(self.hidden(tokens).relu())


def test_a_table_of_no_rows_is_no_obstacle() -> None:
    network = open_network(WithoutTokens().eval(), IMAGE)
    assert any(family.width == 8 or len(family.roots) == 8 for family in network.channels.families)
    for family in network.channels.families:
        assert network.largest_difference(set(family.roots[::2])) < 1e-9
