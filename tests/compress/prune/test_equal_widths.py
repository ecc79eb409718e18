"""Feature maps that the code takes to be equally wide lose as many channels, together."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network
from compress.prune.api import PruneSettings, RatioGoal, apply_edits, prune_module
from compress.prune.prunable_network import TOLERANCE
from compress.prune.select import WidthLimits

IMAGE = (torch.randn(1, 3, 8, 8),)


class ByTensor(nn.Module):
    """A non-local block that views two maps with the size of the first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Conv2d(3, 8, 1)
        self.key, self.value = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 6, 1)
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.trunk(x)
        keys, values = self.key(x), self.value(x)
        first = keys.view(keys.size(0), keys.size(1), -1)
        second = values.view(keys.size(0), keys.size(1), -1)
        weights = (first.transpose(1, 2) @ first).softmax(-1)
        return self.out((second @ weights).view(keys.size(0), keys.size(1), *x.shape[2:]))


class ByNumber(nn.Module):
    """One number of a module is the width of two streams."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = 8
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 1)
        self.outs = nn.ModuleList([nn.Linear(8, 2), nn.Linear(8, 3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = [one(x).relu().flatten(2) for one in (self.first, self.second)]
        return [
            out(one.view(x.shape[0], self.width, -1).mean(2))
            for out, one in zip(self.outs, maps, strict=True)
        ]


class ReducedAttention(nn.Module):
    """Attention whose keys come from a smaller map; all its views have the width of its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.reduce, self.norm = nn.Conv2d(width, width, 2, stride=2), nn.LayerNorm(width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q = self.query(tokens).reshape(b, h * w, self.num_heads, -1).transpose(1, 2)
        small = self.norm(self.reduce(x).reshape(b, c, -1).transpose(1, 2))
        both = self.both(small).reshape(b, -1, 2, self.num_heads, self.head_dim)
        k, v = both.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        y = self.project(y.transpose(1, 2).reshape(b, h * w, c))
        return x + y.transpose(1, 2).reshape(b, c, h, w)


class Stage(nn.Module):
    """Two blocks of one width, as in the pyramid vision transformer and in SegFormer."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Conv2d(3, 12, 1)
        self.blocks = nn.Sequential(*(ReducedAttention(12, heads) for _ in range(2)))
        self.out = nn.Conv2d(12, 2, 1)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.embed(x)))


@pytest.mark.parametrize("heads", [1, 4])
def test_a_stage_and_the_attention_in_it_lose_the_same(heads: int) -> None:
    network = open_network(Stage(heads).eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) * family.width == 12
    assert len(family.roots) == (12 if heads == 1 else heads)
    for removed in (set(family.roots[:1]), set(family.roots[1::2]), set(family.roots[1:])):
        assert network.largest_difference(removed) <= TOLERANCE
        narrow = network.narrow(removed)
        assert narrow.embed.out_channels == 12 - len(removed) * family.width
    scaled = {place for one in network.rescalings for place, _ in one.places}
    one_each = {f"blocks.{block}.query.{name}" for block in (0, 1) for name in ("weight", "bias")}
    assert scaled == (one_each if heads == 1 else set())


class WidthByHeads(nn.Module):
    """Attention that divides the width of its input by the number of heads (Swin as published)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.packed, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        parts = self.packed(x).reshape(b, n, 3, self.num_heads, c // self.num_heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return x + self.project(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class JoinedStages(nn.Module):
    """Two stages of such attention, and a layer that takes in what both answer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.merge = nn.Conv2d(3, 12, 1), nn.Linear(48, 24)
        self.first = nn.Sequential(*(WidthByHeads(12, 3) for _ in range(2)))
        self.second = nn.Sequential(*(WidthByHeads(24, 6) for _ in range(2)))
        self.out = nn.Linear(36, 2)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(self.embed(x).flatten(2).mT)
        coarse = self.second(self.merge(fine.reshape(len(x), -1, 4 * fine.shape[2])))
        return self.out(torch.cat((fine.mean(1), coarse.mean(1)), 1))


def test_stages_that_a_layer_joins_lose_whole_heads_each() -> None:
    network = open_network(JoinedStages().eval(), IMAGE)
    first, second = network.channels.families
    assert [(one.name, len(one.roots)) for one in (first, second)] == [
        ("embed.weight", 3),
        ("merge.weight", 6),
    ]
    assert {item.weight for item in network.channels.left_alone} == {"out.weight"}
    removed = {*first.roots[:1], *second.roots[2:4]}
    assert network.largest_difference(removed) <= TOLERANCE
    narrow = network.narrow(removed)
    assert [one.num_heads for one in (*narrow.first, *narrow.second)] == [2, 2, 4, 4]


class ViewedAsInput(nn.Module):
    """Attention whose result is viewed with the size of the input, which only a layer reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.key_dim = 4, width // 4, width // 8
        packed = width + 8 * self.key_dim
        self.packed, self.project = nn.Conv2d(width, packed, 1), nn.Conv2d(width, width, 1)
        self.positions = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        parts = self.packed(x).view(b, self.num_heads, 2 * self.key_dim + self.head_dim, h * w)
        q, k, v = parts.split([self.key_dim, self.key_dim, self.head_dim], 2)
        y = v @ (q.transpose(-2, -1) @ k).softmax(-1).transpose(-2, -1)
        return self.project(y.view(b, c, h, w) + self.positions(v.reshape(b, c, h, w)))


class HalfAttended(nn.Module):
    """Attention on one half of a map, whose width is a number of the module (YOLO's C2PSA)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.c = 16
        self.embed, self.out = nn.Conv2d(3, 32, 1), nn.Conv2d(32, 2, 1)
        self.attend = ViewedAsInput(16)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.embed(x).split((self.c, self.c), 1)
        return self.out(torch.cat((first, second + self.attend(second)), 1))


def test_a_width_that_code_reads_from_its_input_follows_by_whole_heads() -> None:
    network = open_network(HalfAttended().eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == 4
    assert {item.weight for item in network.channels.left_alone} == {"out.weight"}
    narrow = network.narrow(set(family.roots[1:3]))
    assert (narrow.c, narrow.attend.num_heads, narrow.embed.out_channels) == (8, 2, 16)
    assert network.largest_difference(set(family.roots[1:3])) <= TOLERANCE


def test_a_width_that_other_layers_seemed_to_vouch_for_follows_too() -> None:
    """The trunk meets no code, like the layer before it, but attention reads its size."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 1), ViewedAsInput(16))
    network = open_network(nn.Sequential(*layers, nn.Conv2d(16, 2, 1)).eval(), IMAGE)
    stem, trunk = network.channels.families[:2]
    assert (len(stem.roots), len(trunk.roots)) == (8, 4)
    assert {item.weight for item in network.channels.left_alone} == {"4.weight"}
    narrow = network.narrow({*stem.roots[:1], *trunk.roots[1:3]})
    assert (narrow[2].out_channels, narrow[3].num_heads) == (8, 2)


@pytest.mark.parametrize(
    ("build", "names"),
    [(ByTensor, {"key.weight", "value.weight"}), (ByNumber, {"first.weight", "second.weight"})],
)
def test_they_are_one_family(build: type[nn.Module], names: set[str]) -> None:
    network = open_network(build().eval(), IMAGE)
    (joined,) = [one for one in network.channels.families if one.name in names]
    assert {place[0] for place, _ in joined.places} >= names
    assert not names & {item.weight for item in network.channels.left_alone}
    for removed in (set(joined.roots[:1]), set(joined.roots[1::2])):
        assert network.largest_difference(removed) <= TOLERANCE


@pytest.mark.parametrize("build", [ByTensor, ByNumber])
def test_the_narrower_network_loads(build: type[nn.Module]) -> None:
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=2))
    result = prune_module(build().eval(), IMAGE, RatioGoal(0.4), settings)
    again = apply_edits(build().eval(), result.edits)
    again.load_state_dict(result.module.state_dict())
    for one, other in zip(again(*IMAGE), result.module(*IMAGE), strict=True):
        assert torch.equal(one, other)
