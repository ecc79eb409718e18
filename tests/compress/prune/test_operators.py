"""Operators between two convolutions hand channels on, so that a feature map loses some of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network

WIDTH = 16
IMAGE = (torch.randn(1, 3, 8, 8),)
Operation = Callable[["Between", Tensor], Tensor]


class Between(nn.Module):
    """16 channels on 8 x 8 places, an operation, and a convolution with two outputs."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = WIDTH
        self.first, self.output = nn.Conv2d(3, WIDTH, 1), nn.Conv2d(WIDTH, 2, 1)
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.operation(self, self.first(x)))


PADDED = {
    "zeros": lambda _, x: F.pad(x, (0, 1, 2, 0)),
    "a value": lambda _, x: F.pad(x, (1, 1, 1, 1), value=1.0),
    "cropped": lambda _, x: F.pad(x, (-1, -1, 1, 0)),
}


def prune_half(operation: Operation) -> float:
    """Prunes every other channel; returns how far that is from the zeroed network."""
    network = open_network(Between(operation).eval(), IMAGE)
    assert sum(len(one.roots) * one.width for one in network.channels.families) == WIDTH
    (family,) = network.channels.families
    return max(
        network.largest_difference(set(family.roots[::2])),
        network.largest_difference(set(family.roots[1:])),
    )


@pytest.mark.parametrize("name", PADDED)
def test_a_border_keeps_no_channels(name: str) -> None:
    assert prune_half(PADDED[name]) < 1e-9


ORDERED_PLACES = {
    "topk": lambda _, x: x.flatten(2).topk(WIDTH, 2)[0].unflatten(2, (4, 4)),
    "topk, last axis": lambda _, x: x.topk(5)[0],
    "sort": lambda _, x: x.sort(2, descending=True)[0],
    "stable sort": lambda _, x: torch.sort(x, stable=True, dim=2)[0],
    "cumsum": lambda _, x: x.cumsum(3),
}


@pytest.mark.parametrize("name", ORDERED_PLACES)
def test_places_in_order_keep_no_channels(name: str) -> None:
    assert prune_half(ORDERED_PLACES[name]) < 1e-9


class TopScores(nn.Module):
    """The best of all classes and places, as detectors without suppression end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scores = nn.Conv2d(3, WIDTH, 1), nn.Conv2d(WIDTH, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(self.first(x)).flatten(1)
        best, places = scores.topk(30, -1)
        return torch.stack([best, (places // 64).to(best.dtype)], -1)


def test_the_best_of_all_classes_end_a_network() -> None:
    network = open_network(TopScores().eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == WIDTH
    assert network.largest_difference(set(family.roots[::2])) < 1e-9


def scale_in_float32(_: Between, x: Tensor) -> Tensor:
    """RMSNorm as language models write it: over channels, in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-6)).type_as(x)


IN_FLOAT32 = {
    "upcast": scale_in_float32,
    "cast by name": lambda _, x: x.to(torch.float32).sigmoid().to(x.dtype),
    "a ramp over places": lambda _, x: x @ torch.linspace(0, 1, x.shape[-1]).diag(),
    "a typed constant": lambda _, x: x @ torch.ones(8, 8, dtype=torch.float32),
}


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_code_that_asks_for_float32_is_proven_in_float64(name: str) -> None:
    assert prune_half(IN_FLOAT32[name]) < 1e-9
    assert torch.get_default_dtype() == torch.float32


def test_channels_that_a_pad_adds_stay_and_the_others_leave() -> None:
    class Wider(nn.Module):
        """The shortcut of a residual network without weights: zeros for the new channels."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 1)
            self.output = nn.Conv2d(12, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.output(self.second(x) + F.pad(x, (0, 0, 0, 0, 2, 2)))

    network = open_network(Wider().eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == 8
    assert network.largest_difference(set(family.roots[::2])) < 1e-9
    assert {item.channels for item in network.channels.left_alone} == {2, 4}


PLACES = torch.randperm(64)


def scatter_by_index(_: Between, x: Tensor) -> Tensor:
    """Writes features into a grid at indices, as pillars into a bird's-eye view."""
    grid = torch.zeros(x.shape[1], 64, dtype=x.dtype)
    grid[:, PLACES] = x[0].flatten(1)
    return grid.view(x.shape)


def pool_voxels(_: Between, x: Tensor) -> Tensor:
    """Adds up features that fall into one cell, as lift-splat does."""
    grid = torch.zeros(64, x.shape[1], dtype=x.dtype)
    return grid.index_add(0, PLACES // 2, x[0].flatten(1).t()).t().reshape(x.shape)


def add_by_table(network: Between, x: Tensor) -> Tensor:
    """The same with a table of indices that is spread over the channels."""
    table = (PLACES // 2)[None].expand(network.width, -1)
    return x.new_zeros(x.shape[1], 64).scatter_add(1, table, x[0].flatten(1)).view(x.shape)


def align_region(_: Between, x: Tensor) -> Tensor:
    ops = pytest.importorskip("torchvision.ops", reason="needs torchvision")
    return ops.roi_align(x, [torch.tensor([[0.0, 1.0, 7.0, 6.0]], dtype=x.dtype)], (8, 8))


def sample_in_batch(_: Between, x: Tensor) -> Tensor:
    """Each channel is an image of the batch and has a grid of its own."""
    shift = x.mean((2, 3)).reshape(-1, 1, 1, 1)
    grid = torch.linspace(-1, 1, 8, dtype=x.dtype)
    grid = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1)[None]
    return F.grid_sample(x.reshape(-1, 1, 8, 8), grid + shift, align_corners=False).view(x.shape)


def filter_in_batch(_: Between, x: Tensor) -> Tensor:
    kernel = torch.ones(1, 1, 3, 3, dtype=x.dtype)
    return F.conv2d(x.reshape(-1, 1, 8, 8), kernel, padding=1).view(x.shape)


def blur(_: Between, x: Tensor) -> Tensor:
    kernel = torch.ones(1, 1, 3, 3, dtype=x.dtype).repeat(x.shape[1], 1, 1, 1)
    return F.conv2d(x, kernel, padding=1, groups=x.shape[1])


def unpool(_: Between, x: Tensor) -> Tensor:
    return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)


def weigh_windows(_: Between, x: Tensor) -> Tensor:
    windows = F.unfold(x, 3, padding=1).view(1, x.shape[1], 9, -1)
    return F.fold((windows * windows.softmax(2)).flatten(1, 2), (8, 8), 3, padding=1)


def spread(network: Between, x: Tensor) -> Tensor:
    gate = x.amax(1, keepdim=True).sigmoid()
    return x * gate.expand(-1, network.width, -1, -1) + gate.repeat(1, network.width, 1, 1)


PASSING = (
    *(scatter_by_index, pool_voxels, add_by_table, align_region, sample_in_batch),
    *(filter_in_batch, blur, unpool, weigh_windows, spread),
)
MIXING = {
    "masked_scatter": lambda _, x: x.masked_scatter(x > 0, x.flatten()),
    "cummax": lambda _, x: x.cummax(1)[0],
    "_fft_r2c": lambda _, x: torch.fft.rfft(x, dim=1).abs().repeat(1, 2, 1, 1)[:, :WIDTH],
}


@pytest.mark.parametrize("operation", PASSING, ids=lambda one: one.__name__)
def test_channels_pass_through_what_keeps_them_apart(operation: Operation) -> None:
    assert prune_half(operation) < 1e-9


class Distances(nn.Module):
    """Distances from centres that are a parameter for a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 12, 1), nn.Conv2d(12, 8, 1)
        self.centers, self.last = nn.Parameter(torch.randn(1, 6, 8)), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu()).flatten(2).transpose(1, 2)
        return self.last(torch.cdist(y, self.centers))


def test_a_parameter_with_a_single_channel_meets_an_operator_without_a_rule() -> None:
    network = open_network(Distances().eval(), IMAGE)
    assert "first.weight" in {family.name for family in network.channels.families}
    for family in network.channels.families:
        assert network.largest_difference(set(family.roots[::3])) < 1e-9


@pytest.mark.parametrize("name", MIXING)
def test_an_operator_that_mixes_channels_keeps_them_and_is_named(name: str) -> None:
    channels = open_network(Between(MIXING[name]).eval(), IMAGE).channels
    assert not channels.families
    (reason,) = {item.reason for item in channels.left_alone if item.weight == "first.weight"}
    assert f"'{name}'" in reason


def test_a_deformed_convolution_is_narrowed_on_both_sides_and_its_offsets_stay() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="needs torchvision")

    class Deformed(nn.Module):
        """Offsets of two groups from the same features."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.offsets = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 54, 3, padding=1)
            self.deformed = ops.DeformConv2d(16, 12, 3, padding=1)
            self.output = nn.Conv2d(12, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            first, second, mask = self.offsets(x).split((18, 18, 18), 1)
            moved = torch.cat([first, second], 1)
            return self.output(self.deformed(x, moved, mask.sigmoid()).relu())

    network = open_network(Deformed().eval(), IMAGE)
    widths = {family.name: family for family in network.channels.families}
    assert {name: len(one.roots) * one.width for name, one in widths.items()} == {
        "first.weight": 16,
        "deformed.weight": 12,
    }
    gone = {one.roots[0] for one in widths.values()}
    assert network.largest_difference(gone) < 1e-9
    assert "offsets of 'deformed'" in {item.reason for item in network.channels.left_alone}


def test_deformable_attention_loses_heads() -> None:
    class Sampled(nn.Module):
        """Each head adds up values at four points of its own, with a number of points like its."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.dim, self.n_heads, self.n_points = 32, 4, 4
            self.first = nn.Conv2d(3, 12, 1)
            self.offsets, self.shares = nn.Linear(12, 4 * 4 * 2), nn.Linear(12, 4 * 4)
            self.value, self.output = nn.Linear(12, 32), nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x).flatten(2).transpose(1, 2)
            heads, points = self.n_heads, self.n_points
            value = self.value(x).view(1, 64, heads, self.dim // heads)
            value = value.permute(0, 2, 3, 1).reshape(heads, -1, 8, 8)
            grid = self.offsets(x).view(1, 64, heads, points, 2).transpose(1, 2).flatten(0, 1)
            shares = self.shares(x).view(1, 64, heads, points).softmax(-1)
            shares = shares.transpose(1, 2).reshape(heads, 1, 64, points)
            found = (F.grid_sample(value, grid.tanh(), align_corners=False) * shares).sum(-1)
            return self.output(found.view(1, self.dim, 64).transpose(1, 2))

    network = open_network(Sampled().eval(), IMAGE)
    heads = next(one for one in network.channels.families if one.width > 1)
    assert len(heads.roots) == 4
    assert {"offsets.weight", "shares.weight", "value.weight", "output.weight"} <= {
        place[0] for place, _ in heads.places
    }
    assert network.largest_difference({heads.roots[1], heads.roots[2]}) < 1e-9
