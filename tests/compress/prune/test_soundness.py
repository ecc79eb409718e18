"""A pruned network equals the original with those channels zeroed, whatever it is made of."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from compress.prune.adapt import open_network
from compress.prune.prunable_network import PrunableNetwork


def conv(inputs: int, outputs: int, **options: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


class Residual(nn.Module):
    """A residual sum, a depthwise convolution, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16), nn.BatchNorm2d(16), nn.ReLU())
        self.expand = nn.Sequential(nn.Conv2d(16, 24, 1), nn.BatchNorm2d(24), nn.SiLU())
        self.depthwise = conv(24, 24, groups=24)
        self.gate = nn.Sequential(nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Sigmoid())
        self.project = nn.Conv2d(24, 16, 1)
        self.output = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        y = y * self.gate(y.mean((2, 3), keepdim=True))
        return self.output(x + self.project(y))


class Joined(nn.Module):
    """Concatenation, chunk, split of a named size, and channels that skip layers."""

    def __init__(self) -> None:
        super().__init__()
        self.c = 8
        self.first = conv(3, 16)
        self.second = conv(16, 16)
        self.third = conv(8, 8)
        self.output = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).chunk(2, 1)
        c, d = self.second(torch.cat([b, a], 1)).split((self.c, self.c), 1)
        return self.output(torch.cat([a, self.third(c), d, b], 1))


class Grouped(nn.Module):
    """Grouped convolutions of both kinds, channel shuffle, GroupNorm, pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.first = conv(3, 16)
        self.few = conv(16, 16, groups=2)
        self.norm = nn.GroupNorm(4, 16)
        self.many = conv(16, 16, groups=8)
        self.up = nn.Conv2d(16, 16, 1)
        self.transposed = nn.ConvTranspose2d(4, 12, 2, stride=2)
        self.act = nn.PReLU(12)
        self.output = nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.few(self.first(x))
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = F.pixel_shuffle(self.up(self.many(self.norm(x))), 2)
        return self.output(self.act(self.transposed(x)))


class Attention(nn.Module):
    """Tokens, LayerNorm, heads that the code counts, a position embedding, an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 4, 5
        self.embed = nn.Conv2d(3, 16, 4, stride=4)
        self.position = nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 60)
        self.project = nn.Linear(20, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.output = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        n, tokens, _ = x.shape
        qkv = self.qkv(self.norm(x)).reshape(n, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.project(y.transpose(1, 2).reshape(n, tokens, -1))
        return self.output((x + self.mlp(x)).mean(1))


class Flattened(nn.Module):
    """A classifier on flattened maps, and one layer used for two maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.shared = conv(8, 8)
        self.hidden = nn.Linear(8 * 16, 12)
        self.output = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.max_pool2d(self.stem(x), 2)
        x = self.shared(F.relu(self.shared(x)))
        x = F.adaptive_max_pool2d(x, 4).flatten(1)
        return self.output(F.hardswish(self.hidden(x))), self.hidden(x).sum(1)


NETWORKS = {one.__name__: one for one in (Residual, Joined, Grouped, Attention, Flattened)}
PRUNABLE = {
    "Residual": {"stem.0", "expand.0", "gate.0"},
    "Joined": {"first", "second", "third"},
    "Grouped": {"first", "few", "up", "transposed"},
    "Attention": {"embed", "qkv", "mlp.1"},
    "Flattened": {"stem"},
}


def prepare(network: nn.Module) -> nn.Module:
    """Gives BatchNorm statistics that matter."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 1.5)
            part.bias.data.normal_(0, 0.2)
    return network.eval()


@pytest.fixture(scope="module")
def opened() -> dict[str, PrunableNetwork]:
    torch.manual_seed(0)
    image = (torch.randn(1, 3, 16, 16),)
    return {name: open_network(prepare(build()), image) for name, build in NETWORKS.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_feature_map_is_found(opened, name: str) -> None:
    found = {family.source[0].removesuffix(".weight") for family in opened[name].channels.families}
    assert PRUNABLE[name] <= found, opened[name].channels.left_alone


@settings(max_examples=6, deadline=None)
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


def test_a_wrong_edit_is_noticed(opened) -> None:
    """The comparison can fail: channels of other groups are cut than were zeroed."""
    network = opened["Residual"]
    family = network.channels.families[0]
    zeroed, other = {family.roots[0]}, {family.roots[1]}
    right = PrunableNetwork.make_edits
    try:
        PrunableNetwork.make_edits = lambda self, removed: right(self, other)
        assert network.largest_difference(zeroed) > 1e-6
    finally:
        PrunableNetwork.make_edits = right


def test_outputs_are_protected_and_reasons_are_given(opened) -> None:
    for name, network in opened.items():
        alone = {item.weight: item.reason for item in network.channels.left_alone}
        assert any(reason.startswith("output 'output") for reason in alone.values()), name
        assert all(alone.values())


def test_the_output_that_leaves_a_layer_alone_is_named_as_in_an_export() -> None:
    class WithFeatures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
            features = self.trunk(x)
            return self.head(features.relu()), {"feats": [features]}

    network = open_network(WithFeatures(), (torch.randn(1, 3, 16, 16),))
    alone = {item.weight: item.reason for item in network.channels.left_alone}
    assert alone == {
        "trunk.weight": "output 'output_1_feats_0' of the network",
        "head.weight": "output 'output_0' of the network",
    }


def test_two_head_road_network(esp) -> None:
    """The network on which Torch-Pruning 1.6.1 fails prunes in all its parts, exactly."""
    network = open_network(esp.build_esp_network(), (torch.randn(1, 3, 32, 32),))
    sources = {family.source[0] for family in network.channels.families}
    assert {"down1.reduce.weight", "squeeze.weight", "drivable.up2.weight"} <= sources
    removed = {root for family in network.channels.families for root in family.roots[1::3]}
    assert network.largest_difference(removed) < 1e-9
    alone = {item.weight for item in network.channels.left_alone}
    assert alone == {
        "drivable.output.weight",
        "lanes.output.weight",
        "spatial_attention.conv.weight",
    }


def test_an_unknown_operator_keeps_its_channels() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.output = conv(3, 8), conv(8, 8), conv(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.second(self.first(x))
            return self.output(x + torch.linalg.inv(x[:, :1] + 1) + x.cumsum(1))

    network = open_network(Odd().eval(), (torch.randn(1, 3, 8, 8),))
    assert {family.source[0] for family in network.channels.families} == {"first.weight"}
    reasons = {item.weight: item.reason for item in network.channels.left_alone}
    assert "second.weight" in reasons


def test_code_that_names_sizes_is_left_alone_with_the_reason() -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.output = conv(3, 8), conv(8, 8), conv(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.second(self.first(x))
            return self.output(x.reshape(1, 8, 64).reshape(1, 8, 8, 8))

    network = open_network(Stubborn().eval(), (torch.randn(1, 3, 8, 8),))
    assert [family.source[0] for family in network.channels.families] == ["first.weight"]
    reasons = {item.weight: item.reason for item in network.channels.left_alone}
    assert reasons["second.weight"] == (
        "its code names a size that cannot follow "
        "(shape '[1, 8, 64]' is invalid for input of size 448)"
    )


def test_sizes_that_the_code_takes_to_be_equal_are_left_alone() -> None:
    class Dynamic(nn.Module):
        """Kernels made from the features; as long as both lose as many channels, it runs."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.features = conv(3, 16), conv(16, 16)
            self.mixed, self.kernels = conv(16, 16), nn.Linear(16, 32)

        def forward(self, x: Tensor) -> Tensor:
            x = self.features(self.first(x))
            kernels = self.kernels(x.mean((2, 3))).view(-1, 2, x.shape[1])
            return torch.einsum("nkc,nchw->nkhw", kernels, self.mixed(x))

    network = open_network(Dynamic().eval(), (torch.randn(1, 3, 8, 8),))
    (family,) = network.channels.families
    assert family.source[0] == "first.weight"
    assert network.largest_difference(set(family.roots[:5])) < 1e-9
    reasons = {item.weight: item.reason for item in network.channels.left_alone}
    assert "names a size that cannot follow" in reasons["features.weight"]


def test_features_divided_by_their_norm_lose_channels() -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.output = conv(3, 16), conv(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(F.normalize(self.first(x), dim=1))

    network = open_network(Normalized().eval(), (torch.randn(1, 3, 8, 8),))
    (family,) = network.channels.families
    assert network.largest_difference(set(family.roots[::3])) < 1e-9


TIMM = ("regnetx_002", "ghostnet_100", "mobilenetv3_small_100", "convnext_atto")


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_architectures_of_timm(name: str) -> None:
    import timm

    torch.manual_seed(0)
    network = open_network(prepare(timm.create_model(name)), (torch.randn(1, 3, 64, 64),))
    removed = {
        root
        for family in network.channels.families
        for root in family.roots[: len(family.roots) // 3]
    }
    assert len(removed) > 100
    assert network.largest_difference(removed) < 1e-9
