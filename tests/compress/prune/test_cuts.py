"""Feature maps that code cuts into unequal parts lose channels in every part that can follow."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network
from compress.prune.api import PruneSettings, RatioGoal, prune_module
from compress.prune.prunable_network import PrunableNetwork
from compress.prune.select import WidthLimits

IMAGE = (torch.randn(1, 3, 8, 8),)


class Gated(nn.Module):
    """One projection for two branches of 16 and 24 channels and a gate of 8."""

    def __init__(self, *, is_literal: bool = False) -> None:
        super().__init__()
        self.sizes = [16, 8, 24]
        self.is_literal = is_literal
        self.packed = nn.Conv2d(3, 48, 1)
        self.small, self.large = nn.Conv2d(16, 8, 1), nn.Conv2d(24, 8, 1)
        self.output = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        sizes = [16, 8, 24] if self.is_literal else self.sizes
        small, gate, large = torch.split(self.packed(x), sizes, dim=1)
        return self.output((self.small(small) + self.large(large)) * gate.sigmoid())


class Named(nn.Module):
    """The sizes of two parts are attributes; the third is what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = 6, 10
        self.packed, self.inner = nn.Conv2d(3, 20, 1), nn.Conv2d(10, 12, 1)
        self.output = nn.Conv2d(22, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.packed(x)
        rest = x.shape[1] - self.first - self.second
        a, b, c = x.split([self.first, self.second, rest], 1)
        return self.output(torch.cat([c, self.inner(b), a], 1))


class PartlyAdded(nn.Module):
    """A shortcut is added to the first channels only, as in ReXNet."""

    def __init__(self) -> None:
        super().__init__()
        self.in_channels = 6
        self.first, self.second = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 16, 1)
        self.output = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        added = y[:, : self.in_channels] + x
        return self.output(torch.cat([added, y[:, self.in_channels :]], 1))


class Remainder(nn.Module):
    """22 channels in parts of 6: the last has 4."""

    def __init__(self, *, is_chunk: bool = False) -> None:
        super().__init__()
        self.width = 6
        self.is_chunk = is_chunk
        self.first, self.inner = nn.Conv2d(3, 22, 1), nn.Conv2d(6, 6, 1)
        self.output = nn.Conv2d(22, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        a, b, c, d = x.chunk(4, 1) if self.is_chunk else x.split(self.width, 1)
        return self.output(torch.cat([self.inner(a), self.inner(a + b), c, d], 1))


class SingleHead(nn.Module):
    """Attention with keys of 8 and values of 24 channels from one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.key_dim, self.value_dim = 8, 24
        self.embed = nn.Conv2d(3, 16, 2, stride=2)
        self.qkv, self.project = nn.Linear(16, 40), nn.Linear(24, 16)
        self.output = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).split([self.key_dim, self.key_dim, self.value_dim], 2)
        y = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return self.output((x + self.project(y)).mean(1))


class GroupedQuery(nn.Module):
    """Eight heads of queries share two heads of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.width = 8, 2, 4
        self.embed = nn.Conv2d(3, 16, 2, stride=2)
        self.qkv, self.project = nn.Linear(16, 48), nn.Linear(32, 16)
        self.output = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        queries, keys = self.num_heads * self.width, self.num_kv_heads * self.width
        packed = self.qkv(x).split([queries, keys, keys], 2)
        q, k, v = (
            part.view(*x.shape[:2], heads, self.width).transpose(1, 2)
            for part, heads in zip(
                packed, (self.num_heads, self.num_kv_heads, self.num_kv_heads), strict=True
            )
        )
        shared = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*x.shape[:2], -1)
        return self.output((x + self.project(y)).mean(1))


NETWORKS = {one.__name__: one for one in (Gated, Named, PartlyAdded, SingleHead, GroupedQuery)} | {
    "Steps": Remainder,
    "Chunks": lambda: Remainder(is_chunk=True),
}
WIDTHS = {
    "Gated": {"packed.weight": 16, "packed.weight[1]": 8, "packed.weight[2]": 24},
    "Named": {"packed.weight": 6, "packed.weight[1]": 10, "packed.weight[2]": 4},
    "PartlyAdded": {"first.weight": 6, "second.weight": 10},
    "SingleHead": {"qkv.weight": 8, "qkv.weight[1]": 24},
    "GroupedQuery": {"qkv.weight": 2},
    "Steps": {"first.weight": 4, "first.weight[1]": 2},
    "Chunks": {"first.weight": 4, "first.weight[1]": 2},
}


@pytest.fixture(scope="module")
def opened() -> dict[str, PrunableNetwork]:
    torch.manual_seed(0)
    return {name: open_network(build().eval(), IMAGE) for name, build in NETWORKS.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_part_can_lose_channels(opened, name: str) -> None:
    channels = opened[name].channels
    found = {family.name: len(family.roots) for family in channels.families}
    assert WIDTHS[name].items() <= found.items(), channels.left_alone


@trials(max_examples=10, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", NETWORKS)
def test_pruned_equals_zeroed(opened, name: str, data) -> None:
    network = opened[name]
    removed: set[int] = set()
    for family in network.channels.families:
        most = len(family.roots) - 1
        removed |= data.draw(st.sets(st.sampled_from(family.roots), max_size=most))
    if removed:
        assert network.largest_difference(removed) < 1e-9


def test_a_list_of_sizes_follows() -> None:
    torch.manual_seed(0)
    network = Gated().eval()
    limits = WidthLimits(round_to=2, fewest=2)
    settings = PruneSettings(importance="magnitude", limits=limits)
    result = prune_module(network, IMAGE, RatioGoal(0.5), settings)
    assert result.module.sizes == [
        result.module.small.in_channels,
        result.module.output.in_channels,
        result.module.large.in_channels,
    ]
    assert sum(result.module.sizes) == result.module.packed.out_channels < 48
    assert network.sizes == [16, 8, 24]


def test_sizes_written_in_the_code_stay_and_the_reason_says_so() -> None:
    torch.manual_seed(0)
    channels = open_network(Gated(is_literal=True).eval(), IMAGE).channels
    assert not {"packed.weight"} & {family.source[0] for family in channels.families}
    reasons = {item.reason for item in channels.left_alone if item.weight == "packed.weight"}
    assert all("split_sizes=[16, 8, 24]" in reason for reason in reasons)


def by_number(channels: int) -> tuple[int, int]:
    del channels
    return 0, 6


def by_window(channels: int) -> tuple[int, int]:
    del channels
    return 1, 9


def by_share(channels: int) -> tuple[int, int]:
    return 0, channels * 3 // 8


def by_large_share(channels: int) -> tuple[int, int]:
    return 0, channels * 13 // 16


class Sliced(nn.Module):
    """A part of the channels is doubled; its ends are numbers, or computed from the whole."""

    def __init__(self, ends: Callable[[int], tuple[int, int]]) -> None:
        super().__init__()
        self.first, self.output = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 2, 1)
        self.ends = ends

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        start, end = self.ends(x.shape[1])
        return self.output(torch.cat([x[:, :start], x[:, start:end] * 2, x[:, end:]], 1))


@pytest.mark.parametrize(
    ("ends", "widths"),
    [(by_number, [10]), (by_window, [7]), (by_share, []), (by_large_share, [])],
)
def test_only_what_moves_no_cut_leaves(
    ends: Callable[[int], tuple[int, int]], widths: list[int]
) -> None:
    """Shares of the whole round: 14 * 3 // 8 = 5, so one channel less in each part seems right."""
    torch.manual_seed(0)
    network = open_network(Sliced(ends).eval(), IMAGE)
    families = network.channels.families
    assert [len(family.roots) for family in families] == widths
    removed = {root for family in families for root in family.roots[1:]}
    assert network.largest_difference(removed) < 1e-9


class Shuffled(nn.Module):
    """Blocks of ShuffleNetV2: half of the channels pass by, and both are shuffled."""

    def __init__(self, blocks: int, *, is_by_hand: bool) -> None:
        super().__init__()
        self.is_by_hand = is_by_hand
        self.first = nn.Conv2d(3, 32, 1)
        self.inner = nn.ModuleList(nn.Conv2d(16, 12, 1) for _ in range(blocks))
        self.outer = nn.ModuleList(nn.Conv2d(12, 16, 1) for _ in range(blocks))
        self.output = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            passing, given = x.chunk(2, 1)
            x = torch.cat([passing, outer(inner(given).relu())], 1)
            if self.is_by_hand:
                n, c, h, w = x.shape
                x = x.view(n, 2, c // 2, h, w).transpose(1, 2).flatten(1, 2)
            else:
                x = F.channel_shuffle(x, 2)
        return self.output(x)


@pytest.mark.parametrize("is_by_hand", [True, False])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_shuffled_halves_lose_single_channels_of_each_half(blocks: int, is_by_hand: bool) -> None:
    network = open_network(Shuffled(blocks, is_by_hand=is_by_hand).eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    first = families["first.weight"]
    allowed = [kept for kept in range(1, 16) if first.allows(kept)]
    assert first.count == 16
    assert len(allowed) >= 8
    assert all(families[f"inner.{index}.weight"].count == 12 for index in range(blocks))
    for kept in allowed:
        assert network.largest_difference(first.leave(kept)) < 1e-9


@pytest.mark.parametrize("is_by_hand", [True, False])
def test_more_blocks_than_a_half_has_doublings_lose_channels_too(is_by_hand: bool) -> None:
    network = open_network(Shuffled(7, is_by_hand=is_by_hand).eval(), IMAGE)
    assert [left.weight for left in network.channels.left_alone] == ["output.weight"]
    first = next(one for one in network.channels.families if one.name == "first.weight")
    assert network.largest_difference(first.leave(8)) < 1e-9
    assert len(network.channels.families) == 8


class FirstBeside(nn.Module):
    """The code reads the first channel by its number: it stays, and counts for a round width."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x).relu()
        return self.second(features) * features[:, :1]


@pytest.mark.parametrize("fewest", [1, 8])
def test_a_channel_that_stays_counts_for_a_round_width(fewest: int) -> None:
    torch.manual_seed(0)
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(fewest=fewest))
    for ratio in (0.3, 0.7):
        result = prune_module(FirstBeside().eval(), IMAGE, RatioGoal(ratio), settings)
        assert result.module.first.out_channels % 8 == 0
        assert fewest <= result.module.first.out_channels < 32
